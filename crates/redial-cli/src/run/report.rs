//! The report of a run: a line for people, an object for machines, the call log for replays.

use std::fmt::Write as _;
use std::time::Duration;

use redial::call_log::EventDetail;
use redial::report::{AttemptEnd, AttemptRecord};
use redial::time::{Ns, duration};
use redial::{CallLog, Directive, Event, Report, StopReason};
use serde_json::json;

use super::attempt_end::{End, LastBecause};
use super::run_state::RunState;

/// The exit code if time ended the command.
const TIMED_OUT: u8 = 124;
/// The number that shells add to that of a signal.
const SIGNAL_BASE: i32 = 128;
/// The exit code if output is lost.
const OUTPUT_LOST: u8 = super::OWN_ERROR;
/// The exit code of a command that succeeded without the output that was asked for.
const NO_MATCH: u8 = 1;

/// How a run ended.
pub(super) struct Ended<'r> {
    /// The report; `None` if a signal ended the run between two attempts.
    pub(super) report: Option<&'r Report>,
    pub(super) elapsed: Duration,
    pub(super) run: &'r RunState,
    pub(super) call_log: &'r CallLog,
    pub(super) signal: Option<i32>,
}

/// An attempt that was made.
struct Made {
    attempt: u32,
    started: Duration,
    ended: Duration,
    end: AttemptEnd,
}

impl Made {
    fn of(record: &AttemptRecord) -> Made {
        let AttemptRecord { attempt, started, ended, end, .. } = *record;
        Made { attempt, started, ended, end }
    }

    /// The attempts of a call that has no report.
    fn all_of(call_log: &CallLog) -> Vec<Made> {
        let begin = call_log.events().first().map_or(0, |(at, _)| *at);
        let mut all: Vec<Made> = Vec::new();
        for &(at, event) in call_log.events() {
            let at = duration(at.saturating_sub(begin));
            let (attempt, end) = match event {
                Event::AttemptStarted { attempt, .. } => {
                    all.push(Made { attempt, started: at, ended: at, end: AttemptEnd::Running });
                    continue;
                }
                Event::AttemptOutcome { attempt, classification } => (
                    attempt,
                    match classification.directive {
                        Directive::Succeed => AttemptEnd::Succeeded,
                        Directive::Fail => AttemptEnd::Fatal,
                        Directive::Retry(failure) => AttemptEnd::Failed(failure),
                    },
                ),
                Event::AttemptTimedOut { attempt } => (attempt, AttemptEnd::TimedOut),
                Event::AttemptCancelled { attempt } => (attempt, AttemptEnd::Cancelled),
                _ => continue,
            };
            if let Some(made) = all.iter_mut().find(|made| made.attempt == attempt) {
                (made.ended, made.end) = (at, end);
            }
        }
        all
    }
}

impl Ended<'_> {
    fn last_attempt(&self) -> Option<&AttemptRecord> {
        self.report.and_then(|report| report.history.last())
    }

    fn stop_reason(&self) -> StopReason {
        self.report.map_or(StopReason::Cancelled, |report| report.stop_reason)
    }

    fn lost_output(&self) -> bool {
        self.run.last() == Some(LastBecause::OutputLost)
    }

    /// The exit code of this program.
    pub(super) fn code(&self) -> u8 {
        if self.lost_output() {
            return OUTPUT_LOST;
        }
        if let Some(signal) = self.signal {
            return u8::try_from(SIGNAL_BASE + signal).unwrap_or(u8::MAX);
        }
        let last = self.last_attempt();
        let timed_out = last.is_some_and(|last| last.end == AttemptEnd::TimedOut);
        if timed_out || self.stop_reason() == StopReason::Deadline {
            return TIMED_OUT;
        }
        let exit = last.and_then(|last| self.run.exit(last.attempt));
        match (exit.map_or(TIMED_OUT, |exit| exit.code()), self.stop_reason()) {
            (0, StopReason::Succeeded) => 0,
            (0, _) => NO_MATCH,
            (code, _) => code,
        }
    }

    /// Why the command was given up; `None` if it succeeded.
    pub(super) fn message(&self) -> Option<String> {
        if self.stop_reason() == StopReason::Succeeded {
            return None;
        }
        let attempts = self.attempts();
        let last = attempts.last().and_then(|(made, _)| self.run.exit(made.attempt));
        if let Some(End::NotStarted { text, .. }) = last.map(|exit| exit.end) {
            return Some(text);
        }
        let mut text = match attempts.len() {
            1 => "gave up after 1 attempt".to_owned(),
            count => format!("gave up after {count} attempts"),
        };
        let _ = write!(text, " in {}", human(self.elapsed));
        if let Some((_, end)) = attempts.last() {
            let _ = write!(text, ": {end}");
        }
        let _ = match (self.stop_reason(), self.because()) {
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

    /// The attempts, each with its end in words.
    fn attempts(&self) -> Vec<(Made, String)> {
        let all = match self.report {
            Some(report) => report.history.iter().map(Made::of).collect(),
            None => Made::all_of(self.call_log),
        };
        let with_text = |made: Made| {
            let text = self.end_text(&made);
            (made, text)
        };
        all.into_iter().map(with_text).collect()
    }

    fn end_text(&self, made: &Made) -> String {
        match (made.end, self.run.exit(made.attempt)) {
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
                format!("{}{}", exit.end, self.run.rules.because(&exit))
            }
            (_, Some(exit)) => exit.end.to_string(),
            (_, None) => "ended".to_owned(),
        }
    }

    /// The report for machines.
    pub(super) fn json(&self) -> serde_json::Value {
        let attempts: Vec<_> = self
            .attempts()
            .into_iter()
            .map(|(made, text)| {
                let exit = self.run.exit(made.attempt);
                let (code, signal) = match exit.map(|exit| exit.end) {
                    Some(End::Exited(code)) => (Some(code), None),
                    Some(End::Signalled(signal)) => (None, Some(signal)),
                    Some(End::NotStarted { .. }) | None => (None, None),
                };
                json!({
                    "attempt": made.attempt,
                    "started_ms": millis(made.started),
                    "ended_ms": millis(made.ended),
                    "end": text,
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
            "succeeded": self.stop_reason() == StopReason::Succeeded && !self.lost_output(),
            "stop_reason": self.stop_reason().name(),
            "because": self.because().map(|because| because.to_string()),
            "elapsed_ms": millis(self.elapsed),
            "attempts": attempts,
        })
    }

    /// The call log with the ends of the processes.
    pub(super) fn annotated_log(&self) -> CallLog {
        let mut call_log = CallLog::new();
        for &(at, event) in self.call_log.events() {
            call_log.push(at, event);
            if let Some(text) = outcome_text(&event, self.run) {
                call_log.annotate(EventDetail::new().error(text));
            }
        }
        call_log
    }
}

/// Milliseconds with the digits of whole microseconds.
fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

/// How the process of an outcome ended.
fn outcome_text(event: &Event, run: &RunState) -> Option<String> {
    let Event::AttemptOutcome { attempt, .. } = event else { return None };
    run.exit(*attempt).map(|exit| exit.end.to_string())
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
    if let Some(detail) = outcome_text(event, run).filter(|detail| !event_text.contains(detail)) {
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
