//! Streams and connections that end in the middle of a call: what each proves, which status it is,
//! and what follows. The chains pin that the errors of hyper and h2 are found where they are looked
//! for: a version of either that hides them, or another copy of it, fails here.

use redial::StopReason;
use redial_core::Proof;
use redial_faults::grpc::{Answer, Close, LastStream, Once, Reason};
use tonic::Code;

use super::rig::{RETRY, Rig, Told};

const UNPROCESSED: Option<Proof> = Some(Proof::Unprocessed);
const BROKEN: [&str; 3] = ["tonic::transport::Error", "hyper", "io BrokenPipe"];

/// What must be seen of a call.
struct Seen<'a> {
    code: Code,
    stop_reason: StopReason,
    starts: &'a [u64],
    previous: &'a [Option<u64>],
    proofs: &'a [Option<Proof>],
    /// Retries made, retries failed, replacements.
    statistics: (u64, u64, u64),
    /// In thousandths, of 10,000.
    tokens: u64,
    chain: &'a [&'a str],
}

/// Plays a call that meets these under this policy.
async fn check(policy: &str, answers: &[Answer], seen: &Seen<'_>) -> Told {
    let mut rig = Rig::new(policy, answers.to_vec());
    let told = rig.call().await;
    let what = format!("{answers:?} with {policy:?}");
    assert_eq!((told.code(), told.end().0), (seen.code, seen.stop_reason), "{what}");
    assert_eq!(told.starts(), seen.starts, "{what}");
    assert_eq!(told.previous(), seen.previous, "{what}");
    assert_eq!(told.proofs(), seen.proofs, "{what}");
    assert_eq!(rig.statistics(), seen.statistics, "{what}");
    assert_eq!(rig.tokens(), seen.tokens, "{what}");
    assert_eq!(told.chain(), seen.chain, "{what}");
    assert_eq!(rig.control.bytes_kept(), 0, "{what}");
    assert_eq!(told.record.counts.streams_unscripted, 0, "{what}");
    told
}

/// Replaced once, at once, with or without a policy.
async fn is_replaced(fault: Answer) -> Told {
    let seen = Seen {
        code: Code::Ok,
        stop_reason: StopReason::Succeeded,
        starts: &[0, 0],
        previous: &[None, None],
        proofs: &[UNPROCESSED, None],
        statistics: (0, 0, 1),
        tokens: 10_000,
        chain: &[],
    };
    check("", &[fault.clone(), Answer::echo()], &seen).await;
    check(RETRY, &[fault, Answer::echo()], &seen).await
}

