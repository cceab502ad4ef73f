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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reason of the SDK 1.1.
    const ALL: [RetryReason; 18] = [
        RetryReason::KvNotMyVbucket,
        RetryReason::KvInvalidVbucketMap,
        RetryReason::KvTemporaryFailure,
        RetryReason::KvCollectionOutdated,
        RetryReason::KvErrorMapRetryIndicated,
        RetryReason::KvLocked,
        RetryReason::KvSyncWriteInProgress,
        RetryReason::KvSyncWriteRecommitInProgress,
        RetryReason::ServiceNotAvailable,
        RetryReason::SocketClosedWhileInFlight,
        RetryReason::SocketNotAvailable,
        RetryReason::QueryPreparedStatementFailure,
        RetryReason::QueryIndexNotFound,
        RetryReason::QueryErrorRetryable,
        RetryReason::SearchTooManyRequests,
        RetryReason::HttpSendRequestFailed,
        RetryReason::HttpConnectFailed,
        RetryReason::NotReady,
    ];

    #[test]
    fn reason_names_and_flags_are_those_of_the_sdk() {
        for reason in ALL {
            let ours = rfc_reason(reason);
            let name = reason.to_string().replace("RECOMMIT", "RE_COMMIT");
            let renamed = match reason {
                RetryReason::HttpSendRequestFailed => "SOCKET_CLOSED_WHILE_IN_FLIGHT",
                RetryReason::HttpConnectFailed => "SOCKET_NOT_AVAILABLE",
                RetryReason::QueryErrorRetryable => "SERVICE_RESPONSE_CODE_INDICATED",
                _ => &name,
            };
            assert_eq!(ours.name(), renamed);
            if reason != RetryReason::HttpSendRequestFailed {
                let allows = reason.allows_non_idempotent_retry();
                assert_eq!(ours.allows_non_idempotent_retry(), allows, "{reason}");
            }
            if reason != RetryReason::NotReady {
                assert_eq!(ours.is_always_retried(), reason.always_retry(), "{reason}");
            }
        }
    }

    #[test]
    fn reason_http_request_that_was_sent_may_have_run() {
        let failure = redial_couchbase::reason::failure;
        assert!(!failure(rfc_reason(RetryReason::HttpSendRequestFailed)).proves_not_run());
        assert!(failure(rfc_reason(RetryReason::HttpConnectFailed)).proves_not_run());
    }
}
