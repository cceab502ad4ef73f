//! `generic`: the library's own policy format.

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::classify::Hint;
use redial::config::{AnyPolicy, HintMaxConfig, ThrottleConfig};
use redial::{Directive, Stage, config::PolicyConfig};

use super::super::json::{Fields, Reader, quoted};
use super::super::model::Outcome;
use super::{FieldNames, Refusal, comes, fails, kind};

/// The field names of `generic` and `smithy` scenarios.
pub(super) static FIELD_NAMES: FieldNames = FieldNames {
    call: &["at", "deadline", "cancel", "idempotent", "attempts", "expect"],
    attempt: &["after", "outcome", "hint", "stage"],
    expect: &["starts", "cancels", "end", "tokens"],
    whole: &["tokens"],
};

const OUTCOMES: [&str; 7] = ["ok", "fatal", "server", "client", "throttling", "timeout", "hang"];
const STAGES: [&str; 3] = ["unsent", "in-flight", "answered"];

/// A policy of the library.
#[derive(Debug)]
pub(in super::super) struct Plan(PolicyConfig);

impl Plan {
    pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Self> {
        let mut written: PolicyConfig = reader.deserialize(value, "generic")?;
        // In a scenario an absent throttle means none, and hints have no maximum.
        written.throttle.get_or_insert(ThrottleConfig::None);
        written.hint_max.get_or_insert(HintMaxConfig::Unlimited);
        Some(Plan(written))
    }

    pub(super) fn idempotent<'t>(&self, reader: &Reader<'t>, call: &Fields<'t>) -> Option<bool> {
        let idempotent = idempotent(reader, call)?;
        if self.0.hedge.is_some() && !idempotent {
            let at = call.get("idempotent").map_or(call.at, Ranged::start);
            return reader.diagnostic(at, "a call that is not idempotent cannot be hedged");
        }
        Some(idempotent)
    }

    pub(super) fn build(&self) -> Result<AnyPolicy, Refusal> {
        self.0.load().map_err(|error| Refusal::of(error.field(), error.to_string()))
    }
}

pub(super) fn idempotent<'t>(reader: &Reader<'t>, call: &Fields<'t>) -> Option<bool> {
    call.get("idempotent").map_or(Some(true), |value| reader.boolean(value, "idempotent"))
}

pub(super) fn outcome<'t>(reader: &Reader<'t>, attempt: &Fields<'t>) -> Option<Outcome> {
    let value = reader.needs(attempt, "outcome", "an attempt")?;
    let name = reader.string(value, "outcome")?;
    let stage = attempt.get("stage").map_or(Some(Stage::Answered), |value| stage(reader, value));
    let hint = attempt.get("hint").map_or(Some(Hint::None), |value| hint(reader, value));
    let Some(known) = OUTCOMES.into_iter().find(|known| *known == name) else {
        let expected = quoted(&OUTCOMES);
        return reader.diagnostic(
            value.start(),
            format!("outcome: unknown outcome {name:?}; expected one of {expected}"),
        );
    };
    let (stage, hint) = (stage?, hint?);
    let says = |field: &str| attempt.get(field).map(Ranged::start);
    match (known, says("hint").or_else(|| says("stage"))) {
        ("hang", Some(at)) => {
            reader.diagnostic(at, "an attempt that hangs has no stage and no hint")
        }
        ("hang", None) => Some(Outcome::Hang),
        ("ok", _) => Some(comes(known, Directive::Succeed)),
        _ => Some(
            kind(known)
                .map_or(comes(known, Directive::Fail), |kind| fails(known, kind, stage, hint)),
        ),
    }
}

fn stage<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Stage> {
    Some(match reader.string(value, "stage")? {
        "unsent" => Stage::Unsent,
        "in-flight" => Stage::InFlight,
        "answered" => Stage::Answered,
        other => {
            let expected = quoted(&STAGES);
            let text = format!("stage: unknown stage {other:?}; expected one of {expected}");
            return reader.diagnostic(value.start(), text);
        }
    })
}

fn hint<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Hint> {
    match value {
        Value::StringLit(text) if text.value == "stop" => Some(Hint::Stop),
        Value::NumberLit(_) => {
            reader.time(value, "hint").map(|ns| Hint::After(std::time::Duration::from_nanos(ns)))
        }
        other => {
            reader.diagnostic(other.start(), "hint: expected a number of milliseconds, or \"stop\"")
        }
    }
}

/// The outcomes of calls.
pub(super) fn is_outcome(outcome: &str) -> bool {
    outcome == "cancelled" || (outcome != "hang" && OUTCOMES.contains(&outcome))
}
