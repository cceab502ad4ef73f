//! Reads what a fault server plays: a script, or the attempts of a scenario.
//!
//! Rule: a mistake has its file, line and column.

use std::collections::BTreeMap;

use redial_faults::grpc::{Answer, Script, Server};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::scenarios::json;
use crate::scenarios::load::FILE_BYTES_MAX;
use crate::scenarios::source::{Mistake, Source};

/// The largest script that is read.
pub const SCRIPT_BYTES_MAX: u64 = 1 << 24;

/// How many names of scenarios are listed when there is none of the name that was asked for.
const NAMES_SHOWN: usize = 10;

/// A scenario file, as far as a fault server has to know it. Whether all of it is right is for
/// `redial scenarios` to say.
#[derive(Deserialize)]
struct File<'t> {
    #[serde(borrow)]
    scenarios: Vec<&'t RawValue>,
}

#[derive(Deserialize)]
struct Scenario<'t> {
    name: String,
    #[serde(borrow, default)]
    calls: Vec<Call<'t>>,
    #[serde(default)]
    policy: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct Call<'t> {
    #[serde(borrow, default)]
    attempts: Vec<&'t RawValue>,
}

/// The server of a script file.
pub(super) fn script(path: &str) -> Result<Server, Vec<Mistake>> {
    let source = read(path, SCRIPT_BYTES_MAX)?;
    serde_json::from_str(source.text()).map_err(|error| vec![mistake(&source, 0, &error)])
}

/// The attempts of a scenario: its calls by number, and in turn for requests that name none.
pub(super) fn scenario(path: &str, name: &str) -> Result<Script, Vec<Mistake>> {
    let source = read(path, FILE_BYTES_MAX)?;
    let file: File<'_> =
        serde_json::from_str(source.text()).map_err(|error| vec![mistake(&source, 0, &error)])?;
    let mut names = Vec::new();
    for raw in file.scenarios {
        let at = offset(&source, raw);
        let scenario: Scenario<'_> =
            serde_json::from_str(raw.get()).map_err(|error| vec![mistake(&source, at, &error)])?;
        if scenario.name == name {
            return play(&source, at, scenario);
        }
        names.push(scenario.name);
    }
    let mut text = format!("there is no scenario named {name:?}");
    if !names.is_empty() {
        let listed: Vec<_> = names.iter().take(NAMES_SHOWN).map(|it| format!("{it:?}")).collect();
        let more = if names.len() > NAMES_SHOWN { ", ..." } else { "" };
        text = format!("{text}; there are {}{more}", listed.join(", "));
    }
    Err(vec![Mistake { file: path.to_owned(), place: None, text }])
}

fn play(source: &Source, at: usize, scenario: Scenario<'_>) -> Result<Script, Vec<Mistake>> {
    let place = |text: String| {
        vec![Mistake { file: source.name().to_owned(), place: Some(source.place(at)), text }]
    };
    if !scenario.policy.contains_key("grpc") {
        let designs: Vec<_> = scenario.policy.keys().map(|it| format!("{it:?}")).collect();
        return Err(place(format!(
            "a gRPC server plays scenarios whose policy is \"grpc\"; this one has {}",
            if designs.is_empty() { "none".to_owned() } else { designs.join(", ") }
        )));
    }
    if scenario.calls.is_empty() {
        return Err(place("the scenario has no calls to play".to_owned()));
    }
    let mut script = Script::new().in_turn();
    let mut mistakes = Vec::new();
    for (number, call) in scenario.calls.into_iter().enumerate() {
        let mut answers = Vec::new();
        for raw in call.attempts {
            match serde_json::from_str::<Answer>(raw.get()) {
                Ok(answer) => answers.push(answer),
                Err(error) => mistakes.push(mistake(source, offset(source, raw), &error)),
            }
        }
        script = script.call(&number.to_string(), answers);
    }
    if mistakes.is_empty() { Ok(script) } else { Err(mistakes) }
}

fn read(path: &str, bytes_max: u64) -> Result<Source, Vec<Mistake>> {
    Source::open(path, bytes_max).map_err(|mistake| vec![mistake])
}

/// Where a value begins that was borrowed from the source.
fn offset(source: &Source, raw: &RawValue) -> usize {
    (raw.get().as_ptr() as usize).saturating_sub(source.text().as_ptr() as usize)
}

/// The mistake that serde found in the part of the source that begins at `start`.
fn mistake(source: &Source, start: usize, error: &serde_json::Error) -> Mistake {
    // What is no JSON is told as for every other file.
    if !error.is_data()
        && let Err(mistake) = json::parse(source)
    {
        return mistake;
    }
    let rest = source.text().get(start..).unwrap_or_default();
    let line = Source::new("", rest).line_start(error.line());
    let at = source.place(start + line + error.column().saturating_sub(1));
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text).to_owned();
    Mistake { file: source.name().to_owned(), place: Some(at), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_projects_scenarios_can_be_played() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let mut played = 0;
        for entry in std::fs::read_dir(folder).expect("the scenarios are there") {
            let path = entry.expect("it can be listed").path();
            let path = path.to_str().expect("it is text");
            let source = read(path, FILE_BYTES_MAX).expect("it can be read");
            let Ok(file) = serde_json::from_str::<File<'_>>(source.text()) else { continue };
            for raw in file.scenarios {
                let known: Scenario<'_> = serde_json::from_str(raw.get()).expect("it has a name");
                let grpc = known.policy.contains_key("grpc") && !known.calls.is_empty();
                let loaded = scenario(path, &known.name);
                assert_eq!(loaded.is_ok(), grpc, "{path}: {:?}", loaded.err());
                played += usize::from(grpc);
            }
        }
        assert!(played > 40, "{played}");
    }
}
