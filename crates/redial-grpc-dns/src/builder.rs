//! The builder of a DNS resolver.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
    ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use redial_grpc_balance::target::{Location, Target};
use redial_grpc_balance::{BoxError, Resolver, ResolverBuilder, ResolverOptions};
use redial_service_config::{ChoiceSelector, ClientOptions, RECORD_NAME_PREFIX};

use super::error::{DnsError, DnsErrorKind};
use super::resolver::{
    DnsResolver, FamilyLookup, Inner, Lookup, NameLookup, REFRESH_INTERVAL_MIN, TTL_MAX, TxtLookup,
};

/// The time limit of one query to one name server.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// How often a query is sent before it fails. With [`TIMEOUT`] that takes 10 s, half of the time
/// that a channel allows for a resolution.
const QUERY_ATTEMPTS: usize = 2;
/// A name has three answers: A, AAAA and TXT. A search list adds some more names.
const CACHE_ENTRIES_MAX: u64 = 64;

/// Builds a [`DnsResolver`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct DnsResolverBuilder {
    target: String,
    name_servers: Option<Vec<SocketAddr>>,
    txt: bool,
    hostname: Option<Box<str>>,
    draw: Option<u8>,
    client: ClientOptions,
    min_refresh_interval: Option<Duration>,
    timeout: Duration,
}

impl DnsResolverBuilder {
    pub(super) fn new(target: String) -> Self {
        DnsResolverBuilder {
            target,
            name_servers: None,
            txt: false,
            hostname: None,
            draw: None,
            client: ClientOptions::default(),
            min_refresh_interval: None,
            timeout: TIMEOUT,
        }
    }

    /// Also queries the service config: the TXT record of `_grpc_config.` followed by the host. Off
    /// by default, because write access to DNS would otherwise be enough to change the behaviour of
    /// clients.
    ///
    /// IP addresses and `localhost` have no such record and are not queried. A record that does not
    /// arrive within 3 s counts as a failed query.
    pub const fn config_from_txt(mut self) -> Self {
        self.txt = true;
        self
    }

