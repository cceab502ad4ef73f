//! A gRPC channel over several backends: name resolution, load balancing, outlier detection and
//! connection management below the retry layer. Retries and hedges go to backends that the call has
//! not used yet.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use redial_echo::echo_client::EchoClient;
//! use redial_grpc_balance as balance;
//!
//! let channel = balance::channel("dns:///orders.internal:50051")
//!     .default_service_config(r#"{ "loadBalancingPolicy": "round_robin" }"#)
//!     .build()?;
//! let client = EchoClient::new(channel);
//! # drop(client); Ok(())
//! # }
//! ```
//!
//! The terms are gRPC's. A *subchannel* is one backend address with its connection. The *picker*
//! chooses a ready subchannel for each attempt.
//!
//! - **Load balancing.** `loadBalancingPolicy` of the active config selects `pick_first` or
//!   `round_robin`. Retries and hedges prefer backends that their call has not used, then the least
//!   recently used one. Under `pick_first` they connect another address for that; under
//!   `round_robin` they do not affect the order of first attempts.
//! - **Outlier detection.** Backends that keep failing are ejected for a while, but never all of
//!   them ([`OutlierDetection`]).
//! - **Connection backoff.** After a failed connection attempt the next one waits, 50 ms at first
//!   and longer each time ([`ChannelBuilder::connect_backoff`]). A connection that has returned a
//!   response is reconnected immediately when it closes. A call waits while a backend is connecting;
//!   when all backends are in backoff the attempt fails with UNAVAILABLE ([`Unreachable`]), and the
//!   retry policy decides.
//! - **Name resolution.** Names are resolved again when a connection is lost or cannot be made
//!   ([`Resolver`]).
//!
//! The [guide] describes every option.
//!
//! [guide]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#load-balancing

#![cfg_attr(docsrs, feature(doc_cfg))]

mod balancer;
mod builder;
mod catch_panic;
mod channel;
mod connection;
mod connection_backoff;
mod error;
mod outlier_detection;
mod resolver;
mod service;
mod snapshot;
mod subchannels;
mod tasks;
// Public for `redial-grpc-dns`, which parses targets with the same syntax.
#[doc(hidden)]
pub mod target;
mod trace;

pub use builder::{
    CONNECT_TIMEOUT_DEFAULT, ChannelBuilder, RESET_ERRORS_MAX, RESET_STREAMS_MAX,
    RESOLVE_INTERVAL_MIN_DEFAULT,
};
pub use channel::{BalancedChannel, BalancedChannelFuture};
pub use connection::{ConnectFuture, Connector, Io};
pub use connection_backoff::{CONNECT_BACKOFF_CAP_DEFAULT, CONNECT_BACKOFF_FIRST_DEFAULT};
pub use error::BuildError;
pub use outlier_detection::{
    BASE_EJECTION_TIME_DEFAULT, CONSECUTIVE_FAILURES_DEFAULT, MAX_EJECTION_TIME_DEFAULT,
    OutlierDetection,
};
pub use redial_grpc::{
    ATTEMPTS_REPORTED_MAX, AttemptReport, AttemptTimeout, Attempts, BUCKETS, BackendCounts,
    BackendId, BoxError, CallLog, CallOptions, CallReport, CallReports, ClientOptions, Code,
    ConfigFileError, ConfigWatch, Control, DeadlineAction, Event, HedgeAt, HedgeAtBuilder,
    HedgeDelay, Jitter, LOGGED_MESSAGE_MAX, LatencyEstimate, METHODS_MAX, MethodStatistics,
    PolicyKind, Problem, Problems, ResponseBody, Retries, RetryBudget, RetryLayer,
    RetryLayerBuilder, ServiceConfig, SharedCallLog, Statistics, StopReason, USED_BACKENDS_MAX,
    Unreachable, UsedBackends, WATCH_MIN,
};
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub use redial_grpc::{Gauge, Metric};
pub use resolver::{
    ADDRESSES_MAX, ConfigError, Resolution, ResolveFuture, Resolver, ResolverBuilder,
    ResolverOptions, SystemResolver,
};
pub use service::{BalancedBody, BalancedService, BalancedServiceFuture};
pub use snapshot::{Backend, ChannelSnapshot, ConnectivityState};
pub use target::PORT_DEFAULT;

/// Starts building a channel to a target:
///
/// | target | meaning |
/// | --- | --- |
/// | `dns:///host:port`, `dns:host:port`, `host:port` | the addresses of a name, plaintext |
/// | `dns://1.2.3.4:53/host:port` | the same, with that name server; needs `redial-grpc-dns` |
/// | `http://host:port`, `https://host:port` | the same in tonic's syntax; TLS with `https` |
/// | `ipv4:a:port,b:port`, `ipv6:[a]:port,[b]:port` | these addresses, plaintext |
///
/// A host may be an IP address, with IPv6 in brackets. The default port is 443 ([`PORT_DEFAULT`]), or
/// 80 with `http://`. The operating system resolves names, unless the builder has another resolver
/// ([`ChannelBuilder::resolver`], or `dns` of the crate `redial-grpc-dns`).
///
/// TLS needs one of tonic's TLS features (`tls-ring`, `tls-aws-lc`), and root certificates
/// (`tls-native-roots`, `tls-webpki-roots`) or your own TLS config
/// ([`endpoint`](ChannelBuilder::endpoint)). Without them, connections to `https` targets fail.
/// Certificates must match the target's host, whatever its addresses are.
pub fn channel(target: impl Into<String>) -> ChannelBuilder {
    ChannelBuilder::new(target.into())
}
