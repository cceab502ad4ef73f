//! A channel over several backends: retries and hedges go elsewhere while there
//! is an elsewhere.
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
//! - Which backend: as `loadBalancingPolicy` of the config in force says, `pick_first` or
//!   `round_robin`. Further attempts of a call prefer backends that it has not used, then the one
//!   that it used least recently; under `pick_first` another address is connected for that, under
//!   `round_robin` they leave the turns of first attempts alone.
//! - Backends that keep failing are avoided for a while ([`OutlierDetection`]), never all of them.
//! - Dials wait for connection backoff, 50 ms at first; a connection that has served and was closed is dialled
//!   again at once. A call waits while a backend is being dialled; when
//!   all of them wait for their backoff it is UNAVAILABLE ([`Unreachable`]), for its policy to judge.
//! - Names are resolved again when a connection is lost or cannot be made ([`Resolver`]).
//!
//! The [guide] says more, with every option.
//!
//! [guide]: https://github.com/redial-rs/redial/blob/main/docs/grpc/operations.md#load-balancing

mod balancer;
mod builder;
mod catch_panic;
mod channel;
mod connection;
mod error;
mod outlier_detection;
mod resolver;
mod service;
mod subchannels;
mod tasks;
// For `redial-grpc-dns`, which reads targets as the channel does.
mod snapshot;
#[doc(hidden)]
pub mod target;
mod trace;

pub use builder::{
    CONNECT_BACKOFF_CAP_DEFAULT, CONNECT_BACKOFF_FIRST_DEFAULT, CONNECT_TIMEOUT_DEFAULT,
    ChannelBuilder, RESET_ERRORS_MAX, RESET_STREAMS_MAX, RESOLVE_INTERVAL_MIN_DEFAULT,
};
pub use channel::{BalancedChannel, BalancedChannelFuture};
pub use connection::{ConnectFuture, Connector, Io};
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
    PolicyKind, Problem, Problems, ResponseBody, Retries, RetryLayer, RetryLayerBuilder,
    ServiceConfig, SharedCallLog, Statistics, StopReason, USED_BACKENDS_MAX, Unreachable,
    UsedBackends, WATCH_MIN,
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

/// A channel to this target, to be built:
///
/// | target | meaning |
/// | --- | --- |
/// | `dns:///host:port`, `dns:host:port`, `host:port` | the addresses of a name, plaintext |
/// | `dns://1.2.3.4:53/host:port` | the same, asked of that name server: with `redial-grpc-dns` only |
/// | `http://host:port`, `https://host:port` | the same, as tonic writes it; with `https`, TLS |
/// | `ipv4:a:port,b:port`, `ipv6:[a]:port,[b]:port` | these addresses, plaintext |
///
/// A host may be an address, IPv6 in brackets. Without a port it is 443 ([`PORT_DEFAULT`]), with
/// `http://` 80. Names are asked of the operating system unless the builder says otherwise
/// ([`ChannelBuilder::resolver`], or `dns` of the crate `redial-grpc-dns`).
///
/// TLS needs one of tonic's features for it (`tls-ring`, `tls-aws-lc`), and its roots
/// (`tls-native-roots`, `tls-webpki-roots`) or a config of your own
/// ([`endpoint`](ChannelBuilder::endpoint)). Without it no connection is made to `https`. Certificates
/// must be for the target's host, whatever its addresses are.
pub fn channel(target: impl Into<String>) -> ChannelBuilder {
    ChannelBuilder::new(target.into())
}
