//! The interceptor's log lines, derived from the notes of a call (decision M8).

use std::fmt;
use std::io::IsTerminal;

use redial_core::{Directive, Event, Ns, StopReason};

use crate::options::Options;

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogLineKind {
    /// The call began.
    Request,
    /// An attempt's answer came, or its time was over.
    Response,
    /// A retry will wait.
    RetryDelay,
    /// Which retry it will be.
    RetryAttempt,
    /// The retry is sent.
    RetryExecuting,
    /// Retries were made and ran out.
    FailedAfterRetries,
}

impl LogLineKind {
    /// Its name in scenarios.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LogLineKind::Request => "request",
            LogLineKind::Response => "response",
            LogLineKind::RetryDelay => "retry-delay",
            LogLineKind::RetryAttempt => "retry-attempt",
            LogLineKind::RetryExecuting => "retry-executing",
            LogLineKind::FailedAfterRetries => "failed-after-retries",
        }
    }
}

/// Whether a line may be coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogColor {
    /// Plain text.
    #[default]
    Plain,
    /// Responses in green and red.
    Ansi,
}

impl LogColor {
    /// Colour if this is a terminal.
    #[must_use]
    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() { LogColor::Ansi } else { LogColor::Plain }
    }
}

/// A line of the log, for the debug level. It prints without colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// What it tells.
    pub kind: LogLineKind,
    /// When.
    pub at: Ns,
    /// Its text, brackets first.
    pub text: String,
    /// Whether it tells of something bad.
    pub is_failure: bool,
}

impl LogLine {
    /// Its text, in colour where that is allowed.
    #[must_use]
    pub fn colored(&self, paint: LogColor) -> String {
        match (paint, self.kind, self.is_failure) {
            (LogColor::Ansi, LogLineKind::Response, true) => {
                format!("\u{1b}[31m{}\u{1b}[0m", self.text)
            }
            (LogColor::Ansi, LogLineKind::Response, false) => {
                format!("\u{1b}[32m{}\u{1b}[0m", self.text)
            }
            _ => self.text.clone(),
        }
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The lines of a call that these notes tell of.
///
/// ```
/// use redial::CallLog;
/// use redial_milvus::{Options, log_lines};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redial::PolicyError> {
/// let (options, mut call_log) = (Options::default(), CallLog::new());
/// # let mut calls = 0;
/// # let search = || { calls += 1; std::future::ready(if calls == 1 { Err("busy") } else { Ok(()) }) };
/// let done = options.policy()?.retry(search).when(|_| true).call_log(&mut call_log).await;
/// # assert!(done.is_ok());
/// let lines: Vec<String> =
///     log_lines("Search", &options, call_log.events()).iter().map(|line| line.to_string()).collect();
/// assert_eq!(lines[0], "[Request] Search (timeout 15000ms)");
/// assert_eq!(lines[3], "[Retry Attempt 1/3] Search: will be sent again in 20ms");
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn log_lines(method: &str, options: &Options, events: &[(Ns, Event)]) -> Vec<LogLine> {
    let mut logger = LogFormatter::new(method, options);
    let mut lines = Vec::new();
    for (at, event) in events {
        logger.event(*at, event, |line| lines.push(line));
    }
    lines
}

/// Turns notes into lines while they come.
#[derive(Clone, Debug)]
pub struct LogFormatter {
    method: String,
    retries_max: u32,
    timeout_ms: u128,
    /// When the call began.
    began: Ns,
    /// When the attempt that runs started.
    started: Ns,
    /// Retries sent so far.
    retries: u32,
    /// Whether an attempt runs whose answer has not been logged.
    runs: bool,
}

impl LogFormatter {
    /// A logger for one call of this method.
    #[must_use]
    pub fn new(method: &str, options: &Options) -> Self {
        LogFormatter {
            method: method.to_owned(),
            retries_max: options.max_retries,
            timeout_ms: options.timeout.as_millis(),
            began: 0,
            started: 0,
            retries: 0,
            runs: false,
        }
    }

    /// Gives `emit` the lines that this note makes.
    pub fn event(&mut self, at: Ns, event: &Event, mut emit: impl FnMut(LogLine)) {
        let LogFormatter { method, retries_max, .. } = self;
        let line = |kind, text| LogLine { kind, at, text, is_failure: false };
        match event {
            Event::CallStarted { .. } => {
                self.began = at;
                let text = format!("[Request] {method} (timeout {}ms)", self.timeout_ms);
                emit(line(LogLineKind::Request, text));
            }
            Event::AttemptStarted { number, .. } => {
                (self.started, self.runs) = (at, true);
                self.retries = number.saturating_sub(1);
                if self.retries > 0 {
                    let n = self.retries;
                    let text = format!("[Retry Executing {n}/{retries_max}] {method}: sent again");
                    emit(line(LogLineKind::RetryExecuting, text));
                }
            }
            Event::AttemptOutcome { classification, .. } => {
                let what = match classification.directive {
                    Directive::Succeed => "ok",
                    Directive::Fail => "failed, not retryable",
                    Directive::Retry(failure) => {
                        failure.reason.map_or("failed, retryable", |reason| reason.name())
                    }
                };
                emit(self.response(at, what, classification.directive != Directive::Succeed));
            }
            Event::AttemptTimedOut { .. } => emit(self.response(at, "no answer in time", true)),
            Event::RetryScheduled { after, failure } => {
                let ms = whole_ms(*after);
                let stop_reason = failure.reason.map_or("a failure", |reason| reason.name());
                let text = format!("[Retry Delay {ms}ms] {method}: after {stop_reason}");
                emit(line(LogLineKind::RetryDelay, text));
                let n = self.retries.saturating_add(1);
                let text = format!(
                    "[Retry Attempt {n}/{retries_max}] {method}: will be sent again in {ms}ms"
                );
                emit(line(LogLineKind::RetryAttempt, text));
            }
            // A total deadline cancels an attempt as its own timeout does; the application's
            // dropping it is no answer.
            Event::CallEnded { stop_reason: StopReason::Deadline, .. } if self.runs => {
                emit(self.response(at, "no answer in time", true));
            }
            Event::CallEnded { stop_reason: StopReason::AttemptsExhausted, .. }
                if self.retries > 0 =>
            {
                let ms = whole_ms(at.saturating_sub(self.began));
                let n = self.retries;
                let text = format!("[Failed after retries({ms}ms)] {method}: {n} retries made");
                emit(LogLine { is_failure: true, ..line(LogLineKind::FailedAfterRetries, text) });
            }
            _ => {}
        }
    }

    fn response(&mut self, at: Ns, what: &str, is_failure: bool) -> LogLine {
        self.runs = false;
        let ms = whole_ms(at.saturating_sub(self.started));
        let text = format!("[Response({ms}ms)] {}: {what}", self.method);
        LogLine { kind: LogLineKind::Response, at, text, is_failure }
    }
}

/// Whole milliseconds, rounded down.
const fn whole_ms(span: Ns) -> u64 {
    span / 1_000_000
}
