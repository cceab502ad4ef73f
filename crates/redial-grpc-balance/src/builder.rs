//! The builder of a channel, with its options and defaults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use redial_grpc::RetryLayerBuilder;
use redial_service_config::ServiceConfig;
use tonic::transport::Endpoint;
use tower_layer::Layer as _;

use super::BalancedChannel;
use super::balancer::{Balancer, Settings};
use super::connection::{Connector, TcpConnector};
use super::connection_backoff::{
    CONNECT_BACKOFF_CAP_DEFAULT, CONNECT_BACKOFF_FIRST_DEFAULT, connect_policy, resolve_policy,
};
use super::error::{BuildError, BuildErrorKind};
use super::outlier_detection::OutlierDetection;
use super::resolver::{Resolver, ResolverBuilder, ResolverOptions, SystemResolver};
use super::service::BalancedService;
use super::subchannels::Subchannels;
use super::target::{Location, Target};
use super::tasks::AddressSource;

/// The minimum interval between two resolutions.
pub const RESOLVE_INTERVAL_MIN_DEFAULT: Duration = Duration::from_secs(30);
/// The time limit of a connection attempt, unless the endpoint has a `connect_timeout`.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// How many cancelled streams a connection remembers, each for one second. Frames that the server
/// still sends on them are ignored. Losing hedges soon reach h2's own default of 50.
pub const RESET_STREAMS_MAX: usize = 4096;
/// How many frames a connection accepts for cancelled streams that it no longer remembers, before
/// h2 closes it (`too_many_internal_resets`). h2's own default of 1024 protects against misbehaving
/// servers, but losing hedges reach it within seconds.
pub const RESET_ERRORS_MAX: usize = 1 << 20;

/// Builds a [`BalancedChannel`]; see [`channel`](super::channel).
#[must_use = "a builder does nothing until it is built"]
#[derive(Debug)]
pub struct ChannelBuilder {
    name: String,
    target: Result<(Endpoint, Location), BuildError>,
    name_server: bool,
    source: Option<SourceOption>,
    layer: RetryLayerBuilder,
    config: Option<String>,
    connector: Option<Arc<dyn Connector>>,
    outlier_detection: OutlierDetection,
    connect: (Duration, Duration),
    min_resolve_interval: Option<Duration>,
    resolve_every: Option<Duration>,
}

/// The source of addresses that the application selected.
#[derive(Debug)]
enum SourceOption {
    Source(AddressSource),
    Builder(Box<dyn ResolverBuilder>),
}

/// The endpoint of an origin. With `https` it uses TLS with the root certificates that tonic was
/// built with, as the `connect` of a generated client does. Without roots the connection fails,
/// unless the application configures its own.
fn endpoint(origin: Uri) -> Endpoint {
    Endpoint::new(origin.clone())
        .unwrap_or_else(|_| Endpoint::from(origin))
        .http2_max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .http2_max_local_error_reset_streams(RESET_ERRORS_MAX)
}

impl ChannelBuilder {
    pub(crate) fn new(target: String) -> Self {
        let read = Target::parse(&target);
        let wrong = |reason| BuildError(BuildErrorKind::Target { target: target.clone(), reason });
        ChannelBuilder {
            name_server: read.as_ref().is_ok_and(|read| read.name_server.is_some()),
            target: read.map(|read| (endpoint(read.origin), read.location)).map_err(wrong),
            name: target,
            source: None,
            layer: RetryLayerBuilder::default(),
            config: None,
            connector: None,
            outlier_detection: OutlierDetection::default(),
            connect: (CONNECT_BACKOFF_FIRST_DEFAULT, CONNECT_BACKOFF_CAP_DEFAULT),
            min_resolve_interval: None,
            resolve_every: None,
        }
    }

