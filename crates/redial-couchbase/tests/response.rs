//! Classification of responses by RFC 49's list and its exclusions; every other KV status and code is
//! final.
#![cfg(feature = "tokio")]

use redial::{Directive, StopReason};
use redial_couchbase::response::{KNOWN_STATUSES, is_known};
use redial_couchbase::{
    AttemptError, ErrorMap, ErrorMapEntry, Orchestrator, Reason, RequestOperation, Response,
    ResponseOutcome, RetryableError, operation, reason,
};

/// The statuses that are retried for every command except the excluded ones.
const KV: [(u16, Reason); 7] = [
    (0x07, reason::KV_NOT_MY_VBUCKET),
    (0x88, reason::KV_COLLECTION_OUTDATED),
    (0x09, reason::KV_LOCKED),
    (0x86, reason::KV_TEMPORARY_FAILURE),
    (0x85, reason::KV_TEMPORARY_FAILURE),
    (0xa2, reason::KV_SYNC_WRITE_IN_PROGRESS),
    (0xa4, reason::KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS),
];

#[track_caller]
fn check(response: &Response, expected: ResponseOutcome) {
    assert_eq!(response.classify(), expected, "{response:?}");
}

#[test]
fn response_kv_status_maps_to_listed_reason() {
    for status in 0..=u16::MAX {
        let listed = KV.iter().find(|(listed, _)| *listed == status);
        let expected = match listed {
            Some((_, reason)) => ResponseOutcome::Retry(*reason),
            None if status == 0 => ResponseOutcome::Ok,
            None => ResponseOutcome::Failed,
        };
        for command in ["", "get", "upsert"] {
            check(&Response::kv(status).to_command(command), expected);
        }
    }
}

#[test]
fn response_locked_on_unlock_is_final() {
    check(&Response::kv(0x09).to_command("unlock"), ResponseOutcome::Failed);
    check(&Response::kv(0x88).to_command("get_collection_id"), ResponseOutcome::Failed);
    // Each exclusion applies to its own status only.
    check(
        &Response::kv(0x88).to_command("unlock"),
        ResponseOutcome::Retry(reason::KV_COLLECTION_OUTDATED),
    );
    check(
        &Response::kv(0x09).to_command("get_collection_id"),
        ResponseOutcome::Retry(reason::KV_LOCKED),
    );
    check(
        &Response::kv(0x09).to_command("get_and_lock"),
        ResponseOutcome::Retry(reason::KV_LOCKED),
    );
}

/// A client's error type that classifies its response without knowing the operation.
#[derive(Debug)]
struct Own(Response);

impl RetryableError for Own {
    fn failure(&self) -> Option<redial::Failure> {
        self.0.failure()
    }
    fn response(&self) -> Option<&Response> {
        Some(&self.0)
    }
}

/// Attempts, stop reason and CAS mismatch of a request whose server always responds with this status.
async fn ask(operation: RequestOperation, status: u16) -> (u32, StopReason, bool) {
    let orchestrator = Orchestrator::new();
    let request = || orchestrator.request(operation, redial::ms(500));
    let response = || Response::kv(status);
    let error = request().run(async |_| Err::<(), _>(response())).await.unwrap_err();
    let cause =
        request().run(async |_| Err::<(), _>(AttemptError::from(response()))).await.unwrap_err();
    let own = request().run(async |_| Err::<(), _>(Own(response()))).await.unwrap_err();
    let both =
        [(cause.stop_reason(), cause.attempts() > 1), (own.stop_reason(), own.attempts() > 1)];
    assert_eq!(both, [(error.stop_reason(), error.attempts() > 1); 2], "{operation} {status:#x}");
    let mismatch = error.cas_mismatch().is_some();
    assert_eq!(cause.cas_mismatch().is_some(), mismatch);
    assert_eq!(own.cas_mismatch().is_some(), mismatch);
    (error.attempts(), error.stop_reason(), mismatch)
}

