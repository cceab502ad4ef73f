//! `redial explain`: a recorded call log in words (docs/replay.md).

use std::io::{self, Write};
use std::path::PathBuf;

use redial::call_log::EventDetail;
use redial::throttle::Grant;
use redial::time::Ns;
use redial::{CallLog, Directive, Event, FailureKind, StopReason};
use serde_json::json;

use crate::log_file::{self, human};

/// The arguments of `redial explain`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub struct Arguments {
    /// A call log: JSON lines, as `CallLog::to_json_lines` and `redial run --log` write them; `-` is
    /// standard input.
    pub log: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  the call is explained
  2  the file cannot be read, or the command was used wrongly";

/// Explains a call log. Returns 0, and 2 if it cannot be read.
///
/// # Errors
/// The output cannot be written.
pub fn run(
    arguments: &Arguments,
    columns: usize,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let log = match log_file::open(&arguments.log) {
        Ok(log) => log,
        Err(text) => {
            writeln!(err, "redial: {text}")?;
            return Ok(2);
        }
    };
    let sentences = sentences(&log);
    let advice = end(&log).map(|(_, reason)| advice(reason));
    if arguments.json {
        let stop_reason = end(&log).map(|(_, reason)| reason.name());
        let report =
            json!({ "stop_reason": stop_reason, "sentences": sentences, "advice": advice });
        writeln!(out, "{report:#}")?;
        return Ok(0);
    }
    for sentence in &sentences {
        writeln!(out, "{sentence}")?;
    }
    writeln!(out)?;
    write!(out, "{}", crate::timeline::timeline(log.events(), columns))?;
    if let Some(advice) = advice.filter(|text| !text.is_empty()) {
        writeln!(out, "\n{advice}")?;
    }
    Ok(0)
}

/// The end of the call, if the log has it.
pub(crate) fn end(log: &CallLog) -> Option<(Ns, StopReason)> {
    let start = log.events().first().map_or(0, |(at, _)| *at);
    log.events().iter().find_map(|(at, event)| match event {
        Event::CallEnded { stop_reason, .. } => Some((at.saturating_sub(start), *stop_reason)),
        _ => None,
    })
}

/// The events as sentences.
fn sentences(log: &CallLog) -> Vec<String> {
    let start = log.events().first().map_or(0, |(at, _)| *at);
    let mut words = Sentences { start, starts: Vec::new(), draw: None };
    let events = log.events().iter().enumerate();
    let mut all: Vec<String> = events
        .filter_map(|(index, &(at, event))| words.next(at, event, log.detail(index)))
        .collect();
    if end(log).is_none() {
        all.push("The log ends here: the call had not ended yet.".to_owned());
    }
    all
}

/// Puts events into words, one after the other.
struct Sentences {
    /// The start of the call.
    start: Ns,
    /// The starts of the attempts.
    starts: Vec<(u32, Ns)>,
    /// The draw of the delay that is scheduled next.
    draw: Option<f64>,
}

impl Sentences {
    fn next(&mut self, at: Ns, event: Event, detail: Option<&EventDetail>) -> Option<String> {
        let since = human(at.saturating_sub(self.start));
        Some(match event {
            Event::CallStarted { deadline, idempotent } => self.call_started(deadline, idempotent),
            Event::AttemptStarted { attempt, number } => {
                self.starts.push((attempt, at));
                let counted = match attempt == number {
                    true => String::new(),
                    false => format!(", counted as number {number}"),
                };
                format!("Attempt {attempt} started at {since}{counted}.")
            }
            Event::AttemptOutcome { attempt, classification } => {
                self.outcome(attempt, at, classification.directive, detail)
            }
            Event::AttemptTimedOut { attempt } => {
                let ran = self.ran(attempt, at);
                format!("Attempt {attempt} was still running after {ran}: its timeout ended it.")
            }
            Event::RandomDraw(u) => {
                self.draw = Some(u);
                return None;
            }
            Event::RetryScheduled { after, .. } => {
                let draw = self.draw.take().map(|u| format!(" (random draw {u:.3})"));
                format!("A retry was scheduled {} later{}.", human(after), draw.unwrap_or_default())
            }
            Event::TransparentRetryScheduled { attempt, .. } => format!(
                "Attempt {attempt} provably did not reach the application, so it was retried \
                 transparently: that does not count."
            ),
            Event::ThrottleAnswered(Grant::Refused) => {
                "The throttle refused another attempt.".to_owned()
            }
            Event::ThrottleAnswered(Grant::After(wait, _)) => {
                format!("The throttle allowed another attempt after {}.", human(wait))
            }
            Event::StrategyAnswered(_) | Event::HedgeDelay(_) => format!("The {event}."),
            Event::Committed { attempt } => format!(
                "The call was committed to attempt {attempt} at {since}: from then on it could not \
                 be retried."
            ),
            Event::NotReplayable => "The request could no longer be replayed.".to_owned(),
            Event::CallEnded { stop_reason, attempt } => {
                let with = attempt.map(|attempt| format!(" with attempt {attempt}"));
                format!("The call ended at {since}{}: {stop_reason}.", with.unwrap_or_default())
            }
            Event::AttemptCancelled { .. }
            | Event::StrategyAsked(_)
            | Event::ThrottleAnswered(Grant::Now(_) | Grant::Later) => return None,
        })
    }

