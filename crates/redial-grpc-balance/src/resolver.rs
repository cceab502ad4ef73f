//! Where the addresses of a name come from.
//!
//! A resolver answers once each time it is asked. When it is asked again, and what a failed answer
//! means for the addresses in force, is for the channel to say.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redial_grpc::BoxError;
use redial_service_config::{ClientOptions, Problem, ServiceConfig};

/// How many addresses a channel uses; what a resolution has beyond that is left out.
pub const ADDRESSES_MAX: usize = 1024;

/// What [`Resolver::resolve`] returns.
pub type ResolveFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Resolution, BoxError>> + Send + 'a>>;

/// Why a resolver's service config is not in force: a [`Problems`](crate::Problems), or an error of
/// the resolver's own.
pub type ConfigError = Arc<dyn Error + Send + Sync>;

/// Finds the addresses of the name that it was made for.
///
/// ```
/// use std::net::SocketAddr;
///
/// use redial_grpc_balance::{Resolution, Resolver, ResolveFuture};
///
/// /// Reads a list that somebody else keeps.
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
/// The future is dropped when the channel goes away before it is done.
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// Asks once. An answer without any address counts as failed.
    fn resolve(&self) -> ResolveFuture<'_>;

    /// Whether its answers may bring a service config. If so, calls of the channel's first 5 s wait for
    /// the first answer, no longer than their deadlines allow, since it says how they are retried.
    fn may_return_config(&self) -> bool {
        true
    }
}

/// Builds a resolver together with its channel, whose options it may follow; see
/// [`ChannelBuilder::resolver_builder`](super::ChannelBuilder::resolver_builder).
pub trait ResolverBuilder: fmt::Debug + Send + Sync + 'static {
    /// What the resolver asks, as a [`BuildError`](super::BuildError) names it: `DNS`.
    fn name(&self) -> &'static str;

    /// The resolver.
    ///
    /// # Errors
    /// Why there is none; it is the source of the [`BuildError`](super::BuildError).
    fn build(self: Box<Self>, channel: &ResolverOptions) -> Result<Arc<dyn Resolver>, BoxError>;
}

/// The options of a channel that matter to its resolver.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResolverOptions {
    /// The options of the client, which decide about warnings of a service config.
    pub client: ClientOptions,
    /// [`ChannelBuilder::min_resolve_interval`](super::ChannelBuilder::min_resolve_interval), if it was set.
    pub min_resolve_interval: Option<Duration>,
}

/// What a resolver found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resolution {
    /// The addresses, in the order in which `pick_first` tries them.
    pub addresses: Vec<SocketAddr>,
    /// The service config that came with them: it replaces the channel's default whole (decision G40).
    /// `None`: there is none, and the default is in force.
    ///
    /// An error: the config is bad, or whether there is one could not be found out. The one in force
    /// stays, and the error is told (decision G39).
    pub config: Result<Option<ServiceConfig>, ConfigError>,
    /// What is legal in what was said of the service config, and surely not meant. It is told
    /// ([`ChannelSnapshot::config_warnings`](super::ChannelSnapshot::config_warnings)), and changes nothing.
    pub warnings: Vec<Problem>,
    /// How long the answer is good: the channel asks again when that time is over, or up to a tenth of
    /// it later so that not all clients ask at once, unless it was told
    /// [how often](super::ChannelBuilder::resolve_every) it asks. `None`: the resolver does not know.
    pub ttl: Option<Duration>,
}

impl Resolution {
    /// Addresses without a service config.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Resolution { addresses, config: Ok(None), warnings: Vec::new(), ttl: None }
    }

    /// With the text of a service config, which is checked here.
    #[must_use]
    pub fn with_config(self, config: impl AsRef<str>) -> Self {
        let checked = ServiceConfig::parse(config.as_ref());
        self.with_config_result(
            checked.map(Some).map_err(|problems| Arc::new(problems) as ConfigError),
        )
    }

    /// With what was found out about the service config. To hand the same one again (a clone, see
    /// [`ServiceConfig::is`]) changes nothing for the channel. The config's own warnings come with it.
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

    /// With these warnings, in place of the config's own: for a resolver that reads more than a
    /// config, or found none in what it has read.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<Problem>) -> Self {
        self.warnings = warnings;
        self
    }

    /// With the time for which it is good.
    #[must_use]
    pub const fn ttl(mut self, time: Duration) -> Self {
        self.ttl = Some(time);
        self
    }
}

/// Resolves a host name as the operating system does (`getaddrinfo`, which includes hosts files).
/// It brings no service config.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    host: Box<str>,
    port: u16,
}

impl SystemResolver {
    /// For this host; all addresses get this port.
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
