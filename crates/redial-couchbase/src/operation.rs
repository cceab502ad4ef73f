//! Operations and their idempotency (RFC 49, "Idempotent Operation List"; decision C16).
//!
//! An operation that RFC 49 does not list as idempotent is not idempotent.

use std::fmt;

use crate::names::{self, UnknownName};

/// The operation of a request: a name and whether it is idempotent.
///
/// The constants of this module are the operations of RFC 49; a client adds its own with
/// [`RequestOperation::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestOperation {
    name: &'static str,
    idempotent: bool,
}

impl RequestOperation {
    /// An operation that is not idempotent.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        RequestOperation { name, idempotent: false }
    }

    /// A custom operation that is declared idempotent.
    #[must_use]
    pub const fn declared_idempotent(name: &'static str) -> Self {
        RequestOperation { name, idempotent: true }
    }

    /// The operation with this name.
    ///
    /// # Errors
    /// There is no such operation; the error suggests the closest name.
    ///
    /// ```
    /// use redial_couchbase::RequestOperation;
    ///
    /// assert!(RequestOperation::parse("kv.get")?.is_idempotent());
    /// assert!(!RequestOperation::parse("kv.get_and_lock")?.is_idempotent());
    /// assert_eq!(RequestOperation::parse("kv.upset").unwrap_err().nearest(), Some("kv.upsert"));
    /// # Ok::<(), redial_couchbase::UnknownName>(())
    /// ```
    pub fn parse(name: &str) -> Result<Self, UnknownName> {
        names::find("operation", name, ALL, RequestOperation::name)
    }

    /// The name, like `kv.get`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the operation is idempotent.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.idempotent
    }
}

impl fmt::Display for RequestOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Defines a constant for each operation, and the list of all.
macro_rules! operations {
    ($($constructor:ident { $($(#[doc = $doc:literal])* $constant:ident = $name:literal;)* })*) => {
        $($($(#[doc = $doc])* pub const $constant: RequestOperation = RequestOperation::$constructor($name);)*)*

        /// All operations of this module.
        pub const ALL: &[RequestOperation] = &[$($($constant),*),*];
    };
}

operations! {
    // RFC 49's list, in its order.
    declared_idempotent {
        /// The configuration of a bucket ("carrier config").
        KV_CLUSTER_CONFIG = "kv.cluster_config";
        /// The configuration of the cluster.
        KV_GLOBAL_CONFIG = "kv.global_config";
        /// Reads a document.
        KV_GET = "kv.get";
        /// The id of a collection.
        KV_GET_COLLECTION_ID = "kv.get_collection_id";
        /// The collections of a bucket.
        KV_GET_COLLECTION_MANIFEST = "kv.get_collection_manifest";
        /// A no-op, used as a health check.
        KV_NOOP = "kv.noop";
        /// Observes a document by its CAS.
        KV_OBSERVE_CAS = "kv.observe_cas";
        /// Observes a vbucket by its sequence number.
        KV_OBSERVE_SEQNO = "kv.observe_seqno";
        /// Reads a document from a replica.
        KV_GET_REPLICA = "kv.get_replica";
        /// Reads parts of a document.
        KV_LOOKUP_IN = "kv.lookup_in";
        /// A query that is declared read-only.
        QUERY_READONLY = "query.readonly";
        /// An analytics query that is declared read-only.
        ANALYTICS_READONLY = "analytics.readonly";
        /// A full-text search, which only reads.
        SEARCH = "search";
        /// A view query, which only reads.
        VIEWS = "views";
        /// A GET to the cluster manager.
        MANAGER_GET = "manager.get";
        /// A GET of the management APIs.
        MANAGEMENT_GET = "management.get";
    }
    new {
        /// Reads a document and locks it.
        KV_GET_AND_LOCK = "kv.get_and_lock";
        /// Reads a document and changes its expiry.
        KV_GET_AND_TOUCH = "kv.get_and_touch";
        /// Changes a document's expiry.
        KV_TOUCH = "kv.touch";
        /// Unlocks a document.
        KV_UNLOCK = "kv.unlock";
        /// Writes a document.
        KV_UPSERT = "kv.upsert";
        /// Writes a document that must not exist.
        KV_INSERT = "kv.insert";
        /// Writes a document that must exist.
        KV_REPLACE = "kv.replace";
        /// Removes a document.
        KV_REMOVE = "kv.remove";
        /// Changes parts of a document.
        KV_MUTATE_IN = "kv.mutate_in";
        /// Adds to a counter.
        KV_INCREMENT = "kv.increment";
        /// Subtracts from a counter.
        KV_DECREMENT = "kv.decrement";
        /// Adds to the end of a document.
        KV_APPEND = "kv.append";
        /// Adds to the beginning of a document.
        KV_PREPEND = "kv.prepend";
        /// A query that may write.
        QUERY = "query";
        /// An analytics query that may write.
        ANALYTICS = "analytics";
        /// A POST to the cluster manager.
        MANAGER_POST = "manager.post";
        /// A PUT to the cluster manager.
        MANAGER_PUT = "manager.put";
        /// A DELETE to the cluster manager.
        MANAGER_DELETE = "manager.delete";
        /// A POST of the management APIs.
        MANAGEMENT_POST = "management.post";
        /// A PUT of the management APIs.
        MANAGEMENT_PUT = "management.put";
        /// A DELETE of the management APIs.
        MANAGEMENT_DELETE = "management.delete";
    }
}
