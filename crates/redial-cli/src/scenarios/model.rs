//! A scenario as it was read: what a policy is given, and what must then happen.

use redial::{StopReason, classify::Classification, time::Ns};
use redial_service_config::BUCKETS;

use super::configs::Case;
use super::designs::Plan;

/// A file of scenarios, or of service configs.
#[derive(Debug)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its scenarios, in order.
    pub scenarios: Vec<Scenario>,
    /// Its service configs, in order; a file has one of the two.
    pub configs: Vec<Case>,
}

/// One scenario.
#[derive(Debug)]
pub struct Scenario {
    /// Its name, unique in its file.
    pub name: String,
    /// The line on which it begins.
    pub line: usize,
    /// The policy, in the words of its design.
    pub(super) plan: Plan,
    /// The draws, each in `[0, 1)`; the last one repeats.
    pub(super) draws: Vec<f64>,
    /// Whether the policy must not build. Then there are no calls.
    pub(super) refused: bool,
    pub(super) calls: Vec<Call>,
    pub(super) expect: ExpectWhole,
}

/// What is expected of a scenario. What is absent is not compared.
#[derive(Debug, Default)]
pub(super) struct ExpectWhole {
    /// What is left in the throttle when the last call has ended.
    pub(super) tokens: Option<f64>,
    /// The statistics of methods.
    pub(super) stats: Vec<(String, ExpectStats)>,
}

/// What is expected of the statistics of a method. What is absent is not compared.
#[derive(Debug, Default)]
pub(super) struct ExpectStats {
    pub(super) retries: Option<u64>,
    pub(super) failed: Option<u64>,
    /// All buckets, those that are not written being empty.
    pub(super) histogram: Option<[u64; BUCKETS.len()]>,
    pub(super) transparent: Option<u64>,
}

/// One call of a scenario. Times count from its start, in nanoseconds.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) at: Ns,
    pub(super) deadline: Option<Ns>,
    pub(super) cancel: Option<Ns>,
    pub(super) idempotent: bool,
    pub(super) grpc: Option<GrpcCall>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) expect: Expect,
}

/// What only a call of gRPC has.
#[derive(Debug)]
pub(super) struct GrpcCall {
    pub(super) method: String,
    /// What a call of this method does.
    pub(super) plan: redial_service_config::Plan,
    /// When the application writes messages, and of how many bytes.
    pub(super) messages: Vec<(Ns, u64)>,
    /// How many bytes of them it may keep; `None`: it keeps none.
    pub(super) buffer_max: Option<u64>,
    /// How many bytes one of them may have, its prefix included (decision G41).
    pub(super) message_max: u64,
}

/// What an attempt meets.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) after: Ns,
    /// When response headers arrive, ahead of the outcome.
    pub(super) headers: Option<Ns>,
    /// How many messages its transport takes; `None`: all.
    pub(super) accepts: Option<u64>,
    pub(super) outcome: Outcome,
    pub(super) grpc: Option<GrpcAttempt>,
}

/// What only an attempt of gRPC meets.
#[derive(Clone, Debug, Default)]
pub(super) struct GrpcAttempt {
    /// The raw texts of `grpc-retry-pushback-ms`.
    pub(super) pushback: Vec<String>,
    /// What is known of a connection that failed.
    pub(super) seen: Option<Seen>,
}

/// What is known of an attempt whose connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Unsent,
    Unprocessed,
    Unconnected,
}

/// What becomes of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Nothing ever comes.
    Hang,
    /// It comes, has this name in expectations, and is judged like this.
    Comes { name: &'static str, classification: Classification },
}

/// What is expected of a call. What is absent is not compared; `cancels` only if nothing is expected
/// at all, since left out it means none.
#[derive(Debug, Default)]
pub(super) struct Expect {
    pub(super) starts: Option<Vec<Ns>>,
    pub(super) cancels: Option<Vec<(u32, Ns)>>,
    pub(super) end: Option<ExpectEnd>,
    pub(super) tokens: Option<f64>,
    pub(super) text: Option<String>,
    pub(super) log: Option<Vec<String>>,
    pub(super) previous: Option<Vec<Option<String>>>,
    pub(super) timeouts: Option<Vec<Option<Ns>>>,
    pub(super) sent: Option<Vec<u64>>,
}

/// How a call is expected to end; `attempt` and `error` are absent where there is none.
#[derive(Debug)]
pub(super) struct ExpectEnd {
    pub(super) at: Option<Ns>,
    pub(super) outcome: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) error: Option<String>,
}
