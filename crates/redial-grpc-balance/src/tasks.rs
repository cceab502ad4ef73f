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

use super::balancer::Balancer;
use super::catch_panic;
use super::connection::{self, TonicConnection};
use super::error::ConnectError;
use super::resolver::{Resolution, Resolver};
use super::subchannels::{AddressChanges, NewSubchannel, SubchannelId};
use redial_grpc::balancing::evidence;

/// How long a connection that has answered nothing must live for the next dial to come at once when it
/// is lost: without it a server that accepts and closes would be dialled in a tight loop.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(1);

/// How long one resolution may take.
pub(crate) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long after a resolution the next one comes at the earliest, however short the application and
/// the answer want it to be: without it a resolver that is quick would be asked in a tight circle.
const RESOLVE_INTERVAL_FLOOR: Duration = Duration::from_millis(10);

/// The part of its time by which a pause may be longer: clients that lost the same backend, or have
/// their answers from the same cache, would otherwise all ask in the same moment.
const INTERVAL_JITTER: f64 = 0.1;

/// Where the addresses come from.
#[derive(Clone, Debug)]
pub(crate) enum AddressSource {
    Static(Vec<SocketAddr>),
    Resolver(Arc<dyn Resolver>),
}

impl AddressSource {
    pub(crate) fn may_return_config(&self) -> bool {
        match self {
            AddressSource::Static(_) => false,
            AddressSource::Resolver(resolver) => resolver.may_return_config(),
        }
    }
}

/// Follows the addresses, for as long as the channel lives.
pub(crate) fn run_channel(
    balancer: Arc<Balancer>,
    source: AddressSource,
) -> impl Future<Output = ()> + Send {
    // Not in the task's first turn, which a runtime that ends may never give it.
    let ends = ShutDownOnDrop(balancer.clone());
    async move {
        let _ends = ends;
        let mut connect_tasks = ConnectTasks { tasks: JoinSet::new(), by_id: HashMap::new() };
        match source {
            AddressSource::Static(addresses) => {
                connect_tasks
                    .apply(&balancer, balancer.resolution_succeeded(Resolution::new(addresses)));
                std::future::pending::<()>().await;
            }
            AddressSource::Resolver(resolver) => loop {
                let ask = || resolve(&balancer, &*resolver);
                let found = tokio::select! {
                    found = balancer.settings.resolve_backoff.retry(ask).when(|_: &ResolutionFailed| true) => found,
                    () = balancer.backoff_reset.notified() => continue,
                };
                let mut ttl = None;
                if let Ok(resolution) = found {
                    ttl = resolution.ttl;
                    connect_tasks.apply(&balancer, balancer.resolution_succeeded(resolution));
                }
                wait_for_next_resolution(&balancer, ttl).await;
            },
        }
    }
}

/// Until it is time to resolve again: somebody has reason to, it was long ago, or the answer is no
/// longer good; never at once.
async fn wait_for_next_resolution(balancer: &Balancer, ttl: Option<Duration>) {
    let more = 1.0 + INTERVAL_JITTER * redial::parts::draw();
    let spread = |time: Duration| Duration::try_from_secs_f64(time.as_secs_f64() * more);
    let spread = |time| spread(time).unwrap_or(Duration::MAX);
    let min = spread(balancer.settings.min_resolve_interval.max(RESOLVE_INTERVAL_FLOOR));
    let every = balancer.settings.resolve_every.or(ttl.map(spread));
    tokio::time::sleep(min).await;
    match every.map(|every| every.saturating_sub(min)) {
        Some(rest) => {
            let _either = tokio::time::timeout(rest, balancer.re_resolve.notified()).await;
        }
        None => balancer.re_resolve.notified().await,
    }
}

/// A resolution failed; the hub knows why.
#[derive(Debug)]
struct ResolutionFailed;

async fn resolve(
    balancer: &Balancer,
    resolver: &dyn Resolver,
) -> Result<Resolution, ResolutionFailed> {
    // With the error's text: its code is the application's too.
    let asked = async { resolver.resolve().await.map_err(|error| evidence::text(&*error)) };
    let resolving =
        catch_panic::run(|| Box::pin(asked), || Err("the resolver panicked".to_owned()));
    let resolving = tokio::time::timeout(RESOLVE_TIMEOUT, resolving).await;
    let result = resolving.unwrap_or_else(|_| Err(format!("no answer in {RESOLVE_TIMEOUT:?}")));
    let result = result.and_then(|resolution| match resolution.addresses.is_empty() {
        true => Err("the answer has no address".to_owned()),
        false => Ok(resolution),
    });
    result.map_err(|error| {
        balancer.resolution_failed(&error);
        ResolutionFailed
    })
}

/// When the task goes, so do the connections.
struct ShutDownOnDrop(Arc<Balancer>);

impl Drop for ShutDownOnDrop {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

/// The tasks of the backends; they end with this.
struct ConnectTasks {
    tasks: JoinSet<()>,
    by_id: HashMap<SubchannelId, AbortHandle>,
}

impl ConnectTasks {
    fn apply(&mut self, balancer: &Arc<Balancer>, changes: AddressChanges<TonicConnection>) {
        for backend in changes.removed {
            if let Some(connect_task) = self.by_id.remove(&backend.id) {
                connect_task.abort();
            }
        }
        for backend in changes.added {
            let id = backend.id;
            let connect_task = self.tasks.spawn(run_subchannel(balancer.clone(), backend));
            self.by_id.insert(id, connect_task);
        }
        while self.tasks.try_join_next().is_some() {}
    }
}

/// Keeps one backend connected as long as it is wanted.
async fn run_subchannel(balancer: Arc<Balancer>, backend: NewSubchannel) {
    let NewSubchannel { id, address, .. } = backend;
    loop {
        let connect_request = balancer.connect_requested(&backend).await;
        let connect_once = || connect_once(&balancer, id, address);
        let connected = tokio::select! {
            connected = balancer.settings.connect_backoff.retry(connect_once).when(|_: &ConnectError| true) => connected,
            () = balancer.connect_obsolete(&backend, connect_request) => continue,
        };
        if let Ok(mut connection) = connected {
            connection.closed().await;
            balancer.update(|subchannels, now| subchannels.connection_lost(id, now));
            balancer.re_resolve.notify_one();
        }
    }
}

/// Connects once; done when the connection has proved itself (it lived for a while, or answered a
/// request before it was closed), while calls use it already.
async fn connect_once(
    balancer: &Balancer,
    id: SubchannelId,
    address: SocketAddr,
) -> Result<TonicConnection, ConnectError> {
    balancer.update(|subchannels, now| subchannels.connect_started(id, now));
    let settings = &balancer.settings;
    let (connector, most) = (settings.connector.clone(), settings.connect_timeout);
    let error = match connection::connect(&settings.endpoint, connector, address, most).await {
        Ok(mut connection) => {
            balancer.update(|subchannels, _| subchannels.connected(id, connection.clone()));
            let connected = tokio::time::Instant::now();
            let lived = tokio::time::timeout(STABLE_AFTER, connection.closed()).await.is_err();
            let error = ConnectError::closed_early(connected.elapsed());
            let reason = error.to_string();
            if lived
                || balancer.update(|subchannels, now| subchannels.closed_early(id, &reason, now))
            {
                return Ok(connection);
            }
            error
        }
        Err(error) => {
            let reason = error.to_string();
            balancer.update(|subchannels, now| subchannels.connect_failed(id, &reason, now));
            error
        }
    };
    balancer.re_resolve.notify_one();
    Err(error)
}
