//! Without `tracing` there are no spans and no events.

use redial::trace::Rpc;
use redial_core::{Event, Ns, StopReason};

use crate::observe::story::Observation;

/// Spans: there is no value of this type.
#[derive(Debug)]
pub(crate) enum Spans {}

impl Spans {
    pub(crate) fn are_wanted() -> bool {
        false
    }
    pub(crate) fn begin(_path: &str, _target: Option<&str>) -> Option<Self> {
        None
    }
    pub(crate) fn record(&mut self, _event: Observation) {
        match *self {}
    }
}

/// Events.
#[derive(Debug)]
pub(crate) struct CallEvents;

impl CallEvents {
    pub(crate) fn begin() -> Self {
        CallEvents
    }
    pub(crate) fn unwanted() -> Self {
        CallEvents
    }
    pub(crate) fn are_wanted() -> bool {
        false
    }
    pub(crate) fn wanted(&self) -> bool {
        false
    }
    pub(crate) fn has_no_clock(&mut self) {}
    pub(crate) fn record(&mut self, _at: Ns, _event: &Event, _spans: Option<&Spans>) {}
    pub(crate) fn ended(&self, _at: Ns, _why: StopReason, _rpc: Rpc<'_>, _spans: Option<&Spans>) {}
}

/// What runs while this is held runs in a span.
#[derive(Debug)]
pub(crate) struct Inside;

pub(crate) fn inside(_spans: Option<&Spans>) -> Inside {
    Inside
}

pub(crate) fn inside_attempt(_spans: Option<&Spans>, _attempt: u32) -> Inside {
    Inside
}
