//! The retry designs: how each writes its policy and names its outcomes.
//!
//! Decisions are made in the crate of the design; this module only translates the notation.

pub(super) mod couchbase;
mod generic;
mod grpc;
pub(super) mod milvus;
mod smithy;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial::classify::Hint;
use redial::config::AnyPolicy;
use redial::testing::Played;
use redial::{Directive, Failure, FailureKind, Stage, classify::Classification};

use super::json::{Fields, Reader, quoted};
use super::model::{Call, GrpcAttempt, GrpcCall, Outcome};

/// The names of the designs in a scenario's `policy`.
const NAMES: [&str; 5] = ["generic", "smithy", "grpc", "couchbase", "milvus"];

/// A policy in the notation of its design.
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
    /// The byte offset in the file, if it is more precise than the path.
    pub(super) at: Option<usize>,
    /// What is wrong, and what to write instead.
    pub(super) text: String,
}

impl Refusal {
    fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        Refusal { field: field.into(), at: None, text: text.into() }
    }

    /// All refusals as one text.
    pub(super) fn join(refusals: &[Refusal]) -> String {
        let texts: Vec<_> = refusals.iter().map(|refusal| refusal.text.as_str()).collect();
        texts.join("\n")
    }
}

/// The field names that a design accepts.
pub(super) struct FieldNames {
    pub(super) call: &'static [&'static str],
    pub(super) attempt: &'static [&'static str],
    pub(super) expect: &'static [&'static str],
    pub(super) whole: &'static [&'static str],
}

/// Additional results of a design.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) error: Option<String>,
    pub(super) text: Option<String>,
    pub(super) log: Option<Vec<String>>,
}

impl Plan {
    /// Reads the policy of a scenario: the design and its parameters.
    pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Self> {
        let object = reader.any_object(value, "a policy")?;
        let [property] = object.properties.as_slice() else {
            let expected = quoted(&NAMES);
            return reader.diagnostic(
                value.start(),
                format!("a policy names one design: one of {expected}"),
            );
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
                reader.diagnostic(
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

    /// The field names that its scenarios accept.
    pub(super) const fn field_names(&self) -> &'static FieldNames {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) => &generic::FIELD_NAMES,
            Plan::Grpc(_) => &grpc::FIELD_NAMES,
            Plan::Couchbase(_) => &couchbase::FIELD_NAMES,
            Plan::Milvus(_) => &milvus::FIELD_NAMES,
        }
    }

    /// Whether a call is idempotent.
    pub(super) fn idempotent<'t>(&self, reader: &Reader<'t>, call: &Fields<'t>) -> Option<bool> {
        match self {
            Plan::Generic(plan) => plan.idempotent(reader, call),
            Plan::Smithy(_) => generic::idempotent(reader, call),
            Plan::Couchbase(_) => couchbase::idempotent(reader, call),
            Plan::Grpc(_) | Plan::Milvus(_) => Some(true),
        }
    }

    /// The gRPC fields of a call; `None` for other designs.
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

    /// The outcome of an attempt, for gRPC with its transport details.
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

    /// The operation that a call names; Couchbase only.
    pub(super) fn operation<'t>(&self, call: &Fields<'t>) -> Option<String> {
        match self {
            Plan::Couchbase(_) => couchbase::operation_name(call),
            _ => None,
        }
    }

    /// The response of an attempt as it is written; Couchbase only. The outcome was read before.
    pub(super) fn response<'t>(
        &self,
        reader: &Reader<'t>,
        attempt: &Fields<'t>,
    ) -> Option<redial_couchbase::Response> {
        match self {
            Plan::Couchbase(_) => couchbase::written_response(reader, attempt),
            _ => None,
        }
    }

    /// The replay buffer limit of all calls together, if any.
    pub(super) fn buffer_max(&self) -> Option<u64> {
        match self {
            Plan::Grpc(plan) => plan.buffer_max(),
            _ => None,
        }
    }

    /// Whether the design has an outcome with this name.
    pub(super) fn is_outcome(&self, outcome: &str) -> bool {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) => generic::is_outcome(outcome),
            Plan::Grpc(_) => grpc::is_outcome(outcome),
            Plan::Couchbase(_) => couchbase::is_outcome(outcome),
            Plan::Milvus(_) => milvus::is_outcome(outcome),
        }
    }

    /// The outcome of a call that ends by its deadline.
    pub(super) const fn too_late(&self) -> &'static str {
        match self {
            Plan::Grpc(_) | Plan::Milvus(_) => "DEADLINE_EXCEEDED",
            Plan::Generic(_) | Plan::Smithy(_) | Plan::Couchbase(_) => "timeout",
        }
    }

    /// The policies of these calls; a single one if the calls share it. It is built even without
    /// calls, so that it can be refused.
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

    /// The additional results of a call.
    pub(super) fn extras(&self, played: &Played, returned: Option<&str>) -> Extras {
        match self {
            Plan::Generic(_) | Plan::Smithy(_) | Plan::Grpc(_) => Extras::default(),
            Plan::Couchbase(_) => couchbase::extras(played),
            Plan::Milvus(plan) => plan.extras(played, returned),
        }
    }
}

/// The failure kinds of `generic` and `smithy`.
fn kind(name: &str) -> Option<FailureKind> {
    Some(match name {
        "server" => FailureKind::Server,
        "client" => FailureKind::Client,
        "throttling" => FailureKind::Throttling,
        "timeout" => FailureKind::Timeout,
        _ => return None,
    })
}

/// A retryable failure as an outcome.
fn fails(name: &'static str, kind: FailureKind, stage: Stage, hint: Hint) -> Outcome {
    let failure = Failure::new(kind).at(stage).hint(hint);
    comes(name, Directive::Retry(failure))
}

fn comes(name: &'static str, directive: Directive) -> Outcome {
    Outcome::Comes { name, classification: Classification::from(directive) }
}
