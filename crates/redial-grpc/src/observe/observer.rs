//! Forwards the events of one call to metrics, spans and log events.

use bytes::Bytes;
use redial_core::{Event, Ns, StopReason};
use redial_service_config::{Code, CountedRetry};

use crate::methods::PlanRef;
use crate::observe::call_events::{CallEvents, Rpc};
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
use crate::observe::call_metrics::MetricSinks;
use crate::observe::call_tracker::CallTracker;
#[cfg(not(any(feature = "metrics", feature = "opentelemetry")))]
use crate::observe::sink::NoSink as MetricSinks;
#[cfg(not(feature = "tracing"))]
use crate::observe::sink::NoSink as SpanSink;
use crate::observe::sink::{CallSink, LayerSink};
#[cfg(feature = "tracing")]
use crate::observe::spans::SpanSink;
use crate::observe::{MetricsOptions, SentBytes};
use crate::shared::Shared;
use crate::statistics::StatisticsEvent;

type CallMetrics = <MetricSinks as LayerSink>::Call;
type Spans = <SpanSink as LayerSink>::Call;

/// Leaves the span when dropped.
pub(crate) type SpanGuard = <Spans as CallSink>::Guard;

/// Creates the observers of a layer's calls.
#[derive(Debug)]
pub(crate) struct ObserverFactory {
    metrics: MetricSinks,
    spans: SpanSink,
}

impl ObserverFactory {
    pub(crate) fn new(options: &MetricsOptions, server: Option<&str>) -> Self {
        ObserverFactory {
            metrics: MetricSinks::new(options, server),
            spans: SpanSink::new(options, server),
        }
    }

    /// Whether calls are observed at the moment.
    pub(crate) fn is_enabled(&self) -> bool {
        self.metrics.is_enabled() || self.spans.is_enabled() || CallEvents::are_enabled()
    }

    /// Sets the gauges: a call has ended and released its resources.
    pub(crate) fn set_gauges(&self, shared: &Shared) {
        self.metrics.set_gauges(shared);
    }

    /// Creates the observer of a new call.
    pub(crate) fn call(&self, method: &PlanRef, path: &str) -> Observer {
        let metrics = self.metrics.begin(method, path);
        let spans = self.spans.begin(method, path);
        let state = (metrics.is_some() || spans.is_some())
            .then(|| Box::new(ObserverState { tracker: CallTracker::new(), metrics, spans }));
        Observer { state, events: CallEvents::begin() }
    }
}

/// The observer of one call.
#[derive(Debug)]
pub(crate) struct Observer {
    state: Option<Box<ObserverState>>,
    events: CallEvents,
}

/// State of a call with metrics or spans.
#[derive(Debug)]
struct ObserverState {
    tracker: CallTracker,
    metrics: Option<CallMetrics>,
    spans: Option<Spans>,
}

/// A disabled observer.
impl Default for Observer {
    fn default() -> Self {
        Observer { state: None, events: CallEvents::disabled() }
    }
}

impl Observer {
    /// Whether this call is observed.
    pub(crate) fn is_enabled(&self) -> bool {
        self.state.is_some() || self.events.enabled()
    }

    /// Whether request bytes are counted.
    pub(crate) fn counts_bytes(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.metrics.is_some())
    }

    /// The events of this call have no timestamps.
    pub(crate) fn disable_timing(&mut self) {
        self.events.disable_timing();
    }

    /// Sets the status of the next outcome.
    pub(crate) fn set_outcome_code(&mut self, code: Code) {
        if let Some(state) = &mut self.state {
            state.tracker.set_outcome_code(code);
        }
    }

    /// Sets the status that the application receives when the call is cancelled.
    pub(crate) fn set_cancel_code(&mut self, code: Code) {
        if let Some(state) = &mut self.state {
            state.tracker.set_cancel_code(code);
        }
    }

    /// Counts a statistics event. Called before the event itself is recorded.
    pub(crate) fn count(&mut self, counted_event: StatisticsEvent) {
        let Some(state) = &mut self.state else { return };
        if counted_event == StatisticsEvent::Counted(CountedRetry::Transparent) {
            state.tracker.mark_transparent();
        }
        if let Some(metrics) = &mut state.metrics {
            metrics.count(counted_event);
        }
    }

    /// Records an event.
    pub(crate) fn record(&mut self, at: Ns, event: &Event) {
        {
            let _guard = self.enter_span();
            self.events.record(at, event);
        }
        let Some(state) = &mut self.state else { return };
        let Some(event) = state.tracker.observe(event) else { return };
        if let Some(metrics) = &mut state.metrics {
            metrics.record(at, event);
        }
        if let Some(spans) = &mut state.spans {
            spans.record(at, event);
        }
    }

    /// Reports the end of the call, with a message as logs may show it. Called before the event.
    pub(crate) fn ended(
        &mut self,
        at: Ns,
        method: &PlanRef,
        stop_reason: StopReason,
        code: Code,
        message: Option<&str>,
    ) {
        let (counters, status) = (method.counters(), code.name());
        let (path, target) = (&counters.path, counters.target.as_deref());
        let method = path.strip_prefix('/').unwrap_or(path);
        let rpc = Rpc { method, target, status, message };
        let _guard = self.enter_span();
        self.events.ended(at, stop_reason, rpc);
    }

    /// The byte counter of an attempt's request.
    pub(crate) fn sent_bytes(&self, attempt: u32) -> SentBytes {
        let metrics = self.state.as_ref().and_then(|state| state.metrics.as_ref());
        metrics.map_or_else(SentBytes::default, |metrics| metrics.sent_bytes(attempt))
    }

    /// Counts response bytes of the committed attempt.
    pub(crate) fn received(&mut self, data: &Bytes) {
        if let Some(metrics) = self.state.as_mut().and_then(|it| it.metrics.as_mut()) {
            metrics.received(data);
        }
    }

    /// Enters the span of the call until the guard is dropped.
    pub(crate) fn enter_span(&self) -> SpanGuard {
        self.spans().map(Spans::enter_span).unwrap_or_default()
    }

    /// Enters the span of an attempt.
    pub(crate) fn enter_attempt_span(&self, attempt: u32) -> SpanGuard {
        self.spans().map(|spans| spans.enter_attempt_span(attempt)).unwrap_or_default()
    }

    fn spans(&self) -> Option<&Spans> {
        self.state.as_ref().and_then(|state| state.spans.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Counters, Methods};
    use crate::sync::ArcSwap;
    use redial_service_config::{ClientOptions, Retries, ServiceConfig};

    #[test]
    fn observer_keeps_no_state_for_unobserved_calls() {
        let observers = ObserverFactory::new(&MetricsOptions::default(), Some("server"));
        assert!(!observers.is_enabled());
        let methods = Methods::new(ServiceConfig::default(), &ClientOptions::default());
        let path = "/pkg.Svc/Method";
        let method = Methods::find(&ArcSwap::from_pointee(methods), path, &Counters::default());
        let observer = observers.call(&PlanRef::new(method, Retries::All), path);
        assert!(observer.state.is_none());
        assert!(!observer.is_enabled() && !observer.counts_bytes());
    }
}
