//! Why a request may have to be retried: the table of RFC 49, `RetryReason` (decisions C1, C5).
//!
//! A reason is an open value, [`Reason`]: a name and two flags. Those of the document are the
//! constants here; a client adds its own with [`Reason::new`].
//!
//! The document's `todo` cells (the five reasons of terminal errors) are filled as follows: they are
//! raised before anything is sent, so a request that is not idempotent may be retried, and the
//! strategy is always asked.

use redial_core::{Failure, Kind, Reason, Stage};

use crate::names::{self, UnknownName};

/// What is not known must not be retried, to avoid accidental data loss (decision C3).
pub const UNKNOWN: Reason = Reason::new("UNKNOWN");
/// There is no socket into which the request could be written.
pub const SOCKET_NOT_AVAILABLE: Reason = unchanged("SOCKET_NOT_AVAILABLE");
/// The service is not available on the node.
pub const SERVICE_NOT_AVAILABLE: Reason = unchanged("SERVICE_NOT_AVAILABLE");
/// The node to which the request should go is not available.
pub const NODE_NOT_AVAILABLE: Reason = unchanged("NODE_NOT_AVAILABLE");
/// The server says that the vbucket is not its own; always retried.
pub const KV_NOT_MY_VBUCKET: Reason = unchanged("KV_NOT_MY_VBUCKET").always();
/// The server says that the collection is outdated; always retried.
pub const KV_COLLECTION_OUTDATED: Reason = unchanged("KV_COLLECTION_OUTDATED").always();
/// The status is unknown, and the server's error map indicates a retry.
pub const KV_ERROR_MAP_RETRY_INDICATED: Reason = unchanged("KV_ERROR_MAP_RETRY_INDICATED");
/// The document is locked.
pub const KV_LOCKED: Reason = unchanged("KV_LOCKED");
/// The server cannot do it now.
pub const KV_TEMPORARY_FAILURE: Reason = unchanged("KV_TEMPORARY_FAILURE");
/// Another durable write to the document is under way.
pub const KV_SYNC_WRITE_IN_PROGRESS: Reason = unchanged("KV_SYNC_WRITE_IN_PROGRESS");
/// A durable write to the document is being committed again.
///
/// The document spells it in two ways; this is the one of its table (decision C5).
pub const KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS: Reason =
    unchanged("KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS");
/// A service's response code indicates a retry.
pub const SERVICE_RESPONSE_CODE_INDICATED: Reason = unchanged("SERVICE_RESPONSE_CODE_INDICATED");
/// The socket was closed while the request was in flight: whether it ran is not known.
pub const SOCKET_CLOSED_WHILE_IN_FLIGHT: Reason = Reason::new("SOCKET_CLOSED_WHILE_IN_FLIGHT");
/// The circuit breaker of the endpoint is open, so the request was not sent.
pub const CIRCUIT_BREAKER_OPEN: Reason = unchanged("CIRCUIT_BREAKER_OPEN");
/// A prepared statement is not known any more, or cannot be used.
pub const QUERY_PREPARED_STATEMENT_FAILURE: Reason = unchanged("QUERY_PREPARED_STATEMENT_FAILURE");
/// An index that a query needs is not found.
pub const QUERY_INDEX_NOT_FOUND: Reason = unchanged("QUERY_INDEX_NOT_FOUND");
/// The analytics service cannot do it now.
pub const ANALYTICS_TEMPORARY_FAILURE: Reason = unchanged("ANALYTICS_TEMPORARY_FAILURE");
/// The search service asks for fewer requests.
pub const SEARCH_TOO_MANY_REQUESTS: Reason = unchanged("SEARCH_TOO_MANY_REQUESTS");
/// The view engine cannot do it now.
pub const VIEWS_TEMPORARY_FAILURE: Reason = unchanged("VIEWS_TEMPORARY_FAILURE");
/// The node has no active partition of the view; always retried.
pub const VIEWS_NO_ACTIVE_PARTITION: Reason = unchanged("VIEWS_NO_ACTIVE_PARTITION").always();
/// A topology connection's credentials were refused; see [`TerminalState`](crate::TerminalState).
pub const AUTHENTICATION_ERROR: Reason = unchanged("AUTHENTICATION_ERROR");
/// A topology connection's TLS failed.
pub const TLS_ERROR: Reason = unchanged("TLS_ERROR");
/// The bucket was refused: it does not exist, or the user may not use it.
pub const BUCKET_ACCESS_ERROR: Reason = unchanged("BUCKET_ACCESS_ERROR");
/// The fetched collection map has no such scope.
pub const SCOPE_NOT_FOUND: Reason = unchanged("SCOPE_NOT_FOUND");
/// The fetched collection map has no such collection.
pub const COLLECTION_NOT_FOUND: Reason = unchanged("COLLECTION_NOT_FOUND");

