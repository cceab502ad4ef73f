//! A call as metrics and spans see it: attempts that start and end with a status, and the end of
//! the call.
//!
//! Rule: each note tells one thing at the most. Attempts that the end of the call cancels are told
//! with that end, since only then it is known why they were.

use redial_core::{Event, StopReason};
use redial_service_config::Code;

/// Something to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    CallBegan,
    AttemptStarted {
        attempt: u32,
        /// As the policy counts; a replacement has that of what it replaces.
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
        /// The status of the attempts that still ran.
        running_code: Code,
        /// How many attempts there were, replacements aside.
        attempts: u32,
    },
}

/// What must be known of a call so that its notes can be told.
#[derive(Debug)]
pub(crate) struct CallTracker {
    /// The status of the last outcome.
    code: Code,
    /// What the application hears if the call is cancelled; by default just that.
    cancelled: Code,
    /// Whether the next attempt to start replaces another.
    transparent: bool,
    /// The attempt that the call belongs to.
    committed: Option<u32>,
    attempts: u32,
}

impl CallTracker {
    pub(crate) const fn new() -> Self {
        let (code, cancelled) = (Code::Unknown, Code::Cancelled);
        CallTracker { code, cancelled, transparent: false, committed: None, attempts: 0 }
    }

    /// The next outcome has this status.
    pub(crate) fn set_outcome_code(&mut self, code: Code) {
        self.code = code;
    }

    /// The call is to be cancelled, and the application hears this status.
    pub(crate) fn set_cancel_code(&mut self, code: Code) {
        self.cancelled = code;
    }

    /// The next attempt to start replaces another.
    pub(crate) fn mark_transparent(&mut self) {
        self.transparent = true;
    }

    /// What a note tells.
    pub(crate) fn observe(&mut self, event: &Event) -> Option<Observation> {
        let event = match *event {
            Event::CallStarted { .. } => Observation::CallBegan,
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
            // It lost. Any other that is cancelled ends with the call.
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
            "the call's end tells it"
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
