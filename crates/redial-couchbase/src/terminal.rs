//! The state that raises terminal reasons, and clears them: RFC 49, "Fail Fast (Terminal Errors)"
//! (decision C11).
//!
//! | reason | raised | cleared | ends |
//! | --- | --- | --- | --- |
//! | `AUTHENTICATION_ERROR` | a topology connection's credentials were refused (0x20) | it authenticates, or is gone | KV and HTTP |
//! | `TLS_ERROR` | TLS of a topology connection failed | its handshake passes, or it is gone | KV and HTTP |
//! | `BUCKET_ACCESS_ERROR` | any connection was refused the bucket (0x24) | any is granted it | KV |
//! | `SCOPE_NOT_FOUND`, `COLLECTION_NOT_FOUND` | the fetched collection map lacks it | a fetched map has it | KV |
//!
//! Implementation details: what is known is an immutable snapshot. Requests read it without a lock;
//! connections, which rarely have news, replace it. Each change copies the snapshot, so the
//! collection maps in it are shared.
//!
//! Invariant: the snapshot knows exactly the connections that are alive.

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

/// What is known of connections, buckets and collections. Clones share it.
///
/// A client reports what its connections meet, and asks before it sends a request.
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
    facts: ArcSwap<Facts>,
    next: AtomicU64,
}

#[derive(Clone, Default)]
struct Facts {
    connections: BTreeMap<u64, Connection>,
    buckets: BTreeMap<String, Bucket>,
}

#[derive(Clone, Default)]
struct Connection {
    refused: bool,
    tls: Option<Arc<dyn Error + Send + Sync>>,
}

#[derive(Clone, Default)]
struct Bucket {
    refused: bool,
    map: Option<Arc<CollectionMap>>,
}

/// What a request is about to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestTarget<'a> {
    /// A service over HTTP, which has errors of its own for everything but the connection.
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
    /// Without any scope.
    #[must_use]
    pub const fn new() -> Self {
        CollectionMap { scopes: BTreeMap::new() }
    }

    /// The same map with this scope and its collections.
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

    /// The reason for which a request for this collection cannot be sent, if there is one.
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
    /// Without connections and without buckets.
    #[must_use]
    pub fn new() -> Self {
        TerminalState::default()
    }

    /// A connection that follows the cluster's topology, over KV or HTTP. What it meets counts while
    /// this handle lives.
    #[must_use = "a connection that is dropped does not count"]
    pub fn connect(&self) -> TopologyConnection {
        // A number that nobody else has: it publishes nothing.
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.change(|facts| drop(facts.connections.insert(id, Connection::default())));
        TopologyConnection { shared: self.shared.clone(), id }
    }

    /// A server answered SELECT BUCKET with this status, on any connection. NO ACCESS raises the
    /// error and success clears it; anything else changes nothing.
    ///
    /// Returns what that means for a request that waits for the bucket.
    pub fn bucket_selected(&self, bucket: &str, status: u16) -> ResponseOutcome {
        let refused = match status {
            status::NO_ACCESS => Some(true),
            status::SUCCESS => Some(false),
            _ => None,
        };
        if let Some(refused) = refused
            && self.shared.facts.load().bucket(bucket).is_some_and(|it| it.refused) != refused
        {
            self.shared.change(|facts| facts.bucket_mut(bucket).refused = refused);
        }
        Response::kv(status).to_command("select_bucket").classify()
    }

    /// The bucket's collection map was fetched. One that could not be fetched is not reported: the
    /// one before it stays.
    pub fn collections_fetched(&self, bucket: &str, map: CollectionMap) {
        let map = Arc::new(map);
        self.shared.change(|facts| facts.bucket_mut(bucket).map = Some(map.clone()));
    }

    /// The client has closed the bucket: what was known of it is forgotten.
    pub fn forget_bucket(&self, bucket: &str) {
        self.shared.change(|facts| drop(facts.buckets.remove(bucket)));
    }

    /// The terminal reason for which a request cannot be sent, if there is one; of several, the
    /// first in the document's order.
    ///
    /// A client asks where it cannot send the request (no connection, no bucket, no collection
    /// number), and uses the answer in place of its own reason.
    #[must_use]
    pub fn reason_for(&self, target: RequestTarget<'_>) -> Option<Reason> {
        self.terminal_reason_for(target).map(|terminal| terminal.reason)
    }

    /// The same with what raised it.
    #[must_use]
    pub fn terminal_reason_for(&self, target: RequestTarget<'_>) -> Option<TerminalReason> {
        let facts = self.shared.facts.load();
        let connections = facts.connections.values();
        if connections.clone().any(|connection| connection.refused) {
            return Some(TerminalReason::new(reason::AUTHENTICATION_ERROR));
        }
        if let Some(cause) = connections.clone().find_map(|connection| connection.tls.clone()) {
            return Some(TerminalReason { reason: reason::TLS_ERROR, cause: Some(cause) });
        }
        let RequestTarget::Kv { bucket: Some(bucket), collection } = target else { return None };
        let bucket = facts.bucket(bucket)?;
        if bucket.refused {
            return Some(TerminalReason::new(reason::BUCKET_ACCESS_ERROR));
        }
        let ((scope, collection), map) = (collection?, bucket.map.as_ref()?);
        map.missing(scope, collection).map(TerminalReason::new)
    }
}

