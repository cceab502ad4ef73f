//! Receives the events of a call's state machine: statistics, latency, report, call log, observer.

use redial_core::{CallLatency, DriverContext, Event, Ns};
use redial_service_config::Code;
use tokio::time::Instant;

use crate::backends::UsedBackends;
use crate::methods::PlanRef;
use crate::observe::Observer;
use crate::options::SharedCallLog;
use crate::report::{self, AttemptHistory};
use crate::statistics::{CallTally, StatisticsEvent};

/// What to record about a call.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) call_log: Option<SharedCallLog>,
    pub(super) observer: Observer,
    /// The backends used by its attempts.
    pub(super) used: Option<UsedBackends>,
    /// Whether a report is needed if it fails.
    pub(super) reports: bool,
    /// Start time, if the call has been waiting since then.
    pub(super) began: Option<Instant>,
}

impl Recording {
    /// Whether a call log or an observer receives the events.
    pub(super) fn is_observed(&self) -> bool {
        self.call_log.is_some() || self.observer.is_enabled()
    }

    /// Whether any recipient needs timestamps.
    pub(super) fn needs_clock(&self) -> bool {
        self.reports || self.is_observed()
    }
}

/// Receives the events of the state machine and provides its random numbers.
pub(super) struct CallRecorder {
    method: PlanRef,
    tally: CallTally,
    hedged: bool,
    /// Feeds the latency estimator of the method, if there is one.
    pub(super) call_latency: Option<CallLatency>,
    /// The last attempt that exceeded the attempt timeout.
    pub(super) timed_out: Option<u32>,
    call_log: Option<SharedCallLog>,
    pub(super) observer: Observer,
    pub(super) used: Option<UsedBackends>,
    /// The status of the last outcome.
    code: Code,
    /// The attempts, for a report or a call log.
    pub(super) history: Option<AttemptHistory>,
}

impl CallRecorder {
    pub(super) fn new(method: &PlanRef, recording: Recording) -> Self {
        let timed = recording.needs_clock();
        let Recording { call_log, mut observer, used, reports, .. } = recording;
        if !timed {
            observer.disable_timing();
        }
        CallRecorder {
            method: method.clone(),
            tally: CallTally::default(),
            hedged: method.plan().is_hedged(),
            call_latency: None,
            timed_out: None,
            history: (reports || call_log.is_some()).then(AttemptHistory::default),
            call_log,
            observer,
            used,
            code: Code::Unknown,
        }
    }

    /// Whether the next event needs the time.
    pub(super) fn needs_clock(&self) -> bool {
        self.call_log.is_some()
            || self.observer.is_enabled()
            || self.call_latency.as_ref().is_some_and(CallLatency::is_running)
    }

    /// Sets status and message of the next outcome.
    pub(super) fn set_outcome(&mut self, code: Code, message: Option<Box<str>>) {
        self.code = code;
        self.observer.set_outcome_code(code);
        if let Some(history) = &mut self.history {
            history.outcome(code, message);
        }
    }
}

impl DriverContext for CallRecorder {
    fn draw(&mut self) -> f64 {
        redial::parts::draw()
    }

    fn record(&mut self, at: Ns, event: Event) {
        if let Event::AttemptTimedOut { attempt } = event {
            self.timed_out = Some(attempt);
            self.code = Code::DeadlineExceeded;
            self.observer.set_outcome_code(Code::DeadlineExceeded);
        }
        let CallRecorder { method, tally, observer, .. } = self;
        tally.record(&event, self.hedged, |counted_event| {
            // A plan with a single attempt loses no retries when the buffer is full.
            if counted_event == StatisticsEvent::BufferFull && method.rules().attempts == Some(1) {
                return;
            }
            method.counters().add(counted_event);
            observer.count(counted_event);
        });
        if let (Some(call_latency), Some(estimator)) =
            (&mut self.call_latency, method.latency_estimator())
        {
            call_latency.record(at, &event, estimator);
        }
        if let Some(history) = &mut self.history {
            history.record(at, &event, self.used.as_ref());
        }
        if let Event::CallEnded { stop_reason, attempt } = event {
            let (code, message) = match &self.history {
                Some(history) => history.end(stop_reason, attempt, self.code),
                None if attempt.is_some() => (self.code, None),
                None => (report::end_without_outcome(stop_reason), None),
            };
            self.observer.ended(at, &self.method, stop_reason, code, message);
        }
        self.observer.record(at, &event);
        if let Some(call_log) = &self.call_log {
            let detail = self.history.as_ref().map(|history| history.detail(&event));
            call_log.push(at, event, detail.unwrap_or_default());
        }
    }
}
