//! The interceptor's log lines, derived from the events of a call (decision M8).

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use redial_core::{Directive, Event, Ns, StopReason};

use crate::options::Options;

/// The kind of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogLineKind {
    /// The call started.
    Request,
    /// An attempt got a response or timed out.
    Response,
    /// The delay before the next retry.
    RetryDelay,
    /// The number of the next retry.
    RetryAttempt,
    /// The retry was sent.
    RetryExecuting,
    /// The call failed with its retries exhausted.
    FailedAfterRetries,
}

impl LogLineKind {
    /// The name in scenario files.
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

/// Whether log lines use ANSI colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogColor {
    /// Plain text.
    #[default]
    Plain,
    /// Successful responses in green, failed ones in red.
    Ansi,
}

impl LogColor {
    /// ANSI colors if the stream is a terminal.
    #[must_use]
    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() { LogColor::Ansi } else { LogColor::Plain }
    }
}

/// A log line of debug level. Its `Display` form has no colors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The kind of line.
    pub kind: LogLineKind,
    /// The time of the event, on the call's clock.
    pub at: Ns,
    /// The text, which starts with the bracketed prefix.
    pub text: String,
    /// Whether the line reports a failure.
    pub is_failure: bool,
}

impl LogLine {
    /// The text, with ANSI colors if enabled.
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

/// The receiver of the log lines of all calls.
#[derive(Clone)]
pub(crate) struct Logger(Arc<dyn Fn(&LogLine) + Send + Sync>);

impl Logger {
    pub(crate) fn new(log: impl Fn(&LogLine) + Send + Sync + 'static) -> Self {
        Logger(Arc::new(log))
    }

    pub(crate) fn stderr() -> Self {
        let color = LogColor::for_stream(&io::stderr());
        // A closed stream is no failure of the call.
        Logger::new(move |line| drop(writeln!(io::stderr(), "{}", line.colored(color))))
    }

    pub(crate) fn log(&self, line: &LogLine) {
        (self.0)(line);
    }
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logger(..)")
    }
}

/// The log lines of a call, from its events.
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
    let mut formatter = LogFormatter::new(method, options);
    let mut lines = Vec::new();
    for (at, event) in events {
        formatter.format(*at, event, |line| lines.push(line));
    }
    lines
}

/// Formats the events of one call as log lines while the call runs.
#[derive(Clone, Debug)]
pub struct LogFormatter {
    method: String,
    retries_max: u32,
    timeout_ms: u128,
    /// The start time of the call.
    call_start: Ns,
    /// The start time of the running attempt.
    attempt_start: Ns,
    /// Retries sent so far.
    retries: u32,
    /// Whether an attempt runs whose response has not been logged.
    attempt_running: bool,
}

impl LogFormatter {
    /// A formatter for one call of this method.
    #[must_use]
    pub fn new(method: &str, options: &Options) -> Self {
        LogFormatter {
            method: method.to_owned(),
            retries_max: options.max_retries,
            timeout_ms: options.timeout.as_millis(),
            call_start: 0,
            attempt_start: 0,
            retries: 0,
            attempt_running: false,
        }
    }

    /// Passes the log lines of this event to `emit`.
    pub fn format(&mut self, at: Ns, event: &Event, mut emit: impl FnMut(LogLine)) {
        let LogFormatter { method, retries_max, .. } = self;
        let line = |kind, text| LogLine { kind, at, text, is_failure: false };
        match event {
            Event::CallStarted { .. } => {
                self.call_start = at;
                let text = format!("[Request] {method} (timeout {}ms)", self.timeout_ms);
                emit(line(LogLineKind::Request, text));
            }
            Event::AttemptStarted { number, .. } => {
                (self.attempt_start, self.attempt_running) = (at, true);
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
                let reason = failure.reason.map_or("a failure", |reason| reason.name());
                let text = format!("[Retry Delay {ms}ms] {method}: after {reason}");
                emit(line(LogLineKind::RetryDelay, text));
                let n = self.retries.saturating_add(1);
                let text = format!(
                    "[Retry Attempt {n}/{retries_max}] {method}: will be sent again in {ms}ms"
                );
                emit(line(LogLineKind::RetryAttempt, text));
            }
            // A call deadline cancels the attempt like the attempt's own timeout, so it is logged as a
            // response. A call that the application drops is not.
            Event::CallEnded { stop_reason: StopReason::Deadline, .. } if self.attempt_running => {
                emit(self.response(at, "no answer in time", true));
            }
            Event::CallEnded { stop_reason: StopReason::AttemptsExhausted, .. }
                if self.retries > 0 =>
            {
                let ms = whole_ms(at.saturating_sub(self.call_start));
                let n = self.retries;
                let text = format!("[Failed after retries({ms}ms)] {method}: {n} retries made");
                emit(LogLine { is_failure: true, ..line(LogLineKind::FailedAfterRetries, text) });
            }
            _ => {}
        }
    }

    fn response(&mut self, at: Ns, what: &str, is_failure: bool) -> LogLine {
        self.attempt_running = false;
        let ms = whole_ms(at.saturating_sub(self.attempt_start));
        let text = format!("[Response({ms}ms)] {}: {what}", self.method);
        LogLine { kind: LogLineKind::Response, at, text, is_failure }
    }
}

/// Whole milliseconds, rounded down.
const fn whole_ms(span: Ns) -> u64 {
    span / 1_000_000
}