impl fmt::Debug for TerminalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.shared.facts.load();
        let count =
            |is: fn(&Connection) -> bool| facts.connections.values().filter(|c| is(c)).count();
        let refused: Vec<_> =
            facts.buckets.iter().filter(|(_, it)| it.refused).map(|(name, _)| name).collect();
        f.debug_struct("TerminalState")
            .field("connections", &facts.connections.len())
            .field("connections_refused", &count(|it| it.refused))
            .field("connections_without_tls", &count(|it| it.tls.is_some()))
            .field("buckets_refused", &refused)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Replaces the snapshot; `change` may run more than once, when others change it, too.
    fn change(&self, change: impl Fn(&mut Facts)) {
        self.facts.rcu(|facts| {
            let mut facts = Facts::clone(facts);
            change(&mut facts);
            facts
        });
    }
}

impl Facts {
    fn bucket(&self, name: &str) -> Option<&Bucket> {
        self.buckets.get(name)
    }

    fn bucket_mut(&mut self, name: &str) -> &mut Bucket {
        self.buckets.entry(name.to_owned()).or_default()
    }
}

/// A connection that follows the cluster's topology. When it is dropped, what it met is forgotten.
pub struct TopologyConnection {
    shared: Arc<Shared>,
    id: u64,
}

impl TopologyConnection {
    /// A server answered SASL AUTH or SASL STEP with this status. Refused credentials (0x20) raise
    /// the error and success clears it; any other trouble with SASL changes nothing.
    pub fn sasl_answered(&self, status: u16) {
        match status {
            status::AUTH_ERROR => self.change(|connection| connection.refused = true),
            status::SUCCESS => self.change(|connection| connection.refused = false),
            _ => {}
        }
    }

    /// The TLS library failed on this connection, a refused client certificate included (decision
    /// C1).
    pub fn tls_failed(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        let cause: Arc<dyn Error + Send + Sync> = Arc::from(cause.into());
        self.change(|connection| connection.tls = Some(cause.clone()));
    }

    /// The TLS handshake passed.
    pub fn tls_passed(&self) {
        self.change(|connection| connection.tls = None);
    }

    fn change(&self, change: impl Fn(&mut Connection)) {
        self.shared.change(|facts| {
            if let Some(connection) = facts.connections.get_mut(&self.id) {
                change(connection);
            }
        });
    }
}

impl Drop for TopologyConnection {
    fn drop(&mut self) {
        self.shared.change(|facts| drop(facts.connections.remove(&self.id)));
    }
}

impl fmt::Debug for TopologyConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopologyConnection").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A terminal reason with what raised it: what an attempt returns that could not be sent.
///
/// Two are equal if their reasons are.
#[derive(Clone, Debug)]
pub struct TerminalReason {
    reason: Reason,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl TerminalReason {
    const fn new(reason: Reason) -> Self {
        TerminalReason { reason, cause: None }
    }

    /// The reason.
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
