//! Events for `tracing` under the target `redial` (feature `tracing`).
//!
//! | event | level | fields |
//! | --- | --- | --- |
//! | `attempt started` | TRACE | `policy`, `attempt`, `number` |
//! | `attempt failed` | DEBUG | `policy`, `attempt`, `kind`, `stage`, `reason`, `error` |
//! | `attempt timed out` | DEBUG | `policy`, `attempt` |
//! | `attempt cancelled` | DEBUG | `policy`, `attempt` |
//! | `retrying` | DEBUG | `policy`, `after_ms`, `kind`, `reason`, `error` |
//! | `throttled` | DEBUG | `policy` |
//! | `call ended` | DEBUG | `policy`, `why`, `attempt`, `error` |
//! | `call sites share a retry budget` | WARN | `call_site`; once per process, when a retry finds that the program has more call sites than default budgets ([`CallSite`](crate::throttle::CallSite)) |
//! | `likely mistake in a policy` | WARN | `policy`, `warning`, `help`; when a written policy is loaded that has a first delay above its cap, attempts that its budget can never pay for, or another `PolicyWarning` (feature `serde`) |
//! | `gave up` | WARN | `policy`, `why`, `attempts`, `elapsed_ms` where it is known, `error`, `suppressed`; of a gRPC call also `rpc.method`, `grpc.target` and `rpc.response.status_code`, and `error` is the message of its status |
//!
//! `policy` is the [name](crate::Policy::name) of the policy, or the place of a call of
//! [`retry`](crate::retry()); gRPC calls have none. `error` is the text of the operation's error, for a call with
//! [`record_errors`](crate::Retry::record_errors).
//!
//! `gave up` is limited to 10 events per second in the whole process, so that an outage does not flood the
//! log; the next event after that has the number of dropped ones in `suppressed`. There is no overhead
//! per attempt unless a subscriber enables DEBUG.
//!
//! The functions are public for other drivers of `redial-core`, so that their calls emit the same events.
//! A driver with more to say emits `gave up` itself when [`gave_up_due`] says so, as `redial-grpc` does.
//! Without the feature they do nothing.

#[cfg(all(feature = "tracing", feature = "serde"))]
pub(crate) use on::policy_warning;
#[cfg(feature = "tracing")]
pub(crate) use on::{budget_is_shared, call_gave_up, record_call};
#[cfg(feature = "tracing")]
pub use on::{gave_up, gave_up_due, is_enabled, record};

#[cfg(all(not(feature = "tracing"), feature = "serde"))]
pub(crate) use off::policy_warning;
#[cfg(not(feature = "tracing"))]
pub(crate) use off::{budget_is_shared, call_gave_up, record_call};
#[cfg(not(feature = "tracing"))]
pub use off::{gave_up, gave_up_due, is_enabled, record};

#[cfg(not(feature = "tracing"))]
mod off {
    use std::fmt;
    use std::time::Duration;

    use redial_core::throttle::CallSite;
    use redial_core::{Event, StopReason};

    use crate::policy_name::PolicyName;
    use crate::report::Report;

    /// Emits, once, that call sites share a budget.
    pub(crate) fn budget_is_shared(_call_site: CallSite) {}

    /// Emits a likely mistake in a written policy that is loaded.
    #[cfg(feature = "serde")]
    pub(crate) fn policy_warning(_policy: &PolicyName, _warning: &crate::config::PolicyWarning) {}

    /// Whether a subscriber enables the events of each attempt.
    #[must_use]
    pub fn is_enabled() -> bool {
        false
    }
    /// Emits the `tracing` event for an event of a call.
    pub fn record(_event: &Event) {}
    /// The same, with the policy and the last error of the call.
    pub(crate) fn record_call(_event: &Event, _policy: &PolicyName, _error: Option<&str>) {}
    /// Emits `gave up` for a call of this crate.
    pub(crate) fn call_gave_up(_report: &Report, _error: Option<&dyn fmt::Display>) {}
    /// Whether to emit `gave up` for a call that ended for this reason; if so, how many were dropped
    /// before it.
    #[must_use]
    pub fn gave_up_due(_stop_reason: StopReason) -> Option<u64> {
        None
    }
    /// Emits `gave up` if the call failed although its failure was retryable.
    pub fn gave_up(_stop_reason: StopReason, _attempts: u32, _elapsed: Option<Duration>) {}
}

#[cfg(feature = "tracing")]
mod on {
    use std::fmt;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use redial_core::throttle::CallSite;
    use redial_core::{Directive, Event, Grant, Reason, StopReason};
    use tracing::field::display;
    use tracing::{Level, debug, enabled, trace, warn};

    use crate::policy_name::PolicyName;
    use crate::report::Report;

    /// The number of `gave up` events per second.
    const RATE_MAX: u64 = 10;

    /// Emits, once, that call sites share a budget.
    pub(crate) fn budget_is_shared(call_site: CallSite) {
        static EMITTED: AtomicBool = AtomicBool::new(false);
        if call_site.shares_budget()
            && enabled!(target: "redial", Level::WARN)
            && !EMITTED.swap(true, Ordering::Relaxed)
        {
            let call_site = call_site.location();
            warn!(target: "redial", %call_site, "call sites share a retry budget");
        }
    }

    /// Emits a likely mistake in a written policy that is loaded.
    #[cfg(feature = "serde")]
    pub(crate) fn policy_warning(policy: &PolicyName, warning: &crate::config::PolicyWarning) {
        let (policy, help) = (display(policy), warning.help());
        warn!(target: "redial", policy, %warning, help, "likely mistake in a policy");
    }

