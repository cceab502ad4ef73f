//! Couchbase's retry handling, the SDK RFC 49: reasons, response codes, strategies and the
//! orchestrator, without I/O.
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
//!     .about("airline_10")
//!     .run(|_attempt| get("airline_10"))
//!     .await?;
//! # assert_eq!(document, "{}");
//! # Ok(())
//! # }
//! ```
//!
//! - [`reason`] is the table of reasons, [`operation`] says which operations may run twice,
//!   [`Response::classify`] what a response means, [`ErrorMap`] what the server says about statuses that
//!   are not known.
//! - [`BestEffort`] retries until the timeout, [`FastFailOnTerminalError`] fails at once where that
//!   would not help; a closure is a strategy, too. [`TerminalState`] knows what is terminal.
//! - [`Orchestrator`] runs requests with them. Its [`Error`] says why a request ended and whether it
//!   may have run; [`RetryLogLine`] is what it logs.
//!
//! # A strategy of your own
//!
//! A strategy decides about each failure, at once or later ([`Decision::Later`](redial::strategy::Decision)).
//! It sees whether the request is idempotent, its retries and reasons so far, the time, the last
//! failure, your own data, and the [`RequestContext`]. Fail fast, which never retries, is three lines:
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
//! It is not offered ready-made, as the document wants it: best effort covers most failures, and a
//! strategy that declines only where it must, and leaves the rest to [`BestEffort`], keeps the
//! handling of errors in one place:
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
//! # Failures that only the application can judge
//!
//! A response that the document does not list is final: a replace that finds no document, for
//! instance. An application that knows that the document is about to appear ("retryable with
//! application context") gives that failure a reason of its own. A reason that proves that nothing was
//! changed is retried for writes too:
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
//! # What is not promised
//!
//! No order between requests: a request that is retried may end after one that was sent later, even
//! for the same document. If one needs the result of another, wait for it.
//!
//! The protocol `couchbase2` is out of scope: its errors are gRPC's, and `redial-grpc` handles those.
//!
//! # Features
//!
//! | feature | what it adds | default |
//! | --- | --- | --- |
//! | `tokio` | requests wait on tokio's timer; without it, name a sleeper with [`RequestBuilder::sleeping_on`] | yes |
//! | `serde` | the server's error map is read from its JSON | no |
//! | `tracing` | log lines as events under the target `redial::couchbase` | no |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

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
mod strategy;
mod terminal;
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
pub use terminal::{
    CollectionMap, RequestTarget, TerminalReason, TerminalState, TopologyConnection,
};

/// A reason, open for clients to add their own.
pub use redial_core::Reason;
