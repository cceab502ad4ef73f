//! `milvus`: the client's options, status names, its log and its error text.

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::StopReason;
use redial::config::AnyPolicy;
use redial::testing::Played;
use redial_milvus::{Code, ErrorText, MessageValidity, Options, classify, log_lines};

use super::super::json::{Fields, Reader, quoted};
use super::super::model::Outcome;
use super::{Extras, FieldNames, Refusal, comes};

/// The field names of `milvus` scenarios, which have no `deadline` and `cancel`.
pub(super) static FIELD_NAMES: FieldNames = FieldNames {
    call: &["at", "attempts", "expect"],
    attempt: &["after", "outcome"],
    expect: &["starts", "cancels", "end", "text", "log"],
    whole: &[],
};

/// The outcome of an invalid message.
pub(in super::super) const INVALID: &str = "invalid-message";
/// The server's message in every scenario.
pub(in super::super) const MESSAGE: &str = "boom";

/// The client's options.
#[derive(Debug)]
pub(in super::super) struct Plan(Options);

impl Plan {
    pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Self> {
        reader.deserialize(value, "milvus").map(Plan)
    }

    pub(in super::super) fn options(&self) -> Options {
        self.0
    }

    pub(super) fn build(&self) -> Result<AnyPolicy, Refusal> {
        self.0.policy().map(AnyPolicy::Policy).map_err(|problem| {
            let field = match problem.field() {
                "attempts" => "maxRetries",
                "attempt_timeout" => "timeout",
                field => field,
            };
            Refusal::of(field, problem.to_string())
        })
    }

    pub(super) fn extras(&self, played: &Played, returned: Option<&str>) -> Extras {
        let events = played.call_log().events();
        let log = log_lines("Search", &self.0, events)
            .into_iter()
            .map(|line| line.kind.name().to_owned());
        let failed = played.end().filter(|end| end.stop_reason != StopReason::Succeeded);
        let text = failed.map(|end| {
            let retries = played.numbers().last().map_or(0, |number| number - 1);
            let invalid = returned == Some(INVALID);
            ErrorText {
                stop_reason: end.stop_reason,
                retries,
                elapsed: end.at,
                message: MESSAGE,
                invalid,
            }
            .render()
        });
        Extras { error: None, text, log: Some(log.collect()) }
    }
}

pub(super) fn outcome<'t>(reader: &Reader<'t>, attempt: &Fields<'t>) -> Option<Outcome> {
    let value = reader.needs(attempt, "outcome", "an attempt")?;
    let name = reader.string(value, "outcome")?;
    match (name, status(name)) {
        ("hang", _) => Some(Outcome::Hang),
        (INVALID, _) => Some(comes(INVALID, classify(Code::Ok, MessageValidity::Invalid))),
        (_, Some(code)) => Some(comes(code.name(), classify(code, MessageValidity::Valid))),
        (_, None) => {
            let names: Vec<_> = Code::ALL.into_iter().map(Code::name).collect();
            let expected = quoted(&names);
            let text = format!(
                "outcome: unknown outcome {name:?}; expected {INVALID:?}, \"hang\" or a status, one of {expected}"
            );
            reader.diagnostic(value.start(), text)
        }
    }
}

/// The status with exactly this name.
fn status(name: &str) -> Option<Code> {
    Code::from_name(name).filter(|code| code.name() == name)
}

/// The outcomes of calls.
pub(super) fn is_outcome(outcome: &str) -> bool {
    outcome == INVALID || status(outcome).is_some()
}
