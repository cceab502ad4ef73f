//! The DNS resolver of one target, built on hickory.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::net::{DnsError as Answer, NetError};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{MAX_TTL, TokioResolver};
use redial_grpc_balance::{ConfigError, Resolution, ResolveFuture, Resolver};
use redial_service_config::{ChoiceSelector, Problem, SelectedChoice, ServiceConfig};

use super::builder::DnsResolverBuilder;
use super::error::{DnsError, DnsErrorKind};

/// How long a resolution waits for the service config once the addresses are known. The first calls
/// of a channel wait for the resolution, and some name servers never answer TXT queries.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the addresses of one family wait for the other family: some name servers never answer
/// AAAA queries.
const OTHER_FAMILY_TIMEOUT: Duration = Duration::from_secs(3);
/// The minimum time for which an answer is cached, whatever its TTL, as in other gRPC libraries.
pub const REFRESH_INTERVAL_MIN: Duration = Duration::from_secs(30);
/// The longest TTL.
pub(super) const TTL_MAX: Duration = Duration::from_secs(MAX_TTL as u64);

/// Looks up the addresses of a target in DNS and, if enabled, its service config.
///
/// Clones share the cache. See the [crate](crate).
///
/// # Cancel safety
/// Dropping a resolution only loses its result.
#[derive(Clone)]
pub struct DnsResolver(pub(super) Arc<Inner>);

pub(super) struct Inner {
    /// The target's host, for error messages.
    pub(super) host: Box<str>,
    pub(super) lookup: Lookup,
}

pub(super) enum Lookup {
    /// The target is an IP address or a list of them: no query is needed.
    Static(Vec<SocketAddr>),
    Name(Box<NameLookup>),
}

/// The lookup of a name: addresses of both families, and optionally the service config.
pub(super) struct NameLookup {
    pub(super) port: u16,
    pub(super) v6: FamilyLookup,
    pub(super) v4: FamilyLookup,
    pub(super) txt: Option<TxtLookup>,
    pub(super) min_refresh_interval: Duration,
    /// When the name servers were last queried.
    pub(super) last_query: Mutex<Option<Instant>>,
}

impl NameLookup {
    /// Clears the cache once the minimum refresh interval has passed, even if the TTL has not: a
    /// lookup before the TTL expires means that the caller suspects stale addresses.
    fn refresh(&self) {
        let now = Instant::now();
        let mut last_query = self.last_query.lock().unwrap_or_else(PoisonError::into_inner);
        if last_query.is_none_or(|at| now.duration_since(at) >= self.min_refresh_interval) {
            self.v6.resolver.clear_cache();
            self.v4.resolver.clear_cache();
            *last_query = Some(now);
        }
    }

    /// The addresses and their TTL.
    async fn addresses(&self) -> Result<(Vec<IpAddr>, Duration), DnsErrorKind> {
        let (v6, v4) = (self.v6.query(), self.v4.query());
        tokio::pin!(v6, v4);
        let (v6, v4) = tokio::select! {
            first = &mut v6 => {
                let second = wait_for_other_family(&first, v4).await;
                (first, second)
            }
            first = &mut v4 => {
                let second = wait_for_other_family(&first, v6).await;
                (second, first)
            }
        };
        let (v6, v4) = match (v6, v4) {
            (Err(error), Err(_)) => return Err(DnsErrorKind::Addresses(error)),
            (v6, v4) => (
                self.v6.or_last_known(v6, self.min_refresh_interval),
                self.v4.or_last_known(v4, self.min_refresh_interval),
            ),
        };
        let (found, ttl) = match (v6, v4) {
            (Ok(v6), Ok(v4)) => ([v6.0, v4.0].concat(), v6.1.min(v4.1)),
            // The failed family is queried again soon.
            (Ok(one), Err(_)) | (Err(_), Ok(one)) if !one.0.is_empty() => {
                (one.0, one.1.min(self.min_refresh_interval))
            }
            (Err(error), _) | (_, Err(error)) => return Err(DnsErrorKind::Addresses(error)),
        };
        if found.is_empty() { Err(DnsErrorKind::Missing) } else { Ok((found, ttl)) }
    }
}

/// The addresses of one family with their TTL; an empty list if the name has none.
type Found = Result<(Vec<IpAddr>, Duration), NetError>;

