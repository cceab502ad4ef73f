//! What all requests of a client share: nodes, cluster configuration, collections, terminal state.
//!
//! Requests read immutable snapshots without a lock. A new cluster configuration replaces the snapshot
//! if it is newer, whether it came with a handshake, a poll or a NOT MY VBUCKET response.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use redial::Reason;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::bootstrap::Collections;
use super::connection::Connection;
use super::endpoint::{Endpoint, Membership, ReadyConnection};
use super::error::{InvalidRequest, RequestError};
use super::frame::{RequestFrame, ResponseFrame};
use super::manifest::Manifest;
use super::opcode;
use super::options::{CONFIG_POLL_TIMEOUT, ClientOptions};
use super::topology::{Topology, Transport};
use crate::error_map::ErrorMap;
use crate::operation;
use crate::orchestrator::Orchestrator;
use crate::reason;
use crate::response::{Response, status};
use crate::strategy::FailFast;
use crate::terminal_state::{RequestTarget, TerminalState};

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) options: ClientOptions,
    pub(crate) terminal: TerminalState,
    /// For the client's own requests: a failed poll is not retried, since the next one follows soon
    /// (decision C13).
    internal: Orchestrator,
    routes: ArcSwap<Routes>,
    /// Serializes changes of the routes and the manifest.
    changing: Mutex<()>,
    error_map: ArcSwapOption<ErrorMap>,
    manifest: ArcSwapOption<Manifest>,
    /// Held while the manifest is fetched: at most once at a time.
    fetching: Arc<AsyncMutex<LastFetch>>,
    /// How many times the manifest was fetched, or could not be.
    fetches: AtomicU64,
    /// The configuration that came last in a response or poll.
    last_config: ArcSwap<Bytes>,
    /// Which endpoint is polled next.
    polled: AtomicUsize,
    /// The number of requests that wait for a retry.
    in_retry: AtomicUsize,
    closed: AtomicBool,
}

/// The endpoints, and where each vbucket is.
#[derive(Debug, Default)]
struct Routes {
    topology: Option<Topology>,
    /// The endpoints by the topology's node number.
    nodes: Vec<Option<Arc<Endpoint>>>,
    /// All endpoints: the first addresses until there is a topology, then its nodes.
    endpoints: Vec<Arc<Endpoint>>,
}

/// Where a request goes.
pub(crate) struct Destination {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) vbucket: u16,
}

/// The collection of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CollectionName {
    Default,
    Named { scope: Arc<str>, collection: Arc<str> },
}

impl Cluster {
    /// A cluster that connects to its first addresses.
    pub(crate) fn start(options: ClientOptions) -> Arc<Self> {
        let cluster = Arc::new(Cluster {
            options,
            terminal: TerminalState::new(),
            internal: Orchestrator::with(FailFast),
            routes: ArcSwap::default(),
            changing: Mutex::new(()),
            error_map: ArcSwapOption::empty(),
            manifest: ArcSwapOption::empty(),
            fetching: Arc::default(),
            fetches: AtomicU64::new(0),
            last_config: ArcSwap::default(),
            polled: AtomicUsize::new(0),
            in_retry: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        {
            // The configuration of an endpoint that connects at once is applied to these routes.
            let _changing = cluster.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let addresses = cluster.options.addresses.iter().cloned();
            let endpoints = addresses.map(|address| Endpoint::start(address, &cluster)).collect();
            cluster.routes.store(Arc::new(Routes { endpoints, ..Routes::default() }));
        }
        cluster
    }

    /// Closes all connections. Running requests end as with a lost connection.
    pub(crate) fn close(&self) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Release);
        for endpoint in &self.routes.swap(Arc::default()).endpoints {
            endpoint.stop();
        }
    }

