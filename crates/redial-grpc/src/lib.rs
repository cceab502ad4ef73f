//! gRPC retries and hedging (gRFC A6) as a tower layer for tonic channels and other gRPC clients.
//!
//! A tonic client has no retries, no hedging and no service config. This layer adds all three; the
//! generated client stays as it is:
//!
//! ```
//! # #[cfg(feature = "tonic")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use redial_echo::echo_client::EchoClient;
//! use redial_grpc::RetryLayer;
//! use tonic::transport::Endpoint;
//! use tower::ServiceBuilder;
//!
//! let layer = RetryLayer::from_json(r#"{
//!   "methodConfig": [{
//!     "name": [{ "service": "redial.test.Echo" }],
//!     "timeout": "10s",
//!     "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "2s",
//!                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }
//!   }],
//!   "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 }
//! }"#)?;
//! let channel = Endpoint::from_static("http://127.0.0.1:50051").connect_lazy();
//! let client = EchoClient::new(ServiceBuilder::new().layer(layer).service(channel));
//! # drop(client); Ok(())
//! # }
//! # #[cfg(not(feature = "tonic"))] fn main() {}
//! ```
//!
//! The [guide] leads from here to a policy for production: which methods and status codes to retry,
//! which numbers to choose, what servers must do, and what to monitor. A working client and server:
//! `cargo run -p redial-grpc --example retries`.
//!
//! | topic | items | more |
//! | --- | --- | --- |
//! | the layer and its options | [`RetryLayer`], [`RetryLayerBuilder`] | [guide][options] |
//! | policies by method; a config error lists every problem | [`ServiceConfig`], [`Problems`] | [guide][config] |
//! | one deadline for all attempts, delays and the response | `Request::set_timeout` of tonic, `timeout` in the config; never `Endpoint::timeout` | [guide][deadlines] |
//! | options of a single call | [`CallOptions`] | [guide][call] |
//! | why a call failed, with the outcome of each attempt | [`CallReport`], [`CallReports`] | [guide][fails] |
//! | event log of a single call | [`SharedCallLog`], [`Attempts`] | [guide][log] |
//! | changing the config or switching retries off at run time | [`Control`], [`ConfigWatch`] | [guide][runtime] |
//! | addresses and service config from DNS | crate `redial-grpc-dns` | [guide][dns] |
//! | hedging at a latency quantile of the method | [`HedgeAt`], [`RetryLayerBuilder::hedge_at`] | [guide][latency] |
//! | statistics, metrics, spans | [`Control::statistics`], features `metrics`, `opentelemetry`, `tracing` | below, [guide][metrics] |
//! | streaming requests and their replay buffer | [`Replay`] | [guide][streams] |
//! | load balancing: retries and hedges use another backend | crate `redial-grpc-balance`, [`UsedBackends`] | [guide][backends] |
//! | one retry budget for gRPC, HTTP and AWS clients | [`RetryBudget`], [`RetryLayerBuilder::retry_budget`] | [guide][budgets] |
//! | servers: previous attempts, pushback, held headers, deadlines, retry depth | crate `redial-grpc-server` | [guide][servers] |
//! | other versions of tonic, other clients | [`RetryLayer::adapter`], [`ClientAdapter`] | |
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `tonic`, on by default | clients of tonic 0.14; without it see [`RetryLayer::adapter`] |
//! | `metrics`, `opentelemetry` | metrics, for the crates `metrics` 0.24 and `opentelemetry` 0.33 |
//! | `tracing` | spans of calls and attempts |
//!
//! References such as `decision G15` name entries of [`docs/decisions.md`][decisions]: a question that
//! A6 leaves open, our decision, and the test that proves it.
//!
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
//! [guide]: https://github.com/redial-rs/redial/blob/main/docs/grpc/getting-started.md
//! [options]: https://github.com/redial-rs/redial/blob/main/docs/grpc/reference.md#layer-options
//! [config]: https://github.com/redial-rs/redial/blob/main/docs/grpc/reference.md#service-config-fields
//! [deadlines]: https://github.com/redial-rs/redial/blob/main/docs/grpc/policies.md#deadlines
//! [call]: https://github.com/redial-rs/redial/blob/main/docs/grpc/policies.md#options-for-one-call
//! [fails]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#why-did-a-call-fail
//! [log]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#call-logs
//! [runtime]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#changing-the-config-at-run-time
//! [dns]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#service-config-through-dns
//! [latency]: https://github.com/redial-rs/redial/blob/main/docs/grpc/policies.md#hedging-at-a-latency-quantile
//! [metrics]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#metrics
//! [backends]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#load-balancing
//! [streams]: https://github.com/redial-rs/redial/blob/main/docs/grpc/reference.md#request-buffering-and-replay
//! [budgets]: https://github.com/redial-rs/redial/blob/main/docs/grpc/policies.md#retry-budgets
//! [servers]: https://github.com/redial-rs/redial/blob/main/docs/grpc/servers.md
//!
//! # Observability
//!
//! - [`Control::statistics`] always counts retries, hedges, throttled calls and full buffers.
//! - Feature `metrics`: `RetryLayerBuilder::metrics` reports to the `metrics` facade. Feature
//!   `opentelemetry`: `RetryLayerBuilder::meter` reports to an OpenTelemetry meter. `Metric` lists the
//!   metrics, with the names, units and labels of gRPC's A66 and A96; `Gauge` lists the gauges. With
//!   either one, calls with retries disabled are measured too and do not take the pass-through path.
//! - Feature `tracing`: one span `grpc.call` per call and, below it, one span `grpc.attempt` per
//!   attempt, at INFO under the target `redial::grpc`. Services below the layer run in the span of the
//!   attempt, the response body in the span of the call. The span of a call contains the events of
//!   every `redial` call under the target `redial` (see [`redial::trace`]). A watched config file emits
//!   `config in force` (INFO) and `config refused` (WARN). A balanced channel emits its own events
//!   under `redial::grpc`: `backends changed` (INFO), `backend ejected`, `name not resolved`,
//!   `config refused` and `config has warnings` (WARN).
//!
//! | span | fields | at its end |
//! | --- | --- | --- |
//! | `grpc.call` | `otel.name` (`Sent.pkg.Service.Method`), `rpc.system.name`, `rpc.method`, `grpc.target` | `rpc.response.status_code`, `otel.status_code`, `why`, `attempts` |
//! | `grpc.attempt` | `otel.name` (`Attempt.pkg.Service.Method`), `otel.kind`, `rpc.system.name`, `rpc.method`, `previous-rpc-attempts`, `transparent-retry` | `rpc.response.status_code`, `otel.status_code` |
//!
//! Span names in `tracing` are fixed at compile time, so the names of gRPC's A45 are in `otel.name`,
//! which OpenTelemetry exporters use as the span name. `otel.status_code` is `ERROR` unless the status
//! is OK or CANCELLED: an attempt that the client cancelled is not an error. When the features are off
//! or no subscriber is installed, the layer reads no clock and allocates nothing for observability.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backends;
#[doc(hidden)]
pub mod balancing;
mod buffer_limits;
mod call;
mod client_adapter;
mod clock;
mod config_file;
mod config_watch;
mod control;
mod header_scanner;
#[cfg(feature = "tonic")]
#[doc(hidden)]
pub mod inbound_attempt;
mod layer;
#[cfg(all(test, loom))]
mod loom_models;
mod message_size;
mod methods;
mod observe;
mod options;
mod previous_attempts_stamp;
mod replay_buffer;
mod report;
mod response_status;
mod service;
mod shared;
mod statistics;
mod sync;
mod throttle;
pub mod timeout;
mod transport_error;
mod unreachable;

