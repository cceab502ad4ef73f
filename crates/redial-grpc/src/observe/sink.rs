//! The interface of sinks. All methods do nothing by default, so a sink implements what it needs.

use std::fmt::Debug;

use bytes::Bytes;
use redial_core::Ns;

use crate::methods::PlanRef;
use crate::observe::call_tracker::Observation;
use crate::observe::{MetricsOptions, SentBytes};
use crate::shared::Shared;
use crate::statistics::StatisticsEvent;

/// A sink for the calls of a layer.
pub(crate) trait LayerSink: Debug {
    /// The sink for one of its calls.
    type Call: CallSink;

    /// A sink with these options for the calls to this server.
    fn new(options: &MetricsOptions, server: Option<&str>) -> Self;

    /// Whether calls are observed at the moment.
    fn is_enabled(&self) -> bool {
        false
    }

    /// Sets gauges that cannot be read on collection.
    fn set_gauges(&self, _shared: &Shared) {}

    /// The sink for a new call; `None` if the call is not observed.
    fn begin(&self, _method: &PlanRef, _path: &str) -> Option<Self::Call> {
        None
    }
}

/// A sink for one call.
pub(crate) trait CallSink: Debug {
    /// Ends a span when it is dropped.
    type Guard: Default;

    /// Counts a statistics event, before the event itself is recorded.
    fn count(&mut self, _counted_event: StatisticsEvent) {}

    fn record(&mut self, _at: Ns, _observation: Observation) {}

    /// The byte counter of an attempt's request.
    fn sent_bytes(&self, _attempt: u32) -> SentBytes {
        SentBytes::default()
    }

    /// Counts response bytes of the committed attempt.
    fn received(&mut self, _data: &Bytes) {}

    /// Enters the span of the call.
    fn enter_span(&self) -> Self::Guard {
        Self::Guard::default()
    }

    /// Enters the span of an attempt.
    fn enter_attempt_span(&self, _attempt: u32) -> Self::Guard {
        Self::Guard::default()
    }
}

/// The guard of a sink without spans.
#[derive(Debug, Default)]
pub(crate) struct NoGuard;

/// The sink of a feature that is off.
#[cfg(not(all(any(feature = "metrics", feature = "opentelemetry"), feature = "tracing")))]
#[derive(Debug)]
pub(crate) struct NoSink;

#[cfg(not(all(any(feature = "metrics", feature = "opentelemetry"), feature = "tracing")))]
impl LayerSink for NoSink {
    type Call = NoSink;

    fn new(_options: &MetricsOptions, _server: Option<&str>) -> Self {
        NoSink
    }
}

#[cfg(not(all(any(feature = "metrics", feature = "opentelemetry"), feature = "tracing")))]
impl CallSink for NoSink {
    type Guard = NoGuard;
}
