//! How an attempt ended, and whether the command is run again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use redial::{Directive, Failure, Reason};
use regex::bytes::Regex;

use super::OWN_ERROR;
use super::arguments::Arguments;
use super::exit_list::{ExitList, signal_name};

/// The exit code if the command cannot be executed, as shells have it.
pub(super) const CANNOT_EXECUTE: u8 = 126;
/// The exit code if the command was not found, as shells have it.
pub(super) const NOT_FOUND: u8 = 127;
/// The number that shells add to that of a signal.
const SIGNAL_BASE: i32 = 128;

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(super) struct Exit {
    pub(super) end: End,
    pub(super) matched: Matched,
    /// What makes another attempt impossible, or pointless.
    pub(super) last: Option<LastBecause>,
}

/// The end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Exited(i32),
    #[cfg_attr(not(unix), allow(dead_code))]
    Signalled(i32),
    /// The process was not started.
    NotStarted {
        /// 125, 126 or 127, or that of the signal that came before the start.
        code: u8,
        text: String,
    },
}

/// Which patterns the output matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) until: bool,
    pub(super) retry: bool,
    pub(super) stop: bool,
}

/// Why no attempt follows, whatever the policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastBecause {
    /// This program got a signal that asks it to end.
    Signal(i32),
    /// The output of an attempt that timed out matches `--stop-on-output`.
    OutputStops,
    /// More input than can be replayed.
    InputLimit,
    /// The input cannot be read to its end: a command that took that for the end would be wrong.
    InputLost,
    /// More output than is held back: a part of it has been passed on.
    OutputLimit,
    /// The output cannot be held back: a part of it has been passed on.
    OutputNotKept,
    /// The reader of the standard output is gone.
    OutputClosed,
    /// A part of the output cannot be written: it is lost.
    OutputLost,
}

impl LastBecause {
    /// Whether a part of the input or the output is lost, so that no exit code of the command counts.
    pub(super) fn is_loss(self) -> bool {
        matches!(self, LastBecause::InputLost | LastBecause::OutputLost)
    }
}

impl fmt::Display for LastBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastBecause::Signal(signal) => write!(f, "stopped by {}", signal_name(*signal)),
            LastBecause::OutputStops => f.write_str("the output matches --stop-on-output"),
            LastBecause::InputLimit => {
                f.write_str("the input is larger than --stdin-limit, so it cannot be replayed")
            }
            LastBecause::InputLost => f.write_str("the input cannot be read"),
            LastBecause::OutputLimit => f.write_str(
                "the output is larger than --stdout-limit, and a part of it has been passed on",
            ),
            LastBecause::OutputNotKept => f.write_str(
                "the output cannot be kept in the temporary folder, and a part of it has been \
                 passed on",
            ),
            LastBecause::OutputClosed => f.write_str("the reader of standard output is gone"),
            LastBecause::OutputLost => f.write_str("the output cannot be written"),
        }
    }
}

impl Exit {
    /// The end of an attempt that is not made, since the run has ended before it.
    pub(super) fn refused(because: LastBecause) -> Self {
        let code = match because {
            LastBecause::Signal(signal) => signal_code(signal),
            #[cfg(unix)]
            LastBecause::OutputClosed => signal_code(rustix::process::Signal::PIPE.as_raw()),
            _ => OWN_ERROR,
        };
        let end = End::NotStarted { code, text: because.to_string() };
        Exit { end, matched: Matched::default(), last: Some(because) }
    }