/// A failure with UNAVAILABLE, which proves nothing: the policy decides.
async fn is_left_to_the_policy(fault: Answer) {
    let without = Seen {
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
    let with = Seen {
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

/// After the response's headers: handed on, whatever it is.
async fn is_handed_on(fault: Answer, code: Code, chain: &[&str]) {
    let listed = code == Code::Unavailable;
    let seen = Seen {
        code,
        stop_reason: StopReason::NotRetryable,
        starts: &[0],
        previous: &[None],
        proofs: &[None],
        statistics: (0, 0, 0),
        tokens: 10_000,
        chain,
    };
    check("", std::slice::from_ref(&fault), &seen).await;
    let (stop_reason, tokens) =
        if listed { (StopReason::Committed, 9_000) } else { (StopReason::NotRetryable, 10_000) };
    check(RETRY, &[fault], &Seen { stop_reason, tokens, ..seen }).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_is_replaced_at_once_without_any_policy() {
    let told = is_replaced(Answer::reset(Reason::REFUSED_STREAM)).await;
    let connections: Vec<_> = told.record.streams.iter().map(|it| it.connection).collect();
    assert_eq!(connections, [1, 1], "the connection is fine");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_refused_after_its_headers_is_handed_on() {
    let fault = Answer::headers().then_reset(Reason::REFUSED_STREAM);
    let chain = ["hyper", "h2 reset remote REFUSED_STREAM"];
    is_handed_on(fault, Code::Unavailable, &chain).await;
}

#[tokio::test(start_paused = true)]
async fn the_second_refusal_of_a_call_is_left_to_the_policy() {
    let refused = Answer::reset(Reason::REFUSED_STREAM);
    let with = Seen {
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
    let without = Seen {
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
async fn a_goaway_below_the_stream_is_replaced_whatever_its_code_and_whatever_follows() {
    for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM, Reason::INTERNAL_ERROR] {
        for close in [None, Some(Close::Orderly), Some(Close::Abrupt)] {
            let mut fault = Answer::go_away(LastStream::Below, reason);
            if let Some(close) = close {
                fault = fault.then_close(close);
            }
            let told = is_replaced(fault).await;
            let connections: Vec<_> = told.record.streams.iter().map(|it| it.connection).collect();
            assert_eq!(connections, [1, 2], "{reason:?} {close:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_goaway_below_a_call_is_left_to_the_policy() {
    let gone = Answer::go_away(LastStream::Below, Reason::NO_ERROR);
    let seen = Seen {
        code: Code::Unavailable,
        stop_reason: StopReason::NotRetryable,
        starts: &[0, 0],
        previous: &[None, None],
        proofs: &[UNPROCESSED, UNPROCESSED],
        statistics: (0, 0, 1),
        tokens: 10_000,
        chain: &["tonic::transport::Error", "hyper", "h2 goaway remote NO_ERROR"],
    };
    check("", &[gone.clone(), gone], &seen).await;
}

#[tokio::test(start_paused = true)]
async fn a_goaway_at_or_above_the_stream_and_then_the_end_proves_nothing() {
    for last in [LastStream::This, LastStream::Above] {
        for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
            is_left_to_the_policy(Answer::go_away(last, reason).then_close(Close::Orderly)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_goaway_at_or_above_the_stream_lets_it_finish() {
    for last in [LastStream::This, LastStream::Above] {
        let answer = Answer::go_away(last, Reason::NO_ERROR).then_headers();
        let answer = answer.message("").trailers(redial_faults::grpc::StatusNumber::OK);
        let seen = Seen {
            code: Code::Ok,
            stop_reason: StopReason::Succeeded,
            starts: &[0],
            previous: &[None],
            proofs: &[None],
            statistics: (0, 0, 0),
            tokens: 10_000,
            chain: &[],
        };
        check(RETRY, &[answer], &seen).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_before_or_after_the_request_proves_nothing() {
    for once in [Once::Headers, Once::Request] {
        for close in [Close::Orderly, Close::Abrupt] {
            is_left_to_the_policy(Answer::close(close).once(once)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_after_the_headers_is_unavailable_and_handed_on() {
    // tonic says UNKNOWN here.
    let chain = ["hyper", "h2 io"];
    for close in [Close::Orderly, Close::Abrupt] {
        is_handed_on(Answer::headers().then_close(close), Code::Unavailable, &chain).await;
        let begun = Answer::headers().message("").then_close(close);
        is_handed_on(begun, Code::Unavailable, &chain).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_means_what_grpcs_table_says_and_is_retried_if_listed() {
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
        let fatal = Seen {
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
        let listed = Seen {
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
async fn a_reset_after_the_headers_means_what_the_table_says() {
    let table = [
        (Reason::CANCEL, Code::Cancelled),
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        (Reason::INTERNAL_ERROR, Code::Internal),
    ];
    for (reason, code) in table {
        let flags = format!("h2 reset remote {reason:?}");
        is_handed_on(Answer::headers().then_reset(reason), code, &["hyper", &flags]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_goaway_below_a_committed_stream_is_handed_on() {
    let fault = |reason| Answer::headers().then_go_away(LastStream::Below, reason);
    // tonic says what the reason says; that the server went away is what counts.
    let chain = ["hyper", "h2 goaway remote INTERNAL_ERROR"];
    is_handed_on(fault(Reason::INTERNAL_ERROR), Code::Unavailable, &chain).await;
    // hyper makes a clean end of NO_ERROR, so that all that is left is the missing status.
    is_handed_on(fault(Reason::NO_ERROR), Code::Unknown, &[]).await;
}