#[tokio::test(start_paused = true)]
async fn response_without_command_uses_request_operation() {
    // C5: neither is retried, and LOCKED on unlock is a CAS mismatch.
    assert_eq!(ask(operation::KV_UNLOCK, 0x09).await, (1, StopReason::NotRetryable, true));
    assert_eq!(
        ask(operation::KV_GET_COLLECTION_ID, 0x88).await,
        (1, StopReason::NotRetryable, false)
    );
    for (status, _) in KV {
        assert_eq!(
            ask(RequestOperation::new("kv.dcp_open"), status).await,
            (1, StopReason::NotRetryable, false),
            "{status}"
        );
    }
    // The same statuses are retried for other operations, until the timeout.
    for (operation, status) in [
        (operation::KV_GET_AND_LOCK, 0x09),
        (operation::KV_GET, 0x88),
        (operation::KV_UNLOCK, 0x86),
    ] {
        let (attempts, stop_reason, mismatch) = ask(operation, status).await;
        assert!(attempts > 1, "{operation} {status:#x}");
        assert_eq!((stop_reason, mismatch), (StopReason::Deadline, false));
    }
    // An operation of the connection setup is classified by its command.
    let bucket = ask(RequestOperation::new("kv.select_bucket"), 0x24).await;
    assert_eq!(bucket, (1, StopReason::StrategyDeclined, false), "BUCKET_ACCESS_ERROR is terminal");
}

#[test]
fn response_with_command_keeps_it() {
    let named = Response::kv(0x09).to_command("get").for_operation("kv.unlock");
    check(&named, ResponseOutcome::Retry(reason::KV_LOCKED));
    assert!(!named.is_cas_mismatch());
    // Only operations of the KV service have a command.
    check(&Response::kv(0x09).for_operation("query"), ResponseOutcome::Retry(reason::KV_LOCKED));
    let query = Response::query(4040, "");
    assert_eq!(query.clone().for_operation("kv.unlock"), query);
}

#[test]
fn response_with_application_reason_is_retried() {
    /// A replace of a document that the application is about to create.
    #[derive(Debug)]
    struct NotThereYet(Response);
    impl RetryableError for NotThereYet {
        fn failure(&self) -> Option<redial::Failure> {
            Some(reason::failure(Reason::new("NOT_THERE_YET").allow_non_idempotent()))
        }
        fn response(&self) -> Option<&Response> {
            Some(&self.0)
        }
    }
    let orchestrator = Orchestrator::new();
    let request = orchestrator.request(operation::KV_REPLACE, redial::s(60));
    let attempts = request.call(|attempt| match attempt.number() {
        3 => Ok(3),
        _ => Err(NotThereYet(Response::kv(0x01))),
    });
    assert_eq!(attempts.ok(), Some(3));
}

#[test]
fn cas_mismatch_is_named_in_the_error() {
    let orchestrator = Orchestrator::new();
    let request = orchestrator.request(operation::KV_UNLOCK, redial::s(2)).label("airline_10");
    let error = request.call(|_| Err::<(), _>(AttemptError::from(Response::kv(0x09)))).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("kv.unlock airline_10: CAS mismatch, kv status 0x09"), "{text}");
    assert_eq!(error.cas_mismatch().map(|it| it.to_string()).as_deref(), Some("CAS mismatch"));
}

#[test]
fn response_to_dcp_command_is_final() {
    let retry = ErrorMapEntry::of(["retry-now"]);
    for command in ["dcp_open", "dcp_stream_request", "dcp_noop"] {
        for (status, _) in KV {
            check(&Response::kv(status).to_command(command), ResponseOutcome::Failed);
        }
        check(
            &Response::kv(0x7ff0).to_command(command).with_error_map_entry(retry.clone()),
            ResponseOutcome::Failed,
        );
        check(&Response::kv(0).to_command(command), ResponseOutcome::Ok);
    }
}

