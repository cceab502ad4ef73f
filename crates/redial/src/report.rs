//! The report of a call: attempts, elapsed time and stop reason.

use std::fmt;
use std::time::Duration;

use redial_core::{Directive, Event, Failure, Ns, StopReason, duration};

/// The report of a call that has ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// The number of attempts that were started.
    pub attempts: u32,
    /// The policy's maximum number of attempts; `None`: unlimited.
    pub attempts_max: Option<u32>,
    /// The duration of the call, or a lower bound of it: see `elapsed_exact`.
    pub elapsed: Duration,
    /// Whether `elapsed` counts from the first poll of the call. Otherwise it counts from the first time
    /// that the call was pending or failed, because the fast path does not read the clock: the call took
    /// at least that long. A call with a deadline, a call log, a report or another option knows its start,
    /// and so does a blocking call.
    pub elapsed_exact: bool,
    /// Why the call ended.
    pub stop_reason: StopReason,
    /// The tokens left in the throttle, if the throttle ended the call.
    pub tokens: Option<f64>,
    /// The attempts, if [`Retry::history`](crate::Retry::history) was set.
    pub history: Vec<AttemptRecord>,
}

/// One attempt of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// The number of the attempt in the order of starts, from 1.
    pub attempt: u32,
    /// When the attempt started, from the start of the call.
    pub started: Duration,
    /// When the attempt ended, from the start of the call.
    pub ended: Duration,
    /// How the attempt ended.
    pub end: AttemptEnd,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// With a success.
    Succeeded,
    /// With a failure that is not retryable.
    Fatal,
    /// With a retryable failure.
    Failed(Failure),
    /// Cancelled by the attempt timeout.
    TimedOut,
    /// Cancelled because another attempt won or the call ended.
    Cancelled,
    /// Still running when the report was made.
    Running,
}

impl Report {
    /// The report of a call that ended before its first attempt, for example because the service was not
    /// ready and never will be.
    ///
    /// ```
    /// use redial::{Report, StopReason};
    ///
    /// let report = Report::not_started(StopReason::NotRetryable);
    /// assert_eq!((report.attempts, report.stop_reason), (0, StopReason::NotRetryable));
    /// ```
    #[must_use]
    pub const fn not_started(stop_reason: StopReason) -> Self {
        Report {
            attempts: 0,
            attempts_max: None,
            elapsed: Duration::ZERO,
            elapsed_exact: true,
            stop_reason,
            tokens: None,
            history: Vec::new(),
        }
    }

    /// Details after the stop reason, with a leading separator (decision S10).
    pub(crate) fn detail(&self) -> String {
        match (self.stop_reason, self.tokens, self.attempts_max) {
            (StopReason::Throttled, Some(tokens), Some(max)) => {
                format!(", attempt {} of {max}, {tokens:.1} tokens left", self.attempts)
            }
            (StopReason::Throttled, Some(tokens), None) => format!(", {tokens:.1} tokens left"),
            _ => String::new(),
        }
    }

    /// Collects the attempts from the events.
    pub(crate) fn history(start: Ns, events: &[(Ns, Event)]) -> Vec<AttemptRecord> {
        let since = |at: Ns| duration(at.saturating_sub(start));
        let mut history: Vec<AttemptRecord> = Vec::new();
        for &(at, event) in events {
            let (attempt, end) = match event {
                Event::AttemptStarted { attempt, .. } => {
                    let started = since(at);
                    let end = AttemptEnd::Running;
                    history.push(AttemptRecord { attempt, started, ended: started, end });
                    continue;
                }
                Event::AttemptOutcome { attempt, classification } => match classification.directive
                {
                    Directive::Succeed => (attempt, AttemptEnd::Succeeded),
                    Directive::Fail => (attempt, AttemptEnd::Fatal),
                    Directive::Retry(failure) => (attempt, AttemptEnd::Failed(failure)),
                },
                Event::AttemptTimedOut { attempt } => (attempt, AttemptEnd::TimedOut),
                Event::AttemptCancelled { attempt } => (attempt, AttemptEnd::Cancelled),
                _ => continue,
            };
            // Attempts are numbered in the order of their starts.
            let record = history.get_mut((attempt as usize).wrapping_sub(1));
            if let Some(record) = record.filter(|record| record.end == AttemptEnd::Running) {
                (record.ended, record.end) = (since(at), end);
            }
        }
        history
    }
}

/// A duration for people: `1.2 s`, `250 ms`, `0 ms`.
pub(crate) struct HumanDuration(pub(crate) Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs_f64();
        match self.0.as_millis() {
            0 if self.0.as_micros() > 0 => write!(f, "{} µs", self.0.as_micros()),
            0 => f.write_str("0 ms"),
            millis @ 1..1000 => write!(f, "{millis} ms"),
            1000..60_000 => write!(f, "{secs:.1} s"),
            millis => write!(f, "{} min {} s", millis / 60_000, millis / 1000 % 60),
        }
    }
}