/// Waits for the second family after the first has answered.
async fn wait_for_other_family(first: &Found, second: impl Future<Output = Found>) -> Found {
    let has_addresses = first.as_ref().is_ok_and(|(found, _)| !found.is_empty());
    let timeout = if has_addresses { OTHER_FAMILY_TIMEOUT } else { Duration::MAX };
    tokio::time::timeout(timeout, second).await.unwrap_or(Err(NetError::Timeout))
}

/// The lookup of the addresses of one family.
pub(super) struct FamilyLookup {
    pub(super) name: Name,
    /// Queries only this family.
    pub(super) resolver: TokioResolver,
    /// The last addresses.
    pub(super) last: Mutex<Vec<IpAddr>>,
}

impl FamilyLookup {
    async fn query(&self) -> Found {
        match self.resolver.lookup_ip(self.name.clone()).await {
            Ok(found) => Ok((found.iter().collect(), remaining_ttl(found.valid_until()))),
            Err(error) if is_absent(&error) => Ok((Vec::new(), TTL_MAX)),
            Err(error) => Err(error),
        }
    }

    /// If the query of this family fails, returns its last addresses: a lost packet must not remove
    /// working backends.
    fn or_last_known(&self, found: Found, min_refresh_interval: Duration) -> Found {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok((found, ttl)) => {
                last.clone_from(&found);
                Ok((found, ttl))
            }
            Err(_) if !last.is_empty() => Ok((last.clone(), min_refresh_interval)),
            Err(error) => Err(error),
        }
    }
}

impl Lookup {
    fn txt(&self) -> Option<&TxtLookup> {
        match self {
            Lookup::Static(_) => None,
            Lookup::Name(name_lookup) => name_lookup.txt.as_ref(),
        }
    }
}

/// The lookup of the service config.
pub(super) struct TxtLookup {
    pub(super) name: Name,
    pub(super) selector: ChoiceSelector,
    pub(super) min_refresh_interval: Duration,
    /// The last records and the choice made from them: unchanged records return the same config
    /// object.
    pub(super) last: Mutex<Option<(Records, SelectedChoice)>>,
}

/// TXT records as lists of character-strings.
type Records = Vec<Box<[Box<[u8]>]>>;

impl DnsResolver {
    /// Creates a resolver of addresses that uses the system's name servers.
    ///
    /// # Errors
    /// See [`DnsResolverBuilder::build`].
    pub fn new(target: &str) -> Result<DnsResolver, DnsError> {
        DnsResolver::builder(target).build()
    }

    /// Starts building a resolver with options.
    pub fn builder(target: impl Into<String>) -> DnsResolverBuilder {
        DnsResolverBuilder::new(target.into())
    }

    /// Likely mistakes in the last list of service config choices, for example a choice that is
    /// skipped because of an unknown condition. If no choice matches, they are reported nowhere
    /// else. A channel also reports them in
    /// [`ChannelSnapshot::config_warnings`](redial_grpc_balance::ChannelSnapshot::config_warnings).
    #[must_use]
    pub fn warnings(&self) -> Vec<Problem> {
        self.0.lookup.txt().map_or_else(Vec::new, TxtLookup::warnings)
    }
}

impl fmt::Debug for DnsResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { host, lookup } = &*self.0;
        f.debug_struct("DnsResolver")
            .field("host", host)
            .field("config_from_txt", &lookup.txt().is_some())
            .finish()
    }
}

impl Resolver for DnsResolver {
    fn resolve(&self) -> ResolveFuture<'_> {
        Box::pin(async move { Ok(self.0.resolve().await?) })
    }

    fn may_return_config(&self) -> bool {
        self.0.lookup.txt().is_some()
    }
}

