//! The report of a run: a line for people, an object for machines, the call log for replays.

use std::fmt::Write as _;
use std::time::Duration;

use redial::time::Ns;
use redial::{AttemptEnd, Event, StopReason};
use serde_json::json;

use super::attempt_end::{End, LastBecause, signal_code};
use super::record::Made;
use super::run_state::RunState;

/// The exit code if time ended the command.
const TIMED_OUT: u8 = 124;
/// The exit code if input or output is lost.
const LOST: u8 = super::OWN_ERROR;
/// The exit code of a command that succeeded without the output that was asked for.
const NO_MATCH: u8 = 1;

/// How a run ended.
pub(super) struct Ended<'r> {
    pub(super) stop_reason: StopReason,
    pub(super) elapsed: Duration,
    pub(super) run: &'r RunState,
    /// The signal that ended the run between two attempts.
    pub(super) signal: Option<i32>,
}

impl Ended<'_> {
    fn is_loss(&self) -> bool {
        self.run.last().is_some_and(LastBecause::is_loss)
    }

    /// The exit code of this program.
    pub(super) fn code(&self) -> u8 {
        if self.is_loss() {
            return LOST;
        }
        if let Some(signal) = self.signal {
            return signal_code(signal);
        }
        let last = self.run.record(|record| record.last().cloned());
        let timed_out = last.as_ref().is_some_and(|last| last.end == AttemptEnd::TimedOut);
        if timed_out || self.stop_reason == StopReason::Deadline {
            return TIMED_OUT;
        }
        let exit = last.and_then(|last| last.exit);
        match (exit.map_or(TIMED_OUT, |exit| exit.code()), self.stop_reason) {
            (0, StopReason::Succeeded) => 0,
            (0, _) => NO_MATCH,
            (code, _) => code,
        }
    }

    /// Why the command was given up; `None` if it succeeded.
    pub(super) fn message(&self) -> Option<String> {
        if self.stop_reason == StopReason::Succeeded {
            return None;
        }
        let (count, last) = self.run.record(|record| (record.count(), record.last().cloned()));
        let exit = last.as_ref().and_then(|last| last.exit.as_ref());
        if let Some(End::NotStarted { text, .. }) = exit.map(|exit| &exit.end) {
            return Some(text.clone());
        }
        let mut text = match count {
            1 => "gave up after 1 attempt".to_owned(),
            count => format!("gave up after {count} attempts"),
        };
        let _ = write!(text, " in {}", human(self.elapsed));
        if let Some(last) = &last {
            let _ = write!(text, ": {}", self.end_text(last));
        }
        let _ = match (self.stop_reason, self.because()) {
            (StopReason::NotRetryable, None) => Ok(()),
            (_, Some(because)) => write!(text, " ({because})"),
            (reason, None) => write!(text, " ({reason})"),
        };
        Some(text)
    }

    fn because(&self) -> Option<LastBecause> {
        let signal = self.signal.map(LastBecause::Signal);
        signal.or_else(|| self.run.last())
    }

    fn end_text(&self, made: &Made) -> String {
        match (made.end, &made.exit) {
            (AttemptEnd::TimedOut, _) => "timed out".to_owned(),
            (AttemptEnd::Cancelled | AttemptEnd::Running, None) => {
                "ended at the deadline".to_owned()
            }
            (AttemptEnd::Failed(failure), Some(exit))
                if failure.kind == redial::FailureKind::NotReady =>
            {
                format!("{}, without the awaited output", exit.end)
            }
            (AttemptEnd::Failed(_) | AttemptEnd::Fatal, Some(exit)) => {
                format!("{}{}", exit.end, self.run.rules.because(exit))
            }
            (_, Some(exit)) => exit.end.to_string(),
            (_, None) => "ended".to_owned(),
        }
    }

    /// The report for machines.
    pub(super) fn json(&self) -> serde_json::Value {
        let (count, attempts) = self
            .run
            .record(|record| (record.count(), record.attempts().cloned().collect::<Vec<_>>()));
        let attempts: Vec<_> = attempts
            .iter()
            .map(|made| {
                let (code, signal) = match made.exit.as_ref().map(|exit| &exit.end) {
                    Some(End::Exited(code)) => (Some(*code), None),
                    Some(End::Signalled(signal)) => (None, Some(*signal)),
                    Some(End::NotStarted { .. }) | None => (None, None),
                };
                json!({
                    "attempt": made.attempt,
                    "started_ms": millis(made.started),
                    "ended_ms": millis(made.ended),
                    "end": self.end_text(made),
                    "exit_code": code,
                    "signal": signal,
                    "timed_out": made.end == AttemptEnd::TimedOut,
                })
            })
            .collect();
        let command: Vec<_> =
            self.run.program.command.iter().map(|word| word.to_string_lossy()).collect();
        json!({
            "command": command,
            "exit_code": self.code(),
            "succeeded": self.stop_reason == StopReason::Succeeded && !self.is_loss(),
            "stop_reason": self.stop_reason.name(),
            "because": self.because().map(|because| because.to_string()),
            "elapsed_ms": millis(self.elapsed),
            "attempts_made": count,
            "attempts": attempts,
        })
    }
}

/// Milliseconds with the digits of whole microseconds.
fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

/// A line of the call log, as it happens.
pub(super) fn line(start: Ns, at: Ns, event: &Event, run: &RunState) -> String {
    let us = at.saturating_sub(start) / 1_000;
    let mut text = format!("redial: {:>6}.{:03} ms  ", us / 1_000, us % 1_000);
    let event_text = match *event {
        // The origin of the clock is arbitrary.
        Event::CallStarted { deadline: Some(deadline), idempotent } => {
            let deadline = Some(deadline.saturating_sub(start));
            Event::CallStarted { deadline, idempotent }.to_string()
        }
        event => event.to_string(),
    };
    text.push_str(&event_text);
    // A failure that is retried names it already.
    if let Some(detail) = run.outcome_text(event).filter(|detail| !event_text.contains(detail)) {
        let _ = write!(text, " ({detail})");
    }
    text
}

/// A duration for people.
pub(super) fn human(span: Duration) -> String {
    match span.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        1000..60_000 => format!("{:.1} s", span.as_secs_f64()),
        millis => format!("{} min {} s", millis / 60_000, millis / 1000 % 60),
    }
}