/// All reasons of the document, in its order.
pub const ALL: [Reason; 25] = {
    let mut all = [UNKNOWN; 25];
    let mut i = 0;
    while i < ALL_ROWS.len() {
        all[i] = ALL_ROWS[i].0;
        i += 1;
    }
    all
};

/// Each reason with the stage at which a request meets it and who is to blame.
const ALL_ROWS: [(Reason, Stage, Kind); 25] = [
    // It may mean anything, so it counts as something that may have run.
    (UNKNOWN, Stage::InFlight, Kind::Server),
    (SOCKET_NOT_AVAILABLE, Stage::Unsent, Kind::Client),
    (SERVICE_NOT_AVAILABLE, Stage::Unsent, Kind::Client),
    (NODE_NOT_AVAILABLE, Stage::Unsent, Kind::Client),
    (KV_NOT_MY_VBUCKET, Stage::Answered, Kind::Server),
    (KV_COLLECTION_OUTDATED, Stage::Answered, Kind::Server),
    (KV_ERROR_MAP_RETRY_INDICATED, Stage::Answered, Kind::Server),
    (KV_LOCKED, Stage::Answered, Kind::Server),
    (KV_TEMPORARY_FAILURE, Stage::Answered, Kind::Server),
    (KV_SYNC_WRITE_IN_PROGRESS, Stage::Answered, Kind::Server),
    (KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS, Stage::Answered, Kind::Server),
    (SERVICE_RESPONSE_CODE_INDICATED, Stage::Answered, Kind::Server),
    (SOCKET_CLOSED_WHILE_IN_FLIGHT, Stage::InFlight, Kind::Client),
    (CIRCUIT_BREAKER_OPEN, Stage::Unsent, Kind::Client),
    (QUERY_PREPARED_STATEMENT_FAILURE, Stage::Answered, Kind::Server),
    (QUERY_INDEX_NOT_FOUND, Stage::Answered, Kind::Server),
    (ANALYTICS_TEMPORARY_FAILURE, Stage::Answered, Kind::Server),
    (SEARCH_TOO_MANY_REQUESTS, Stage::Answered, Kind::Throttling),
    (VIEWS_TEMPORARY_FAILURE, Stage::Answered, Kind::Server),
    (VIEWS_NO_ACTIVE_PARTITION, Stage::Answered, Kind::Server),
    (AUTHENTICATION_ERROR, Stage::Unsent, Kind::Client),
    (TLS_ERROR, Stage::Unsent, Kind::Client),
    (BUCKET_ACCESS_ERROR, Stage::Unsent, Kind::Client),
    (SCOPE_NOT_FOUND, Stage::Unsent, Kind::Client),
    (COLLECTION_NOT_FOUND, Stage::Unsent, Kind::Client),
];

/// The reason of this name.
///
/// # Errors
/// There is none; the error has the nearest name.
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

/// The failure that the reason stands for: its stage and its kind are those of the table.
///
/// A reason that is not of the table counts as the server's, and as one that came while the request
/// was in flight, so that only its own flag can prove that nothing changed.
#[must_use]
pub fn failure(reason: Reason) -> Failure {
    let row = ALL_ROWS.iter().find(|(listed, ..)| *listed == reason);
    let (stage, kind) =
        row.map_or((Stage::InFlight, Kind::Server), |(_, stage, kind)| (*stage, *kind));
    Failure::new(kind).at(stage).because(reason)
}

/// A reason that proves that the request changed nothing: it was not sent, or the server said so.
const fn unchanged(name: &'static str) -> Reason {
    Reason::new(name).allow_non_idempotent()
}
