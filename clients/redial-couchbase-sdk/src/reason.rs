//! Translates the SDK's retry reasons to those of RFC 49.

use couchbase::retry::RetryReason;
use redial_core::Reason;
use redial_couchbase::reason as rfc;

/// The SDK polls until it is ready, in `wait_until_ready`. Always retried, since nothing has failed.
pub const NOT_READY: Reason = Reason::new("NOT_READY").allow_non_idempotent().always();

/// The SDK has no vbucket map yet. It retries that itself, and asks no strategy.
pub const KV_INVALID_VBUCKET_MAP: Reason =
    Reason::new("KV_INVALID_VBUCKET_MAP").allow_non_idempotent().always();

/// The reason of RFC 49 that corresponds to a reason of the SDK. Reasons that this crate does not know yet
/// are [`UNKNOWN`](rfc::UNKNOWN).
///
/// | SDK | RFC 49 |
/// | --- | --- |
/// | `HttpConnectFailed` | `SOCKET_NOT_AVAILABLE` |
/// | `HttpSendRequestFailed` | `SOCKET_CLOSED_WHILE_IN_FLIGHT`: the request may have been sent, so writes are not retried (the SDK would) |
/// | `QueryErrorRetryable` | `SERVICE_RESPONSE_CODE_INDICATED` |
/// | `NotReady` | [`NOT_READY`] |
/// | `KvInvalidVbucketMap` | [`KV_INVALID_VBUCKET_MAP`] |
/// | any other | the one with the same name |
///
/// ```
/// use couchbase::retry::RetryReason;
/// use redial_couchbase::reason;
/// use redial_couchbase_sdk::rfc_reason;
///
/// assert_eq!(rfc_reason(RetryReason::KvLocked), reason::KV_LOCKED);
/// assert_eq!(rfc_reason(RetryReason::HttpConnectFailed), reason::SOCKET_NOT_AVAILABLE);
/// ```
#[must_use]
pub const fn rfc_reason(reason: RetryReason) -> Reason {
    match reason {
        RetryReason::KvNotMyVbucket => rfc::KV_NOT_MY_VBUCKET,
        RetryReason::KvInvalidVbucketMap => KV_INVALID_VBUCKET_MAP,
        RetryReason::KvTemporaryFailure => rfc::KV_TEMPORARY_FAILURE,
        RetryReason::KvCollectionOutdated => rfc::KV_COLLECTION_OUTDATED,
        RetryReason::KvErrorMapRetryIndicated => rfc::KV_ERROR_MAP_RETRY_INDICATED,
        RetryReason::KvLocked => rfc::KV_LOCKED,
        RetryReason::KvSyncWriteInProgress => rfc::KV_SYNC_WRITE_IN_PROGRESS,
        RetryReason::KvSyncWriteRecommitInProgress => rfc::KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS,
        RetryReason::ServiceNotAvailable => rfc::SERVICE_NOT_AVAILABLE,
        // An HTTP request that failed after its connection stood may have been sent.
        RetryReason::SocketClosedWhileInFlight | RetryReason::HttpSendRequestFailed => {
            rfc::SOCKET_CLOSED_WHILE_IN_FLIGHT
        }
        RetryReason::SocketNotAvailable | RetryReason::HttpConnectFailed => {
            rfc::SOCKET_NOT_AVAILABLE
        }
        RetryReason::QueryPreparedStatementFailure => rfc::QUERY_PREPARED_STATEMENT_FAILURE,
        RetryReason::QueryIndexNotFound => rfc::QUERY_INDEX_NOT_FOUND,
        RetryReason::QueryErrorRetryable => rfc::SERVICE_RESPONSE_CODE_INDICATED,
        RetryReason::SearchTooManyRequests => rfc::SEARCH_TOO_MANY_REQUESTS,
        RetryReason::NotReady => NOT_READY,
        _ => rfc::UNKNOWN,
    }
}
