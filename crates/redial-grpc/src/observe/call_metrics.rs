//! Records the metrics of one call and emits them to the configured sinks.

use std::sync::Arc;

use bytes::Bytes;
use redial_core::{Ns, duration};
use redial_service_config::Code;
use redial_service_config::CountedRetry;

use crate::message_size::Framing;
use crate::methods::PlanRef;
use crate::observe::MetricsOptions;
use crate::observe::call_tracker::Observation;
use crate::observe::labels::Labels;
use crate::observe::metric::{Metric, Value};
use crate::observe::sent_bytes::{ByteCount, SentBytes};
use crate::observe::sink::{CallSink, LayerSink, NoGuard};
use crate::shared::Shared;
use crate::statistics::StatisticsEvent;

/// Destinations of a layer's metrics; `None` if no sink is configured.
#[derive(Debug)]
pub(crate) struct MetricSinks(Option<Arc<Sinks>>);

#[derive(Debug)]
pub(crate) struct Sinks {
    target: Option<Arc<str>>,
    #[cfg(feature = "metrics")]
    facade: bool,
    #[cfg(feature = "opentelemetry")]
    instruments: Option<super::otel_instruments::Instruments>,
}

impl LayerSink for MetricSinks {
    type Call = CallMetrics;

    fn new(options: &MetricsOptions, server: Option<&str>) -> Self {
        let sinks = Sinks {
            target: server.map(Arc::from),
            #[cfg(feature = "metrics")]
            facade: options.facade,
            #[cfg(feature = "opentelemetry")]
            instruments: options.meter.as_ref().map(super::otel_instruments::Instruments::new),
        };
        #[cfg(feature = "metrics")]
        if sinks.facade {
            super::metrics_facade::describe();
        }
        MetricSinks(sinks.is_configured().then(|| Arc::new(sinks)))
    }

    fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    fn set_gauges(&self, shared: &Shared) {
        #[cfg(feature = "metrics")]
        if self.0.as_ref().is_some_and(|sinks| sinks.facade) {
            super::metrics_facade::set_gauges(shared);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = shared;
    }

    fn begin(&self, method: &PlanRef, _path: &str) -> Option<CallMetrics> {
        self.0.as_ref().map(|sinks| CallMetrics::new(sinks, method))
    }
}

impl Sinks {
    fn is_configured(&self) -> bool {
        #[cfg(feature = "metrics")]
        if self.facade {
            return true;
        }
        #[cfg(feature = "opentelemetry")]
        if self.instruments.is_some() {
            return true;
        }
        false
    }

    /// The labels of a method's metrics for each sink.
    pub(crate) fn labels(&self, method: &Arc<str>, status: Option<Code>) -> Labels {
        let target = self.target.as_ref();
        Labels {
            #[cfg(feature = "metrics")]
            keys: match self.facade {
                true => super::metrics_facade::Keys::new(method, target, status),
                false => Default::default(),
            },
            #[cfg(feature = "opentelemetry")]
            attributes: match &self.instruments {
                Some(_) => super::otel_instruments::attributes(method, target, status),
                None => Default::default(),
            },
        }
    }

    fn emit(&self, metric: Metric, value: Value, labels: &Labels) {
        #[cfg(feature = "metrics")]
        if self.facade {
            labels.keys.emit(metric, value);
        }
        #[cfg(feature = "opentelemetry")]
        if let Some(instruments) = &self.instruments {
            instruments.emit(metric, value, &labels.attributes);
        }
    }
}

/// A running attempt.
#[derive(Debug)]
struct Live {
    attempt: u32,
    began: Ns,
    sent: ByteCount,
}

/// The metrics of one call.
#[derive(Debug)]
pub(crate) struct CallMetrics {
    sinks: Arc<Sinks>,
    method: PlanRef,
    began: Ns,
    live: Vec<Live>,
    /// Start of the current period without a running attempt, and the total of earlier periods.
    idle_since: Ns,
    idle: Ns,
    /// Number of retries, or hedges for a hedging policy.
    repeats: u64,
    transparent: u64,
    /// Payload bytes received by the committed attempt.
    received: u64,
    framing: Framing,
}

impl CallMetrics {
    fn new(sinks: &Arc<Sinks>, method: &PlanRef) -> Self {
        CallMetrics {
            sinks: sinks.clone(),
            method: method.clone(),
            began: 0,
            live: Vec::new(),
            idle_since: 0,
            idle: 0,
            repeats: 0,
            transparent: 0,
            received: 0,
            framing: Framing::default(),
        }
    }

