//! Retry reasons: the `RetryReason` table of RFC 49 (decisions C1, C5).
//!
//! A [`Reason`] is a name and two flags. The constants are the reasons of RFC 49; a client adds its own
//! with [`Reason::new`].
//!
//! RFC 49 leaves the flags of the five terminal reasons open (`todo`). They occur before the request is
//! sent, so non-idempotent requests may be retried, and the strategy always decides.

use redial_core::{Failure, FailureKind, Reason, Stage};

use crate::names::{self, UnknownName};

/// An unknown failure; never retried, to avoid accidental data loss (decision C3).
pub const UNKNOWN: Reason = Reason::new("UNKNOWN");
/// No socket is available to write the request to.
pub const SOCKET_NOT_AVAILABLE: Reason = unchanged("SOCKET_NOT_AVAILABLE");
/// The service is not available on the node.
pub const SERVICE_NOT_AVAILABLE: Reason = unchanged("SERVICE_NOT_AVAILABLE");
/// The node to which the request should go is not available.
pub const NODE_NOT_AVAILABLE: Reason = unchanged("NODE_NOT_AVAILABLE");
/// The node does not own the vbucket (any more); always retried.
pub const KV_NOT_MY_VBUCKET: Reason = unchanged("KV_NOT_MY_VBUCKET").always();
/// The collection id is outdated; always retried.
pub const KV_COLLECTION_OUTDATED: Reason = unchanged("KV_COLLECTION_OUTDATED").always();
/// The status is unknown, and the server's error map indicates a retry.
pub const KV_ERROR_MAP_RETRY_INDICATED: Reason = unchanged("KV_ERROR_MAP_RETRY_INDICATED");
/// The document is locked.
pub const KV_LOCKED: Reason = unchanged("KV_LOCKED");
/// A temporary failure of the KV service.
pub const KV_TEMPORARY_FAILURE: Reason = unchanged("KV_TEMPORARY_FAILURE");
/// Another durable write to the document is in progress.
pub const KV_SYNC_WRITE_IN_PROGRESS: Reason = unchanged("KV_SYNC_WRITE_IN_PROGRESS");
/// A durable write to the document is being re-committed.
///
/// RFC 49 has two spellings; this is the one of its table (decision C5).
pub const KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS: Reason =
    unchanged("KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS");
/// A service's response code indicates a retry.
pub const SERVICE_RESPONSE_CODE_INDICATED: Reason = unchanged("SERVICE_RESPONSE_CODE_INDICATED");
/// The socket was closed while the request was in flight: the server may have executed it.
pub const SOCKET_CLOSED_WHILE_IN_FLIGHT: Reason = Reason::new("SOCKET_CLOSED_WHILE_IN_FLIGHT");
/// The circuit breaker of the endpoint is open, so the request was not sent.
pub const CIRCUIT_BREAKER_OPEN: Reason = unchanged("CIRCUIT_BREAKER_OPEN");
/// A prepared statement is unknown or unusable.
pub const QUERY_PREPARED_STATEMENT_FAILURE: Reason = unchanged("QUERY_PREPARED_STATEMENT_FAILURE");
/// An index that the query needs was not found.
pub const QUERY_INDEX_NOT_FOUND: Reason = unchanged("QUERY_INDEX_NOT_FOUND");
/// A temporary failure of the analytics service.
pub const ANALYTICS_TEMPORARY_FAILURE: Reason = unchanged("ANALYTICS_TEMPORARY_FAILURE");
/// The search service throttles requests.
pub const SEARCH_TOO_MANY_REQUESTS: Reason = unchanged("SEARCH_TOO_MANY_REQUESTS");
/// A temporary failure of the view engine.
pub const VIEWS_TEMPORARY_FAILURE: Reason = unchanged("VIEWS_TEMPORARY_FAILURE");
/// The node has no active partition of the view; always retried.
pub const VIEWS_NO_ACTIVE_PARTITION: Reason = unchanged("VIEWS_NO_ACTIVE_PARTITION").always();
/// The credentials of a topology connection were rejected; see [`TerminalState`](crate::TerminalState).
pub const AUTHENTICATION_ERROR: Reason = unchanged("AUTHENTICATION_ERROR");
/// TLS of a topology connection failed.
pub const TLS_ERROR: Reason = unchanged("TLS_ERROR");
/// Access to the bucket was denied: it does not exist, or the user lacks permission.
pub const BUCKET_ACCESS_ERROR: Reason = unchanged("BUCKET_ACCESS_ERROR");
/// The fetched collection map has no such scope.
pub const SCOPE_NOT_FOUND: Reason = unchanged("SCOPE_NOT_FOUND");
/// The fetched collection map has no such collection.
pub const COLLECTION_NOT_FOUND: Reason = unchanged("COLLECTION_NOT_FOUND");

