//! Terminal state: each transition that raises or clears a terminal reason, observed by HTTP requests, by
//! KV requests without a bucket and by KV requests to the affected collection.

use std::error::Error as _;
use std::thread;

use redial_couchbase::response::status::{AUTH_ERROR, NO_ACCESS, NOT_FOUND, SUCCESS};
use redial_couchbase::{
    CollectionMap, Reason, RequestTarget, ResponseOutcome, TerminalState, reason,
};

const HOTEL: RequestTarget<'_> = RequestTarget::collection("travel", "inventory", "hotel");
const NO_BUCKET: RequestTarget<'_> = RequestTarget::Kv { bucket: None, collection: None };

/// The reasons for HTTP, KV without a bucket, and KV to a collection.
fn seen(state: &TerminalState) -> [Option<Reason>; 3] {
    [RequestTarget::Http, NO_BUCKET, HOTEL].map(|target| state.reason_for(target))
}

fn inventory(collections: &[&str]) -> CollectionMap {
    CollectionMap::new().scope("inventory", collections.iter().copied())
}

#[test]
fn terminal_state_is_initially_clear() {
    let state = TerminalState::new();
    assert_eq!(seen(&state), [None; 3]);
    let _connection = state.connect();
    assert_eq!(seen(&state), [None; 3]);
}

#[test]
fn terminal_state_authentication_error_clears_on_success() {
    let state = TerminalState::new();
    let (one, other) = (state.connect(), state.connect());
    one.sasl_answered(AUTH_ERROR);
    assert_eq!(seen(&state), [Some(reason::AUTHENTICATION_ERROR); 3]);
    // The state is per connection: success of another connection does not clear it.
    other.sasl_answered(SUCCESS);
    assert_eq!(seen(&state), [Some(reason::AUTHENTICATION_ERROR); 3]);
    one.sasl_answered(SUCCESS);
    assert_eq!(seen(&state), [None; 3]);
}

#[test]
fn terminal_state_authentication_error_from_any_connection() {
    let state = TerminalState::new();
    let (one, other) = (state.connect(), state.connect());
    one.sasl_answered(AUTH_ERROR);
    other.sasl_answered(AUTH_ERROR);
    one.sasl_answered(SUCCESS);
    assert_eq!(state.reason_for(RequestTarget::Http), Some(reason::AUTHENTICATION_ERROR));
    other.sasl_answered(SUCCESS);
    assert_eq!(state.reason_for(RequestTarget::Http), None);
}

#[test]
fn terminal_state_ignores_other_sasl_errors() {
    let state = TerminalState::new();
    let connection = state.connect();
    // 0x02 is RFC 49's value; then continue, stale, no access, unknown command, busy.
    let others = [0x02, 0x21, 0x1f, 0x24, 0x81, 0x85, 0x86, 0x7ff0];
    for status in others {
        connection.sasl_answered(status);
        assert_eq!(seen(&state), [None; 3], "{status:#x}");
    }
    connection.sasl_answered(AUTH_ERROR);
    for status in others {
        connection.sasl_answered(status);
        assert_eq!(seen(&state), [Some(reason::AUTHENTICATION_ERROR); 3], "{status:#x}");
    }
}

#[test]
fn terminal_state_forgets_dropped_connection() {
    let state = TerminalState::new();
    let (refused, insecure) = (state.connect(), state.connect());
    refused.sasl_answered(AUTH_ERROR);
    insecure.tls_failed("handshake failure");
    drop(refused);
    assert_eq!(seen(&state), [Some(reason::TLS_ERROR); 3]);
    drop(insecure);
    assert_eq!(seen(&state), [None; 3]);
}

#[test]
fn terminal_state_tls_error_clears_on_handshake() {
    let state = TerminalState::new();
    let (one, other) = (state.connect(), state.connect());
    one.tls_failed("certificate not trusted");
    assert_eq!(seen(&state), [Some(reason::TLS_ERROR); 3]);
    other.tls_passed();
    assert_eq!(seen(&state), [Some(reason::TLS_ERROR); 3]);
    let cause = state.terminal_reason_for(RequestTarget::Http).expect("it is raised");
    assert_eq!(cause.reason(), reason::TLS_ERROR);
    let source = cause.source().map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("certificate not trusted"));
    one.tls_passed();
    assert_eq!(seen(&state), [None; 3]);
}

#[test]
fn terminal_state_bucket_access_error_clears_on_select() {
    let state = TerminalState::new();
    let outcome = state.bucket_selected("travel", NO_ACCESS);
    assert_eq!(outcome, ResponseOutcome::Retry(reason::BUCKET_ACCESS_ERROR));
    assert_eq!(seen(&state), [None, None, Some(reason::BUCKET_ACCESS_ERROR)]);
    assert_eq!(
        state.reason_for(RequestTarget::bucket("travel")),
        Some(reason::BUCKET_ACCESS_ERROR)
    );
    assert_eq!(state.reason_for(RequestTarget::bucket("other")), None);
    // The state is per bucket: success of another bucket does not clear it.
    assert_eq!(state.bucket_selected("other", SUCCESS), ResponseOutcome::Ok);
    assert_eq!(state.reason_for(HOTEL), Some(reason::BUCKET_ACCESS_ERROR));
    assert_eq!(state.bucket_selected("travel", SUCCESS), ResponseOutcome::Ok);
    assert_eq!(seen(&state), [None; 3]);
}

