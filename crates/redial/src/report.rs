//! What became of a call, as data.

use std::fmt;
use std::time::Duration;

use redial_core::{Directive, Event, Failure, Ns, StopReason, duration};

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// How many attempts were started.
    pub attempts: u32,
    /// The most attempts that the policy allows; `None`: unlimited.
    pub attempts_max: Option<u32>,
    /// How long the call took.
    pub elapsed: Duration,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What the throttle held when it ended the call; `None` if something else did.
    pub tokens: Option<f64>,
    /// Each attempt, if the call was told to keep them (`history`).
    pub history: Vec<AttemptRecord>,
}

/// One attempt of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Its place in the order of starts, from 1.
    pub attempt: u32,
    /// When it started, since the call began.
    pub started: Duration,
    /// When it ended, since the call began.
    pub ended: Duration,
    /// How it ended.
    pub end: AttemptEnd,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// With what was asked for.
    Succeeded,
    /// With something that does not get better.
    Fatal,
    /// With something that may get better.
    Failed(Failure),
    /// Its own timeout cancelled it.
    TimedOut,
    /// The call cancelled it: another one won, or the call ended.
    Cancelled,
    /// It was still running when this was written.
    Running,
}

impl Report {
    /// What a person wants to know besides why, with a leading separator (decision S10).
    pub(crate) fn detail(&self) -> String {
        match (self.stop_reason, self.tokens, self.attempts_max) {
            (StopReason::Throttled, Some(tokens), Some(max)) => {
                format!(", attempt {} of {max}, {tokens:.1} tokens left", self.attempts)
            }
            (StopReason::Throttled, Some(tokens), None) => format!(", {tokens:.1} tokens left"),
            _ => String::new(),
        }
    }

    /// The attempts that these notes tell of.
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
            let record = history.iter_mut().find(|record| record.attempt == attempt);
            if let Some(record) = record.filter(|record| record.end == AttemptEnd::Running) {
                (record.ended, record.end) = (since(at), end);
            }
        }
        history
    }
}

/// A span as people read it: `1.2 s`, `250 ms`, `0 ms`.
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
