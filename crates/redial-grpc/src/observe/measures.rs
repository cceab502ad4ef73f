//! What is measured of one call, and where the measures go.

use std::sync::Arc;

use bytes::Bytes;
use redial_core::{Ns, duration};
use redial_service_config::Code;
use redial_service_config::Counted;

use crate::methods::PlanRef;
use crate::observe::Listeners;
use crate::observe::labels::Labels;
use crate::observe::measure::{Metric, Value};
use crate::observe::sent::{ByteCount, Sent};
use crate::observe::story::Observation;
use crate::shared::Shared;
use crate::sizes::Framing;
use crate::statistics::Happened;

/// Where the measures of a layer's calls go.
#[derive(Debug)]
pub(crate) struct Sinks {
    target: Option<Arc<str>>,
    #[cfg(feature = "metrics")]
    facade: bool,
    #[cfg(feature = "opentelemetry")]
    instruments: Option<super::instruments::Instruments>,
}

impl Sinks {
    /// `None`: nobody asked for measures.
    pub(crate) fn new(listeners: &Listeners, server: Option<&str>) -> Option<Arc<Self>> {
        let sinks = Sinks {
            target: server.map(Arc::from),
            #[cfg(feature = "metrics")]
            facade: listeners.facade,
            #[cfg(feature = "opentelemetry")]
            instruments: listeners.meter.as_ref().map(super::instruments::Instruments::new),
        };
        #[cfg(feature = "metrics")]
        if sinks.facade {
            super::facade::describe();
            return Some(Arc::new(sinks));
        }
        #[cfg(feature = "opentelemetry")]
        if sinks.instruments.is_some() {
            return Some(Arc::new(sinks));
        }
        None
    }

    /// Sets the gauges of a layer, where the sink cannot read them itself.
    pub(crate) fn set_gauges(&self, shared: &Shared) {
        #[cfg(feature = "metrics")]
        if self.facade {
            super::facade::set_gauges(shared);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = shared;
    }

    /// The labels of a method's metrics, as each sink wants them.
    pub(crate) fn labels(&self, method: &Arc<str>, status: Option<Code>) -> Labels {
        let target = self.target.as_ref();
        Labels {
            #[cfg(feature = "metrics")]
            keys: match self.facade {
                true => super::facade::Keys::new(method, target, status),
                false => Default::default(),
            },
            #[cfg(feature = "opentelemetry")]
            attributes: match &self.instruments {
                Some(_) => super::instruments::attributes(method, target, status),
                None => Default::default(),
            },
        }
    }

    fn tell(&self, measure: Metric, value: Value, labels: &Labels) {
        #[cfg(feature = "metrics")]
        if self.facade {
            labels.keys.tell(measure, value);
        }
        #[cfg(feature = "opentelemetry")]
        if let Some(instruments) = &self.instruments {
            instruments.tell(measure, value, &labels.attributes);
        }
    }
}

/// An attempt under way.
#[derive(Debug)]
struct Live {
    attempt: u32,
    began: Ns,
    sent: ByteCount,
}

/// What is measured of one call.
#[derive(Debug)]
pub(crate) struct Measures {
    sinks: Arc<Sinks>,
    method: PlanRef,
    began: Ns,
    live: Vec<Live>,
    /// Since when no attempt is under way, and how long that was the case before.
    idle_since: Ns,
    idle: Ns,
    /// Retries, or hedges.
    repeats: u64,
    transparent: u64,
    /// What the one attempt received that the call belongs to.
    received: u64,
    framing: Framing,
}

impl Measures {
    pub(crate) fn new(sinks: &Arc<Sinks>, method: &PlanRef) -> Self {
        Measures {
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

    /// The count of what this attempt is sent.
    pub(crate) fn sent(&self, attempt: u32) -> Sent {
        let live = self.live.iter().find(|live| live.attempt == attempt);
        live.map_or_else(Sent::default, |live| Sent::into(live.sent.clone()))
    }

    pub(crate) fn received(&mut self, data: &Bytes) {
        self.received += self.framing.payload(data);
    }

    pub(crate) fn happened(&mut self, happened: Happened) {
        let measure = match happened {
            Happened::Counted(Counted::Retry(_)) => return self.repeats += 1,
            Happened::Counted(Counted::Transparent) => return self.transparent += 1,
            Happened::Counted(Counted::Failed) => return,
            Happened::Throttled => Metric::CallThrottled,
            Happened::HedgeWon => Metric::CallHedgeWon,
            Happened::BufferFull => Metric::CallBufferFull,
        };
        self.tell(measure, Value::Number(1), None);
    }

    pub(crate) fn record(&mut self, at: Ns, event: Observation) {
        match event {
            Observation::CallBegan => {
                self.began = at;
                self.idle_since = at;
            }
            Observation::AttemptStarted { attempt, .. } => {
                if self.live.is_empty() {
                    self.idle += at.saturating_sub(self.idle_since);
                }
                self.live.push(Live { attempt, began: at, sent: ByteCount::default() });
                self.tell(Metric::AttemptStarted, Value::Number(1), None);
            }
            Observation::AttemptEnded { attempt, code } => {
                let place = self.live.iter().position(|live| live.attempt == attempt);
                if let Some(place) = place {
                    let live = self.live.swap_remove(place);
                    self.attempt_ended(&live, at, code);
                }
            }
            Observation::CallEnded { code, rest, .. } => {
                if self.live.is_empty() {
                    self.idle += at.saturating_sub(self.idle_since);
                }
                for live in std::mem::take(&mut self.live) {
                    self.attempt_ended(&live, at, rest);
                }
                self.call_ended(at, code);
            }
        }
    }

    fn attempt_ended(&mut self, live: &Live, at: Ns, code: Code) {
        let sent = Value::Number(live.sent.bytes());
        let received = Value::Number(self.received);
        self.tell(Metric::AttemptDuration, seconds(at.saturating_sub(live.began)), Some(code));
        self.tell(Metric::AttemptSent, sent, Some(code));
        self.tell(Metric::AttemptReceived, received, Some(code));
        self.idle_since = at;
    }

    fn call_ended(&self, at: Ns, code: Code) {
        self.tell(Metric::CallDuration, seconds(at.saturating_sub(self.began)), Some(code));
        // A96: what is 0 is not reported.
        let repeats = match self.method.plan().is_hedged() {
            true => Metric::CallHedges,
            false => Metric::CallRetries,
        };
        let numbers = [(repeats, self.repeats), (Metric::CallTransparentRetries, self.transparent)];
        for (measure, number) in numbers.into_iter().filter(|(_, number)| *number > 0) {
            self.tell(measure, Value::Number(number), None);
        }
        if self.idle > 0 {
            self.tell(Metric::CallRetryDelay, seconds(self.idle), None);
        }
    }

    fn tell(&self, measure: Metric, value: Value, status: Option<Code>) {
        debug_assert_eq!(measure.has_status(), status.is_some(), "{measure:?}");
        self.sinks.tell(measure, value, self.method.counters().labels.of(status, &self.sinks));
    }
}

fn seconds(span: Ns) -> Value {
    Value::Seconds(duration(span).as_secs_f64())
}
