//! Retry reasons: RFC 49's table as data, row by row.

use redial::{FailureKind, Reason, Stage};
use redial_couchbase::reason;

/// Name, allows non-idempotent retry, always retried, stage, kind. The last five rows are `todo` in RFC
/// 49; decision C1 fills them.
const TABLE: [(&str, bool, bool, Stage, FailureKind); 25] = [
    ("UNKNOWN", false, false, Stage::InFlight, FailureKind::Server),
    ("SOCKET_NOT_AVAILABLE", true, false, Stage::Unsent, FailureKind::Client),
    ("SERVICE_NOT_AVAILABLE", true, false, Stage::Unsent, FailureKind::Client),
    ("NODE_NOT_AVAILABLE", true, false, Stage::Unsent, FailureKind::Client),
    ("KV_NOT_MY_VBUCKET", true, true, Stage::Answered, FailureKind::Server),
    ("KV_COLLECTION_OUTDATED", true, true, Stage::Answered, FailureKind::Server),
    ("KV_ERROR_MAP_RETRY_INDICATED", true, false, Stage::Answered, FailureKind::Server),
    ("KV_LOCKED", true, false, Stage::Answered, FailureKind::Server),
    ("KV_TEMPORARY_FAILURE", true, false, Stage::Answered, FailureKind::Server),
    ("KV_SYNC_WRITE_IN_PROGRESS", true, false, Stage::Answered, FailureKind::Server),
    ("KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS", true, false, Stage::Answered, FailureKind::Server),
    ("SERVICE_RESPONSE_CODE_INDICATED", true, false, Stage::Answered, FailureKind::Server),
    ("SOCKET_CLOSED_WHILE_IN_FLIGHT", false, false, Stage::InFlight, FailureKind::Client),
    ("CIRCUIT_BREAKER_OPEN", true, false, Stage::Unsent, FailureKind::Client),
    ("QUERY_PREPARED_STATEMENT_FAILURE", true, false, Stage::Answered, FailureKind::Server),
    ("QUERY_INDEX_NOT_FOUND", true, false, Stage::Answered, FailureKind::Server),
    ("ANALYTICS_TEMPORARY_FAILURE", true, false, Stage::Answered, FailureKind::Server),
    ("SEARCH_TOO_MANY_REQUESTS", true, false, Stage::Answered, FailureKind::Throttling),
    ("VIEWS_TEMPORARY_FAILURE", true, false, Stage::Answered, FailureKind::Server),
    ("VIEWS_NO_ACTIVE_PARTITION", true, true, Stage::Answered, FailureKind::Server),
    ("AUTHENTICATION_ERROR", true, false, Stage::Unsent, FailureKind::Client),
    ("TLS_ERROR", true, false, Stage::Unsent, FailureKind::Client),
    ("BUCKET_ACCESS_ERROR", true, false, Stage::Unsent, FailureKind::Client),
    ("SCOPE_NOT_FOUND", true, false, Stage::Unsent, FailureKind::Client),
    ("COLLECTION_NOT_FOUND", true, false, Stage::Unsent, FailureKind::Client),
];

#[test]
fn retry_reason_flags_match_rfc_table() {
    assert_eq!(reason::ALL.len(), TABLE.len());
    for (reason, (name, non_idempotent, always, ..)) in reason::ALL.iter().zip(TABLE) {
        assert_eq!(reason.name(), name);
        assert_eq!(reason.allows_non_idempotent_retry(), non_idempotent, "{name}");
        assert_eq!(reason.is_always_retried(), always, "{name}");
    }
}

#[test]
fn retry_reason_stage_and_kind_match_table() {
    for (name, non_idempotent, _, stage, kind) in TABLE {
        let reason = reason::parse(name).expect("a known name");
        let failure = reason::failure(reason);
        assert_eq!((failure.stage, failure.kind), (stage, kind), "{name}");
        assert_eq!(failure.reason, Some(reason));
        // The stage never proves more than RFC 49's flag allows.
        assert_eq!(failure.proves_not_run(), non_idempotent, "{name}");
    }
}

#[test]
fn retry_reason_todo_cells_allow_non_idempotent_retry() {
    let open = [
        reason::AUTHENTICATION_ERROR,
        reason::TLS_ERROR,
        reason::BUCKET_ACCESS_ERROR,
        reason::SCOPE_NOT_FOUND,
        reason::COLLECTION_NOT_FOUND,
    ];
    for reason in open {
        assert!(reason.allows_non_idempotent_retry() && !reason.is_always_retried(), "{reason}");
    }
}

#[test]
fn retry_reason_parse_suggests_nearest_name() {
    for reason in reason::ALL {
        assert_eq!(reason::parse(reason.name()), Ok(reason));
    }
    // The other spelling of RFC 49.
    let error = reason::parse("KV_SYNC_RE_COMMIT_IN_PROGRESS").expect_err("not the table's");
    assert_eq!(error.nearest(), Some("KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"));
    let error = reason::parse("kv_locked").expect_err("names are exact");
    assert_eq!(error.nearest(), Some("KV_LOCKED"));
    let error = reason::parse("banana").expect_err("no reason");
    assert_eq!((error.nearest(), error.name()), (None, "banana"));
    assert_eq!(error.to_string(), "unknown reason \"banana\"");
}

#[test]
fn retry_reason_custom_follows_its_own_flags() {
    const MINE: Reason = Reason::new("ENDPOINT_NOT_WRITABLE");
    assert!(!reason::failure(MINE).proves_not_run());
    assert!(reason::failure(MINE.allow_non_idempotent()).proves_not_run());
    assert!(reason::failure(MINE.always()).is_always_retried());
}
