//! Without the features nobody listens: empty types, which cost nothing.

use bytes::Bytes;
use redial_core::{Event, Ns, StopReason};
use redial_service_config::Code;

use crate::methods::PlanRef;
use crate::observe::{Listeners, Sent};
use crate::shared::Shared;
use crate::statistics::Happened;

/// What a layer tells of its calls.
#[derive(Debug)]
pub(crate) struct Observing;

impl Observing {
    pub(crate) fn new(_listeners: &Listeners, _server: Option<&str>) -> Self {
        Observing
    }
    #[inline(always)]
    pub(crate) fn is_listened_to(&self) -> bool {
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

/// What is told of one call.
#[derive(Debug, Default)]
pub(crate) struct Observer;

impl Observer {
    #[inline(always)]
    pub(crate) fn is_listened_to(&self) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn counts_bytes(&self) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn has_no_clock(&mut self) {}
    #[inline(always)]
    pub(crate) fn saw(&mut self, _code: Code) {}
    #[inline(always)]
    pub(crate) fn ends_with(&mut self, _code: Code) {}
    #[inline(always)]
    pub(crate) fn happened(&mut self, _happened: Happened) {}
    #[inline(always)]
    pub(crate) fn record(&mut self, _at: Ns, _event: &Event) {}
    #[inline(always)]
    pub(crate) fn ended(
        &mut self,
        _at: Ns,
        _method: &PlanRef,
        _why: StopReason,
        _code: Code,
        _message: Option<&str>,
    ) {
    }
    #[inline(always)]
    pub(crate) fn sent(&self, _attempt: u32) -> Sent {
        Sent::default()
    }
    #[inline(always)]
    pub(crate) fn received(&mut self, _data: &Bytes) {}
    #[inline(always)]
    pub(crate) fn inside(&self) -> Inside {
        Inside
    }
    #[inline(always)]
    pub(crate) fn inside_attempt(&self, _attempt: u32) -> Inside {
        Inside
    }
}

/// What runs while this is held runs in a span.
#[derive(Debug)]
pub(crate) struct Inside;
