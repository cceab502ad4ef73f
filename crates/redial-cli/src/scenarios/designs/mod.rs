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
use redial::config::AnyPolicy;
use redial::testing::Played;
use redial::{Directive, Failure, Hint, Kind, Stage, classify::Classification};

use super::json::{Fields, Reader, quoted};
use super::model::{Call, GrpcAttempt, GrpcCall, Outcome};

/// The names of the designs in a scenario's `policy`.
const NAMES: [&str; 5] = ["generic", "smithy", "grpc", "couchbase", "milvus"];

/// A policy as its design writes it.
#[derive(Debug)]
pub(super) enum Plan {
    Generic(generic::Plan),
    Smithy(smithy::Plan),
    Grpc(grpc::Plan),
    Couchbase(couchbase::Plan),
    Milvus(milvus::Plan),
}

/// Why a policy was not built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The field that is wrong, as a path of names.
    pub(super) field: String,
    /// The byte of the file at which it stands, if that is known better.
    pub(super) at: Option<usize>,
    /// What is wrong, and what to write instead.
    pub(super) text: String,
}

impl Refusal {
    fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        Refusal { field: field.into(), at: None, text: text.into() }
    }

    /// All of it as one text.
    pub(super) fn join(refusals: &[Refusal]) -> String {
        let texts: Vec<_> = refusals.iter().map(|refusal| refusal.text.as_str()).collect();
        texts.join("\n")
    }
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
            "grpc" => grpc::Plan::read(reader, value).map(Plan::Grpc),
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
            Plan::Grpc(_) => "grpc",
            Plan::Couchbase(_) => "couchbase",
            Plan::Milvus(_) => "milvus",
        }
    }

    /// The fields that its scenarios may have.
    pub(super) const fn words(&self) -> &'static Words {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) => &generic::WORDS,
            Plan::Grpc(_) => &grpc::WORDS,
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
            Plan::Grpc(_) | Plan::Milvus(_) => Some(true),
        }
    }

    /// What only a call of gRPC says; nothing for others.
    pub(super) fn grpc_call<'t>(
        &self,
        reader: &Reader<'t>,
        call: &Fields<'t>,
    ) -> Option<Option<GrpcCall>> {
        match self {
            Plan::Grpc(plan) => plan.call(reader, call).map(Some),
            _ => Some(None),
        }
    }

    /// What an attempt meets; of gRPC also how a wire shows it.
    pub(super) fn outcome<'t>(
        &self,
        reader: &Reader<'t>,
        attempt: &Fields<'t>,
        call: &Fields<'t>,
        grpc: Option<&GrpcCall>,
    ) -> Option<(Outcome, Option<GrpcAttempt>)> {
        let outcome = match self {
            Plan::Generic(_) | Plan::Smithy(_) => generic::outcome(reader, attempt),
            Plan::Grpc(_) => {
                let (outcome, grpc) = grpc::outcome(reader, attempt, grpc?)?;
                return Some((outcome, Some(grpc)));
            }
            Plan::Couchbase(_) => couchbase::outcome(reader, attempt, call),
            Plan::Milvus(_) => milvus::outcome(reader, attempt),
        };
        outcome.map(|outcome| (outcome, None))
    }

    /// How many bytes of messages all calls together may keep, if that is bounded.
    pub(super) fn buffer_max(&self) -> Option<u64> {
        match self {
            Plan::Grpc(plan) => plan.buffer_max(),
            _ => None,
        }
    }

    /// Whether a call can end with an outcome of this name.
    pub(super) fn knows(&self, outcome: &str) -> bool {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) => generic::knows(outcome),
            Plan::Grpc(_) => grpc::knows(outcome),
            Plan::Couchbase(_) => couchbase::knows(outcome),
            Plan::Milvus(_) => milvus::knows(outcome),
        }
    }

    /// The outcome of a call that time ended.
    pub(super) const fn too_late(&self) -> &'static str {
        match self {
            Plan::Grpc(_) | Plan::Milvus(_) => "DEADLINE_EXCEEDED",
            Plan::Generic(_) | Plan::Smithy(_) | Plan::Couchbase(_) => "timeout",
        }
    }

    /// The policies of these calls; a design whose calls share one has only that. A scenario
    /// without calls has it all the same, so that it can be refused.
    pub(super) fn build(&self, calls: &[Call]) -> Result<Vec<AnyPolicy>, Vec<Refusal>> {
        let one = |policy| vec![policy];
        let built = match self {
            Plan::Grpc(plan) => return plan.build(calls),
            Plan::Generic(plan) => plan.build().map(one),
            Plan::Smithy(plan) => plan.build().map(one),
            Plan::Couchbase(plan) => plan.build(calls),
            Plan::Milvus(plan) => plan.build().map(one),
        };
        built.map_err(|refusal| vec![refusal])
    }

    /// What the design says about a call that was played.
    pub(super) fn extras(&self, played: &Played, handed_on: Option<&str>) -> Extras {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) | Plan::Grpc(_) => Extras::default(),
            Plan::Couchbase(_) => couchbase::extras(played),
            Plan::Milvus(plan) => plan.extras(played, handed_on),
        }
    }
}

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
    Outcome::Comes { name, classification: Classification::from(directive) }
}
