//! The output of the command: nothing for a passed scenario, the differences for a failed one, or a
//! JSON object for each.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use redial_service_config::{BUCKETS, Statistics};

use super::call_log;
use super::compare::Difference;
use super::configs::ConfigResult;
use super::play::{Actual, ActualCall};
use super::skip::SkipReason;
use super::time::to_json;

/// The result of a scenario or service config.
pub(super) struct Outcome<'s> {
    pub(super) file: &'s str,
    pub(super) name: &'s str,
    pub(super) line: usize,
    pub(super) result: Verdict,
}

/// The actual behaviour, for the report.
pub(super) enum Shown {
    Scenario(Actual),
    Config(ConfigResult),
    /// The observed behaviour of a client of another language, as JSON.
    Observed(Value),
}

/// Whether a scenario passed.
pub(super) enum Verdict {
    Played {
        actual: Shown,
        differences: Vec<Difference>,
    },
    /// It cannot be reproduced at this level.
    Skipped {
        because: &'static SkipReason,
    },
}

impl Verdict {
    /// Whether it ran and failed.
    pub(super) fn differs(&self) -> bool {
        matches!(self, Verdict::Played { differences, .. } if !differences.is_empty())
    }
}

/// The number of scenarios by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped, because this level cannot reproduce them.
    pub skipped: usize,
}

impl Counts {
    pub(super) fn add(&mut self, verdict: &Verdict) {
        match verdict {
            it if it.differs() => self.failed += 1,
            Verdict::Played { .. } => self.passed += 1,
            Verdict::Skipped { .. } => self.skipped += 1,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Prints the differences and call logs of a failed scenario.
pub(super) fn text(out: &mut dyn Write, outcome: &Outcome<'_>) -> io::Result<()> {
    let Verdict::Played { actual, differences } = &outcome.result else { return Ok(()) };
    if differences.is_empty() {
        return Ok(());
    }
    let Outcome { file, name, line, .. } = outcome;
    writeln!(out, "FAILED {file}:{line} {name:?}")?;
    let (whole, played) = match actual {
        Shown::Scenario(actual) => ("the scenario", actual.calls.as_slice()),
        Shown::Config(_) => ("the config", &[][..]),
        Shown::Observed(_) => ("the scenario", &[][..]),
    };
    let mut calls: Vec<_> = differences.iter().map(|difference| difference.call).collect();
    calls.dedup();
    for call in calls {
        match call {
            Some(call) => writeln!(out, "  call {call}")?,
            None => writeln!(out, "  {whole}")?,
        }
        for difference in differences.iter().filter(|difference| difference.call == call) {
            writeln!(out, "    {:<12} expected  {}", difference.what, difference.expected)?;
            writeln!(out, "    {:<12} happened  {}", "", difference.actual)?;
        }
        let played = call.and_then(|call| played.get(call - 1));
        if let Some((began, call_log)) = played.and_then(|played| played.call_log.as_ref()) {
            writeln!(out, "    its call log")?;
            let throttled = played.is_some_and(|played| played.tokens.is_some());
            for line in call_log::lines(*began, call_log, throttled) {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(())
}

/// Prints a scenario as one JSON object on one line.
pub(super) fn object(out: &mut dyn Write, outcome: &Outcome<'_>) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("file".to_owned(), outcome.file.into());
    object.insert("name".to_owned(), outcome.name.into());
    match &outcome.result {
        Verdict::Played { actual, differences } => {
            object.insert("passed".to_owned(), differences.is_empty().into());
            let actual = match actual {
                Shown::Scenario(actual) => whole(actual),
                Shown::Config(result) => result.to_json(),
                Shown::Observed(seen) => seen.clone(),
            };
            object.insert("actual".to_owned(), actual);
            if !differences.is_empty() {
                let differences = differences.iter().map(difference).collect();
                object.insert("differences".to_owned(), Value::Array(differences));
            }
        }
        Verdict::Skipped { because } => {
            object.insert("passed".to_owned(), Value::Null);
            object.insert("actual".to_owned(), Value::Null);
            object.insert("skipped".to_owned(), because.to_string().into());
        }
    }
    writeln!(out, "{}", Value::Object(object))
}

fn difference(difference: &Difference) -> Value {
    let Difference { call, what, expected, actual } = difference;
    json!({ "call": call, "what": what, "expected": expected, "actual": actual })
}

/// The result, in the notation of expectations.
fn whole(actual: &Actual) -> Value {
    if let Some(text) = &actual.refused {
        return json!({ "refused": text });
    }
    let calls: Vec<_> = actual.calls.iter().map(call).collect();
    let mut whole = Map::new();
    whole.insert("calls".to_owned(), calls.into());
    insert(&mut whole, "tokens", actual.tokens);
    if !actual.stats.is_empty() {
        let stats = actual.stats.iter().map(|(method, stats)| (method.clone(), statistics(stats)));
        whole.insert("stats".to_owned(), Value::Object(stats.collect()));
    }
    Value::Object(whole)
}

/// The statistics of a method, in the notation of expectations.
pub(super) fn statistics(stats: &Statistics) -> Value {
    let Statistics { retries, failed, transparent, .. } = stats;
    let histogram = histogram(&stats.histogram);
    json!({ "retries": retries, "failed": failed, "histogram": histogram, "transparent": transparent })
}

/// The buckets that are not empty, by their names.
pub(super) fn histogram(counts: &[u64; BUCKETS.len()]) -> Value {
    let filled = BUCKETS.iter().zip(counts).filter(|(_, count)| **count > 0);
    Value::Object(filled.map(|(least, count)| (format!(">={least}"), (*count).into())).collect())
}

fn call(actual: &ActualCall) -> Value {
    let mut call = Map::new();
    let starts: Vec<_> = actual.starts.iter().map(|ns| to_json(*ns)).collect();
    call.insert("starts".to_owned(), starts.into());
    let cancels = actual.cancels.iter().map(|(attempt, at)| (attempt.to_string(), to_json(*at)));
    call.insert("cancels".to_owned(), Value::Object(cancels.collect()));
    if let Some(ended) = &actual.end {
        let mut end = Map::new();
        end.insert("at".to_owned(), to_json(ended.at));
        end.insert("outcome".to_owned(), ended.outcome.as_str().into());
        insert(&mut end, "attempt", ended.attempt);
        end.insert("why".to_owned(), ended.stop_reason.name().into());
        insert(&mut end, "error", ended.error.as_deref());
        call.insert("end".to_owned(), Value::Object(end));
    }
    insert(&mut call, "tokens", actual.tokens);
    insert(&mut call, "text", actual.text.as_deref());
    insert(&mut call, "log", actual.log.clone());
    insert(&mut call, "previous", actual.previous.clone());
    let time = |at: &Option<redial::time::Ns>| at.map_or(Value::Null, to_json);
    let timeouts = actual.timeouts.as_ref().map(|it| it.iter().map(time).collect::<Vec<_>>());
    insert(&mut call, "timeouts", timeouts);
    insert(&mut call, "sent", actual.sent.clone());
    Value::Object(call)
}

/// Adds a present value.
fn insert(map: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(name.to_owned(), value.into());
    }
}
