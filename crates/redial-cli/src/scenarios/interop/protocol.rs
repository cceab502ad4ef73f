//! The JSON lines that are exchanged with a program (interop/README.md).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A scenario, as sent to the program. Times are milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CaseRequest {
    pub(super) id: u64,
    pub(super) target: String,
    pub(super) config: String,
    pub(super) options: Options,
    pub(super) give_up: f64,
    pub(super) calls: Vec<CallRequest>,
}

/// The client options of the scenario that differ from the defaults.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempts_cap: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retries: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per_rpc_buffer_limit_in_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_buffer_size_in_bytes: Option<u64>,
}

/// A call of a scenario.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CallRequest {
    pub(super) at: f64,
    pub(super) method: String,
    pub(super) kind: Kind,
    pub(super) metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cancel: Option<f64>,
    pub(super) messages: Vec<Message>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Unary,
    ClientStream,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Message {
    pub(super) at: f64,
    pub(super) bytes: u64,
}

/// The program's answer for a scenario.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) refused: Option<String>,
    #[serde(default)]
    pub(super) calls: Vec<AnswerCall>,
}

/// The program's answer for a call.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct AnswerCall {
    pub(super) began: f64,
    pub(super) ended: Option<f64>,
    pub(super) outcome: Option<String>,
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    pub(super) answered_by: Option<String>,
    #[serde(default)]
    pub(super) previous: Option<String>,
}
