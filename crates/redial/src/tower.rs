//! A tower layer that retries or hedges the requests of a service (feature `tower`).
//!
//! # When to use it
//!
//! Use it around a [`Service`](tower_service::Service) whose requests can be cloned or made again: an HTTP
//! client, a connection pool, a client of your own. For a single call, [`Policy::retry`](crate::Policy::retry)
//! is simpler. For gRPC use `redial-grpc`, which also replays streams and reads service configs.
//!
//! ```
//! use redial::tower::RetryLayer;
//! use redial::{Policy, ms, s};
//! use std::io;
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! # use std::sync::atomic::{AtomicU32, Ordering};
//! # static TRIES: AtomicU32 = AtomicU32::new(0);
//! # async fn fetch(path: &'static str) -> io::Result<String> {
//! #     if TRIES.fetch_add(1, Ordering::Relaxed) < 2 { return Err(io::ErrorKind::ConnectionReset.into()) }
//! #     Ok(format!("the page {path}"))
//! # }
//!
//! fn is_transient(error: &io::Error) -> bool {
//!     error.kind() == io::ErrorKind::ConnectionReset
//! }
//!
//! static FETCH: Policy = Policy::exponential(ms(100)).attempts(4).deadline(s(10)).build();
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), redial::Error<io::Error>> {
//! let mut client = ServiceBuilder::new()
//!     .layer(RetryLayer::new(&FETCH).when(is_transient))
//!     .service(service_fn(fetch));
//!
//! let page = client.ready().await?.call("/index").await?;
//! assert_eq!(page, "the page /index");
//! # assert_eq!(TRIES.load(Ordering::Relaxed), 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Defaults
//!
//! | setting | default | reason |
//! | --- | --- | --- |
//! | attempts, backoff, jitter, deadline, retry budget | those of the [`Policy`](crate::Policy) | one set of rules for calls and services |
//! | retried errors | none, or those that [`Transient`](crate::Transient) accepts | a retry that is not safe must not happen by default: use [`RetryLayer::when`] |
//! | copies of the request | [`Clone`] | no configuration for most requests; [`RetryLayer::clone_request`] copies by a function, which may refuse |
//! | idempotency | requests are taken as idempotent | mark the others with [`RetryLayer::call_options`] |
//! | hooks, call logs | none | a success without them allocates nothing |
//!
//! # Readiness
//!
//! `poll_ready` is passed through: the service that is ready makes the first attempt, so the permit of a
//! concurrency limit or the slot of a buffer that it holds is used. A retry or a hedge runs on a clone of
//! the service. The wait until that clone is ready is a part of the attempt: the deadline and the attempt
//! timeout bound it, and an error of `poll_ready` is classified like any other.
//!
//! Clones must share their state, as those of tower's own services do, and must be cheap.
//!
//! `call` starts nothing: the first attempt starts when the response future is first polled. A future that is
//! not polled sends nothing, and keeps the permit or the slot of the service until it is dropped. Of several
//! futures, the one that is polled first sends first. Spawn a future whose request must be on its way before
//! its response is awaited.
//!
//! # What can go wrong
//!
//! - **An error has another type than the service's.** It is [`redial::Error`](crate::Error) around it,
//!   because a deadline can pass before the service has returned an error.
//!   [`into_last`](crate::Error::into_last) returns the service's own.
//! - **A response that `until` or `classify` rejects becomes an error.** The last one is in
//!   [`last_value`](crate::Error::last_value). To return it as a response, add `.map_result(last_response)`
//!   outside the layer ([`last_response`]).
//! - **A layer outside, such as a buffer, rejects the error.** The service's error is `BoxError`, which does
//!   not implement [`std::error::Error`]: add `.map_err(redial::Error::boxed)` between them.
//! - **A request is not retried, with the reason "already committed to this attempt".**
//!   [`RetryLayer::clone_request`] returned `None` for it, so there was one attempt.
//! - **A retry waits although the server is idle.** A concurrency limit inside the layer is full. Outside
//!   the layer, one permit covers all attempts of a request.
//! - **Two layers retry the same request.** Attempts multiply: three of three are nine. Retry in one layer,
//!   or share a budget ([`Throttle::budget`](crate::Throttle::budget)).
//! - **The service is not `Clone`.** A retry runs on a clone: put a `.buffer(..)` of tower between the layer and
//!   the service.
//! - **The method `oneshot`, `ready` or `call` exists, but its trait bounds were not satisfied.** The layer has no
//!   `.when(..)` (its type then contains `NeedsWhen`), the request is not `Clone`
//!   ([`RetryLayer::clone_request`]), or a closure takes another type than the service's error or response.
//! - **`type annotations needed` for a closure.** The layer does not know the service yet: state the type of
//!   the argument, as in `|error: &io::Error| ..`.
//!
//! # Compared with `tower::retry`
//!
//! | | `tower::retry` | this layer |
//! | --- | --- | --- |
//! | policy | a trait to implement, with its counter, sleep and budget | a value; which errors are retried is all that you write |
//! | budget | optional; charged and credited by your policy | on by default; refunded if a retry does not start |
//! | deadline, attempt timeout | none: a `Timeout` layer | part of the policy. No sleep that the deadline would cut short |
//! | error of `poll_ready` before a retry | ends the request | is classified |
//! | after the last attempt | the service's last result | a success, or an error that states attempts, time and reason |
//! | hedging | `tower::hedge`: one hedge, by latency only | the same layer with a [`Hedged`](crate::Hedged) policy |
//! | service of a retry | one clone for all retries | a clone for each |
//! | first attempt | starts with `call` | starts when the response future is first polled |

mod attempt;
mod call_logs;
mod call_options;
mod clone_request;
mod future;
mod layer;
mod operation;
mod policy;
mod service;

pub use call_logs::CallLogs;
pub use call_options::{CallOptions, ConfigureCall, ConfigureWith, NoOptions, OnEvent};
pub use clone_request::{CloneRequest, CloneWith, Cloned};
pub use future::ResponseFuture;
pub use layer::RetryLayer;
pub use policy::{
    IntoPolicy, SharedAnyPolicy, SharedHedged, SharedPolicy, StaticHedged, StaticPolicy,
};
pub use service::{RetryService, last_response};
