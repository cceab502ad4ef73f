//! A loaded scenario: the policy, its inputs, and the expected behaviour.

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
    /// The policy, in the notation of its design.
    pub(super) plan: Plan,
    /// The random draws, each in `[0, 1)`; the last one repeats.
    pub(super) draws: Vec<f64>,
    /// Whether the policy must not build. Then there are no calls.
    pub(super) refused: bool,
    pub(super) calls: Vec<Call>,
    pub(super) expect: ExpectWhole,
}

/// The expectations of a scenario. Absent ones are not compared.
#[derive(Debug, Default)]
pub(super) struct ExpectWhole {
    /// The tokens in the throttle after the last call.
    pub(super) tokens: Option<f64>,
    /// The statistics of methods.
    pub(super) stats: Vec<(String, ExpectStats)>,
}

/// The expected statistics of a method. Absent ones are not compared.
#[derive(Debug, Default)]
pub(super) struct ExpectStats {
    pub(super) retries: Option<u64>,
    pub(super) failed: Option<u64>,
    /// All buckets; unlisted ones are empty.
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
    /// The name of the operation; Couchbase only.
    pub(super) operation: Option<String>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) expect: Expect,
}

/// The gRPC part of a call.
#[derive(Debug)]
pub(super) struct GrpcCall {
    pub(super) method: String,
    /// The policy of the method.
    pub(super) plan: redial_service_config::Plan,
    /// The time and size of each request message.
    pub(super) messages: Vec<(Ns, u64)>,
    /// The size of its replay buffer; `None`: no buffer.
    pub(super) buffer_max: Option<u64>,
    /// The largest allowed message including its prefix (decision G41).
    pub(super) message_max: u64,
}

/// The scripted behaviour of an attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) after: Ns,
    /// When response headers arrive before the outcome.
    pub(super) headers: Option<Ns>,
    /// How many messages the transport accepts; `None`: all.
    pub(super) accepts: Option<u64>,
    pub(super) outcome: Outcome,
    pub(super) grpc: Option<GrpcAttempt>,
    /// The response as it is written; Couchbase only.
    pub(super) response: Option<redial_couchbase::Response>,
}

/// The gRPC part of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct GrpcAttempt {
    /// The raw texts of `grpc-retry-pushback-ms`.
    pub(super) pushback: Vec<String>,
    /// The proof that a transport error gives.
    pub(super) seen: Option<Proof>,
}

/// What the client can prove about an attempt whose connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    Unsent,
    Unprocessed,
    Unconnected,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// The attempt never ends by itself.
    Hang,
    /// An outcome with this name in expectations and this classification.
    Comes { name: &'static str, classification: Classification },
}

/// The expectations of a call. Absent ones are not compared, except `cancels`: without it no
/// cancellation is expected, unless the call has no expectations.
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

/// The expected end of a call; `attempt` and `error` are `None` if there is none.
#[derive(Debug)]
pub(super) struct ExpectEnd {
    pub(super) at: Option<Ns>,
    pub(super) outcome: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) error: Option<String>,
}