    fn attempt_ended(&mut self, live: &Live, at: Ns, code: Code) {
        let sent = Value::Number(live.sent.bytes());
        let received = Value::Number(self.received);
        self.emit(Metric::AttemptDuration, seconds(at.saturating_sub(live.began)), Some(code));
        self.emit(Metric::AttemptSent, sent, Some(code));
        self.emit(Metric::AttemptReceived, received, Some(code));
        self.idle_since = at;
    }

    fn call_ended(&self, at: Ns, code: Code) {
        self.emit(Metric::CallDuration, seconds(at.saturating_sub(self.began)), Some(code));
        // A96: zero values are not reported.
        let repeats = match self.method.plan().is_hedged() {
            true => Metric::CallHedges,
            false => Metric::CallRetries,
        };
        let numbers = [(repeats, self.repeats), (Metric::CallTransparentRetries, self.transparent)];
        for (metric, number) in numbers.into_iter().filter(|(_, number)| *number > 0) {
            self.emit(metric, Value::Number(number), None);
        }
        if self.idle > 0 {
            self.emit(Metric::CallRetryDelay, seconds(self.idle), None);
        }
    }

    fn emit(&self, metric: Metric, value: Value, status: Option<Code>) {
        debug_assert_eq!(metric.has_status(), status.is_some(), "{metric:?}");
        self.sinks.emit(metric, value, self.method.counters().labels.of(status, &self.sinks));
    }
}

impl CallSink for CallMetrics {
    type Guard = NoGuard;

    fn sent_bytes(&self, attempt: u32) -> SentBytes {
        let live = self.live.iter().find(|live| live.attempt == attempt);
        live.map_or_else(SentBytes::default, |live| SentBytes::new(live.sent.clone()))
    }

    fn received(&mut self, data: &Bytes) {
        self.received += self.framing.payload(data);
    }

    fn count(&mut self, counted_event: StatisticsEvent) {
        let metric = match counted_event {
            StatisticsEvent::Counted(CountedRetry::Retry(_)) => return self.repeats += 1,
            StatisticsEvent::Counted(CountedRetry::Transparent) => return self.transparent += 1,
            StatisticsEvent::Counted(CountedRetry::Failed) => return,
            StatisticsEvent::Throttled => Metric::CallThrottled,
            StatisticsEvent::HedgeWon => Metric::CallHedgeWon,
            StatisticsEvent::BufferFull => Metric::CallBufferFull,
        };
        self.emit(metric, Value::Number(1), None);
    }

    fn record(&mut self, at: Ns, observation: Observation) {
        match observation {
            Observation::CallStartTime => {
                self.began = at;
                self.idle_since = at;
            }
            Observation::AttemptStarted { attempt, .. } => {
                if self.live.is_empty() {
                    self.idle += at.saturating_sub(self.idle_since);
                }
                self.live.push(Live { attempt, began: at, sent: ByteCount::default() });
                self.emit(Metric::AttemptStarted, Value::Number(1), None);
            }
            Observation::AttemptEnded { attempt, code } => {
                let index = self.live.iter().position(|live| live.attempt == attempt);
                if let Some(index) = index {
                    let live = self.live.swap_remove(index);
                    self.attempt_ended(&live, at, code);
                }
            }
            Observation::CallEnded { code, running_code, .. } => {
                if self.live.is_empty() {
                    self.idle += at.saturating_sub(self.idle_since);
                }
                for live in std::mem::take(&mut self.live) {
                    self.attempt_ended(&live, at, running_code);
                }
                self.call_ended(at, code);
            }
        }
    }
}

fn seconds(span: Ns) -> Value {
    Value::Seconds(duration(span).as_secs_f64())
}
