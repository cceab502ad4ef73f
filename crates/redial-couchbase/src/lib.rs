//! Retry handling of the Couchbase SDKs (SDK RFC 49), without I/O: retry reasons, classification of
//! responses, retry strategies and the orchestrator, which runs a request with a strategy until its timeout.
//!
//! Use it in a client of your own for Couchbase, or around one of its HTTP services. The feature `client` has
//! a reference client of the KV service (the document store). In an application with the official SDK, use
//! `redial-couchbase-sdk`. The [guide] explains the terms of the RFC and lists all defaults.
//!
//! [guide]: https://github.com/redial-rs/redial/blob/main/docs/couchbase.md
//!
//! ```
//! use redial::s;
//! use redial_couchbase::{AttemptError, Orchestrator, Response, operation};
//!
//! # #[cfg(not(feature = "tokio"))] fn main() {}
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), redial_couchbase::Error<AttemptError>> {
//! # let mut answers = vec![Ok("{}"), Err(AttemptError::from(Response::kv(0x86)))];
//! # let mut get = |_key| { let answer = answers.pop().unwrap(); async move { answer } };
//! let orchestrator = Orchestrator::new();
//! let document = orchestrator
//!     .request(operation::KV_GET, s(2))
//!     .label("airline_10")
//!     .run(|_attempt| get("airline_10"))
//!     .await?;
//! # assert_eq!(document, "{}");
//! # Ok(())
//! # }
//! ```
//!
//! - [`reason`] is the table of retry reasons, [`operation`] lists operations and their idempotency,
//!   [`Response::classify`] classifies responses, and [`ErrorMap`] is the server's description of unknown
//!   statuses.
//! - [`BestEffort`] retries until the timeout; [`FastFailOnTerminalError`] fails immediately where retries
//!   would not help. A closure is a strategy, too. [`TerminalState`] tracks terminal errors.
//! - [`Orchestrator`] runs requests with a strategy. Its [`Error`] has the stop reason and whether the
//!   request may have been executed; [`RetryLogLine`] is a line of its log.
//!
//! # Custom strategies
//!
//! A strategy decides about each failure, immediately or asynchronously
//! ([`Decision::Later`](redial::strategy::Decision)). It can read the idempotency of the request, its
//! retries and reasons so far, the time, the last failure, user data and the [`RequestContext`]. A
//! fail-fast strategy, which never retries, is three lines:
//!
//! ```
//! use redial::strategy::{Decision, Request};
//! use redial_couchbase::Orchestrator;
//!
//! fn fail_fast(_: &Request<'_>) -> Decision {
//!     Decision::Decline
//! }
//!
//! let orchestrator = Orchestrator::with(fail_fast);
//! ```
//!
//! The crate does not export one, as RFC 49 requires. A strategy that declines only where necessary and
//! delegates the rest to [`BestEffort`] keeps error handling in one place:
//!
//! ```
//! use redial::strategy::{Decision, Request, Strategy};
//! use redial_couchbase::{BestEffort, Orchestrator, reason};
//!
//! struct IsRobot;
//!
//! let orchestrator = Orchestrator::with(|request: &Request<'_>| match request.data::<IsRobot>() {
//!     Some(IsRobot) => Decision::Decline,
//!     None => BestEffort::new().retry_after(request),
//! });
//! ```
//!
//! # Retries with application context
//!
//! A response that RFC 49 does not list is final, for instance a replace of a missing document. An
//! application that knows that the document is about to be created ("retryable with application
//! context") can give that failure a reason of its own. A reason that proves that nothing changed is
//! retried for writes too:
//!
//! ```
//! use redial::s;
//! use redial_couchbase::response::status;
//! use redial_couchbase::{AttemptError, Orchestrator, Reason, Response, operation};
//!
//! const NOT_THERE_YET: Reason = Reason::new("NOT_THERE_YET").allow_non_idempotent();
//!
//! # #[cfg(not(feature = "tokio"))] fn main() {}
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), redial_couchbase::Error<AttemptError>> {
//! # let mut answers = vec![Ok(7), Err(Response::kv(0x01)), Err(Response::kv(0x01))];
//! # let mut replace = |_key| { let answer = answers.pop().unwrap(); async move { answer } };
//! let orchestrator = Orchestrator::new();
//! let cas = orchestrator
//!     .request(operation::KV_REPLACE, s(2))
//!     .run(|_attempt| {
//!         let replaced = replace("airline_10");
//!         async move {
//!             replaced.await.map_err(|response| match response {
//!                 Response::Kv { status: status::NOT_FOUND, .. } => AttemptError::Reason(NOT_THERE_YET),
//!                 response => AttemptError::Response(response),
//!             })
//!         }
//!     })
//!     .await?;
//! # assert_eq!(cas, 7);
//! # Ok(())
//! # }
//! ```
//!
//! # Limitations
//!
//! Requests are not ordered: a retried request may complete after one that was sent later, even for the
//! same document. If a request depends on another one, await the first.
//!
//! The `couchbase2` protocol is out of scope: it is gRPC, which `redial-grpc` handles.
//!
//! # Features
//!
//! | feature | what it adds | default |
//! | --- | --- | --- |
//! | `tokio` | requests wait on tokio's timer; without it, pass a sleeper to [`RequestBuilder::sleeping_on`] | yes |
//! | `serde` | parses the server's error map from JSON | no |
//! | `tracing` | log lines as events under the target `redial::couchbase` | no |
//! | `client` | the reference client of the KV service | no |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
mod context;
mod error;
mod error_map;
mod log;
mod names;
pub mod operation;
pub mod orchestrator;
pub mod presets;
pub mod reason;
pub mod response;
mod retryable_error;
mod started_attempt;
mod strategy;
mod terminal_state;
#[cfg(feature = "tracing")]
mod trace;

pub use context::{RequestAttempt, RequestContext};
pub use error::{CasMismatch, Error, TimeoutKind};
#[cfg(feature = "serde")]
pub use error_map::{ERROR_MAP_BYTES_MAX, ErrorMapError};
pub use error_map::{ErrorMap, ErrorMapEntry, RETRY_ATTRIBUTES, RetrySpec, RetrySpecStrategy};
pub use log::{RetryLogEvent, RetryLogLine, RetryLogger, retry_log_lines};
pub use names::UnknownName;
pub use operation::RequestOperation;
pub use orchestrator::{Orchestrator, RequestBuilder};
pub use response::{Response, ResponseOutcome};
pub use retryable_error::{AttemptError, RetryableError};
#[doc(hidden)]
pub use strategy::FailFast;
pub use strategy::{
    BackoffCalculator, BestEffort, FastFailOnTerminalError, StrategyName, TerminalError,
};
pub use terminal_state::{
    CollectionMap, RequestTarget, TerminalReason, TerminalState, TopologyConnection,
};

/// A retry reason; clients can define their own.
pub use redial_core::Reason;
