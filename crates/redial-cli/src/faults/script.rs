//! Reads the input of a fault server: a script, or the attempts of a scenario.
//!
//! Every error has a file, line and column.

use std::collections::BTreeMap;

use redial_faults::grpc::{Answer, Script};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::scenarios::json;
use crate::scenarios::load::FILE_BYTES_MAX;
use crate::scenarios::source::{Diagnostic, Source};

/// The largest allowed script.
pub const SCRIPT_BYTES_MAX: u64 = 1 << 24;

/// How many scenario names are listed when the requested one does not exist.
const NAMES_SHOWN: usize = 10;

/// The parts of a scenario file that a fault server needs; `redial scenarios` validates the rest.
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

/// Reads a script file: that of a gRPC server, of a fault proxy or of a Couchbase cluster.
pub(super) fn script<T: DeserializeOwned>(path: &str) -> Result<T, Vec<Diagnostic>> {
    let source = read(path, SCRIPT_BYTES_MAX)?;
    serde_json::from_str(source.text()).map_err(|error| vec![diagnostic(&source, 0, &error)])
}

/// The attempts of a scenario: its calls by number, and in turn for requests that name none.
pub(super) fn scenario(path: &str, name: &str) -> Result<Script, Vec<Diagnostic>> {
    let source = read(path, FILE_BYTES_MAX)?;
    let file: File<'_> = serde_json::from_str(source.text())
        .map_err(|error| vec![diagnostic(&source, 0, &error)])?;
    let mut names = Vec::new();
    for raw in file.scenarios {
        let at = offset(&source, raw);
        let scenario: Scenario<'_> = serde_json::from_str(raw.get())
            .map_err(|error| vec![diagnostic(&source, at, &error)])?;
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
    Err(vec![Diagnostic { file: path.to_owned(), position: None, text }])
}

fn play(source: &Source, at: usize, scenario: Scenario<'_>) -> Result<Script, Vec<Diagnostic>> {
    let refusal = |text: String| {
        vec![Diagnostic {
            file: source.name().to_owned(),
            position: Some(source.position(at)),
            text,
        }]
    };
    if !scenario.policy.contains_key("grpc") {
        let designs: Vec<_> = scenario.policy.keys().map(|it| format!("{it:?}")).collect();
        return Err(refusal(format!(
            "a gRPC server plays scenarios whose policy is \"grpc\"; this one has {}",
            if designs.is_empty() { "none".to_owned() } else { designs.join(", ") }
        )));
    }
    if scenario.calls.is_empty() {
        return Err(refusal("the scenario has no calls to play".to_owned()));
    }
    let mut script = Script::new().in_turn();
    let mut diagnostics = Vec::new();
    for (number, call) in scenario.calls.into_iter().enumerate() {
        let mut answers = Vec::new();
        for raw in call.attempts {
            match serde_json::from_str::<Answer>(raw.get()) {
                Ok(answer) => answers.push(answer),
                Err(error) => diagnostics.push(diagnostic(source, offset(source, raw), &error)),
            }
        }
        script = script.call(&number.to_string(), answers);
    }
    if diagnostics.is_empty() { Ok(script) } else { Err(diagnostics) }
}

fn read(path: &str, bytes_max: u64) -> Result<Source, Vec<Diagnostic>> {
    Source::open(path, bytes_max).map_err(|diagnostic| vec![diagnostic])
}

/// The offset of a value that is borrowed from the source.
fn offset(source: &Source, raw: &RawValue) -> usize {
    (raw.get().as_ptr() as usize).saturating_sub(source.text().as_ptr() as usize)
}

/// Converts an error of serde in the part of the source that begins at `start`.
fn diagnostic(source: &Source, start: usize, error: &serde_json::Error) -> Diagnostic {
    // Syntax errors are reported as for every other file.
    if !error.is_data()
        && let Err(diagnostic) = json::parse(source)
    {
        return diagnostic;
    }
    let rest = source.text().get(start..).unwrap_or_default();
    let line = Source::new("", rest).line_start(error.line());
    let at = source.position(start + line + error.column().saturating_sub(1));
    let text = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&suffix).unwrap_or(&text).to_owned();
    Diagnostic { file: source.name().to_owned(), position: Some(at), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_scenario_scripts_of_the_project_are_valid() {
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