    /// The exit code of this program for this end of the last attempt.
    pub(super) fn code(&self) -> u8 {
        let code = match &self.end {
            End::Exited(code) => *code,
            End::Signalled(signal) => SIGNAL_BASE + signal,
            End::NotStarted { code, .. } => i32::from(*code),
        };
        // Windows has larger ones; a failure must not become a success.
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// The exit code of this program if this signal ends it.
pub(super) fn signal_code(signal: i32) -> u8 {
    u8::try_from(SIGNAL_BASE + signal).unwrap_or(u8::MAX)
}

#[cfg(unix)]
impl End {
    /// Whether this signal ended the command, or a command in its shell.
    pub(super) fn is_signal(&self, signal: i32) -> bool {
        *self == End::Signalled(signal) || *self == End::Exited(SIGNAL_BASE + signal)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit code {code}"),
            End::Signalled(signal) => write!(f, "ended by {}", signal_name(*signal)),
            End::NotStarted { text, .. } => f.write_str(text),
        }
    }
}

/// Which ends are retried.
#[derive(Clone, Debug)]
pub(super) struct ExitRules {
    retry_on: Option<ExitList>,
    stop_on: ExitList,
    success_on: ExitList,
    waits_for_output: bool,
}

impl ExitRules {
    pub(super) fn new(arguments: &Arguments) -> Self {
        ExitRules {
            retry_on: arguments.retry_on.clone(),
            stop_on: arguments.stop_on.clone().unwrap_or_default(),
            success_on: arguments.success_on.clone(),
            waits_for_output: arguments.until.is_some(),
        }
    }

    /// Judges the end of an attempt.
    pub(super) fn directive(&self, exit: &Exit) -> Directive {
        let directive = self.judge(exit);
        match directive {
            Directive::Retry(_) if exit.last.is_some() => Directive::Fail,
            directive => directive,
        }
    }

    /// What decided beside the exit code, as the end of a sentence.
    pub(super) fn because(&self, exit: &Exit) -> &'static str {
        match exit.end {
            _ if exit.matched.stop => ", and its output matches --stop-on-output",
            _ if exit.matched.retry => ", and its output matches --retry-on-output",
            End::Exited(0) if !self.success_on.has_code(0) => ", which is not in --success-on",
            _ => "",
        }
    }

    fn judge(&self, exit: &Exit) -> Directive {
        let Exit { end, matched, .. } = exit;
        if matched.stop || self.stops(end) {
            return Directive::Fail;
        }
        if matched.retry {
            return retry(end);
        }
        match end {
            End::Exited(code) if self.success_on.has_code(*code) => {
                match self.waits_for_output && !matched.until {
                    true => Directive::Retry(Failure::not_ready()),
                    false => Directive::Succeed,
                }
            }
            _ if self.retries(end) => retry(end),
            _ => Directive::Fail,
        }
    }

    fn stops(&self, end: &End) -> bool {
        match end {
            End::Exited(code) => self.stop_on.has_code(*code),
            End::Signalled(signal) => self.stop_on.has_signal(*signal),
            End::NotStarted { .. } => true,
        }
    }

    fn retries(&self, end: &End) -> bool {
        match (end, &self.retry_on) {
            (End::Exited(code), Some(list)) => list.has_code(*code),
            (End::Signalled(signal), Some(list)) => list.has_signal(*signal),
            // A command that is missing is missing the next time, too.
            (End::Exited(code), None) => {
                !matches!(u8::try_from(*code), Ok(CANNOT_EXECUTE | NOT_FOUND))
            }
            (End::Signalled(_), None) => true,
            (End::NotStarted { .. }, _) => false,
        }
    }
}

fn retry(end: &End) -> Directive {
    Directive::Retry(Failure::server().because(Reason::new(static_name(end))))
}

/// The end as the name of a reason, for the call log. A name lives as long as the program: there are
/// as many as exit codes and signals.
fn static_name(end: &End) -> &'static str {
    static NAMES: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let name = end.to_string();
    names.entry(name).or_insert_with_key(|name| Box::leak(name.clone().into_boxed_str()))
}

/// The patterns for the output of attempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    until: Option<Regex>,
    retry: Option<Regex>,
    stop: Option<Regex>,
}

impl Patterns {
    pub(super) fn new(arguments: &Arguments) -> Self {
        Patterns {
            until: arguments.until.clone(),
            retry: arguments.retry_on_output.clone(),
            stop: arguments.stop_on_output.clone(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.until.is_none() && self.retry.is_none() && self.stop.is_none()
    }

    /// Adds the matches of a line.
    pub(super) fn check(&self, line: &[u8], matched: &mut Matched) {
        let is_match = |pattern: &Option<Regex>| {
            pattern.as_ref().is_some_and(|pattern| pattern.is_match(line))
        };
        matched.until = matched.until || is_match(&self.until);
        matched.retry = matched.retry || is_match(&self.retry);
        matched.stop = matched.stop || is_match(&self.stop);
    }
}