#[test]
fn terminal_state_bucket_not_found_is_not_terminal() {
    let state = TerminalState::new();
    let warming_up = ResponseOutcome::Retry(reason::SERVICE_NOT_AVAILABLE);
    assert_eq!(state.bucket_selected("travel", NOT_FOUND), warming_up);
    assert_eq!(seen(&state), [None; 3]);
    // Neither this nor any other status clears a raised error.
    state.bucket_selected("travel", NO_ACCESS);
    for status in [NOT_FOUND, 0x20, 0x86] {
        state.bucket_selected("travel", status);
        assert_eq!(state.reason_for(HOTEL), Some(reason::BUCKET_ACCESS_ERROR));
    }
}

#[test]
fn terminal_state_collection_not_found_needs_fetched_map() {
    let state = TerminalState::new();
    assert_eq!(state.reason_for(HOTEL), None);
    state.collections_fetched("travel", CollectionMap::new().scope("other", ["hotel"]));
    assert_eq!(seen(&state), [None, None, Some(reason::SCOPE_NOT_FOUND)]);
    state.collections_fetched("travel", inventory(&["airport"]));
    assert_eq!(seen(&state), [None, None, Some(reason::COLLECTION_NOT_FOUND)]);
    // The collection was created, and the next map contains it.
    state.collections_fetched("travel", inventory(&["airport", "hotel"]));
    assert_eq!(seen(&state), [None; 3]);
    // The collection was dropped again.
    state.collections_fetched("travel", inventory(&[]));
    assert_eq!(state.reason_for(HOTEL), Some(reason::COLLECTION_NOT_FOUND));
}

#[test]
fn terminal_state_collection_map_applies_to_its_bucket() {
    let state = TerminalState::new();
    state.collections_fetched("travel", inventory(&[]));
    assert_eq!(state.reason_for(RequestTarget::bucket("travel")), None);
    assert_eq!(state.reason_for(RequestTarget::collection("other", "inventory", "hotel")), None);
}

#[test]
fn terminal_state_forgets_closed_bucket() {
    let state = TerminalState::new();
    state.bucket_selected("travel", NO_ACCESS);
    state.collections_fetched("travel", inventory(&[]));
    state.forget_bucket("travel");
    assert_eq!(seen(&state), [None; 3]);
}

#[test]
fn terminal_state_reports_first_reason_in_rfc_order() {
    let state = TerminalState::new();
    let connection = state.connect();
    connection.sasl_answered(AUTH_ERROR);
    connection.tls_failed("alert");
    state.bucket_selected("travel", NO_ACCESS);
    state.collections_fetched("travel", CollectionMap::new());
    assert_eq!(state.reason_for(HOTEL), Some(reason::AUTHENTICATION_ERROR));
    connection.sasl_answered(SUCCESS);
    assert_eq!(state.reason_for(HOTEL), Some(reason::TLS_ERROR));
    connection.tls_passed();
    assert_eq!(state.reason_for(HOTEL), Some(reason::BUCKET_ACCESS_ERROR));
    state.bucket_selected("travel", SUCCESS);
    assert_eq!(state.reason_for(HOTEL), Some(reason::SCOPE_NOT_FOUND));
    state.collections_fetched("travel", inventory(&[]));
    assert_eq!(state.reason_for(HOTEL), Some(reason::COLLECTION_NOT_FOUND));
    state.collections_fetched("travel", inventory(&["hotel"]));
    assert_eq!(state.reason_for(HOTEL), None);
}

#[test]
fn terminal_state_concurrent_connections_leave_nothing_behind() {
    let state = TerminalState::new();
    thread::scope(|scope| {
        for thread in 0..8 {
            let state = state.clone();
            scope.spawn(move || {
                let bucket = format!("bucket {thread}");
                for _ in 0..200 {
                    let connection = state.connect();
                    connection.sasl_answered(AUTH_ERROR);
                    let raised = state.reason_for(RequestTarget::Http);
                    assert_eq!(raised, Some(reason::AUTHENTICATION_ERROR));
                    connection.tls_failed("alert");
                    state.bucket_selected(&bucket, NO_ACCESS);
                    state.bucket_selected(&bucket, SUCCESS);
                }
            });
        }
    });
    assert_eq!(seen(&state), [None; 3]);
    assert!(format!("{state:?}").contains("connections: 0"), "{state:?}");
}
