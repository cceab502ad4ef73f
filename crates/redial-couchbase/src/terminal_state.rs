//! The connection state that raises and clears terminal reasons: RFC 49, "Fail Fast (Terminal Errors)"
//! (decision C11).
//!
//! | reason | raised | cleared | affects |
//! | --- | --- | --- | --- |
//! | `AUTHENTICATION_ERROR` | the credentials of a topology connection are rejected (0x20) | it authenticates, or is closed | KV and HTTP |
//! | `TLS_ERROR` | TLS of a topology connection fails | its handshake succeeds, or it is closed | KV and HTTP |
//! | `BUCKET_ACCESS_ERROR` | any connection is denied access to the bucket (0x24) | any connection selects it | KV |
//! | `SCOPE_NOT_FOUND`, `COLLECTION_NOT_FOUND` | the fetched collection map lacks it | a newer map contains it | KV |
//!
//! Implementation: the state is an immutable snapshot. Requests read it without a lock; connections
//! replace it on the rare changes. Each change copies the snapshot, so collection maps are shared.
//!
//! Invariant: the snapshot contains exactly the live connections.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use redial_core::{Failure, Reason};

use crate::reason;
use crate::response::{Response, ResponseOutcome, status};
use crate::retryable_error::RetryableError;

/// The state of connections, buckets and collections. Clones share it.
///
/// A client reports events of its connections, and checks the state before it sends a request.
///
/// ```
/// use redial_couchbase::{CollectionMap, RequestTarget, TerminalState, reason};
///
/// let state = TerminalState::new();
/// let connection = state.connect();
/// connection.sasl_answered(0x20);
/// assert_eq!(state.reason_for(RequestTarget::Http), Some(reason::AUTHENTICATION_ERROR));
/// connection.sasl_answered(0x00);
/// assert_eq!(state.reason_for(RequestTarget::Http), None);
///
/// state.collections_fetched("travel", CollectionMap::new().scope("inventory", ["hotel"]));
/// let target = RequestTarget::collection("travel", "inventory", "airport");
/// assert_eq!(state.reason_for(target), Some(reason::COLLECTION_NOT_FOUND));
/// ```
#[derive(Clone, Default)]
pub struct TerminalState {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    next: AtomicU64,
}

#[derive(Clone, Default)]
struct Snapshot {
    connections: BTreeMap<u64, Connection>,
    buckets: BTreeMap<String, Bucket>,
}

#[derive(Clone, Default)]
struct Connection {
    rejected: bool,
    tls_error: Option<Arc<dyn Error + Send + Sync>>,
}

#[derive(Clone, Default)]
struct Bucket {
    refused: bool,
    map: Option<Arc<CollectionMap>>,
}

/// The service, bucket and collection that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestTarget<'a> {
    /// An HTTP service. Only connection errors affect it.
    Http,
    /// The KV service.
    Kv {
        /// The bucket, if the request needs one.
        bucket: Option<&'a str>,
        /// Scope and collection, if the request needs the collection map.
        collection: Option<(&'a str, &'a str)>,
    },
}

impl<'a> RequestTarget<'a> {
    /// A KV request that needs this bucket.
    #[must_use]
    pub const fn bucket(bucket: &'a str) -> Self {
        RequestTarget::Kv { bucket: Some(bucket), collection: None }
    }

    /// A KV request that needs this collection.
    #[must_use]
    pub const fn collection(bucket: &'a str, scope: &'a str, collection: &'a str) -> Self {
        RequestTarget::Kv { bucket: Some(bucket), collection: Some((scope, collection)) }
    }
}

/// The scopes and collections of a bucket, as a server listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionMap {
    scopes: BTreeMap<String, BTreeSet<String>>,
}

impl CollectionMap {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        CollectionMap { scopes: BTreeMap::new() }
    }

    /// Adds a scope with its collections.
    #[must_use]
    pub fn scope<C: Into<String>>(
        mut self,
        scope: impl Into<String>,
        collections: impl IntoIterator<Item = C>,
    ) -> Self {
        let collections = collections.into_iter().map(Into::into);
        self.scopes.entry(scope.into()).or_default().extend(collections);
        self
    }

    /// The reason if the map lacks the scope or the collection.
    #[must_use]
    pub fn missing(&self, scope: &str, collection: &str) -> Option<Reason> {
        match self.scopes.get(scope) {
            None => Some(reason::SCOPE_NOT_FOUND),
            Some(collections) if !collections.contains(collection) => {
                Some(reason::COLLECTION_NOT_FOUND)
            }
            Some(_) => None,
        }
    }
}

impl TerminalState {
    /// A state without connections and buckets.
    #[must_use]
    pub fn new() -> Self {
        TerminalState::default()
    }

    /// Registers a connection that follows the cluster topology, over KV or HTTP. Its errors count until
    /// the handle is dropped.
    #[must_use = "dropping the handle unregisters the connection"]
    pub fn connect(&self) -> TopologyConnection {
        // Only uniqueness matters, so relaxed ordering is enough.
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.change(|snapshot| drop(snapshot.connections.insert(id, Connection::default())));
        TopologyConnection { shared: self.shared.clone(), id }
    }

    /// Reports the status of a SELECT BUCKET response on any connection. NO ACCESS raises the error and
    /// success clears it; other statuses change nothing.
    ///
    /// Returns the classification for a request that waits for the bucket.
    pub fn bucket_selected(&self, bucket: &str, status: u16) -> ResponseOutcome {
        let refused = match status {
            status::NO_ACCESS => Some(true),
            status::SUCCESS => Some(false),
            _ => None,
        };
        if let Some(refused) = refused
            && self.shared.snapshot.load().bucket(bucket).is_some_and(|it| it.refused) != refused
        {
            self.shared.change(|snapshot| snapshot.bucket_mut(bucket).refused = refused);
        }
        Response::kv(status).to_command("select_bucket").classify()
    }

