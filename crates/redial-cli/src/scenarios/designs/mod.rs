//! The designs: how each writes its policy and names its outcomes.
//!
//! Everything that a design decides is its crate's: here its words are translated, nothing more.

mod couchbase;
mod generic;
mod grpc;
mod milvus;
mod smithy;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::testing::Played;
use redial::written::Loaded;
use redial::{Directive, Failure, Hint, Judgement, Kind, Stage};

use super::json::{Fields, Reader, quoted};
use super::model::{Call, Outcome};

/// The names of the designs in a scenario's `policy`.
const NAMES: [&str; 5] = ["generic", "smithy", "grpc", "couchbase", "milvus"];

/// A policy as its design writes it.
#[derive(Debug)]
pub(super) enum Plan {
    Generic(generic::Plan),
    Smithy(smithy::Plan),
    Grpc,
    Couchbase(couchbase::Plan),
    Milvus(milvus::Plan),
}

/// Why a policy was not built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The field that is wrong, as a path of names.
    pub(super) field: String,
    /// What is wrong, and what to write instead.
    pub(super) text: String,
}

/// The fields that a design knows.
pub(super) struct Words {
    pub(super) call: &'static [&'static str],
    pub(super) attempt: &'static [&'static str],
    pub(super) expect: &'static [&'static str],
    pub(super) whole: &'static [&'static str],
}

/// What a design adds to how a call ended.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) error: Option<String>,
    pub(super) text: Option<String>,
    pub(super) log: Option<Vec<String>>,
}

impl Plan {
    /// Reads the policy of a scenario: one design, and what it says.
    pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Self> {
        let object = reader.any_object(value, "a policy")?;
        let [property] = object.properties.as_slice() else {
            let expected = quoted(&NAMES);
            return reader
                .mistake(value.start(), format!("a policy names one design: one of {expected}"));
        };
        let value = &property.value;
        match property.name.as_str() {
            "generic" => generic::Plan::read(reader, value).map(Plan::Generic),
            "smithy" => smithy::Plan::read(reader, value).map(Plan::Smithy),
            "grpc" => grpc::read(reader, value).map(|()| Plan::Grpc),
            "couchbase" => couchbase::Plan::read(reader, value).map(Plan::Couchbase),
            "milvus" => milvus::Plan::read(reader, value).map(Plan::Milvus),
            other => {
                let expected = quoted(&NAMES);
                reader.mistake(
                    property.name.start(),
                    format!("unknown design {other:?}; expected one of {expected}"),
                )
            }
        }
    }

    /// Its name.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Plan::Generic(_) => "generic",
            Plan::Smithy(_) => "smithy",
            Plan::Grpc => "grpc",
            Plan::Couchbase(_) => "couchbase",
            Plan::Milvus(_) => "milvus",
        }
    }

    /// The fields that its scenarios may have.
    pub(super) const fn words(&self) -> &'static Words {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) => &generic::WORDS,
            Plan::Grpc => &grpc::WORDS,
            Plan::Couchbase(_) => &couchbase::WORDS,
            Plan::Milvus(_) => &milvus::WORDS,
        }
    }

    /// Whether a call may run twice, as its fields say.
    pub(super) fn idempotent<'t>(&self, reader: &Reader<'t>, call: &Fields<'t>) -> Option<bool> {
        match self {
            Plan::Generic(plan) => plan.idempotent(reader, call),
            Plan::Smithy(_) => generic::idempotent(reader, call),
            Plan::Couchbase(_) => couchbase::idempotent(reader, call),
            Plan::Grpc | Plan::Milvus(_) => Some(true),
        }
    }

    /// What an attempt meets.
    pub(super) fn outcome<'t>(&self, reader: &Reader<'t>, attempt: &Fields<'t>) -> Option<Outcome> {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) => generic::outcome(reader, attempt),
            Plan::Grpc => grpc::outcome(reader, attempt),
            Plan::Couchbase(_) => couchbase::outcome(reader, attempt),
            Plan::Milvus(_) => milvus::outcome(reader, attempt),
        }
    }

    /// Whether a call can end with an outcome of this name.
    pub(super) fn knows(&self, outcome: &str) -> bool {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) => generic::knows(outcome),
            Plan::Grpc => grpc::knows(outcome),
            Plan::Couchbase(_) => couchbase::knows(outcome),
            Plan::Milvus(_) => milvus::knows(outcome),
        }
    }

    /// The outcome of a call that time ended.
    pub(super) const fn too_late(&self) -> &'static str {
        match self {
            Plan::Grpc | Plan::Milvus(_) => "DEADLINE_EXCEEDED",
            Plan::Generic(_) | Plan::Smithy(_) | Plan::Couchbase(_) => "timeout",
        }
    }

    /// The policies of these calls; a design whose calls share one has only that. A scenario
    /// without calls has it all the same, so that it can be refused.
    pub(super) fn build(&self, calls: &[Call]) -> Result<Vec<Loaded>, Refusal> {
        match self {
            Plan::Generic(plan) => plan.build().map(|policy| vec![policy]),
            Plan::Smithy(plan) => plan.build().map(|policy| vec![policy]),
            Plan::Couchbase(plan) => plan.build(calls),
            Plan::Milvus(plan) => plan.build().map(|policy| vec![policy]),
            Plan::Grpc => Err(Refusal { field: String::new(), text: NO_GRPC.to_owned() }),
        }
    }

    /// What the design says about a call that was played.
    pub(super) fn extras(&self, played: &Played, handed_on: Option<&str>) -> Extras {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) | Plan::Grpc => Extras::default(),
            Plan::Couchbase(_) => couchbase::extras(played),
            Plan::Milvus(plan) => plan.extras(played, handed_on),
        }
    }
}

/// What is said to a file of gRPC scenarios.
pub(super) const NO_GRPC: &str = "grpc cannot be played yet: it comes with its layer";

/// The failures that a script of `generic` and `smithy` names.
fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "server" => Kind::Server,
        "client" => Kind::Client,
        "throttling" => Kind::Throttling,
        "timeout" => Kind::Timeout,
        _ => return None,
    })
}

/// A retryable failure as an outcome.
fn fails(name: &'static str, kind: Kind, stage: Stage, hint: Hint) -> Outcome {
    let failure = Failure::new(kind).at(stage).hint(hint);
    comes(name, Directive::Retry(failure))
}

fn comes(name: &'static str, directive: Directive) -> Outcome {
    Outcome::Comes { name, judgement: Judgement::from(directive) }
}