#[test]
fn response_auth_error_is_0x20_and_no_access_0x24() {
    let authentication = ResponseOutcome::Retry(reason::AUTHENTICATION_ERROR);
    check(&Response::kv(0x20).to_command("sasl_auth"), authentication);
    check(&Response::kv(0x20).to_command("sasl_step"), authentication);
    check(&Response::kv(0x02).to_command("sasl_auth"), ResponseOutcome::Failed);
    check(&Response::kv(0x24).to_command("sasl_auth"), ResponseOutcome::Failed);
    check(
        &Response::kv(0x24).to_command("select_bucket"),
        ResponseOutcome::Retry(reason::BUCKET_ACCESS_ERROR),
    );
    check(
        &Response::kv(0x01).to_command("select_bucket"),
        ResponseOutcome::Retry(reason::SERVICE_NOT_AVAILABLE),
    );
    // For other commands they are final.
    check(&Response::kv(0x20).to_command("get"), ResponseOutcome::Failed);
    check(&Response::kv(0x24).to_command("get"), ResponseOutcome::Failed);
    check(&Response::kv(0x01).to_command("get"), ResponseOutcome::Failed);
}

#[test]
fn error_map_applies_only_to_unknown_statuses() {
    let known = [0x00..=0x09, 0x1f..=0x24, 0x80..=0x8c, 0xa0..=0xa4, 0xc0..=0xd6];
    assert_eq!(KNOWN_STATUSES, known);
    for status in 0..=u16::MAX {
        let response = Response::kv(status).with_error_map_entry(ErrorMapEntry::of(["retry-now"]));
        if known.iter().any(|range| range.contains(&status)) {
            assert!(is_known(status));
            check(&response, Response::kv(status).classify());
        } else {
            check(&response, ResponseOutcome::Retry(reason::KV_ERROR_MAP_RETRY_INDICATED));
        }
    }
}

#[test]
fn error_map_retries_only_with_retry_attribute() {
    let cases: [(&[&str], bool); 8] = [
        (&["retry-now"], true),
        (&["retry-later"], true),
        (&["auto-retry"], true),
        (&["temp", "retry-later"], true),
        (&["item-only"], false),
        (&["temp"], false),
        (&["retry", "retry-never", "Retry-Now"], false),
        (&[], false),
    ];
    for (attributes, retried) in cases {
        let entry = ErrorMapEntry::of(attributes.iter().copied());
        let expected = match retried {
            true => ResponseOutcome::Retry(reason::KV_ERROR_MAP_RETRY_INDICATED),
            false => ResponseOutcome::Failed,
        };
        check(&Response::kv(0x7ff0).with_error_map_entry(entry.clone()), expected);
        let map = ErrorMap::new().with(0x7ff0, entry);
        check(&Response::kv(0x7ff0).with_error_map(&map), expected);
        check(&Response::kv(0x7ff1).with_error_map(&map), ResponseOutcome::Failed);
    }
}

#[test]
fn response_query_codes_follow_rfc_list() {
    for code in [4040, 4050, 4070] {
        let expected = ResponseOutcome::Retry(reason::QUERY_PREPARED_STATEMENT_FAILURE);
        check(&Response::query(code, "any"), expected);
    }
    let text = "an error: queryport.indexNotFound, and more";
    check(&Response::query(5000, text), ResponseOutcome::Retry(reason::QUERY_INDEX_NOT_FOUND));
    check(&Response::query(5000, "queryport.indexnotfound"), ResponseOutcome::Failed);
    check(&Response::query(5000, ""), ResponseOutcome::Failed);
    check(&Response::query(5001, text), ResponseOutcome::Failed);
    for code in [1, 4041, 4060, 4080, 12016] {
        check(&Response::query(code, ""), ResponseOutcome::Failed);
    }
    check(&Response::query(0, ""), ResponseOutcome::Ok);
}

#[test]
fn response_analytics_codes_follow_rfc_list() {
    for code in [23000, 23003, 23007] {
        check(
            &Response::analytics(code),
            ResponseOutcome::Retry(reason::ANALYTICS_TEMPORARY_FAILURE),
        );
    }
    for code in [1, 22999, 23001, 23002, 23004, 23005, 23006, 23008, 24000] {
        check(&Response::analytics(code), ResponseOutcome::Failed);
    }
    check(&Response::analytics(0), ResponseOutcome::Ok);
}

