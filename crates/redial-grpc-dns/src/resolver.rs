//! A resolver of one target, on hickory.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::net::{DnsError as Answer, NetError};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{MAX_TTL, TokioResolver};
use redial_grpc_balance::{ConfigError, Resolution, ResolveFuture, Resolver};
use redial_service_config::{Chooser, Chosen, Problem, ServiceConfig};

use super::builder::DnsResolverBuilder;
use super::error::{DnsError, DnsErrorKind};

/// How long addresses that are known wait for the config. The first calls of a channel wait for them,
/// and some name servers never answer a question for TXT.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the addresses of one family wait for those of the other: some name servers never answer a
/// question for AAAA.
const OTHER_FAMILY_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest that an answer is kept.
pub(super) const TTL_MAX: Duration = Duration::from_secs(MAX_TTL as u64);

/// Asks DNS for the addresses of a target and, if it is told to, for its service config.
///
/// Clones share what they know. See the [crate](crate).
///
/// # Cancel safety
/// Dropping a resolution loses nothing but its answer.
#[derive(Clone)]
pub struct DnsResolver(pub(super) Arc<Inner>);

pub(super) struct Inner {
    /// The target's host, as errors name it.
    pub(super) host: Box<str>,
    pub(super) lookup: Lookup,
}

/// What is asked for.
pub(super) enum Lookup {
    /// The target has its addresses itself.
    Static(Vec<SocketAddr>),
    Name(Box<NameLookup>),
}

/// A name, who is asked for it, and whether its config is wanted too.
pub(super) struct NameLookup {
    pub(super) port: u16,
    pub(super) v6: FamilyLookup,
    pub(super) v4: FamilyLookup,
    pub(super) txt: Option<TxtLookup>,
    pub(super) min_refresh_interval: Duration,
    /// When the name servers were last asked.
    pub(super) asked: Mutex<Option<Instant>>,
}

impl NameLookup {
    /// Forgets what is known once it is old enough, however long it is still good: who asks before
    /// its end has reason to doubt it.
    fn refresh(&self) {
        let now = Instant::now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_none_or(|at| now.duration_since(at) >= self.min_refresh_interval) {
            self.v6.resolver.clear_cache();
            self.v4.resolver.clear_cache();
            *asked = Some(now);
        }
    }

    /// The addresses, and how long they are good.
    async fn addresses(&self) -> Result<(Vec<IpAddr>, Duration), DnsErrorKind> {
        let (v6, v4) = (self.v6.ask(), self.v4.ask());
        tokio::pin!(v6, v4);
        let (v6, v4) = tokio::select! {
            first = &mut v6 => {
                let second = after(&first, v4).await;
                (first, second)
            }
            first = &mut v4 => {
                let second = after(&first, v6).await;
                (second, first)
            }
        };
        let (v6, v4) = match (v6, v4) {
            (Err(error), Err(_)) => return Err(DnsErrorKind::Addresses(error)),
            (v6, v4) => (
                self.v6.take(v6, self.min_refresh_interval),
                self.v4.take(v4, self.min_refresh_interval),
            ),
        };
        let (found, ttl) = match (v6, v4) {
            (Ok(v6), Ok(v4)) => ([v6.0, v4.0].concat(), v6.1.min(v4.1)),
            // What nobody knows is asked for again soon.
            (Ok(one), Err(_)) | (Err(_), Ok(one)) if !one.0.is_empty() => {
                (one.0, one.1.min(self.min_refresh_interval))
            }
            (Err(error), _) | (_, Err(error)) => return Err(DnsErrorKind::Addresses(error)),
        };
        if found.is_empty() { Err(DnsErrorKind::Missing) } else { Ok((found, ttl)) }
    }
}

/// What one family's answer is, with how long it is good; without any address if it has none.
type Found = Result<(Vec<IpAddr>, Duration), NetError>;

/// The answer of the second family, once that of the first is there.
async fn after(first: &Found, second: impl Future<Output = Found>) -> Found {
    let is_enough = first.as_ref().is_ok_and(|(found, _)| !found.is_empty());
    let most = if is_enough { OTHER_FAMILY_TIMEOUT } else { Duration::MAX };
    tokio::time::timeout(most, second).await.unwrap_or(Err(NetError::Timeout))
}

/// The addresses of one family.
pub(super) struct FamilyLookup {
    pub(super) name: Name,
    /// It asks for this family alone.
    pub(super) resolver: TokioResolver,
    /// What was last known.
    pub(super) last: Mutex<Vec<IpAddr>>,
}

impl FamilyLookup {
    async fn ask(&self) -> Found {
        match self.resolver.lookup_ip(self.name.clone()).await {
            Ok(found) => Ok((found.iter().collect(), remaining_ttl(found.valid_until()))),
            Err(error) if is_absent(&error) => Ok((Vec::new(), TTL_MAX)),
            Err(error) => Err(error),
        }
    }

