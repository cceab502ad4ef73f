//! No-op observer for builds without observability features: empty types at no cost.

use bytes::Bytes;
use redial_core::{Event, Ns, StopReason};
use redial_service_config::Code;

use crate::methods::PlanRef;
use crate::observe::{MetricsOptions, SentBytes};
use crate::shared::Shared;
use crate::statistics::StatisticsEvent;

/// Creates no-op observers.
#[derive(Debug)]
pub(crate) struct ObserverFactory;

impl ObserverFactory {
    pub(crate) fn new(_listeners: &MetricsOptions, _server: Option<&str>) -> Self {
        ObserverFactory
    }
    #[inline(always)]
    pub(crate) fn is_enabled(&self) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn sets_gauges(&self) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn set_gauges(&self, _shared: &Shared) {}
    #[inline(always)]
    pub(crate) fn call(&self, _method: &PlanRef, _path: &str) -> Observer {
        Observer
    }
}

/// A no-op observer.
#[derive(Debug, Default)]
pub(crate) struct Observer;

impl Observer {
    #[inline(always)]
    pub(crate) fn is_enabled(&self) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn counts_bytes(&self) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn disable_timing(&mut self) {}
    #[inline(always)]
    pub(crate) fn set_outcome_code(&mut self, _code: Code) {}
    #[inline(always)]
    pub(crate) fn set_cancel_code(&mut self, _code: Code) {}
    #[inline(always)]
    pub(crate) fn count(&mut self, _event: StatisticsEvent) {}
    #[inline(always)]
    pub(crate) fn record(&mut self, _at: Ns, _event: &Event) {}
    #[inline(always)]
    pub(crate) fn ended(
        &mut self,
        _at: Ns,
        _method: &PlanRef,
        _stop_reason: StopReason,
        _code: Code,
        _message: Option<&str>,
    ) {
    }
    #[inline(always)]
    pub(crate) fn sent_bytes(&self, _attempt: u32) -> SentBytes {
        SentBytes::default()
    }
    #[inline(always)]
    pub(crate) fn received(&mut self, _data: &Bytes) {}
    #[inline(always)]
    pub(crate) fn enter_span(&self) -> SpanGuard {
        SpanGuard
    }
    #[inline(always)]
    pub(crate) fn enter_attempt_span(&self, _attempt: u32) -> SpanGuard {
        SpanGuard
    }
}

/// A no-op span guard.
#[derive(Debug)]
pub(crate) struct SpanGuard;