    pub(crate) fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.routes.load().endpoints.clone()
    }

    pub(crate) fn revision(&self) -> Option<(i64, i64)> {
        self.routes.load().topology.as_ref().map(Topology::revision)
    }

    /// Applies a configuration that this endpoint has sent, if it is newer.
    pub(crate) fn apply(self: &Arc<Self>, topology: Topology, from: &Arc<Endpoint>) -> Membership {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let routes = self.routes.load_full();
        let is_member =
            |routes: &Routes| routes.endpoints.iter().any(|endpoint| Arc::ptr_eq(endpoint, from));
        let is_newer =
            routes.topology.as_ref().is_none_or(|present| topology.is_newer_than(present));
        if self.closed.load(Ordering::Acquire) {
            return Membership::Removed;
        }
        if is_newer {
            let uuids =
                routes.topology.as_ref().map(|it| (it.bucket_uuid(), topology.bucket_uuid()));
            if let Some((Some(present), Some(new))) = uuids
                && present != new
            {
                self.manifest.store(None);
                self.terminal.forget_bucket(&self.options.bucket);
            }
            let mut endpoints: Vec<Arc<Endpoint>> = Vec::new();
            let nodes = topology.nodes.iter().map(|address| {
                let address = address.as_ref()?;
                let known = endpoints.iter().chain(&routes.endpoints);
                let known = known.into_iter().find(|it| it.address == *address).cloned();
                let endpoint = known.unwrap_or_else(|| Endpoint::start(address.clone(), self));
                if !endpoints.iter().any(|it| Arc::ptr_eq(it, &endpoint)) {
                    endpoints.push(endpoint.clone());
                }
                Some(endpoint)
            });
            let nodes = nodes.collect();
            let is_kept = |old: &Arc<Endpoint>| endpoints.iter().any(|it| Arc::ptr_eq(it, old));
            for old in routes.endpoints.iter().filter(|old| !is_kept(old)) {
                old.stop();
            }
            self.routes.store(Arc::new(Routes { topology: Some(topology), nodes, endpoints }));
        }
        if is_member(&self.routes.load()) { Membership::Member } else { Membership::Removed }
    }

    /// Applies a configuration from a response's body, if it is one.
    pub(crate) fn apply_json(self: &Arc<Self>, json: &[u8], from: &Arc<Endpoint>) {
        if !self.is_other_config(json) {
            return;
        }
        let transport = if self.options.tls.is_some() { Transport::Tls } else { Transport::Plain };
        // The server may leave it out, and a poll gets it then.
        if let Ok(topology) = Topology::parse(json, from.address.host(), transport) {
            self.apply(topology, from);
        }
    }

    /// Whether this is another configuration than the one that came last. During a rebalance many
    /// responses have the same one.
    fn is_other_config(&self, json: &[u8]) -> bool {
        let is_other = **self.last_config.load() != *json;
        if is_other {
            self.last_config.store(Arc::new(Bytes::copy_from_slice(json)));
        }
        is_other
    }

    pub(crate) fn set_error_map(&self, map: ErrorMap) {
        let is_newer =
            self.error_map.load().as_ref().is_none_or(|it| it.revision() < map.revision());
        if is_newer {
            self.error_map.store(Some(Arc::new(map)));
        }
    }

    /// The response of the KV service with the error map entry of its status.
    pub(crate) fn response(&self, opcode: u8, status: u16) -> Response {
        let response = Response::kv(status).to_command(opcode::name(opcode));
        match &*self.error_map.load() {
            Some(map) => response.with_error_map(map),
            None => response,
        }
    }

    /// The error of a request that cannot be sent: a terminal reason if there is one, else this one.
    pub(crate) fn not_sent(&self, reason: Reason, collection: &CollectionName) -> RequestError {
        let bucket = &self.options.bucket;
        let target = match collection {
            CollectionName::Default => RequestTarget::bucket(bucket),
            CollectionName::Named { scope, collection } => {
                RequestTarget::collection(bucket, scope, collection)
            }
        };
        match self.terminal.terminal_reason_for(target) {
            Some(terminal) => RequestError::Terminal(terminal),
            None => RequestError::NotSent(reason),
        }
    }

    /// The node for a key; `copy` 0 is the active one.
    pub(crate) fn route(&self, key: &[u8], copy: usize) -> Result<Destination, Reason> {
        let routes = self.routes.load();
        let Some(topology) = &routes.topology else { return Err(reason::SERVICE_NOT_AVAILABLE) };
        let route = topology.route(key, copy);
        let node = route.node.ok_or(reason::NODE_NOT_AVAILABLE)?;
        // A listed node without an address has no KV service.
        let endpoint = routes.nodes.get(node).cloned().flatten();
        let endpoint = endpoint.ok_or(reason::SERVICE_NOT_AVAILABLE)?;
        Ok(Destination { endpoint, vbucket: route.vbucket })
    }

    /// Whether every node is connected.
    pub(crate) fn is_ready(&self) -> bool {
        let routes = self.routes.load();
        routes.topology.is_some()
            && !routes.endpoints.is_empty()
            && routes.endpoints.iter().all(|it| it.ready().is_some())
    }

    /// Reserves one of the places for requests that wait for a retry.
    pub(crate) fn enter_retry(&self) -> bool {
        let max = self.options.requests_in_retry_max;
        let enter = |waiting| (waiting < max).then_some(waiting + 1);
        self.in_retry.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_ok()
    }

    pub(crate) fn leave_retry(&self) {
        self.in_retry.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn in_retry(&self) -> usize {
        self.in_retry.load(Ordering::Relaxed)
    }

    /// Whether the ids of collections have to be fetched before a request to this one.
    pub(crate) fn lacks_manifest(
        &self,
        name: &CollectionName,
        connection: &ReadyConnection,
    ) -> bool {
        matches!(name, CollectionName::Named { .. })
            && connection.collections == Collections::Supported
            && self.manifest.load().is_none()
    }

    /// Fetches the ids of collections for a request that waits for them. Requests that wait at the same
    /// time share one fetch and its error.
    pub(crate) async fn fetch_missing_manifest(
        &self,
        name: &CollectionName,
        connection: &ReadyConnection,
    ) -> Result<(), RequestError> {
        let before = self.fetches.load(Ordering::Acquire);
        let mut last = self.fetching.lock().await;
        let fetched = if self.manifest.load().is_some() {
            Ok(())
        } else if self.fetches.load(Ordering::Acquire) == before {
            self.fetch_manifest(connection, &mut last).await
        } else {
            last.0.clone()
        };
        fetched.map_err(|error| self.manifest_missing(error, name))
    }

    /// The id of a collection, or why it is not known.
    pub(crate) fn collection_id(
        self: &Arc<Self>,
        name: &CollectionName,
        connection: &ReadyConnection,
    ) -> Result<Option<u32>, RequestError> {
        match (name, connection.collections) {
            (CollectionName::Default, Collections::Unsupported) => Ok(None),
            (CollectionName::Default, Collections::Supported) => Ok(Some(0)),
            (CollectionName::Named { .. }, Collections::Unsupported) => {
                Err(RequestError::Invalid(InvalidRequest::NoCollections))
            }
            (CollectionName::Named { scope, collection }, Collections::Supported) => {
                let manifest = self.manifest.load();
                if let Some(id) = manifest.as_ref().and_then(|it| it.id(scope, collection)) {
                    return Ok(Some(id));
                }
                // It may have been created since. The next attempt sees the new map.
                self.refresh_manifest();
                Err(self.not_sent(reason::SERVICE_NOT_AVAILABLE, name))
            }
        }
    }

    /// The error of a request whose collection is not known because the manifest was not fetched: the
    /// request itself was not sent.
    fn manifest_missing(&self, error: RequestError, name: &CollectionName) -> RequestError {
        match error {
            RequestError::ConnectionLost { cause, .. } => {
                RequestError::ConnectionLost { reason: reason::SOCKET_NOT_AVAILABLE, cause }
            }
            RequestError::Protocol(_) => self.not_sent(reason::SERVICE_NOT_AVAILABLE, name),
            other => other,
        }
    }

    /// Fetches the manifest in the background, unless that is being done.
    pub(crate) fn refresh_manifest(self: &Arc<Self>) {
        let Ok(mut last) = self.fetching.clone().try_lock_owned() else { return };
        let cluster = self.clone();
        tokio::spawn(async move {
            let ready = cluster.endpoints().iter().find_map(|endpoint| endpoint.ready());
            if let Some(ready) = ready {
                // A failure shows in the requests that need the map.
                let _ = cluster.fetch_manifest(&ready, &mut last).await;
            }
        });
    }

    /// Fetches the manifest, and keeps the result for the requests that wait for it.
    async fn fetch_manifest(
        &self,
        connection: &ReadyConnection,
        last: &mut LastFetch,
    ) -> Result<(), RequestError> {
        last.0 = self.request_manifest(connection).await;
        self.fetches.fetch_add(1, Ordering::Release);
        last.0.clone()
    }

    async fn request_manifest(&self, connection: &ReadyConnection) -> Result<(), RequestError> {
        let opcode = opcode::GET_COLLECTIONS_MANIFEST;
        let request =
            self.internal.request(operation::KV_GET_COLLECTION_MANIFEST, self.options.timeout);
        let routes = self.routes.load_full();
        let fetched = request.run(|_| self.ask(&connection.connection, opcode)).await;
        let frame = fetched.map_err(|error| {
            error.into_last().unwrap_or(RequestError::NotSent(reason::SERVICE_NOT_AVAILABLE))
        })?;
        let manifest = Manifest::parse(&frame.value)
            .ok_or(RequestError::Protocol("it is not a collection manifest"))?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let uuid = |routes: &Routes| routes.topology.as_ref()?.bucket_uuid().map(str::to_owned);
        // The bucket may have been created anew meanwhile. Uids grow in one bucket only.
        let is_newer = self.manifest.load().as_ref().is_none_or(|it| it.uid() <= manifest.uid());
        if is_newer && uuid(&routes) == uuid(&self.routes.load()) {
            self.terminal.collections_fetched(&self.options.bucket, manifest.map());
            self.manifest.store(Some(Arc::new(manifest)));
        }
        Ok(())
    }

    /// Asks one endpoint for the cluster configuration, and every endpoint whose requests have got no
    /// response since the last poll: without a response it is replaced. The endpoints take turns.
    pub(crate) async fn poll_config(self: &Arc<Self>) {
        let endpoints = self.endpoints();
        let first = self.polled.fetch_add(1, Ordering::Relaxed);
        let in_turn = endpoints.iter().cycle().skip(first % endpoints.len().max(1));
        let mut polls = JoinSet::new();
        for endpoint in in_turn.take(endpoints.len()) {
            let Some(ready) = endpoint.ready() else { continue };
            if ready.connection.awaits_without_reads() || polls.is_empty() {
                let (cluster, endpoint) = (self.clone(), endpoint.clone());
                polls.spawn(async move { cluster.poll_endpoint(&endpoint, &ready).await });
            }
        }
        while polls.join_next().await.is_some() {}
    }

    /// Asks an endpoint for the cluster configuration. A connection that is silent until the timeout is
    /// closed, whether or not the poll was sent: its node may be gone without a word.
    async fn poll_endpoint(self: &Arc<Self>, endpoint: &Arc<Endpoint>, ready: &ReadyConnection) {
        let connection = &ready.connection;
        let (since, end) = (connection.progress(), Instant::now() + CONFIG_POLL_TIMEOUT);
        let request = self.internal.request(operation::KV_CLUSTER_CONFIG, CONFIG_POLL_TIMEOUT);
        let polled = request.run(|_| self.ask(connection, opcode::GET_CLUSTER_CONFIG)).await;
        match polled {
            Ok(frame) => return self.apply_json(&frame.value, endpoint),
            Err(error) if error.is_timeout() => {}
            // The queue is full, or the connection has ended.
            Err(error) if matches!(error.last(), Some(RequestError::NotSent(_))) => {
                let _ = timeout_at(end, connection.closed()).await;
            }
            Err(_) => return,
        }
        if connection.is_silent_since(since) {
            connection.close();
        }
    }

    /// Sends a command without arguments once.
    async fn ask(
        &self,
        connection: &Connection,
        opcode: u8,
    ) -> Result<ResponseFrame, RequestError> {
        let frame = RequestFrame {
            opcode,
            vbucket: 0,
            opaque: 0,
            cas: 0,
            extras: &[],
            key_prefix: &[],
            key: &[],
            value: &[],
        };
        let frame = connection.send(frame)?.receive().await?;
        match frame.status {
            status::SUCCESS => Ok(frame),
            refused => Err(RequestError::Response(self.response(opcode, refused))),
        }
    }
}

/// The result of the last fetch of the manifest.
#[derive(Debug)]
struct LastFetch(Result<(), RequestError>);

impl Default for LastFetch {
    fn default() -> Self {
        LastFetch(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Address;

    #[tokio::test]
    async fn cluster_parses_each_configuration_once() {
        let cluster = Cluster::start(ClientOptions::memcached(Address::new("node", 1)));
        assert!(cluster.is_other_config(b"one"));
        assert!(!cluster.is_other_config(b"one"));
        assert!(cluster.is_other_config(b"two"));
        cluster.close();
    }
}
