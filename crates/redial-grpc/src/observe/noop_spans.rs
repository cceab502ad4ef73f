//! No-op spans and events for builds without the feature `tracing`.

use redial::trace::Rpc;
use redial_core::{Event, Ns, StopReason};

use crate::observe::call_tracker::Observation;

/// Uninhabited: there are no spans.
#[derive(Debug)]
pub(crate) enum Spans {}

impl Spans {
    pub(crate) fn are_enabled() -> bool {
        false
    }
    pub(crate) fn begin(_path: &str, _target: Option<&str>) -> Option<Self> {
        None
    }
    pub(crate) fn record(&mut self, _event: Observation) {
        match *self {}
    }
}

/// No-op events.
#[derive(Debug)]
pub(crate) struct CallEvents;

impl CallEvents {
    pub(crate) fn begin() -> Self {
        CallEvents
    }
    pub(crate) fn disabled() -> Self {
        CallEvents
    }
    pub(crate) fn are_enabled() -> bool {
        false
    }
    pub(crate) fn enabled(&self) -> bool {
        false
    }
    pub(crate) fn disable_timing(&mut self) {}
    pub(crate) fn record(&mut self, _at: Ns, _event: &Event, _spans: Option<&Spans>) {}
    pub(crate) fn ended(
        &self,
        _at: Ns,
        _stop_reason: StopReason,
        _rpc: Rpc<'_>,
        _spans: Option<&Spans>,
    ) {
    }
}

/// A no-op span guard.
#[derive(Debug)]
pub(crate) struct SpanGuard;

pub(crate) fn enter_span(_spans: Option<&Spans>) -> SpanGuard {
    SpanGuard
}

pub(crate) fn enter_attempt_span(_spans: Option<&Spans>, _attempt: u32) -> SpanGuard {
    SpanGuard
}
