//! Classification: status codes, invalid messages, writes, cancellation by the caller (M3, M7).

use redial::Directive;
use redial_milvus::{IGNORED_CODES, MessageValidity, RATE_LIMIT, WriteRetries, classify, is_write};

use super::*;

#[test]
fn status_codes_outside_ignore_list_are_retried() {
    let rows = [
        (Code::Ok, "succeed"),
        (Code::Cancelled, "retry"),
        (Code::Unknown, "retry"),
        (Code::InvalidArgument, "fail"),
        (Code::DeadlineExceeded, "fail"),
        (Code::NotFound, "retry"),
        (Code::AlreadyExists, "fail"),
        (Code::PermissionDenied, "fail"),
        (Code::ResourceExhausted, "fail"),
        (Code::FailedPrecondition, "retry"),
        (Code::Aborted, "retry"),
        (Code::OutOfRange, "retry"),
        (Code::Unimplemented, "fail"),
        (Code::Internal, "retry"),
        (Code::Unavailable, "retry"),
        (Code::DataLoss, "retry"),
        (Code::Unauthenticated, "fail"),
    ];
    assert_eq!(rows.map(|(code, _)| code), Code::ALL);
    for (code, expected) in rows {
        let directive = match classify(code, MessageValidity::Valid) {
            Directive::Succeed => "succeed",
            Directive::Fail => "fail",
            Directive::Retry(_) => "retry",
        };
        assert_eq!(directive, expected, "{code}");
        assert_eq!(IGNORED_CODES.contains(&code), expected != "retry", "{code}");
        if code != Code::Ok {
            let played = play(Options::default(), &[(0, boom(code)), (0, OK)]);
            let expected =
                if expected == "retry" { StopReason::Succeeded } else { StopReason::NotRetryable };
            assert_eq!(played.stop_reason(), expected, "{code}");
        }
    }
}

#[test]
fn status_code_ok_in_error_is_not_retried() {
    let played = play(Options::default(), &[(0, boom(Code::Ok))]);
    assert_eq!((played.starts.len(), played.stop_reason()), (1, StopReason::NotRetryable));
}

#[test]
fn invalid_message_is_retried_for_every_code() {
    for code in Code::ALL {
        assert!(matches!(classify(code, MessageValidity::Invalid), Directive::Retry(_)), "{code}");
    }
}

#[test]
fn invalid_message_needs_configured_inner_codes() {
    for code in [RATE_LIMIT, 2200, 65535] {
        let played = play(Options::default(), &[(0, Ok(Reply { code }))]);
        assert_eq!((played.starts.len(), played.stop_reason()), (1, StopReason::Succeeded));
    }
}

#[test]
fn invalid_message_with_listed_inner_code_is_retried() {
    let interceptor = Options::default().interceptor().expect("valid");
    let interceptor = interceptor.invalid_codes([RATE_LIMIT, 2200]);
    for (code, starts) in [(RATE_LIMIT, 2), (2200, 2), (9, 1)] {
        let played = play_method(&interceptor, "Search", &[(0, Ok(Reply { code })), (0, OK)]);
        assert_eq!(
            (played.starts.len(), played.stop_reason()),
            (starts, StopReason::Succeeded),
            "{code}"
        );
    }
}

#[test]
fn invalid_message_is_decided_by_predicate() {
    let clock = Clock::default();
    let interceptor = Options::default().interceptor().expect("valid");
    let script = Script::new(&clock, [(0, Ok(Reply { code: -1 })), (0, OK)]);
    let call = interceptor.call("Search", || script.attempt());
    let call = call.invalid_when(|reply: &Reply| reply.code < 0).sleeping_on(clock);
    assert_eq!(clock.run(call.send()).ok(), OK.ok());
    assert_eq!(script.starts(), [0.0, 20.0]);
}

#[test]
fn writes_are_retried_by_default() {
    let interceptor = Options::default().interceptor().expect("valid");
    for method in ["Search", "Insert", "Upsert", "Delete"] {
        let steps = [(0, boom(Code::Unavailable)), (0, OK)];
        assert_eq!(
            play_method(&interceptor, method, &steps).stop_reason(),
            StopReason::Succeeded,
            "{method}"
        );
    }
}

#[test]
fn writes_in_flight_can_be_excluded_from_retries() {
    let strict =
        Options::default().write_retries(WriteRetries::OnlyIfNotRun).interceptor().expect("valid");
    let strict = strict.invalid_codes([RATE_LIMIT, 2200]);
    let unsent = boom(Code::Unavailable).map_err(|status| TestStatus { unsent: true, ..status });
    let rows = [
        (boom(Code::Unavailable), StopReason::NotIdempotent),
        (boom(Code::Internal), StopReason::NotIdempotent),
        (Ok(Reply { code: 2200 }), StopReason::NotIdempotent),
        // The server did not execute requests that were unsent or rate-limited.
        (unsent, StopReason::Succeeded),
        (Ok(Reply { code: RATE_LIMIT }), StopReason::Succeeded),
    ];
    for (outcome, stop_reason) in rows {
        let steps = [(0, outcome.clone()), (0, OK)];
        for method in ["Insert", "Upsert", "Delete", "/milvus.proto.milvus.MilvusService/Insert"] {
            let played = play_method(&strict, method, &steps);
            assert_eq!(played.stop_reason(), stop_reason, "{method}: {outcome:?}");
        }
        assert_eq!(
            play_method(&strict, "Search", &steps).stop_reason(),
            StopReason::Succeeded,
            "{outcome:?}"
        );
    }
    assert!(!is_write("Search") && !is_write("DeleteCredential") && is_write("delete"));
}

#[test]
fn not_idempotent_call_is_not_retried_in_flight() {
    let clock = Clock::default();
    let interceptor = Options::default().interceptor().expect("valid");
    let script = Script::new(&clock, [(0, boom(Code::Unavailable)), (0, OK)]);
    let call = interceptor.call("CreateCollection", || script.attempt()).not_idempotent();
    let error = clock.run(call.sleeping_on(clock).send()).expect_err("unsafe");
    assert_eq!((error.stop_reason(), error.message()), (StopReason::NotIdempotent, "boom"));
}

#[test]
fn cancellation_by_caller_is_not_retried() {
    let here =
        boom(Code::Cancelled).map_err(|status| TestStatus { cancelled_by_caller: true, ..status });
    let played = play(Options::default(), &[(5, here), (0, OK)]);
    assert_eq!((&*played.starts, played.stop_reason()), (&[0.0][..], StopReason::NotRetryable));
    assert_eq!(played.text(), "boom");

    // Dropping the call cancels the attempt and starts no other.
    let clock = Clock::default();
    let interceptor = Options::default().interceptor().expect("valid");
    let script = Script::new(&clock, [(HANG, OK)]);
    let mut log = Vec::new();
    let call = interceptor.call("Search", || script.attempt());
    let call = call.log(|line| log.push(line.kind.name())).sleeping_on(clock);
    let mut call = Box::pin(call.send());
    clock.run(std::future::poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    }));
    drop(call);
    assert_eq!((script.starts(), script.cancels()), (vec![0.0], vec![0.0]));
    assert_eq!(log, ["request"], "no response came");
}
