//! What the orchestrator logs: each retry, and each request that it does not retry, with the reason
//! (RFC 49, "Retry Orchestration"; decision C12).
//!
//! The lines are derived from the notes of the call, so that a driver, a scenario and a diary that
//! is read a year later tell the same.

use std::fmt;
use std::time::Duration;

use redial::{Directive, Event, Failure, Reason, StopReason, time::Ns};
use redial_core::duration;

use crate::reason;

/// What became of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryLogEvent {
    /// The request is retried after this long; what would pass the timeout is capped there (decision
    /// C6).
    Retry {
        /// The delay.
        after: Duration,
    },
    /// The request is not retried.
    NotRetried {
        /// Why the request ended.
        stop_reason: StopReason,
    },
}

/// A line of the log. It prints as `retry KV_LOCKED` or `not-retried KV_LOCKED`; the rest is data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryLogLine {
    /// When, on the clock of the notes.
    pub at: Ns,
    /// What was decided.
    pub event: RetryLogEvent,
    /// Why the attempt failed.
    pub reason: Reason,
    /// The attempt that failed, from 1. For a retry that is also its number among the retries: it
    /// has been counted when it is logged (decision C7).
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

/// Derives the lines of one request from the notes of its call, one by one.
#[derive(Clone, Debug, Default)]
pub struct RetryLogger {
    deadline: Option<Ns>,
    attempt: u32,
    /// The failure about which nothing is decided yet.
    open: Option<Failure>,
}

impl RetryLogger {
    /// Of a request that begins.
    #[must_use]
    pub const fn new() -> Self {
        RetryLogger { deadline: None, attempt: 0, open: None }
    }

    /// The line that this note makes, if it makes one.
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
                self.open = match classification.directive {
                    Directive::Retry(failure) => Some(failure),
                    Directive::Succeed | Directive::Fail => None,
                };
                return None;
            }
            Event::RetryScheduled { after, failure } => {
                self.open = None;
                let left = self.deadline.map_or(Ns::MAX, |deadline| deadline.saturating_sub(at));
                (RetryLogEvent::Retry { after: duration(after.min(left)) }, failure)
            }
            // A request that the application dropped was not refused anything.
            Event::CallEnded { stop_reason: StopReason::Cancelled, .. } => return None,
            Event::CallEnded { stop_reason, .. } => {
                (RetryLogEvent::NotRetried { stop_reason }, self.open.take()?)
            }
            _ => return None,
        };
        let reason = failure.reason.unwrap_or(reason::UNKNOWN);
        Some(RetryLogLine { at, event, reason, attempt: self.attempt })
    }
}

/// The lines of one request, from the notes of its call.
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
