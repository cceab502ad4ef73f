//! `redial replay`: feeds the recorded inputs of a call into the production state machine again, to
//! the same decisions or under another policy (docs/replay.md).

mod script;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use redial::config::{PolicyConfig, ThrottleConfig};
use redial::time::duration;
use redial::{AnyPolicy, CallLog, Event};
use serde_json::json;

use crate::explain::end;
use crate::log_file::{self, human};
use crate::output;
use crate::policy_file;
use script::WhatIf;

/// The arguments of `redial replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub struct Arguments {
    /// A call log: JSON lines, as `CallLog::to_json_lines` and `redial run --log` write them; `-` is
    /// standard input.
    pub log: PathBuf,
    /// The policy (JSON or TOML). By default the file beside the log that `redial run --log` wrote.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// How attempts end that were never made.
    #[arg(long, value_name = "OUTCOME", default_value = "last")]
    pub beyond: Beyond,
    /// Leave the recorded deadline out; that of the policy still applies.
    #[arg(long)]
    pub without_recorded_deadline: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  the policy makes the same decisions
  1  it decides differently; what it would have done is printed
  2  a file cannot be read, or the command was used wrongly";

/// How attempts end that were never made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Beyond {
    /// Like the last recorded attempt with an outcome.
    Last,
    /// They succeed.
    Succeed,
    /// They fail, and can be retried.
    Fail,
    /// They never end.
    Hang,
}

/// Replays a call log. Returns 0 if the decisions are the same, 1 if not, and 2 if a file cannot be
/// read.
///
/// # Errors
/// The output cannot be written.
pub fn run(
    arguments: &Arguments,
    columns: usize,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    match replay(arguments) {
        Ok(replayed) => {
            let result = match arguments.json {
                true => writeln!(out, "{:#}", replayed.json()),
                false => replayed.print(columns, out),
            };
            output::printed(u8::from(replayed.what_if.is_some()), result)
        }
        Err(text) => {
            writeln!(err, "redial: {text}")?;
            Ok(2)
        }
    }
}

struct Replayed {
    log: CallLog,
    policy: PathBuf,
    /// The first difference.
    difference: Option<String>,
    /// What the policy would have done, if that is not the same.
    what_if: Option<WhatIf>,
}

fn replay(arguments: &Arguments) -> Result<Replayed, String> {
    let log = log_file::open(&arguments.log)?;
    let beside = log_file::policy_beside(&arguments.log);
    let policy_path = match &arguments.policy {
        Some(path) => path.clone(),
        None if beside.exists() => beside.clone(),
        None => {
            return Err(format!(
                "which policy? there is no {}; name it with --policy",
                beside.display()
            ));
        }
    };
    let (config, policy) = load(&policy_path)?;
    let Err(mismatch) = log.replay(&policy) else {
        return Ok(Replayed { log, policy: policy_path, difference: None, what_if: None });
    };
    let deadline =
        recorded_deadline(&log, &beside).filter(|_| !arguments.without_recorded_deadline);
    let mut what_if = script::play(&log, &policy, arguments.beyond, deadline)?;
    if config.throttle != Some(ThrottleConfig::None) && what_if.asks_throttle() {
        what_if.assumptions.push("the throttle of the policy was full at the start".to_owned());
    }
    Ok(Replayed {
        log,
        policy: policy_path,
        difference: Some(mismatch.to_string()),
        what_if: Some(what_if),
    })
}

fn load(path: &Path) -> Result<(PolicyConfig, AnyPolicy), String> {
    let config = policy_file::open(path)?;
    let policy = config.load().map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((config, policy))
}

/// The deadline that the caller gave, and not its policy, as far as that is known.
fn recorded_deadline(log: &CallLog, beside: &Path) -> Option<Duration> {
    let recorded = log.events().iter().find_map(|&(at, event)| match event {
        Event::CallStarted { deadline, .. } => Some(duration(deadline?.saturating_sub(at))),
        _ => None,
    })?;
    let own = policy_file::open(beside).ok().and_then(|config| config.deadline);
    (own != Some(recorded)).then_some(recorded)
}

impl Replayed {
    fn print(&self, columns: usize, out: &mut dyn Write) -> io::Result<()> {
        let (Some(difference), Some(what_if)) = (&self.difference, &self.what_if) else {
            let events = self.log.events().len();
            return writeln!(out, "the same decisions: {events} events");
        };
        writeln!(out, "recorded: {}", summary(&self.log))?;
        write!(out, "{}", crate::timeline::timeline(self.log.events(), columns))?;
        let replayed = what_if.played.call_log();
        writeln!(out, "\nunder {}: {}", self.policy.display(), summary(replayed))?;
        write!(out, "{}", crate::timeline::timeline(replayed.events(), columns))?;
        writeln!(out, "\nfirst difference: {difference}")?;
        for assumption in &what_if.assumptions {
            writeln!(out, "assumed: {assumption}")?;
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let assumptions = self.what_if.as_ref().map(|it| &it.assumptions);
        json!({
            "same": self.what_if.is_none(),
            "policy": self.policy.display().to_string(),
            "difference": self.difference,
            "recorded": facts(&self.log),
            "replayed": self.what_if.as_ref().map(|it| facts(it.played.call_log())),
            "assumptions": assumptions,
        })
    }
}

fn attempts(log: &CallLog) -> usize {
    let started = |event: &Event| matches!(event, Event::AttemptStarted { .. });
    log.events().iter().filter(|(_, event)| started(event)).count()
}

fn summary(log: &CallLog) -> String {
    let attempts = match attempts(log) {
        1 => "1 attempt".to_owned(),
        count => format!("{count} attempts"),
    };
    match end(log) {
        Some((at, reason)) => format!("{attempts} in {}, {reason}", human(at)),
        None => format!("{attempts}, and no end"),
    }
}

fn facts(log: &CallLog) -> serde_json::Value {
    json!({
        "attempts": attempts(log),
        "stop_reason": end(log).map(|(_, reason)| reason.name()),
        "elapsed_ms": end(log).map(|(at, _)| at as f64 / 1e6),
    })
}
