//! The tasks of a channel: one that follows the addresses, and below it one for each backend.
//!
//! Rule: when to dial or resolve again after a failure is a `redial` policy's decision; nothing here
//! counts attempts. The rhythm in which names that were resolved are resolved anew is not a retry, and
//! is kept here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::dial::{self, Link};
use super::error::DialError;
use super::foreign;
use super::hub::Hub;
use super::resolve::{Resolution, Resolver};
use super::roster::{Added, Changes, Serial};
use redial_grpc::balancing::transport_error;

/// How long a connection that has answered nothing must live for the next dial to come at once when it
/// is lost: without it a server that accepts and closes would be dialled in a tight loop.
pub(crate) const STEADY: Duration = Duration::from_secs(1);

/// How long one resolution may take.
pub(crate) const RESOLVE_MAX: Duration = Duration::from_secs(20);

/// How long after a resolution the next one comes at the earliest, however short the application and
/// the answer want it to be: without it a resolver that is quick would be asked in a tight circle.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The part of its time by which a pause may be longer: clients that lost the same backend, or have
/// their answers from the same cache, would otherwise all ask in the same moment.
const SPREAD: f64 = 0.1;

/// Where the addresses come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Listed(Vec<SocketAddr>),
    Resolver(Arc<dyn Resolver>),
}

impl Source {
    pub(crate) fn may_return_config(&self) -> bool {
        match self {
            Source::Listed(_) => false,
            Source::Resolver(resolver) => resolver.may_return_config(),
        }
    }
}

/// Follows the addresses, for as long as the channel lives.
pub(crate) fn follow(hub: Arc<Hub>, source: Source) -> impl Future<Output = ()> + Send {
    // Not in the task's first turn, which a runtime that ends may never give it.
    let ends = Ends(hub.clone());
    async move {
        let _ends = ends;
        let mut keepers = Keepers { tasks: JoinSet::new(), by_serial: HashMap::new() };
        match source {
            Source::Listed(addresses) => {
                keepers.apply(&hub, hub.resolved(Resolution::new(addresses)));
                std::future::pending::<()>().await;
            }
            Source::Resolver(resolver) => loop {
                let ask = || resolve(&hub, &*resolver);
                let found = tokio::select! {
                    found = hub.settings.resolve.retry(ask).when(|_: &Unresolved| true) => found,
                    () = hub.reset.notified() => continue,
                };
                let mut ttl = None;
                if let Ok(resolution) = found {
                    ttl = resolution.ttl;
                    keepers.apply(&hub, hub.resolved(resolution));
                }
                pause(&hub, ttl).await;
            },
        }
    }
}

/// Until it is time to resolve again: somebody has reason to, it was long ago, or the answer is no
/// longer good; never at once.
async fn pause(hub: &Hub, ttl: Option<Duration>) {
    let more = 1.0 + SPREAD * redial::parts::draw();
    let spread = |time: Duration| Duration::try_from_secs_f64(time.as_secs_f64() * more);
    let spread = |time| spread(time).unwrap_or(Duration::MAX);
    let min = spread(hub.settings.min_resolve_interval.max(PAUSE_MIN));
    let every = hub.settings.resolve_every.or(ttl.map(spread));
    tokio::time::sleep(min).await;
    match every.map(|every| every.saturating_sub(min)) {
        Some(rest) => {
            let _either = tokio::time::timeout(rest, hub.doubted.notified()).await;
        }
        None => hub.doubted.notified().await,
    }
}

/// A resolution failed; the hub knows why.
#[derive(Debug)]
struct Unresolved;

async fn resolve(hub: &Hub, resolver: &dyn Resolver) -> Result<Resolution, Unresolved> {
    // With the error's text: its code is the application's too.
    let asked =
        async { resolver.resolve().await.map_err(|error| transport_error::chain_text(&*error)) };
    let resolving = foreign::run(|| Box::pin(asked), || Err("the resolver panicked".to_owned()));
    let resolving = tokio::time::timeout(RESOLVE_MAX, resolving).await;
    let result = resolving.unwrap_or_else(|_| Err(format!("no answer in {RESOLVE_MAX:?}")));
    let result = result.and_then(|resolution| match resolution.addresses.is_empty() {
        true => Err("the answer has no address".to_owned()),
        false => Ok(resolution),
    });
    result.map_err(|error| {
        hub.unresolved(&error);
        Unresolved
    })
}

/// When the task goes, so do the connections.
struct Ends(Arc<Hub>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The tasks of the backends; they end with this.
struct Keepers {
    tasks: JoinSet<()>,
    by_serial: HashMap<Serial, AbortHandle>,
}

impl Keepers {
    fn apply(&mut self, hub: &Arc<Hub>, changes: Changes<Link>) {
        for backend in changes.removed {
            if let Some(keeper) = self.by_serial.remove(&backend.serial) {
                keeper.abort();
            }
        }
        for backend in changes.added {
            let serial = backend.serial;
            let keeper = self.tasks.spawn(keep(hub.clone(), backend));
            self.by_serial.insert(serial, keeper);
        }
        while self.tasks.try_join_next().is_some() {}
    }
}

/// Keeps one backend connected as long as it is wanted.
async fn keep(hub: Arc<Hub>, backend: Added) {
    let Added { serial, address, .. } = backend;
    loop {
        let wish = hub.wanted(&backend).await;
        let establish = || establish(&hub, serial, address);
        let connected = tokio::select! {
            connected = hub.settings.connect.retry(establish).when(|_: &DialError| true) => connected,
            () = hub.over(&backend, wish) => continue,
        };
        if let Ok(mut link) = connected {
            link.ended().await;
            hub.with(|roster, now| roster.lost(serial, now));
            hub.doubted.notify_one();
        }
    }
}

/// Connects once; done when the connection has proved itself (it lived for a while, or answered a
/// request before it was closed), while calls use it already.
async fn establish(hub: &Hub, serial: Serial, address: SocketAddr) -> Result<Link, DialError> {
    hub.with(|roster, now| roster.dialling(serial, now));
    let settings = &hub.settings;
    let (connector, most) = (settings.connector.clone(), settings.connect_max);
    let error = match dial::connect(&settings.endpoint, connector, address, most).await {
        Ok(mut link) => {
            hub.with(|roster, _| roster.connected(serial, link.clone()));
            let connected = tokio::time::Instant::now();
            let lived = tokio::time::timeout(STEADY, link.ended()).await.is_err();
            let error = DialError::closed_early(connected.elapsed());
            let stop_reason = error.to_string();
            if lived || hub.with(|roster, now| roster.closed_early(serial, &stop_reason, now)) {
                return Ok(link);
            }
            error
        }
        Err(error) => {
            let stop_reason = error.to_string();
            hub.with(|roster, now| roster.failed(serial, &stop_reason, now));
            error
        }
    };
    hub.doubted.notify_one();
    Err(error)
}
