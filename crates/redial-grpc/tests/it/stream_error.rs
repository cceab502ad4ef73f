//! Streams and connections that fail during a call: the proof that each error gives, its status, and the
//! reaction of the layer.
//!
//! The expected source chains pin the error types of hyper and h2: a version that hides them, or a second
//! copy of either crate, fails these tests. `checks/channel-only` runs them with a smaller tonic, too.

use redial::StopReason;
use redial_core::Proof;
use redial_faults::grpc::{Answer, Close, LastStream, Reason, WaitFor};
use tonic::Code;

use crate::common::harness::{CallOutcome, Harness, RETRY};

const UNPROCESSED: Option<Proof> = Some(Proof::Unprocessed);

const BROKEN: [&str; 3] = ["tonic::transport::Error", "hyper", "io BrokenPipe"];

/// The expected result of a call.
struct Expected<'a> {
    code: Code,
    stop_reason: StopReason,
    starts: &'a [u64],
    previous: &'a [Option<u64>],
    proofs: &'a [Option<Proof>],
    /// Retries made, retries failed, transparent retries.
    statistics: (u64, u64, u64),
    /// In thousandths; 10,000 is full.
    tokens: u64,
    chain: &'a [&'a str],
}

/// Makes a call with this policy to a server with these responses.
async fn check(policy: &str, answers: &[Answer], expected: &Expected<'_>) -> CallOutcome {
    let mut harness = Harness::new(policy, answers.to_vec());
    let outcome = harness.call().await;
    let what = format!("{answers:?} with {policy:?}");
    assert_eq!((outcome.code(), outcome.end().0), (expected.code, expected.stop_reason), "{what}");
    assert_eq!(outcome.starts(), expected.starts, "{what}");
    assert_eq!(outcome.previous(), expected.previous, "{what}");
    assert_eq!(outcome.proofs(), expected.proofs, "{what}");
    assert_eq!(harness.statistics(), expected.statistics, "{what}");
    assert_eq!(harness.tokens(), expected.tokens, "{what}");
    assert_eq!(outcome.chain(), expected.chain, "{what}");
    assert_eq!(harness.control.bytes_kept(), 0, "{what}");
    assert_eq!(outcome.record.counts.streams_unscripted, 0, "{what}");
    outcome
}

/// One immediate transparent retry, with or without a policy.
async fn check_transparent_retry(fault: Answer) -> CallOutcome {
    let expected = Expected {
        code: Code::Ok,
        stop_reason: StopReason::Succeeded,
        starts: &[0, 0],
        previous: &[None, None],
        proofs: &[UNPROCESSED, None],
        statistics: (0, 0, 1),
        tokens: 10_000,
        chain: &[],
    };
    check("", &[fault.clone(), Answer::echo()], &expected).await;
    check(RETRY, &[fault, Answer::echo()], &expected).await
}

/// UNAVAILABLE without a proof: the policy decides.
async fn check_policy_decides(fault: Answer) {
    let without = Expected {
        code: Code::Unavailable,
        stop_reason: StopReason::NotRetryable,
        starts: &[0],
        previous: &[None],
        proofs: &[None],
        statistics: (0, 0, 0),
        tokens: 10_000,
        chain: &BROKEN,
    };
    check("", std::slice::from_ref(&fault), &without).await;
    let with = Expected {
        code: Code::Ok,
        stop_reason: StopReason::Succeeded,
        starts: &[0, 50],
        previous: &[None, Some(1)],
        proofs: &[None, None],
        statistics: (1, 0, 0),
        tokens: 9_100,
        chain: &[],
    };
    check(RETRY, &[fault, Answer::echo()], &with).await;
}

/// After the response headers every failure is returned.
async fn check_returned(fault: Answer, code: Code, chain: &[&str]) {
    let listed = code == Code::Unavailable;
    let expected = Expected {
        code,
        stop_reason: StopReason::NotRetryable,
        starts: &[0],
        previous: &[None],
        proofs: &[None],
        statistics: (0, 0, 0),
        tokens: 10_000,
        chain,
    };
    check("", std::slice::from_ref(&fault), &expected).await;
    let (stop_reason, tokens) =
        if listed { (StopReason::Committed, 9_000) } else { (StopReason::NotRetryable, 10_000) };
    check(RETRY, &[fault], &Expected { stop_reason, tokens, ..expected }).await;
}

#[tokio::test(start_paused = true)]
async fn stream_error_refused_stream_is_retried_transparently() {
    let outcome = check_transparent_retry(Answer::reset(Reason::REFUSED_STREAM)).await;
    let connections: Vec<_> = outcome.record.streams.iter().map(|it| it.connection).collect();
    assert_eq!(connections, [1, 1], "the connection is reused");
}

#[tokio::test(start_paused = true)]
async fn stream_error_refused_stream_after_headers_is_returned() {
    let fault = Answer::headers().then_reset(Reason::REFUSED_STREAM);
    let chain = ["hyper", "h2 reset remote REFUSED_STREAM"];
    check_returned(fault, Code::Unavailable, &chain).await;
}

#[tokio::test(start_paused = true)]
async fn stream_error_second_refused_stream_follows_the_policy() {
    let refused = Answer::reset(Reason::REFUSED_STREAM);
    let with = Expected {
        code: Code::Ok,
        stop_reason: StopReason::Succeeded,
        starts: &[0, 0, 50],
        previous: &[None, None, Some(1)],
        proofs: &[UNPROCESSED, UNPROCESSED, None],
        statistics: (1, 0, 1),
        tokens: 9_100,
        chain: &[],
    };
    check(RETRY, &[refused.clone(), refused.clone(), Answer::echo()], &with).await;
    let without = Expected {
        code: Code::Unavailable,
        stop_reason: StopReason::NotRetryable,
        starts: &[0, 0],
        previous: &[None, None],
        proofs: &[UNPROCESSED, UNPROCESSED],
        statistics: (0, 0, 1),
        tokens: 10_000,
        chain: &["tonic::transport::Error", "hyper", "h2 reset remote REFUSED_STREAM"],
    };
    check("", &[refused.clone(), refused], &without).await;
}

