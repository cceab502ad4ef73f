//! The report of a run: a line for people, an object for machines, the call log for replays.

use std::fmt::Write as _;
use std::time::Duration;

use redial::call_log::EventDetail;
use redial::time::Ns;
use redial::{AttemptEnd, AttemptRecord, CallLog, Event, Report, StopReason};
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
        let last = attempts.last().and_then(|(record, _)| self.run.exit(record.attempt));
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
    fn attempts(&self) -> Vec<(&AttemptRecord, String)> {
        let history = self.report.map_or(&[][..], |report| &report.history);
        history.iter().map(|record| (record, self.end_text(record))).collect()
    }

    fn end_text(&self, record: &AttemptRecord) -> String {
        match (record.end, self.run.exit(record.attempt)) {
            (AttemptEnd::TimedOut, _) => "timed out".to_owned(),
            (AttemptEnd::Cancelled | AttemptEnd::Running, None) => {
                "ended at the deadline".to_owned()
            }
            (AttemptEnd::Failed(failure), Some(exit))
                if failure.kind == redial::FailureKind::NotReady =>
            {
                format!("{}, without the awaited output", exit.end)
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
            .map(|(record, text)| {
                let exit = self.run.exit(record.attempt);
                let (code, signal) = match exit.map(|exit| exit.end) {
                    Some(End::Exited(code)) => (Some(code), None),
                    Some(End::Signalled(signal)) => (None, Some(signal)),
                    Some(End::NotStarted { .. }) | None => (None, None),
                };
                json!({
                    "attempt": record.attempt,
                    "started_ms": record.started.as_secs_f64() * 1e3,
                    "ended_ms": record.ended.as_secs_f64() * 1e3,
                    "end": text,
                    "exit_code": code,
                    "signal": signal,
                    "timed_out": record.end == AttemptEnd::TimedOut,
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
            "elapsed_ms": self.elapsed.as_secs_f64() * 1e3,
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

/// How the process of an outcome ended.
fn outcome_text(event: &Event, run: &RunState) -> Option<String> {
    let Event::AttemptOutcome { attempt, .. } = event else { return None };
    run.exit(*attempt).map(|exit| exit.end.to_string())
}

/// A line of the call log, as it happens.
pub(super) fn line(since: Ns, event: &Event, run: &RunState) -> String {
    let us = since / 1_000;
    let mut text = format!("redial: {:>6}.{:03} ms  ", us / 1_000, us % 1_000);
    let event_text = event.to_string();
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