    /// Whether a subscriber enables the events of each attempt.
    #[must_use]
    pub fn is_enabled() -> bool {
        enabled!(target: "redial", Level::DEBUG)
    }

    /// Emits the `tracing` event for an event of a call.
    pub fn record(event: &Event) {
        record_event(event, None, None);
    }

    /// The same, with the policy and the last error of the call.
    pub(crate) fn record_call(event: &Event, policy: &PolicyName, error: Option<&str>) {
        record_event(event, Some(policy), error);
    }

    fn record_event(event: &Event, policy: Option<&PolicyName>, error: Option<&str>) {
        let policy = policy.map(display);
        let name = |reason: Option<Reason>| reason.map(|reason| reason.name());
        match event {
            Event::AttemptStarted { attempt, number } => {
                trace!(target: "redial", policy, attempt, number, "attempt started");
            }
            Event::AttemptOutcome { attempt, classification } => {
                if let Directive::Retry(failure) = classification.directive {
                    debug!(
                        target: "redial",
                        policy,
                        attempt,
                        kind = ?failure.kind,
                        stage = ?failure.stage,
                        reason = name(failure.reason),
                        error,
                        "attempt failed"
                    );
                }
            }
            Event::AttemptTimedOut { attempt } => {
                debug!(target: "redial", policy, attempt, "attempt timed out");
            }
            Event::AttemptCancelled { attempt } => {
                debug!(target: "redial", policy, attempt, "attempt cancelled");
            }
            Event::RetryScheduled { after, failure } => {
                let after_ms = *after as f64 / 1e6;
                let reason = name(failure.reason);
                let kind = failure.kind;
                debug!(target: "redial", policy, after_ms, ?kind, reason, error, "retrying");
            }
            Event::ThrottleAnswered(Grant::Refused) => {
                debug!(target: "redial", policy, "throttled");
            }
            Event::CallEnded { stop_reason, attempt } => {
                let why = stop_reason.name();
                debug!(target: "redial", policy, why, attempt, error, "call ended");
            }
            _ => {}
        }
    }

    /// Whether to emit `gave up` for a call that ended for this reason; if so, how many were dropped
    /// before it. Each answer counts as an event, so ask once per call, at its end.
    #[must_use]
    pub fn gave_up_due(stop_reason: StopReason) -> Option<u64> {
        if !may_warn(stop_reason) {
            return None;
        }
        LIMIT.pass(crate::clock::to_ns(Instant::now()))
    }

    /// Emits `gave up` if the call failed although its failure was retryable.
    pub fn gave_up(stop_reason: StopReason, attempts: u32, elapsed: Option<Duration>) {
        if let Some(suppressed) = gave_up_due(stop_reason) {
            warn!(
                target: "redial",
                why = stop_reason.name(),
                attempts,
                elapsed_ms = elapsed.map(milliseconds),
                suppressed,
                "gave up"
            );
        }
    }

    /// Emits `gave up` for a call of this crate.
    pub(crate) fn call_gave_up(report: &Report, error: Option<&dyn fmt::Display>) {
        if let Some(suppressed) = gave_up_due(report.stop_reason) {
            warn!(
                target: "redial",
                policy = display(&report.policy),
                why = report.stop_reason.name(),
                attempts = report.attempts,
                elapsed_ms = milliseconds(report.elapsed),
                error = error.map(display),
                suppressed,
                "gave up"
            );
        }
    }

    /// Whether the end of a call is worth a warning, and one is enabled.
    fn may_warn(stop_reason: StopReason) -> bool {
        let quiet = matches!(
            stop_reason,
            StopReason::Succeeded | StopReason::NotRetryable | StopReason::Cancelled
        );
        !quiet && enabled!(target: "redial", Level::WARN)
    }

    /// One division, so that the printed value has no rounding digits.
    fn milliseconds(span: Duration) -> f64 {
        span.as_nanos() as f64 / 1e6
    }

    static LIMIT: Limit = Limit::new();

    /// A rate limit: passes a number of events per second and counts the others.
    pub(super) struct Limit {
        /// The second, shifted left by 8, and the number of events that passed in it.
        passed: AtomicU64,
        suppressed: AtomicU64,
    }

    impl Limit {
        pub(super) const fn new() -> Self {
            Limit { passed: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
        }

        /// If an event passes now: the number of events that were suppressed before it.
        pub(super) fn pass(&self, now_ns: u64) -> Option<u64> {
            let second = now_ns / 1_000_000_000;
            let next = |packed: u64| match packed >> 8 {
                current if current != second => Some(second << 8 | 1),
                _ if packed & 0xff < RATE_MAX => Some(packed + 1),
                _ => None,
            };
            match self.passed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
                Ok(_) => Some(self.suppressed.swap(0, Ordering::Relaxed)),
                Err(_) => {
                    self.suppressed.fetch_add(1, Ordering::Relaxed);
                    None
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::time::Duration;

        use super::{Limit, RATE_MAX, milliseconds};

        #[test]
        fn tracing_elapsed_ms_has_no_rounding_digits() {
            assert_eq!(milliseconds(Duration::from_nanos(26_220_383)).to_string(), "26.220383");
        }

        #[test]
        fn tracing_rate_limit_counts_suppressed_events() {
            let limit = Limit::new();
            let passed = (0..25).filter(|_| limit.pass(5_000_000_000).is_some()).count();
            assert_eq!(passed as u64, RATE_MAX);
            assert_eq!(limit.pass(5_999_999_999), None);
            assert_eq!(limit.pass(6_000_000_000), Some(16));
            assert_eq!(limit.pass(6_000_000_001), Some(0));
        }
    }
}
