//! Name resolution: the addresses of a target, and optionally its service config.
//!
//! A resolver answers one query at a time. The channel decides when to resolve again, and keeps the
//! current addresses when a resolution fails.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redial_grpc::BoxError;
use redial_service_config::{ClientOptions, Problem, ServiceConfig};

/// How many addresses a channel uses. Further addresses of a resolution are ignored.
pub const ADDRESSES_MAX: usize = 1024;

/// The future of [`Resolver::resolve`].
pub type ResolveFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Resolution, BoxError>> + Send + 'a>>;

/// Why the resolver's service config is not active: [`Problems`](crate::Problems), or an error of
/// the resolver itself.
pub type ConfigError = Arc<dyn Error + Send + Sync>;

/// A name resolver: finds the addresses of the name that it was created for.
///
/// ```
/// use std::net::SocketAddr;
///
/// use redial_grpc_balance::{Resolution, Resolver, ResolveFuture};
///
/// /// Reads a list of addresses that another process writes.
/// #[derive(Debug)]
/// struct FromFile(std::path::PathBuf);
///
/// impl Resolver for FromFile {
///     fn resolve(&self) -> ResolveFuture<'_> {
///         Box::pin(async move {
///             let text = tokio::fs::read_to_string(&self.0).await?;
///             let addresses: Result<Vec<SocketAddr>, _> = text.lines().map(str::parse).collect();
///             Ok(Resolution::new(addresses?))
///         })
///     }
/// }
/// ```
///
/// # Cancel safety
/// The channel drops the future when it is dropped itself.
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// Resolves the name once. A result without addresses counts as a failure.
    fn resolve(&self) -> ResolveFuture<'_>;

    /// Whether resolutions may include a service config. If so, calls in the channel's first 5 s
    /// wait for the first resolution, within their deadlines, because the config determines their
    /// retry policy.
    fn may_return_config(&self) -> bool {
        true
    }
}

/// Builds a resolver together with its channel, using the channel's options; see
/// [`ChannelBuilder::resolver_builder`](super::ChannelBuilder::resolver_builder).
pub trait ResolverBuilder: fmt::Debug + Send + Sync + 'static {
    /// The name of the resolver in a [`BuildError`](super::BuildError), for example `DNS`.
    fn name(&self) -> &'static str;

    /// Builds the resolver.
    ///
    /// # Errors
    /// Why it cannot be built. The error becomes the source of the
    /// [`BuildError`](super::BuildError).
    fn build(self: Box<Self>, channel: &ResolverOptions) -> Result<Arc<dyn Resolver>, BoxError>;
}

/// The options of a channel that its resolver may need.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResolverOptions {
    /// The client options, which decide about the warnings of a service config.
    pub client: ClientOptions,
    /// [`ChannelBuilder::min_resolve_interval`](super::ChannelBuilder::min_resolve_interval), if it
    /// is set.
    pub min_resolve_interval: Option<Duration>,
}

/// The result of a resolution.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resolution {
    /// The addresses, in the order in which `pick_first` tries them.
    pub addresses: Vec<SocketAddr>,
    /// The service config of the name. It replaces the channel's default as a whole (decision G40).
    /// `None`: the name has no config, and the default is active.
    ///
    /// An error: the config is invalid, or could not be queried. The current config stays active,
    /// and the error is reported (decision G39).
    pub config: Result<Option<ServiceConfig>, ConfigError>,
    /// Likely mistakes in the service config. They are reported in
    /// [`ChannelSnapshot::config_warnings`](super::ChannelSnapshot::config_warnings) and have no
    /// other effect.
    pub warnings: Vec<Problem>,
    /// How long the result is valid. The channel resolves again when the TTL expires, with a random
    /// delay of up to 10 % so that clients do not all resolve at the same moment. Ignored if
    /// [`resolve_every`](super::ChannelBuilder::resolve_every) is set. `None`: unknown.
    pub ttl: Option<Duration>,
}

impl Resolution {
    /// Addresses without a service config.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Resolution { addresses, config: Ok(None), warnings: Vec::new(), ttl: None }
    }

    /// Adds a service config as JSON text, which is parsed and checked here.
    #[must_use]
    pub fn with_config(self, config: impl AsRef<str>) -> Self {
        let checked = ServiceConfig::parse(config.as_ref());
        self.with_config_result(
            checked.map(Some).map_err(|problems| Arc::new(problems) as ConfigError),
        )
    }

    /// Adds the result of a service config lookup, with the warnings of the config. Passing a clone
    /// of the previous config (see [`ServiceConfig::ptr_eq`]) changes nothing for the channel.
    #[must_use]
    pub fn with_config_result(
        mut self,
        config: Result<Option<ServiceConfig>, ConfigError>,
    ) -> Self {
        let found = config.as_ref().ok().and_then(Option::as_ref);
        self.warnings = found.map_or_else(Vec::new, |config| config.warnings().to_vec());
        self.config = config;
        self
    }

    /// Replaces the warnings of the config: for a resolver that parses more than a config, or found
    /// no config in the data that it parsed.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<Problem>) -> Self {
        self.warnings = warnings;
        self
    }

    /// Sets the TTL.
    #[must_use]
    pub const fn ttl(mut self, time: Duration) -> Self {
        self.ttl = Some(time);
        self
    }
}

/// Resolves a host name with the operating system (`getaddrinfo`, which includes hosts files). It
/// returns no service config.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    host: Box<str>,
    port: u16,
}

impl SystemResolver {
    /// Creates a resolver for this host. All addresses get this port.
    #[must_use]
    pub fn new(host: impl Into<Box<str>>, port: u16) -> Self {
        SystemResolver { host: host.into(), port }
    }
}

impl Resolver for SystemResolver {
    fn resolve(&self) -> ResolveFuture<'_> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((&*self.host, self.port)).await?;
            Ok(Resolution::new(found.collect()))
        })
    }

    fn may_return_config(&self) -> bool {
        false
    }
}