#[test]
fn response_search_statuses_follow_rfc_list() {
    for http in 100..600 {
        let expected = match http {
            200..300 => ResponseOutcome::Ok,
            429 => ResponseOutcome::Retry(reason::SEARCH_TOO_MANY_REQUESTS),
            _ => ResponseOutcome::Failed,
        };
        check(&Response::search(http), expected);
    }
}

#[test]
fn response_views_statuses_follow_rfc_list() {
    let temporary = [300, 301, 303, 307, 401, 408, 409, 412, 416, 417, 501, 502, 503, 504];
    for http in 100..600 {
        let expected = match http {
            200..300 => ResponseOutcome::Ok,
            302 => ResponseOutcome::Retry(reason::VIEWS_NO_ACTIVE_PARTITION),
            // The text decides, and it is empty here.
            404 => ResponseOutcome::Failed,
            500 => ResponseOutcome::Retry(reason::VIEWS_TEMPORARY_FAILURE),
            _ if temporary.contains(&http) => {
                ResponseOutcome::Retry(reason::VIEWS_TEMPORARY_FAILURE)
            }
            _ => ResponseOutcome::Failed,
        };
        check(&Response::views(http, ""), expected);
    }
}

#[test]
fn response_views_404_and_500_depend_on_text() {
    let retry = ResponseOutcome::Retry(reason::VIEWS_TEMPORARY_FAILURE);
    let cases = [
        (404, r#"{"error":"not_found","reason":"missing"}"#, retry),
        (404, r#"{"error":"not_found","reason": "missing"}"#, ResponseOutcome::Failed),
        (404, r#"{"error":"not_found","reason":"deleted"}"#, ResponseOutcome::Failed),
        (404, "missing", ResponseOutcome::Failed),
        (
            500,
            r#"{"error":"x","reason":"{not_found, missing_named_view}"}"#,
            ResponseOutcome::Failed,
        ),
        (500, r#"{"reason":"{not_found, missing_named_view}"}"#, retry),
        (500, r#"{"error":"case_clause","reason":"badarg"}"#, ResponseOutcome::Failed),
        (500, r#"{"error":"badarg"}"#, ResponseOutcome::Failed),
        (500, r#"{"reason":"badarg"}"#, retry),
        (500, r#"{"error":"x","reason":"{badarg, y}"}"#, retry),
        (500, r#"{"error":"timeout"}"#, retry),
    ];
    for (http, text, expected) in cases {
        check(&Response::views(http, text), expected);
    }
}

#[test]
fn response_outcome_converts_to_directive() {
    assert_eq!(ResponseOutcome::Ok.directive(), Directive::Succeed);
    assert_eq!(ResponseOutcome::Failed.directive(), Directive::Fail);
    let failure = reason::failure(reason::KV_LOCKED);
    assert_eq!(ResponseOutcome::Retry(reason::KV_LOCKED).directive(), Directive::Retry(failure));
    assert_eq!(Response::kv(0x09).failure(), Some(failure));
    assert_eq!(Response::kv(0x01).failure(), None);
}

#[test]
fn response_final_is_returned_without_log_line() {
    let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let lines = log.clone();
    let orchestrator = Orchestrator::new()
        .on_log(move |_, line| lines.lock().expect("no panic").push(line.to_string()));
    let unlock = || Response::kv(0x09).to_command("unlock");
    let error = orchestrator
        .request(operation::KV_UNLOCK, redial::s(2))
        .call(|_| Err::<(), _>(AttemptError::from(unlock())))
        .expect_err("a CAS mismatch");
    assert_eq!(
        (error.stop_reason(), error.attempts(), error.reason()),
        (StopReason::NotRetryable, 1, None)
    );
    assert_eq!(error.response(), Some(&unlock()));
    assert!(log.lock().expect("no panic").is_empty());
}
