//! How a resolver is written.

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
use redial_service_config::{Chooser, ClientOptions, RECORD_NAME_PREFIX};

use super::error::{DnsError, DnsErrorKind};
use super::resolver::{DnsResolver, FamilyLookup, Inner, Lookup, NameLookup, TTL_MAX, TxtLookup};

/// How long an answer is kept, whatever its TTL says, as in other gRPC libraries.
pub const REFRESH_INTERVAL_MIN: Duration = Duration::from_secs(30);
/// How long one question to one name server may take.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// How often a question is asked before it counts as unanswered. With [`TIMEOUT`] that is 10 s, half
/// of what a channel gives one resolution.
const QUERY_ATTEMPTS: usize = 2;
/// A name has three answers: A, AAAA and TXT. With a search list there are some more names to it.
const CACHE_ENTRIES_MAX: u64 = 64;

/// A [`DnsResolver`] that is being written.
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

    /// Asks for the service config too: the TXT record `_grpc_config.` and the host. Off by default,
    /// so that nobody who can write to DNS changes what a client does unless it wants that.
    ///
    /// Addresses and `localhost` have none, and are not asked about. A record that is not there within
    /// 3 s counts as one that could not be asked for.
    pub const fn config_from_txt(mut self) -> Self {
        self.txt = true;
        self
    }

    /// Asks these name servers, by UDP and, if an answer does not fit, by TCP, instead of those of
    /// the target or the system. Nothing else of the system's configuration is used then: no search
    /// list and no hosts file.
    pub fn name_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.name_servers = Some(servers.into_iter().collect());
        self
    }

    /// The name of this machine, for `clientHostname` of a choice; by default what the system says.
    pub fn hostname(mut self, name: impl Into<Box<str>>) -> Self {
        self.hostname = Some(name.into());
        self
    }

    /// The draw, from 0 to 99, that each `percentage` is compared with (see [`ChoiceSelector::new`]); by
    /// default a random one.
    pub const fn draw(mut self, draw: u8) -> Self {
        self.draw = Some(draw);
        self
    }

    /// The options of the client whose config it is, as [`ChoiceSelector::client`] wants them: they decide
    /// about warnings. A channel tells its own.
    pub const fn client_options(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// How long an answer is kept, whatever its TTL says; [`REFRESH_INTERVAL_MIN`] by default, or what the
    /// channel has as [`min_resolve_interval`](redial_grpc_balance::ChannelBuilder::min_resolve_interval). A lookup before that
    /// time gets the same answer without a query. A later one queries the name servers: a channel does so
    /// when the TTL is over, or when it has lost a connection.
    pub const fn min_refresh_interval(mut self, time: Duration) -> Self {
        self.min_refresh_interval = Some(time);
        self
    }

    /// The same for a builder that has none.
    fn or_min_refresh_interval(mut self, time: Option<Duration>) -> Self {
        self.min_refresh_interval = self.min_refresh_interval.or(time);
        self
    }

    fn min_refresh_interval_or_default(&self) -> Duration {
        self.min_refresh_interval.unwrap_or(REFRESH_INTERVAL_MIN)
    }

    /// How long one question to one name server may take, its repetitions by UDP included;
    /// [`TIMEOUT`] by default. One that is not answered then is asked once more.
    pub const fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// The resolver. Reads the system's configuration in the calling thread, if that is used.
    ///
    /// # Errors
    /// The target is none, or the system's name servers cannot be found out.
    pub fn build(self) -> Result<DnsResolver, DnsError> {
        let wrong = |what: String| DnsError::new(&self.target, DnsErrorKind::Target(what));
        let read = Target::parse(&self.target).map_err(|reason| wrong(reason.to_owned()))?;
        let (host, port) = match read.location {
            Location::Name { host, port } => (host, port),
            Location::Addresses(addresses) => {
                let inner =
                    Inner { host: (&*self.target).into(), lookup: Lookup::Static(addresses) };
                return Ok(DnsResolver(Arc::new(inner)));
            }
        };
        let parse = |name: &str| {
            Name::from_utf8(name).map_err(|error| wrong(format!("{name} is no name: {error}")))
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
        let named = NameLookup { port, v6, v4, txt, min_refresh_interval, asked: Mutex::default() };
        Ok(DnsResolver(Arc::new(Inner { host, lookup: Lookup::Name(Box::new(named)) })))
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
            chooser,
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
        // Hickory counts those after the first.
        options.attempts = QUERY_ATTEMPTS - 1;
        options.cache_size = CACHE_ENTRIES_MAX;
        let (least, most) =
            (Some(self.min_refresh_interval_or_default().min(TTL_MAX)), Some(TTL_MAX));
        (options.positive_min_ttl, options.positive_max_ttl) = (least, most);
        (options.negative_min_ttl, options.negative_max_ttl) = (least, most);
    }
}

/// For a channel, whose options hold where this builder has none.
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
