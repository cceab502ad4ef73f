//! Records the events of one call.
//!
//! The recorder is looked up for each value: an application may install it late, and recorders drop idle
//! metrics.

use std::sync::Arc;

use ::metrics::{Key, Label, Level, Metadata, with_recorder};
use redial_core::{Event, Failure, FailureKind, Ns, StopReason, duration};

use super::{Metric, is_enabled};
use crate::policy::Policy;
use crate::throttle::Handle;

static METADATA: Metadata<'_> = Metadata::new("redial", Level::INFO, Some("redial::metrics"));

const POLICY: &str = "redial.policy";
const STOP_REASON: &str = "redial.stop_reason";
const REASON: &str = "redial.reason";

/// The metrics of one call; empty if they are not recorded.
#[derive(Default)]
pub(crate) struct CallMetrics(Option<Box<Recording>>);

struct Recording {
    policy: Arc<str>,
    /// The throttle, if it is that of the policy, and the only one of the policy's name.
    throttle: Option<Handle>,
    start: Ns,
    attempts: u32,
    /// When the retry was scheduled that has not started.
    retry_since: Option<Ns>,
    /// The time between failures and attempts, if there was a retry.
    backoff: Option<Ns>,
}

impl CallMetrics {
    pub(crate) fn new(policy: &Policy, throttle: &Handle) -> Self {
        CallMetrics(is_enabled().then(|| {
            Box::new(Recording {
                policy: policy.call_name(throttle).to_string().into(),
                throttle: (!policy.shares_name && throttle.is_of(&policy.handle))
                    .then(|| throttle.clone()),
                start: 0,
                attempts: 0,
                retry_since: None,
                backoff: None,
            })
        }))
    }

    pub(crate) fn record(&mut self, at: Ns, event: &Event) {
        if let Some(recording) = &mut self.0 {
            recording.record(at, event);
        }
    }
}

impl Recording {
    fn record(&mut self, at: Ns, event: &Event) {
        match *event {
            Event::CallStarted { .. } => self.start = at,
            Event::AttemptStarted { .. } => {
                self.attempts += 1;
                self.end_backoff(at);
                self.count(Metric::Attempts, None);
            }
            Event::RetryScheduled { failure, .. } => {
                self.retry_since = Some(at);
                self.count(Metric::Retries, Some(Label::new(REASON, reason(&failure))));
            }
            Event::CallEnded { stop_reason, .. } => self.record_end(at, stop_reason),
            _ => {}
        }
    }

    fn record_end(&mut self, at: Ns, stop_reason: StopReason) {
        self.end_backoff(at);
        let stop_reason = Label::new(STOP_REASON, stop_reason.name());
        let elapsed = seconds(at.saturating_sub(self.start));
        self.count(Metric::Calls, Some(stop_reason.clone()));
        self.observe(Metric::CallDuration, elapsed, Some(stop_reason));
        self.observe(Metric::CallAttempts, f64::from(self.attempts), None);
        if let Some(backoff) = self.backoff {
            self.observe(Metric::CallBackoff, seconds(backoff), None);
        }
        if let Some(tokens) = self.throttle.as_ref().and_then(|throttle| throttle.tokens_at(at)) {
            let key = self.key(Metric::ThrottleTokens, None);
            with_recorder(|recorder| recorder.register_gauge(&key, &METADATA).set(tokens));
        }
    }

    /// Adds the wait for a retry that starts now, or that the end of the call prevents.
    fn end_backoff(&mut self, at: Ns) {
        if let Some(since) = self.retry_since.take() {
            let waited = at.saturating_sub(since);
            self.backoff = Some(self.backoff.unwrap_or(0).saturating_add(waited));
        }
    }

    fn count(&self, metric: Metric, label: Option<Label>) {
        let key = self.key(metric, label);
        with_recorder(|recorder| recorder.register_counter(&key, &METADATA).increment(1));
    }

    fn observe(&self, metric: Metric, value: f64, label: Option<Label>) {
        let key = self.key(metric, label);
        with_recorder(|recorder| recorder.register_histogram(&key, &METADATA).record(value));
    }

    fn key(&self, metric: Metric, label: Option<Label>) -> Key {
        let mut labels = vec![Label::new(POLICY, self.policy.clone())];
        labels.extend(label);
        Key::from_parts(metric.name(), labels)
    }
}

fn seconds(span: Ns) -> f64 {
    duration(span).as_secs_f64()
}

fn reason(failure: &Failure) -> &'static str {
    match (failure.reason, failure.kind) {
        (Some(reason), _) => reason.name(),
        (None, FailureKind::Server) => "server",
        (None, FailureKind::Client) => "client",
        (None, FailureKind::Throttling) => "throttling",
        (None, FailureKind::Timeout) => "timeout",
        (None, FailureKind::NotReady) => "not_ready",
    }
}
