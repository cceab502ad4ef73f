//! A node's KV service: one connection, which is made again whenever it is lost, and a circuit breaker.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::bootstrap::{self, Bootstrapped, Collections, ConnectError, is_tls_error};
use super::breaker::Breaker;
use super::cluster::Cluster;
use super::connection::Connection;
use super::topology::Address;
use crate::operation::RequestOperation;
use crate::orchestrator::Orchestrator;
use crate::strategy::BestEffort;
use crate::terminal_state::TopologyConnection;

/// How long a connection must last before the delays between connections start anew: a peer that
/// accepts connections and closes them gets one per second at most.
pub const CONNECTION_HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The delay after a panic of the application's connector: the longest of RFC 49.
const RECONNECT_AFTER_PANIC: Duration = Duration::from_secs(1);

/// Connecting changes nothing on the server.
const CONNECT: RequestOperation = RequestOperation::declared_idempotent("client.connect");

/// A connection that is ready, and what was negotiated on it.
#[derive(Debug)]
pub(crate) struct ReadyConnection {
    pub(crate) connection: Connection,
    pub(crate) collections: Collections,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) breaker: Arc<Breaker>,
    ready: ArcSwapOption<ReadyConnection>,
    /// The errors of this endpoint's connections in the terminal state. All connections can be asked
    /// for the cluster configuration, so each of them follows the topology.
    status: TopologyConnection,
    task: OnceLock<AbortHandle>,
    /// Why the last attempt to connect failed, or that its connection was lost soon.
    connect_error: ArcSwapOption<ConnectError>,
}

impl Endpoint {
    /// An endpoint that connects in the background until it is stopped.
    pub(crate) fn start(address: Address, cluster: &Arc<Cluster>) -> Arc<Self> {
        let endpoint = Arc::new(Endpoint {
            address,
            breaker: Arc::new(Breaker::new(cluster.options.circuit_breaker)),
            ready: ArcSwapOption::empty(),
            status: cluster.terminal.connect(),
            task: OnceLock::new(),
            connect_error: ArcSwapOption::empty(),
        });
        let task = tokio::spawn(stay_connected(endpoint.clone(), cluster.clone()));
        // The cell is empty: it was made above.
        let _ = endpoint.task.set(task.abort_handle());
        endpoint
    }

    /// Closes the connection for good. Its requests in flight end as with a lost connection: a node that
    /// has left the cluster may never answer.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
        if let Some(ready) = self.ready.swap(None) {
            ready.connection.close();
        }
    }

    /// Why the endpoint is not connected, if an attempt to connect failed.
    pub(crate) fn connect_error(&self) -> Option<Arc<ConnectError>> {
        self.connect_error.load_full()
    }

    fn not_connected(&self, error: ConnectError) -> Arc<ConnectError> {
        let error = Arc::new(error);
        self.connect_error.store(Some(error.clone()));
        error
    }

    /// The connection, if there is one.
    pub(crate) fn ready(&self) -> Option<Arc<ReadyConnection>> {
        self.ready.load_full().filter(|ready| !ready.connection.is_closed())
    }
}

/// Stays connected until the endpoint leaves the cluster. A connection that lasted ends its request, so
/// the delays of the next one start anew; one that was lost soon is a failed attempt, as if it had never
/// been made.
async fn stay_connected(endpoint: Arc<Endpoint>, cluster: Arc<Cluster>) {
    let reconnects = Orchestrator::with(BestEffort::with(cluster.options.reconnect.clone()));
    loop {
        let connection =
            reconnects.request(CONNECT, Duration::MAX).run(|_| use_connection(&endpoint, &cluster));
        match catch_panic(connection).await {
            Some(Ok(Membership::Member)) => {}
            // A failure is retried until it is a success.
            Some(Ok(Membership::Removed) | Err(_)) => return,
            None => {
                endpoint.not_connected(ConnectError::Panicked);
                sleep(RECONNECT_AFTER_PANIC).await;
            }
        }
    }
}

/// Runs a future that calls code of the application: its connector, its streams, the delays between
/// connections. `None`: it panicked. Without this a panic would end the endpoint's task, and the
/// endpoint would never be connected again.
async fn catch_panic<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    // Unwind safety: the future is not polled again after a panic.
    poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx).map(Some)))
            .unwrap_or(Poll::Ready(None))
    })
    .await
}

/// Connects, and waits until the connection is lost. It is a success if the connection lasted.
async fn use_connection(
    endpoint: &Arc<Endpoint>,
    cluster: &Arc<Cluster>,
) -> Result<Membership, Arc<ConnectError>> {
    let Bootstrapped { connection, collections, error_map, topology } =
        connect(endpoint, cluster).await.map_err(|error| endpoint.not_connected(error))?;
    let connected_at = Instant::now();
    if let Some(map) = error_map {
        cluster.set_error_map(map);
    }
    let ready = Arc::new(ReadyConnection { connection, collections });
    endpoint.ready.store(Some(ready.clone()));
    endpoint.connect_error.store(None);
    if cluster.apply(topology, endpoint) == Membership::Removed {
        return Ok(Membership::Removed);
    }
    ready.connection.closed().await;
    if let Some(error) = ready.connection.error().filter(|error| is_tls_error(error)) {
        endpoint.status.tls_failed(error.to_string());
    }
    endpoint.ready.store(None);
    if connected_at.elapsed() < CONNECTION_HEALTHY_AFTER {
        return Err(endpoint.not_connected(ConnectError::LostSoon));
    }
    Ok(Membership::Member)
}

/// Whether an endpoint is part of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Member,
    Removed,
}

async fn connect(endpoint: &Endpoint, cluster: &Cluster) -> Result<Bootstrapped, ConnectError> {
    let (options, address) = (&cluster.options, &endpoint.address);
    let connecting = bootstrap::connect(options, address, &cluster.terminal, &endpoint.status);
    match tokio::time::timeout(options.connect_timeout, connecting).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::Timeout),
    }
}