    /// Uses these addresses instead of resolving the target. TLS and `:authority` still use the
    /// target's name. Duplicates count once; addresses beyond
    /// [`ADDRESSES_MAX`](super::ADDRESSES_MAX) are ignored.
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.source =
            Some(SourceOption::Source(AddressSource::Static(addresses.into_iter().collect())));
        self
    }

    /// Resolves the target with this resolver instead of the operating system's.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.source = Some(SourceOption::Source(AddressSource::Resolver(Arc::new(resolver))));
        self
    }

    /// Resolves the target with a resolver that is built together with the channel, instead of the
    /// operating system's. The builder parses the [target](Self::target) itself, including its name
    /// server.
    pub fn resolver_builder(mut self, builder: impl ResolverBuilder) -> Self {
        self.source = Some(SourceOption::Builder(Box::new(builder)));
        self
    }

    /// The target as passed to [`channel`](super::channel).
    #[must_use]
    pub fn target(&self) -> &str {
        &self.name
    }

    /// Changes tonic's connection settings: TLS, keepalive, window sizes, and h2's limits on
    /// cancelled streams, which default to [`RESET_STREAMS_MAX`] and [`RESET_ERRORS_MAX`] here.
    ///
    /// - `tls_config` applies to `https` targets; tonic ignores it for all others.
    /// - `connect_timeout` limits each connection attempt; 20 s by default.
    /// - `local_address` has no effect.
    /// - Do not set `timeout`: set deadlines on calls or in the service config.
    pub fn endpoint(
        mut self,
        settings: impl FnOnce(Endpoint) -> Result<Endpoint, tonic::transport::Error>,
    ) -> Self {
        self.target = self.target.and_then(|(endpoint, location)| {
            let endpoint =
                settings(endpoint).map_err(|error| BuildError(BuildErrorKind::Endpoint(error)))?;
            Ok((endpoint, location))
        });
        self
    }

    /// The options of the retry layer. Its server name is the target, unless it has one.
    pub fn layer(mut self, layer: RetryLayerBuilder) -> Self {
        self.layer = layer;
        self
    }

    /// The service config that is active while the resolver provides none. It replaces the config
    /// of [`layer`](Self::layer), if that has one.
    pub fn default_service_config(mut self, config: impl Into<String>) -> Self {
        self.config = Some(config.into());
        self
    }

    /// When failing backends are ejected, and for how long; see [`OutlierDetection`].
    pub fn outlier_detection(mut self, outlier_detection: OutlierDetection) -> Self {
        self.outlier_detection = outlier_detection;
        self
    }

    /// The connection backoff: the delay before the next attempt to connect to a backend after a
    /// failed one. `first` is the delay after the first failure, 50 ms by default
    /// ([`CONNECT_BACKOFF_FIRST_DEFAULT`]). Each further delay is 1.6 times longer, up to `cap`,
    /// 120 s by default ([`CONNECT_BACKOFF_CAP_DEFAULT`]), with a jitter of ±20 %. gRPC's own first
    /// delay is 1 s.
    pub fn connect_backoff(mut self, first: Duration, cap: Duration) -> Self {
        self.connect = (first, cap);
        self
    }

    /// The minimum interval between two resolutions; 30 s by default, and at least 10 ms. A random
    /// part of up to 10 % is added, so that clients do not all resolve at the same moment.
    ///
    /// With `dns` (crate `redial-grpc-dns`) it is also how long a DNS answer is cached, unless
    /// `min_refresh_interval` is set there. A resolver of your own decides itself how long it
    /// caches.
    pub fn min_resolve_interval(mut self, interval: Duration) -> Self {
        self.min_resolve_interval = Some(interval);
        self
    }

    /// Resolves at this interval, in addition to the resolutions after a lost connection or a
    /// failed connection attempt. Needed if addresses are added while all known backends are
    /// healthy, unless the resolver returns a TTL, as the one of the crate `redial-grpc-dns` does.
    pub fn resolve_every(mut self, interval: Duration) -> Self {
        self.resolve_every = Some(interval);
        self
    }

    /// Opens connections with this connector instead of TCP.
    pub fn connector(mut self, connector: impl Connector) -> Self {
        self.connector = Some(Arc::new(connector));
        self
    }

    /// Builds the channel. It resolves and connects on the first call, or on
    /// [`start`](BalancedChannel::start).
    ///
    /// # Errors
    /// The target, the endpoint or the connection backoff is invalid, the address list is empty,
    /// the resolver cannot be built, or the default service config has problems (all of them are
    /// listed).
    pub fn build(self) -> Result<BalancedChannel, BuildError> {
        let (endpoint, location) = self.target?;
        let source = match self.source {
            Some(SourceOption::Builder(builder)) => {
                let (client, min_resolve_interval) =
                    (*self.layer.current_client_options(), self.min_resolve_interval);
                let name = builder.name();
                let resolver = builder.build(&ResolverOptions { client, min_resolve_interval });
                let wrong = |error| BuildError(BuildErrorKind::Resolver { name, error });
                AddressSource::Resolver(resolver.map_err(wrong)?)
            }
            _ if self.name_server => {
                return Err(BuildError(BuildErrorKind::NameServer { target: self.name }));
            }
            Some(SourceOption::Source(source)) => source,
            None => match location {
                Location::Addresses(addresses) => AddressSource::Static(addresses),
                Location::Name { host, port } => {
                    AddressSource::Resolver(Arc::new(SystemResolver::new(host, port)))
                }
            },
        };
        if matches!(&source, AddressSource::Static(addresses) if addresses.is_empty()) {
            return Err(BuildError(BuildErrorKind::Addresses));
        }
        let mut layer = self.layer.distinct_backends();
        if layer.server_name().is_none() {
            layer = layer.for_server(self.name);
        }
        if let Some(text) = self.config {
            let config = ServiceConfig::parse_for(&text, layer.current_client_options());
            layer = layer
                .config(config.map_err(|problems| BuildError(BuildErrorKind::Config(problems)))?);
        }
        let wrong =
            |problem: redial::PolicyError| BuildError(BuildErrorKind::Backoff(problem.to_string()));
        if self.connect.0.is_zero() {
            let reason = "the first delay must be above zero".to_owned();
            return Err(BuildError(BuildErrorKind::Backoff(reason)));
        }
        let layer = layer.build();
        let default_config = layer.control().config();
        let settings = Settings {
            connector: self.connector.unwrap_or_else(|| Arc::new(TcpConnector::new(&endpoint))),
            connect_timeout: endpoint.get_connect_timeout().unwrap_or(CONNECT_TIMEOUT_DEFAULT),
            connect_backoff: connect_policy(self.connect.0, self.connect.1).map_err(wrong)?,
            resolve_backoff: resolve_policy().map_err(wrong)?,
            min_resolve_interval: self.min_resolve_interval.unwrap_or(RESOLVE_INTERVAL_MIN_DEFAULT),
            resolve_every: self.resolve_every,
            endpoint,
            default_config,
        };
        let subchannels = Subchannels::new(self.outlier_detection, redial::parts::draw());
        let balancer = Balancer::new(settings, layer.control(), subchannels);
        let control = layer.control();
        let balanced = BalancedService::new(balancer, source);
        let counted = balanced.downgrade();
        control.count_backends(move || counted.upgrade().map(|balancer| balancer.counts()));
        Ok(BalancedChannel::new(layer.layer(balanced)))
    }
}