    /// While one family cannot be asked for, its addresses are those that it last had: what still
    /// works is not to be given up because a question was lost.
    fn take(&self, found: Found, min_refresh_interval: Duration) -> Found {
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
            Lookup::Name(named) => named.txt.as_ref(),
        }
    }
}

/// What it takes to get a service config.
pub(super) struct TxtLookup {
    pub(super) name: Name,
    pub(super) chooser: Chooser,
    pub(super) min_refresh_interval: Duration,
    /// What was last taken, and from which records: while they stay, so does the very same config.
    pub(super) last: Mutex<Option<(Records, SelectedChoice)>>,
}

/// TXT records as their character-strings.
type Records = Vec<Box<[Box<[u8]>]>>;

impl DnsResolver {
    /// A resolver of addresses, by the system's name servers.
    ///
    /// # Errors
    /// As [`DnsResolverBuilder::build`].
    pub fn new(target: &str) -> Result<DnsResolver, DnsError> {
        DnsResolver::builder(target).build()
    }

    /// A resolver with options.
    pub fn builder(target: impl Into<String>) -> DnsResolverBuilder {
        DnsResolverBuilder::new(target.into())
    }

    /// What is legal in the list of choices that was last read, and surely not meant. Such is a
    /// choice that is passed over for its unknown condition, which is told nowhere else if no choice
    /// is taken. A channel tells them in its view, too
    /// ([`ChannelSnapshot::config_warnings`](redial_grpc_balance::ChannelSnapshot::config_warnings)).
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
        let named = match &self.lookup {
            Lookup::Static(addresses) => {
                return Ok(Resolution::new(addresses.clone()).ttl(TTL_MAX));
            }
            Lookup::Name(named) => &**named,
        };
        named.refresh();
        let asked = async {
            match &named.txt {
                Some(txt) => txt.ask(&self.host, &named.v4.resolver).await,
                None => (Ok(None), TTL_MAX),
            }
        };
        let (found, (config, config_good_for)) = tokio::join!(named.addresses(), asked);
        let (found, ttl) = found.map_err(|wrong| DnsError::new(&self.host, wrong))?;
        let addresses = interleaved(found.into_iter(), named.port);
        let ttl = ttl.min(config_good_for);
        let config = config.map_err(|error| Arc::new(error) as ConfigError);
        let warnings = named.txt.as_ref().map_or_else(Vec::new, TxtLookup::warnings);
        Ok(Resolution::new(addresses).with_config_result(config).with_warnings(warnings).ttl(ttl))
    }
}

impl TxtLookup {
    /// What is surely not meant in the list that was last read.
    fn warnings(&self) -> Vec<Problem> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|(_, selected)| selected.warnings.clone()).unwrap_or_default()
    }

    /// The config that DNS has for us, and how long that is good.
    async fn ask(
        &self,
        host: &str,
        by: &TokioResolver,
    ) -> (Result<Option<ServiceConfig>, DnsError>, Duration) {
        let wrong = |wrong| Err(DnsError::new(host, wrong));
        let asking = by.lookup(self.name.clone(), RecordType::TXT);
        let found = tokio::time::timeout(CONFIG_TIMEOUT, asking).await;
        match found.unwrap_or(Err(NetError::Timeout)) {
            Ok(found) => {
                let records = found.answers().iter().filter_map(|record| match &record.data {
                    RData::TXT(txt) => Some(txt.txt_data.clone()),
                    _ => None,
                });
                let config = self.take(records.collect());
                (
                    config.or_else(|problems| wrong(DnsErrorKind::Config(problems))),
                    remaining_ttl(found.valid_until()),
                )
            }
            Err(error) if is_absent(&error) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
                (Ok(None), negative_ttl(&error).clamp(self.min_refresh_interval, TTL_MAX))
            }
            Err(error) => (wrong(DnsErrorKind::ConfigLookup(error)), self.min_refresh_interval),
        }
    }

    /// The config that is ours in these records.
    fn take(
        &self,
        mut records: Records,
    ) -> Result<Option<ServiceConfig>, redial_service_config::Problems> {
        // Records have no order, and name servers like to turn them round.
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

/// Whether DNS says that there are no such records, rather than nothing.
fn is_absent(error: &NetError) -> bool {
    matches!(error, NetError::Dns(Answer::NoRecordsFound(_)))
}

/// How long there are no such records.
fn negative_ttl(error: &NetError) -> Duration {
    let seconds = match error {
        NetError::Dns(Answer::NoRecordsFound(none)) => none.negative_ttl,
        _ => None,
    };
    Duration::from_secs(seconds.unwrap_or(0).into())
}

/// How long it is until then.
fn remaining_ttl(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// The addresses, one of each family in turns, IPv6 first (RFC 8305, 4): a family that does not work
/// holds up every other attempt at the most. None is there twice.
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