impl Inner {
    async fn resolve(&self) -> Result<Resolution, DnsError> {
        let name_lookup = match &self.lookup {
            Lookup::Static(addresses) => {
                return Ok(Resolution::new(addresses.clone()).ttl(TTL_MAX));
            }
            Lookup::Name(name_lookup) => &**name_lookup,
        };
        name_lookup.refresh();
        let config_query = async {
            match &name_lookup.txt {
                Some(txt) => txt.query(&self.host, &name_lookup.v4.resolver).await,
                None => (Ok(None), TTL_MAX),
            }
        };
        let (found, (config, config_good_for)) =
            tokio::join!(name_lookup.addresses(), config_query);
        let (found, ttl) = found.map_err(|failure| DnsError::new(&self.host, failure))?;
        let addresses = interleaved(found.into_iter(), name_lookup.port);
        let ttl = ttl.min(config_good_for);
        let config = config.map_err(|error| Arc::new(error) as ConfigError);
        let warnings = name_lookup.txt.as_ref().map_or_else(Vec::new, TxtLookup::warnings);
        Ok(Resolution::new(addresses).with_config_result(config).with_warnings(warnings).ttl(ttl))
    }
}

impl TxtLookup {
    /// Likely mistakes in the last list of choices.
    fn warnings(&self) -> Vec<Problem> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|(_, selected)| selected.warnings.clone()).unwrap_or_default()
    }

    /// Queries the service config. Returns it with its TTL.
    async fn query(
        &self,
        host: &str,
        by: &TokioResolver,
    ) -> (Result<Option<ServiceConfig>, DnsError>, Duration) {
        let failure = |failure| Err(DnsError::new(host, failure));
        let query = by.lookup(self.name.clone(), RecordType::TXT);
        let found = tokio::time::timeout(CONFIG_TIMEOUT, query).await;
        match found.unwrap_or(Err(NetError::Timeout)) {
            Ok(found) => {
                let records = found.answers().iter().filter_map(|record| match &record.data {
                    RData::TXT(txt) => Some(txt.txt_data.clone()),
                    _ => None,
                });
                let config = self.select(records.collect());
                (
                    config.or_else(|problems| failure(DnsErrorKind::Config(problems))),
                    remaining_ttl(found.valid_until()),
                )
            }
            Err(error) if is_absent(&error) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
                (Ok(None), negative_ttl(&error).clamp(self.min_refresh_interval, TTL_MAX))
            }
            Err(error) => (failure(DnsErrorKind::ConfigLookup(error)), self.min_refresh_interval),
        }
    }

    /// Selects the config for this client from the records.
    fn select(
        &self,
        mut records: Records,
    ) -> Result<Option<ServiceConfig>, redial_service_config::Problems> {
        // Records have no order, and name servers rotate them.
        records.sort_unstable();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, selected)) = &*last
            && *known == records
        {
            return Ok(selected.config.clone());
        }
        let selected =
            self.selector.select_from_records(records.iter().map(|record| record.iter()))?;
        let config = selected.config.clone();
        *last = Some((records, selected));
        Ok(config)
    }
}

/// Whether the answer says that no such record exists.
fn is_absent(error: &NetError) -> bool {
    matches!(error, NetError::Dns(Answer::NoRecordsFound(_)))
}

/// The TTL of the answer that no such record exists.
fn negative_ttl(error: &NetError) -> Duration {
    let seconds = match error {
        NetError::Dns(Answer::NoRecordsFound(none)) => none.negative_ttl,
        _ => None,
    };
    Duration::from_secs(seconds.unwrap_or(0).into())
}

fn remaining_ttl(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Interleaves the address families, IPv6 first (RFC 8305, section 4), so that a broken family
/// delays at most every other connection attempt. Removes duplicates.
fn interleaved(found: impl Iterator<Item = IpAddr>, port: u16) -> Vec<SocketAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = found.partition(IpAddr::is_ipv6);
    let mut addresses: Vec<SocketAddr> = Vec::with_capacity(v6.len() + v4.len());
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    loop {
        let (six, four) = (v6.next(), v4.next());
        if six.is_none() && four.is_none() {
            return addresses;
        }
        for ip in six.into_iter().chain(four) {
            let address = SocketAddr::new(ip, port);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_addresses_interleave_families_without_duplicates() {
        let ips = ["10.0.0.1", "10.0.0.2", "::1", "10.0.0.1", "::2", "::3", "::4"];
        let ips = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
        let addresses = interleaved(ips.into_iter(), 7).into_iter().map(|it| it.to_string());
        let expected = ["[::1]:7", "10.0.0.1:7", "[::2]:7", "10.0.0.2:7", "[::3]:7", "[::4]:7"];
        assert_eq!(addresses.collect::<Vec<_>>(), expected);
        assert_eq!(interleaved(std::iter::empty(), 7), []);
    }
}