    /// Reports a fetched collection map of a bucket. After a failed fetch the previous map stays valid.
    pub fn collections_fetched(&self, bucket: &str, map: CollectionMap) {
        let map = Arc::new(map);
        self.shared.change(|snapshot| snapshot.bucket_mut(bucket).map = Some(map.clone()));
    }

    /// Removes the state of a bucket that the client has closed.
    pub fn forget_bucket(&self, bucket: &str) {
        self.shared.change(|snapshot| drop(snapshot.buckets.remove(bucket)));
    }

    /// The terminal reason that prevents sending a request, if any; of several, the first in RFC 49's
    /// order.
    ///
    /// A client calls this when it cannot send a request (no connection, bucket or collection id), and
    /// uses the result in place of its own reason.
    #[must_use]
    pub fn reason_for(&self, target: RequestTarget<'_>) -> Option<Reason> {
        self.terminal_reason_for(target).map(|terminal| terminal.reason)
    }

    /// Like [`reason_for`](Self::reason_for), with the underlying error.
    #[must_use]
    pub fn terminal_reason_for(&self, target: RequestTarget<'_>) -> Option<TerminalReason> {
        let snapshot = self.shared.snapshot.load();
        let connections = snapshot.connections.values();
        if connections.clone().any(|connection| connection.rejected) {
            return Some(TerminalReason::new(reason::AUTHENTICATION_ERROR));
        }
        if let Some(cause) = connections.clone().find_map(|connection| connection.tls_error.clone())
        {
            return Some(TerminalReason { reason: reason::TLS_ERROR, cause: Some(cause) });
        }
        let RequestTarget::Kv { bucket: Some(bucket), collection } = target else { return None };
        let bucket = snapshot.bucket(bucket)?;
        if bucket.refused {
            return Some(TerminalReason::new(reason::BUCKET_ACCESS_ERROR));
        }
        let ((scope, collection), map) = (collection?, bucket.map.as_ref()?);
        map.missing(scope, collection).map(TerminalReason::new)
    }
}

impl fmt::Debug for TerminalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.shared.snapshot.load();
        let count =
            |is: fn(&Connection) -> bool| snapshot.connections.values().filter(|c| is(c)).count();
        let refused: Vec<_> =
            snapshot.buckets.iter().filter(|(_, it)| it.refused).map(|(name, _)| name).collect();
        f.debug_struct("TerminalState")
            .field("connections", &snapshot.connections.len())
            .field("connections_refused", &count(|it| it.rejected))
            .field("connections_without_tls", &count(|it| it.tls_error.is_some()))
            .field("buckets_refused", &refused)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Replaces the snapshot; `change` may run more than once under contention.
    fn change(&self, change: impl Fn(&mut Snapshot)) {
        self.snapshot.rcu(|snapshot| {
            let mut snapshot = Snapshot::clone(snapshot);
            change(&mut snapshot);
            snapshot
        });
    }
}

impl Snapshot {
    fn bucket(&self, name: &str) -> Option<&Bucket> {
        self.buckets.get(name)
    }

    fn bucket_mut(&mut self, name: &str) -> &mut Bucket {
        self.buckets.entry(name.to_owned()).or_default()
    }
}

/// A connection that follows the cluster topology. Dropping it clears its errors.
pub struct TopologyConnection {
    shared: Arc<Shared>,
    id: u64,
}

impl TopologyConnection {
    /// Reports the status of a SASL AUTH or SASL STEP response. Rejected credentials (0x20) raise the
    /// error and success clears it; other SASL errors change nothing.
    pub fn sasl_answered(&self, status: u16) {
        match status {
            status::AUTH_ERROR => self.change(|connection| connection.rejected = true),
            status::SUCCESS => self.change(|connection| connection.rejected = false),
            _ => {}
        }
    }

    /// Reports a TLS failure of this connection, including a rejected client certificate (decision C1).
    pub fn tls_failed(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        let cause: Arc<dyn Error + Send + Sync> = Arc::from(cause.into());
        self.change(|connection| connection.tls_error = Some(cause.clone()));
    }

    /// Reports a successful TLS handshake.
    pub fn tls_passed(&self) {
        self.change(|connection| connection.tls_error = None);
    }

    fn change(&self, change: impl Fn(&mut Connection)) {
        self.shared.change(|snapshot| {
            if let Some(connection) = snapshot.connections.get_mut(&self.id) {
                change(connection);
            }
        });
    }
}

impl Drop for TopologyConnection {
    fn drop(&mut self) {
        self.shared.change(|snapshot| drop(snapshot.connections.remove(&self.id)));
    }
}

impl fmt::Debug for TopologyConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopologyConnection").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A terminal reason with the underlying error: returned by an attempt that could not be sent.
///
/// Equality compares the reasons only.
#[derive(Clone, Debug)]
pub struct TerminalReason {
    reason: Reason,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl TerminalReason {
    const fn new(reason: Reason) -> Self {
        TerminalReason { reason, cause: None }
    }

    /// The retry reason.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }
}

impl PartialEq for TerminalReason {
    fn eq(&self, other: &Self) -> bool {
        self.reason == other.reason
    }
}

impl Eq for TerminalReason {}

impl RetryableError for TerminalReason {
    fn failure(&self) -> Option<Failure> {
        Some(reason::failure(self.reason))
    }
}

impl fmt::Display for TerminalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl Error for TerminalReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}