    /// Queries these name servers instead of those of the target or the system, by UDP, and by TCP
    /// for answers that do not fit. The system's search list and hosts file are not used then.
    pub fn name_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.name_servers = Some(servers.into_iter().collect());
        self
    }

    /// The name of this machine, which `clientHostname` in a service config choice is compared
    /// with. By default the system's hostname.
    pub fn hostname(mut self, name: impl Into<Box<str>>) -> Self {
        self.hostname = Some(name.into());
        self
    }

    /// The number from 0 to 99 that each `percentage` in a service config choice is compared with
    /// (see [`ChoiceSelector::new`]). By default random.
    pub const fn draw(mut self, draw: u8) -> Self {
        self.draw = Some(draw);
        self
    }

    /// The options of the client that uses the config (see [`ChoiceSelector::client_options`]); they
    /// decide about warnings. A channel sets its own.
    pub const fn client_options(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// The minimum time for which an answer is cached, whatever its TTL; [`REFRESH_INTERVAL_MIN`]
    /// by default, or the channel's
    /// [`min_resolve_interval`](redial_grpc_balance::ChannelBuilder::min_resolve_interval) if that
    /// is set. A lookup within this time returns the cached answer. A later one queries the name
    /// servers: a channel does this when the TTL expires or a connection is lost.
    pub const fn min_refresh_interval(mut self, time: Duration) -> Self {
        self.min_refresh_interval = Some(time);
        self
    }

    /// Sets the interval unless the builder has one.
    fn or_min_refresh_interval(mut self, time: Option<Duration>) -> Self {
        self.min_refresh_interval = self.min_refresh_interval.or(time);
        self
    }

    fn min_refresh_interval_or_default(&self) -> Duration {
        self.min_refresh_interval.unwrap_or(REFRESH_INTERVAL_MIN)
    }

    /// The time limit of one query to one name server, including its repetitions by UDP;
    /// [`TIMEOUT`] by default. A query without an answer is sent a second time.
    pub const fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Builds the resolver. Reads the system's DNS configuration synchronously, if that is used.
    ///
    /// # Errors
    /// The target is invalid, or the system's DNS configuration cannot be read.
    pub fn build(self) -> Result<DnsResolver, DnsError> {
        let failure = |what: String| DnsError::new(&self.target, DnsErrorKind::Target(what));
        let read = Target::parse(&self.target).map_err(|reason| failure(reason.to_owned()))?;
        let (host, port) = match read.location {
            Location::Name { host, port } => (host, port),
            Location::Addresses(addresses) => {
                let inner =
                    Inner { host: (&*self.target).into(), lookup: Lookup::Static(addresses) };
                return Ok(DnsResolver(Arc::new(inner)));
            }
        };
        let parse = |name: &str| {
            Name::from_utf8(name)
                .map_err(|error| failure(format!("{name} is not a DNS name: {error}")))
        };
        let name = parse(&host)?;
        let txt = match self.txt && !name.is_localhost() {
            true => Some(self.txt(parse(&format!("{RECORD_NAME_PREFIX}{host}"))?)),
            false => None,
        };
        let family = |strategy| {
            let resolver = self.resolver(read.name_server, strategy);
            let resolver = resolver
                .map_err(|error| DnsError::new(&self.target, DnsErrorKind::System(error)))?;
            Ok::<_, DnsError>(FamilyLookup { name: name.clone(), resolver, last: Mutex::default() })
        };
        let v6 = family(LookupIpStrategy::Ipv6Only)?;
        let v4 = family(LookupIpStrategy::Ipv4Only)?;
        let min_refresh_interval = self.min_refresh_interval_or_default().min(TTL_MAX);
        let name_lookup =
            NameLookup { port, v6, v4, txt, min_refresh_interval, last_query: Mutex::default() };
        Ok(DnsResolver(Arc::new(Inner { host, lookup: Lookup::Name(Box::new(name_lookup)) })))
    }

    fn txt(&self, name: Name) -> TxtLookup {
        let draw = self.draw.unwrap_or_else(|| (redial::parts::draw() * 100.0) as u8);
        let selector = ChoiceSelector::new(draw).client_options(self.client);
        let system = || hostname::get().ok()?.into_string().ok().map(Into::into);
        let selector = match self.hostname.clone().or_else(system) {
            Some(name) => selector.hostname(name),
            None => selector,
        };
        TxtLookup {
            name,
            selector,
            min_refresh_interval: self.min_refresh_interval_or_default().min(TTL_MAX),
            last: Mutex::new(None),
        }
    }

    fn resolver(
        &self,
        of_target: Option<SocketAddr>,
        strategy: LookupIpStrategy,
    ) -> Result<TokioResolver, NetError> {
        let given = self.name_servers.clone().or_else(|| of_target.map(|server| vec![server]));
        let mut builder = match given {
            None => TokioResolver::builder_tokio()?,
            Some(servers) => {
                let servers = servers.into_iter().map(name_server).collect();
                let config = ResolverConfig::from_name_servers(servers);
                let provider = TokioRuntimeProvider::default();
                let mut builder = TokioResolver::builder_with_config(config, provider);
                builder.options_mut().use_hosts_file = ResolveHosts::Never;
                builder
            }
        };
        self.set(builder.options_mut());
        builder.options_mut().ip_strategy = strategy;
        builder.build()
    }

    fn set(&self, options: &mut ResolverOpts) {
        options.timeout = self.timeout;
        // hickory counts the attempts after the first.
        options.attempts = QUERY_ATTEMPTS - 1;
        options.cache_size = CACHE_ENTRIES_MAX;
        let (least, most) =
            (Some(self.min_refresh_interval_or_default().min(TTL_MAX)), Some(TTL_MAX));
        (options.positive_min_ttl, options.positive_max_ttl) = (least, most);
        (options.negative_min_ttl, options.negative_max_ttl) = (least, most);
    }
}

/// For a channel, whose options apply where this builder has none.
impl ResolverBuilder for DnsResolverBuilder {
    fn name(&self) -> &'static str {
        "DNS"
    }

    fn build(self: Box<Self>, channel: &ResolverOptions) -> Result<Arc<dyn Resolver>, BoxError> {
        let dns = self
            .client_options(channel.client)
            .or_min_refresh_interval(channel.min_resolve_interval);
        Ok(Arc::new(DnsResolverBuilder::build(dns)?))
    }
}

/// A name server, by UDP and TCP.
fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}