    fn call_started(&self, deadline: Option<Ns>, idempotent: bool) -> String {
        let kind = if idempotent { "idempotent" } else { "not idempotent" };
        let time = match deadline {
            None => "no deadline".to_owned(),
            Some(at) => format!("{} until its deadline", human(at.saturating_sub(self.start))),
        };
        format!("The call was {kind} and had {time}.")
    }

    fn outcome(
        &self,
        attempt: u32,
        at: Ns,
        directive: Directive,
        detail: Option<&EventDetail>,
    ) -> String {
        let (ran, because) = (self.ran(attempt, at), because(detail));
        match directive {
            Directive::Succeed => format!("Attempt {attempt} succeeded after {ran}."),
            Directive::Fail => format!(
                "Attempt {attempt} failed with an error that is not retryable, after {ran}{because}."
            ),
            Directive::Retry(failure) if failure.kind == FailureKind::NotReady => format!(
                "Attempt {attempt} returned a value that is not the awaited one, after \
                 {ran}{because}."
            ),
            Directive::Retry(failure) if detail.is_none() => {
                format!("Attempt {attempt} failed after {ran}: {failure}.")
            }
            Directive::Retry(_) => format!("Attempt {attempt} failed after {ran}{because}."),
        }
    }

    /// How long an attempt has run.
    fn ran(&self, attempt: u32, at: Ns) -> String {
        let started = self.starts.iter().find(|(number, _)| *number == attempt);
        human(at.saturating_sub(started.map_or(at, |(_, at)| *at)))
    }
}

fn because(detail: Option<&EventDetail>) -> String {
    detail.map_or(String::new(), ToString::to_string)
}

/// What to do about a stop reason.
const fn advice(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Succeeded | StopReason::Cancelled => "",
        StopReason::NotRetryable => {
            "The classification says that this error stays. If it passes by itself, add it to what is retried."
        }
        StopReason::Committed => {
            "The response had started, so a retry could have repeated it. Retry in the application, if repeating is safe."
        }
        StopReason::StrategyDeclined => "The application's own strategy decided this.",
        StopReason::NotIdempotent => {
            "The attempt may have run. If running it twice is safe, declare the call idempotent."
        }
        StopReason::ServerRefused => "The server asked not to be called again. Look there.",
        StopReason::AttemptsExhausted => {
            "More attempts or longer delays outlast a longer failure: `redial replay --policy` shows what another policy would have done."
        }
        StopReason::HintTooLong => "The server asked for a longer delay than `hint_max` accepts.",
        StopReason::SoftLimit | StopReason::HardLimit => {
            "The limits on the total time of retries ended the call: raise them, or shorten the delays."
        }
        StopReason::Deadline => {
            "No further attempt could start in time. Give the call more time, shorten the delays, or set an attempt timeout so that one slow attempt does not use it up."
        }
        StopReason::Throttled => {
            "The retry budget is spent: many calls failed before this one. That protects the server; a larger budget helps only if the server can bear it."
        }
        StopReason::AttemptTimeout => {
            "The attempt may have run, so it was not retried. If running it twice is safe, retry timeouts."
        }
    }
}
