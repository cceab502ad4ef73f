//! The orchestrator's log: each retry, and each failed request that is not retried, with the reason (RFC
//! 49, "Retry Orchestration"; decision C12).
//!
//! Lines are derived from the events of a call, so a live call, a scenario and a stored call log produce
//! the same lines.

use std::fmt;
use std::time::Duration;

use redial::{Directive, Event, Failure, Reason, StopReason, time::Ns};
use redial_core::duration;

use crate::reason;

/// The decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryLogEvent {
    /// The request is retried after this delay, which is capped at the timeout (decision C6).
    Retry {
        /// The delay.
        after: Duration,
    },
    /// The request is not retried.
    NotRetried {
        /// The reason why the request ended.
        stop_reason: StopReason,
    },
}

/// A log line. It prints as `retry KV_LOCKED` or `not-retried KV_LOCKED`; the other fields are data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryLogLine {
    /// The time of the event, on the clock of the call.
    pub at: Ns,
    /// The decision.
    pub event: RetryLogEvent,
    /// The reason of the failure.
    pub reason: Reason,
    /// The failed attempt, from 1. This is also the number of the retry, since a retry is counted before
    /// it is logged (decision C7).
    pub attempt: u32,
}

impl RetryLogLine {
    /// The delay before the retry, if there is one.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        match self.event {
            RetryLogEvent::Retry { after } => Some(after),
            RetryLogEvent::NotRetried { .. } => None,
        }
    }
}

impl fmt::Display for RetryLogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = match self.event {
            RetryLogEvent::Retry { .. } => "retry",
            RetryLogEvent::NotRetried { .. } => "not-retried",
        };
        write!(f, "{event} {}", self.reason)
    }
}

/// Derives the log lines of one request from the events of its call.
#[derive(Clone, Debug, Default)]
pub struct RetryLogger {
    deadline: Option<Ns>,
    attempt: u32,
    /// The failure that awaits a decision.
    pending: Option<Failure>,
}

impl RetryLogger {
    /// A logger for a new request.
    #[must_use]
    pub const fn new() -> Self {
        RetryLogger { deadline: None, attempt: 0, pending: None }
    }

    /// The log line of this event, if it has one.
    #[must_use]
    pub fn line(&mut self, at: Ns, event: &Event) -> Option<RetryLogLine> {
        let (event, failure) = match *event {
            Event::CallStarted { deadline, .. } => {
                self.deadline = deadline;
                return None;
            }
            Event::AttemptStarted { number, .. } => {
                self.attempt = number;
                return None;
            }
            Event::AttemptOutcome { classification, .. } => {
                self.pending = match classification.directive {
                    Directive::Retry(failure) => Some(failure),
                    Directive::Succeed | Directive::Fail => None,
                };
                return None;
            }
            Event::RetryScheduled { after, failure } => {
                self.pending = None;
                let left = self.deadline.map_or(Ns::MAX, |deadline| deadline.saturating_sub(at));
                (RetryLogEvent::Retry { after: duration(after.min(left)) }, failure)
            }
            // A request that the application drops is not logged.
            Event::CallEnded { stop_reason: StopReason::Cancelled, .. } => return None,
            Event::CallEnded { stop_reason, .. } => {
                (RetryLogEvent::NotRetried { stop_reason }, self.pending.take()?)
            }
            _ => return None,
        };
        let reason = failure.reason.unwrap_or(reason::UNKNOWN);
        Some(RetryLogLine { at, event, reason, attempt: self.attempt })
    }
}

/// The log lines of one request, from the events of its call.
///
/// ```
/// # use redial::Event;
/// # let events: Vec<(redial::time::Ns, Event)> = Vec::new();
/// let lines = redial_couchbase::retry_log_lines(&events);
/// let texts: Vec<String> = lines.iter().map(ToString::to_string).collect();
/// ```
#[must_use]
pub fn retry_log_lines<'n>(events: impl IntoIterator<Item = &'n (Ns, Event)>) -> Vec<RetryLogLine> {
    let mut log = RetryLogger::new();
    events.into_iter().filter_map(|(at, event)| log.line(*at, event)).collect()
}