#[tokio::test(start_paused = true)]
async fn stream_error_goaway_below_stream_is_retried_transparently() {
    for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM, Reason::INTERNAL_ERROR] {
        for close in [None, Some(Close::Graceful), Some(Close::Abrupt)] {
            let mut fault = Answer::go_away(LastStream::Below, reason);
            if let Some(close) = close {
                fault = fault.then_close(close);
            }
            let outcome = check_transparent_retry(fault).await;
            let connections: Vec<_> =
                outcome.record.streams.iter().map(|it| it.connection).collect();
            assert_eq!(connections, [1, 2], "{reason:?} {close:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_second_goaway_below_stream_follows_the_policy() {
    let gone = Answer::go_away(LastStream::Below, Reason::NO_ERROR);
    let expected = Expected {
        code: Code::Unavailable,
        stop_reason: StopReason::NotRetryable,
        starts: &[0, 0],
        previous: &[None, None],
        proofs: &[UNPROCESSED, UNPROCESSED],
        statistics: (0, 0, 1),
        tokens: 10_000,
        chain: &["tonic::transport::Error", "hyper", "h2 goaway remote NO_ERROR"],
    };
    check("", &[gone.clone(), gone], &expected).await;
}

#[tokio::test(start_paused = true)]
async fn stream_error_goaway_above_stream_then_close_follows_the_policy() {
    for last in [LastStream::This, LastStream::Above] {
        for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
            check_policy_decides(Answer::go_away(last, reason).then_close(Close::Graceful)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_goaway_above_stream_lets_it_finish() {
    for last in [LastStream::This, LastStream::Above] {
        let answer = Answer::go_away(last, Reason::NO_ERROR).then_headers();
        let answer = answer.message("").trailers(redial_faults::grpc::StatusNumber::OK);
        let expected = Expected {
            code: Code::Ok,
            stop_reason: StopReason::Succeeded,
            starts: &[0],
            previous: &[None],
            proofs: &[None],
            statistics: (0, 0, 0),
            tokens: 10_000,
            chain: &[],
        };
        check(RETRY, &[answer], &expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_closed_connection_follows_the_policy() {
    for once in [WaitFor::Headers, WaitFor::Request] {
        for close in [Close::Graceful, Close::Abrupt] {
            check_policy_decides(Answer::close(close).wait_for(once)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_closed_connection_after_headers_is_unavailable() {
    // tonic alone reports UNKNOWN here.
    let chain = ["hyper", "h2 io"];
    for close in [Close::Graceful, Close::Abrupt] {
        check_returned(Answer::headers().then_close(close), Code::Unavailable, &chain).await;
        let begun = Answer::headers().message("").then_close(close);
        check_returned(begun, Code::Unavailable, &chain).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_reset_codes_map_as_grpc_specifies() {
    let every_code = r#""retryPolicy": { "maxAttempts": 2, "initialBackoff": "0.1s", "maxBackoff": "1s",
        "backoffMultiplier": 2, "retryableStatusCodes": ["CANCELLED", "RESOURCE_EXHAUSTED",
        "PERMISSION_DENIED", "INTERNAL"] }"#;
    let table = [
        (Reason::NO_ERROR, Code::Internal),
        (Reason::PROTOCOL_ERROR, Code::Internal),
        (Reason::INTERNAL_ERROR, Code::Internal),
        (Reason::FLOW_CONTROL_ERROR, Code::Internal),
        (Reason::COMPRESSION_ERROR, Code::Internal),
        (Reason::CONNECT_ERROR, Code::Internal),
        (Reason::CANCEL, Code::Cancelled),
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        (Reason::INADEQUATE_SECURITY, Code::PermissionDenied),
    ];
    for (reason, code) in table {
        let flags = format!("h2 reset remote {reason:?}");
        let chain = ["tonic::transport::Error", "hyper", &flags];
        let fatal = Expected {
            code,
            stop_reason: StopReason::NotRetryable,
            starts: &[0],
            previous: &[None],
            proofs: &[None],
            statistics: (0, 0, 0),
            tokens: 10_000,
            chain: &chain,
        };
        check(RETRY, &[Answer::reset(reason)], &fatal).await;
        let listed = Expected {
            stop_reason: StopReason::AttemptsExhausted,
            starts: &[0, 50],
            previous: &[None, Some(1)],
            proofs: &[None, None],
            statistics: (1, 1, 0),
            tokens: 8_000,
            ..fatal
        };
        check(every_code, &[Answer::reset(reason), Answer::reset(reason)], &listed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_reset_after_headers_maps_the_same() {
    let table = [
        (Reason::CANCEL, Code::Cancelled),
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        (Reason::INTERNAL_ERROR, Code::Internal),
    ];
    for (reason, code) in table {
        let flags = format!("h2 reset remote {reason:?}");
        check_returned(Answer::headers().then_reset(reason), code, &["hyper", &flags]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_goaway_below_committed_stream_is_returned() {
    let fault = |reason| Answer::headers().then_go_away(LastStream::Below, reason);
    // tonic alone maps the error code; the layer reports that the server is gone.
    let chain = ["hyper", "h2 goaway remote INTERNAL_ERROR"];
    check_returned(fault(Reason::INTERNAL_ERROR), Code::Unavailable, &chain).await;
    // hyper reports NO_ERROR as a regular end, so the status is missing.
    check_returned(fault(Reason::NO_ERROR), Code::Unknown, &[]).await;
}
