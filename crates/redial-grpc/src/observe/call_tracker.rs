//! Translates the events of the state machine into the view of metrics and spans: attempts that start
//! and end with a status, and the end of the call.
//!
//! Each event yields at most one observation. Attempts that are cancelled by the end of the call are
//! reported with that end, because only then is the cause known.

use redial_core::{Event, StopReason};
use redial_service_config::Code;

/// An observation for metrics and spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    CallStartTime,
    AttemptStarted {
        attempt: u32,
        /// Number in the policy's count; a transparent retry has the number of the attempt it replaces.
        number: u32,
        transparent: bool,
    },
    AttemptEnded {
        attempt: u32,
        code: Code,
    },
    CallEnded {
        stop_reason: StopReason,
        code: Code,
        /// The status of attempts that were still running.
        running_code: Code,
        /// Number of attempts without transparent retries.
        attempts: u32,
    },
}

/// State needed to translate events.
#[derive(Debug)]
pub(crate) struct CallTracker {
    /// The status of the last outcome.
    code: Code,
    /// The status that the application receives if the call is cancelled; CANCELLED by default.
    cancelled: Code,
    /// Whether the next attempt is a transparent retry.
    transparent: bool,
    /// The attempt that the call is committed to.
    committed: Option<u32>,
    attempts: u32,
}

impl CallTracker {
    pub(crate) const fn new() -> Self {
        let (code, cancelled) = (Code::Unknown, Code::Cancelled);
        CallTracker { code, cancelled, transparent: false, committed: None, attempts: 0 }
    }

    /// Sets the status of the next outcome.
    pub(crate) fn set_outcome_code(&mut self, code: Code) {
        self.code = code;
    }

    /// Sets the status that the application receives when the call is cancelled.
    pub(crate) fn set_cancel_code(&mut self, code: Code) {
        self.cancelled = code;
    }

    /// Marks the next attempt as a transparent retry.
    pub(crate) fn mark_transparent(&mut self) {
        self.transparent = true;
    }

    /// Translates an event.
    pub(crate) fn observe(&mut self, event: &Event) -> Option<Observation> {
        let event = match *event {
            Event::CallStarted { .. } => Observation::CallStartTime,
            Event::AttemptStarted { attempt, number } => {
                self.attempts = self.attempts.max(number);
                let transparent = std::mem::take(&mut self.transparent);
                Observation::AttemptStarted { attempt, number, transparent }
            }
            Event::AttemptOutcome { attempt, .. } => {
                Observation::AttemptEnded { attempt, code: self.code }
            }
            Event::AttemptTimedOut { attempt } => {
                Observation::AttemptEnded { attempt, code: Code::DeadlineExceeded }
            }
            Event::Committed { attempt } => {
                self.committed = Some(attempt);
                return None;
            }
            // A hedging loser. Other cancelled attempts end with the call.
            Event::AttemptCancelled { attempt }
                if self.committed.is_some_and(|it| it != attempt) =>
            {
                Observation::AttemptEnded { attempt, code: Code::Cancelled }
            }
            Event::CallEnded { stop_reason, attempt } => {
                let (code, running_code) = match (stop_reason, attempt) {
                    (_, Some(_)) => (self.code, Code::Cancelled),
                    (StopReason::Deadline, None) => {
                        (Code::DeadlineExceeded, Code::DeadlineExceeded)
                    }
                    (_, None) => (self.cancelled, Code::Cancelled),
                };
                Observation::CallEnded { stop_reason, code, running_code, attempts: self.attempts }
            }
            _ => return None,
        };
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial_core::Directive;

    const UNAVAILABLE: Code = Code::Unavailable;

    fn outcome(attempt: u32) -> Event {
        Event::AttemptOutcome { attempt, classification: Directive::Fail.into() }
    }

    fn ended(attempt: u32, code: Code) -> Option<Observation> {
        Some(Observation::AttemptEnded { attempt, code })
    }

    #[test]
    fn metrics_attempt_has_own_status_and_call_has_last() {
        let mut tracker = CallTracker::new();
        assert_eq!(
            tracker.observe(&Event::AttemptStarted { attempt: 1, number: 1 }),
            Some(Observation::AttemptStarted { attempt: 1, number: 1, transparent: false })
        );
        tracker.set_outcome_code(UNAVAILABLE);
        assert_eq!(tracker.observe(&outcome(1)), ended(1, UNAVAILABLE));
        tracker.mark_transparent();
        assert_eq!(
            tracker.observe(&Event::AttemptStarted { attempt: 2, number: 1 }),
            Some(Observation::AttemptStarted { attempt: 2, number: 1, transparent: true })
        );
        tracker.set_outcome_code(Code::NotFound);
        assert_eq!(tracker.observe(&outcome(2)), ended(2, Code::NotFound));
        let end = Event::CallEnded { stop_reason: StopReason::NotRetryable, attempt: Some(2) };
        let (code, running_code) = (Code::NotFound, Code::Cancelled);
        assert_eq!(
            tracker.observe(&end),
            Some(Observation::CallEnded {
                stop_reason: StopReason::NotRetryable,
                code,
                running_code,
                attempts: 1
            })
        );
    }

    #[test]
    fn metrics_hedging_loser_ends_at_commit() {
        let mut tracker = CallTracker::new();
        assert_eq!(tracker.observe(&Event::Committed { attempt: 2 }), None);
        assert_eq!(
            tracker.observe(&Event::AttemptCancelled { attempt: 1 }),
            ended(1, Code::Cancelled)
        );
        assert_eq!(
            tracker.observe(&Event::AttemptCancelled { attempt: 2 }),
            None,
            "reported with the end of the call"
        );
    }

    #[test]
    fn metrics_running_attempts_end_with_the_call() {
        let table = [
            (StopReason::Deadline, Code::DeadlineExceeded, Code::DeadlineExceeded),
            (StopReason::Cancelled, Code::Cancelled, Code::Cancelled),
        ];
        for (stop_reason, code, running_code) in table {
            let mut tracker = CallTracker::new();
            assert_eq!(tracker.observe(&Event::AttemptCancelled { attempt: 1 }), None);
            let observed = tracker.observe(&Event::CallEnded { stop_reason, attempt: None });
            assert_eq!(
                observed,
                Some(Observation::CallEnded { stop_reason, code, running_code, attempts: 0 })
            );
        }
    }

    #[test]
    fn metrics_body_error_between_attempts_sets_call_status() {
        let mut tracker = CallTracker::new();
        tracker.set_cancel_code(Code::ResourceExhausted);
        let (stop_reason, running_code) = (StopReason::Cancelled, Code::Cancelled);
        let observed = tracker.observe(&Event::CallEnded { stop_reason, attempt: None });
        let code = Code::ResourceExhausted;
        assert_eq!(
            observed,
            Some(Observation::CallEnded { stop_reason, code, running_code, attempts: 0 })
        );
    }
}