/// All reasons of RFC 49, in its order.
pub const ALL: [Reason; 25] = {
    let mut all = [UNKNOWN; 25];
    let mut i = 0;
    while i < ALL_ROWS.len() {
        all[i] = ALL_ROWS[i].0;
        i += 1;
    }
    all
};

/// Each reason with the stage of the request and the kind of failure.
const ALL_ROWS: [(Reason, Stage, FailureKind); 25] = [
    // The server may have executed a request that failed for an unknown reason.
    (UNKNOWN, Stage::InFlight, FailureKind::Server),
    (SOCKET_NOT_AVAILABLE, Stage::Unsent, FailureKind::Client),
    (SERVICE_NOT_AVAILABLE, Stage::Unsent, FailureKind::Client),
    (NODE_NOT_AVAILABLE, Stage::Unsent, FailureKind::Client),
    (KV_NOT_MY_VBUCKET, Stage::Answered, FailureKind::Server),
    (KV_COLLECTION_OUTDATED, Stage::Answered, FailureKind::Server),
    (KV_ERROR_MAP_RETRY_INDICATED, Stage::Answered, FailureKind::Server),
    (KV_LOCKED, Stage::Answered, FailureKind::Server),
    (KV_TEMPORARY_FAILURE, Stage::Answered, FailureKind::Server),
    (KV_SYNC_WRITE_IN_PROGRESS, Stage::Answered, FailureKind::Server),
    (KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS, Stage::Answered, FailureKind::Server),
    (SERVICE_RESPONSE_CODE_INDICATED, Stage::Answered, FailureKind::Server),
    (SOCKET_CLOSED_WHILE_IN_FLIGHT, Stage::InFlight, FailureKind::Client),
    (CIRCUIT_BREAKER_OPEN, Stage::Unsent, FailureKind::Client),
    (QUERY_PREPARED_STATEMENT_FAILURE, Stage::Answered, FailureKind::Server),
    (QUERY_INDEX_NOT_FOUND, Stage::Answered, FailureKind::Server),
    (ANALYTICS_TEMPORARY_FAILURE, Stage::Answered, FailureKind::Server),
    (SEARCH_TOO_MANY_REQUESTS, Stage::Answered, FailureKind::Throttling),
    (VIEWS_TEMPORARY_FAILURE, Stage::Answered, FailureKind::Server),
    (VIEWS_NO_ACTIVE_PARTITION, Stage::Answered, FailureKind::Server),
    (AUTHENTICATION_ERROR, Stage::Unsent, FailureKind::Client),
    (TLS_ERROR, Stage::Unsent, FailureKind::Client),
    (BUCKET_ACCESS_ERROR, Stage::Unsent, FailureKind::Client),
    (SCOPE_NOT_FOUND, Stage::Unsent, FailureKind::Client),
    (COLLECTION_NOT_FOUND, Stage::Unsent, FailureKind::Client),
];

/// The reason with this name.
///
/// # Errors
/// There is no such reason; the error suggests the closest name.
///
/// ```
/// use redial_couchbase::reason;
///
/// assert_eq!(reason::parse("KV_LOCKED")?, reason::KV_LOCKED);
/// let error = reason::parse("KV_LOKED").unwrap_err();
/// assert_eq!(error.to_string(), "unknown reason \"KV_LOKED\"; did you mean \"KV_LOCKED\"?");
/// # Ok::<(), redial_couchbase::UnknownName>(())
/// ```
pub fn parse(name: &str) -> Result<Reason, UnknownName> {
    names::find("reason", name, &ALL, Reason::name)
}

/// The failure of a reason, with the stage and kind of the table.
///
/// A custom reason counts as a server failure of an in-flight request, so only its own flag can prove
/// that the request changed nothing.
#[must_use]
pub fn failure(reason: Reason) -> Failure {
    let row = ALL_ROWS.iter().find(|(listed, ..)| *listed == reason);
    let (stage, kind) =
        row.map_or((Stage::InFlight, FailureKind::Server), |(_, stage, kind)| (*stage, *kind));
    Failure::new(kind).at(stage).because(reason)
}

/// A reason that proves that the request changed nothing: it was not sent, or the server rejected it.
const fn unchanged(name: &'static str) -> Reason {
    Reason::new(name).allow_non_idempotent()
}
