//! How a channel is written.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use redial::{Policy, Throttle};
use redial_grpc::RetryLayerBuilder;
use redial_service_config::ServiceConfig;
use tonic::transport::Endpoint;
use tower_layer::Layer as _;

use super::BalancedChannel;
use super::balancer::{Balancer, Settings};
use super::connection::{Connector, TcpConnector};
use super::error::{BuildError, BuildErrorKind};
use super::outlier_detection::OutlierDetection;
use super::resolver::{Resolver, ResolverBuilder, ResolverOptions, SystemResolver};
use super::service::BalancedService;
use super::subchannels::Subchannels;
use super::target::{Location, Target};
use super::tasks::AddressSource;

/// How long after a resolution the next one may come.
pub const RESOLVE_INTERVAL_MIN_DEFAULT: Duration = Duration::from_secs(30);
/// The first delay between two dials. gRPC's "Connection Backoff Protocol" has 1 s, which turns a
/// restart of 50 ms into a second of failures; tonic alone dials again for every call.
pub const CONNECT_BACKOFF_FIRST_DEFAULT: Duration = Duration::from_millis(50);
/// The longest delay between two dials (gRPC, "Connection Backoff Protocol").
pub const CONNECT_BACKOFF_CAP_DEFAULT: Duration = Duration::from_secs(120);
/// The first delay between two resolutions that fail.
const RESOLVE_BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// How long a dial may take, unless the endpoint has a `connect_timeout`.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// How many streams that were cancelled a connection remembers, for a second each: what the server
/// still sends on them is ignored. h2's own default of 50 is soon reached by hedges that lose.
pub const RESET_STREAMS_MAX: usize = 4096;
/// How many times in its life a connection accepts a frame for a cancelled stream that it no longer
/// remembers, before h2 closes it (`too_many_internal_resets`). h2's own default of 1024, which guards
/// against servers that misbehave, is reached within seconds by hedges that lose.
pub const RESET_ERRORS_MAX: usize = 1 << 20;

/// The growth of the delays between dials, and their jitter (the same document).
const CONNECT_BACKOFF_FACTOR: f64 = 1.6;
const CONNECT_BACKOFF_JITTER: f64 = 0.2;

/// A channel that is being written; see [`channel`](super::channel).
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

/// Where the application wants the addresses to come from.
#[derive(Debug)]
enum SourceOption {
    Source(AddressSource),
    Builder(Box<dyn ResolverBuilder>),
}

/// For this origin; with `https`, TLS with the roots that tonic has, as for a generated client's
/// `connect`. Where it has none the connection is refused, unless the application sets its own.
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

    /// These addresses, in place of what the target's name resolves to. The name is still what TLS
    /// and `:authority` are told. One that is there twice counts once, and what is beyond
    /// [`ADDRESSES_MAX`](super::ADDRESSES_MAX) is left out.
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.source =
            Some(SourceOption::Source(AddressSource::Static(addresses.into_iter().collect())));
        self
    }

    /// This resolver, in place of the operating system's.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.source = Some(SourceOption::Source(AddressSource::Resolver(Arc::new(resolver))));
        self
    }

    /// The resolver that this builder makes when the channel is built, in place of the operating
    /// system's. It reads the [target](Self::target) itself, the name server in it too.
    pub fn resolver_builder(mut self, builder: impl ResolverBuilder) -> Self {
        self.source = Some(SourceOption::Builder(Box::new(builder)));
        self
    }

    /// The target, as it was written.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.name
    }

    /// What tonic has for a connection: TLS, keepalive, window sizes, and h2's limits on cancelled
    /// streams, which are [`RESET_STREAMS_MAX`] and [`RESET_ERRORS_MAX`] here. Its `tls_config` is for targets
    /// with `https`, and tonic leaves it aside for all others. Its `connect_timeout` bounds
    /// each dial (20 s otherwise); its `local_address` has no effect, and its `timeout` is to be
    /// left alone: deadlines are for calls and configs.
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

    /// The options of the retry layer. Unless it has another, its server name is the target.
    pub fn layer(mut self, layer: RetryLayerBuilder) -> Self {
        self.layer = layer;
        self
    }

    /// The service config that is in force as long as the resolver brings none; in place of the
    /// layer's, if that has one.
    pub fn default_service_config(mut self, config: impl Into<String>) -> Self {
        self.config = Some(config.into());
        self
    }

    /// When backends that keep failing are avoided.
    pub fn outlier_detection(mut self, outlier_detection: OutlierDetection) -> Self {
        self.outlier_detection = outlier_detection;
        self
    }

    /// The first and the longest delay between two dials of a backend; 1 s and 120 s by default, as
    /// gRPC has it. Each is 1.6 times the one before, more or less by a fifth.
    pub fn connect_backoff(mut self, first: Duration, cap: Duration) -> Self {
        self.connect = (first, cap);
        self
    }

    /// How long after a resolution the next one may come, whatever happens; 30 s by default, 10 ms
    /// at the least. It may be a tenth more, so that not all clients ask at once.
    ///
    /// With `dns` (crate `redial-grpc-dns`) it is also how long an answer is kept, unless `min_refresh_interval` is set
    /// there. A resolver of your own that keeps answers decides that for itself.
    pub fn min_resolve_interval(mut self, interval: Duration) -> Self {
        self.min_resolve_interval = Some(interval);
        self
    }

    /// Resolves anew that often, besides when a connection is lost or cannot be made. Needed where
    /// addresses are added while all of the known ones are well, unless the resolver says how long
    /// its answers are good, as that for DNS (crate `redial-grpc-dns`) does: without either nobody asks.
    pub fn resolve_every(mut self, interval: Duration) -> Self {
        self.resolve_every = Some(interval);
        self
    }

    /// Makes connections in another way than by TCP.
    pub fn connector(mut self, connector: impl Connector) -> Self {
        self.connector = Some(Arc::new(connector));
        self
    }

    /// The channel. It resolves and dials nothing before the first call, or
    /// [`start`](BalancedChannel::start).
    ///
    /// # Errors
    /// The target, the endpoint, a list without any address, DNS, the backoff, or everything that is
    /// wrong with the default service config.
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
        let backoff = |first, cap| {
            let policy = Policy::exponential(first).cap(cap).factor(CONNECT_BACKOFF_FACTOR);
            let policy = policy.jitter(redial::Jitter::Proportional(CONNECT_BACKOFF_JITTER));
            // As good as for ever, at one every two minutes.
            policy.attempts(u32::MAX).throttle(Throttle::none()).try_build()
        };
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
            connect_backoff: backoff(self.connect.0, self.connect.1).map_err(wrong)?,
            resolve_backoff: backoff(RESOLVE_BACKOFF_FIRST, CONNECT_BACKOFF_CAP_DEFAULT)
                .map_err(wrong)?,
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
