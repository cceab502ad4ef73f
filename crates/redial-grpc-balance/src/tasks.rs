//! The background tasks of a channel: one that resolves the target, and one per subchannel that
//! connects it.
//!
//! Rule: the delay after a failed connection attempt or resolution comes from a `redial` policy;
//! nothing here counts attempts. The interval between successful resolutions is not a retry, and is
//! computed here.

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
use redial_grpc::balancing::transport_error;

/// A connection that lasted this long is reconnected immediately when it is lost, even if it never
/// returned a response. A shorter one counts as a failed attempt, so that a server that accepts and
/// closes is not reconnected in a tight loop.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Limits one resolution.
pub(crate) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The minimum interval between resolutions, whatever the options and the TTL are. It prevents a
/// tight loop with a fast resolver.
const RESOLVE_INTERVAL_FLOOR: Duration = Duration::from_millis(10);

/// Intervals are extended by a random part of up to this fraction. Clients that lost the same
/// backend, or share a DNS cache, would otherwise resolve at the same moment (thundering herd).
const INTERVAL_JITTER: f64 = 0.1;

/// The source of the address list.
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

/// Resolves the target and maintains the connect tasks, until the channel is dropped.
pub(crate) fn run_channel(
    balancer: Arc<Balancer>,
    source: AddressSource,
) -> impl Future<Output = ()> + Send {
    // Created outside of the future: a runtime that shuts down may drop the task before its first
    // poll.
    let shutdown = ShutDownOnDrop(balancer.clone());
    async move {
        let _shutdown = shutdown;
        let mut connect_tasks = ConnectTasks { tasks: JoinSet::new(), by_id: HashMap::new() };
        match source {
            AddressSource::Static(addresses) => {
                connect_tasks
                    .apply(&balancer, balancer.resolution_succeeded(Resolution::new(addresses)));
                std::future::pending::<()>().await;
            }
            AddressSource::Resolver(resolver) => loop {
                let resolve_once = || resolve(&balancer, &*resolver);
                let found = tokio::select! {
                    found = balancer.settings.resolve_backoff.retry(resolve_once).when(|_: &ResolutionFailed| true) => found,
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

/// Waits until the next resolution: when one is requested, the interval has passed, or the TTL has
/// expired; never less than the minimum interval.
async fn wait_for_next_resolution(balancer: &Balancer, ttl: Option<Duration>) {
    let factor = 1.0 + INTERVAL_JITTER * redial::parts::draw();
    let with_jitter = |time: Duration| Duration::try_from_secs_f64(time.as_secs_f64() * factor);
    let with_jitter = |time| with_jitter(time).unwrap_or(Duration::MAX);
    let min = with_jitter(balancer.settings.min_resolve_interval.max(RESOLVE_INTERVAL_FLOOR));
    let every = balancer.settings.resolve_every.or(ttl.map(with_jitter));
    tokio::time::sleep(min).await;
    match every.map(|every| every.saturating_sub(min)) {
        Some(rest) => {
            let _either = tokio::time::timeout(rest, balancer.re_resolve.notified()).await;
        }
        None => balancer.re_resolve.notified().await,
    }
}

/// A resolution failed. The balancer has recorded the cause.
#[derive(Debug)]
struct ResolutionFailed;

async fn resolve(
    balancer: &Balancer,
    resolver: &dyn Resolver,
) -> Result<Resolution, ResolutionFailed> {
    // The error is converted inside: its `Display` is application code too, and may panic.
    let query =
        async { resolver.resolve().await.map_err(|error| transport_error::chain_text(&*error)) };
    let resolving =
        catch_panic::run(|| Box::pin(query), || Err("the resolver panicked".to_owned()));
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

/// Shuts the balancer down when the channel's task ends.
struct ShutDownOnDrop(Arc<Balancer>);

impl Drop for ShutDownOnDrop {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

/// The connect tasks, aborted when this is dropped.
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

/// Keeps one subchannel connected while it is needed.
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

/// Makes one connection attempt. Calls use the connection as soon as it is established. The
/// function returns when the connection counts as a success: it lasted for [`STABLE_AFTER`], or
/// returned a response before it was closed.
async fn connect_once(
    balancer: &Balancer,
    id: SubchannelId,
    address: SocketAddr,
) -> Result<TonicConnection, ConnectError> {
    balancer.update(|subchannels, now| subchannels.connect_started(id, now));
    let settings = &balancer.settings;
    let (connector, timeout) = (settings.connector.clone(), settings.connect_timeout);
    let error = match connection::connect(&settings.endpoint, connector, address, timeout).await {
        Ok(mut connection) => {
            balancer.update(|subchannels, _| subchannels.connected(id, connection.clone()));
            let connected = tokio::time::Instant::now();
            let is_stable = tokio::time::timeout(STABLE_AFTER, connection.closed()).await.is_err();
            let error = ConnectError::closed_early(connected.elapsed());
            let reason = error.to_string();
            if is_stable
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