pub use backends::{BackendId, USED_BACKENDS_MAX, UsedBackends};
pub use call::{ResponseBody, ResponseFuture};
pub use client_adapter::{AdapterFn, ClientAdapter, LocalStatus, Tonic};
pub use config_file::ConfigFileError;
pub use config_watch::{ConfigWatch, WATCH_MIN};
pub use control::Control;
#[cfg(feature = "tonic")]
pub use inbound_attempt::InboundAttempt;
pub use layer::{RetryLayer, RetryLayerBuilder};
pub use methods::METHODS_MAX;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub use observe::{Gauge, Metric};
pub use options::{CallOptions, SharedCallLog};
pub use redial::throttle::RetryBudget;
pub use redial::{BoxError, CallLog, Event, StopReason};
pub use redial_core::{HedgeAt, HedgeAtBuilder, HedgeDelay, LatencyEstimate};
pub use redial_service_config::{
    AttemptTimeout, BUCKETS, ClientOptions, Code, DeadlineAction, Jitter, Problem, Problems,
    Retries, ServiceConfig, Statistics,
};
pub use replay_buffer::{Replay, ReplayError};
pub use report::{
    ATTEMPTS_REPORTED_MAX, AttemptReport, CallReport, CallReports, LOGGED_MESSAGE_MAX, PolicyKind,
};
pub use service::RetryService;
pub use shared::BackendCounts;
pub use statistics::MethodStatistics;
pub use unreachable::Unreachable;

/// Number of attempts of a call, including the first. Present in the extensions of a response unless
/// the first attempt produced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts(pub u32);
