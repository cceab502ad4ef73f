//! Server pushback (`grpc-retry-pushback-ms`): delays, refusals and malformed values.

use http::StatusCode;
use redial::StopReason;
use redial_faults::grpc::{Answer, Server, StatusNumber};
use tonic::Code;

use crate::common::harness::{Harness, RETRY, busy};
use crate::common::streaming::{
    StreamingHarness, aborted_config, fails, fails_after, four_attempts_config, harness,
    harness_with, replies, replies_after, six_attempts_config, starts, without_jitter,
};

fn six_attempts(script: Vec<Answer>) -> StreamingHarness {
    harness_with(without_jitter(&six_attempts_config()).attempts_cap(6), Server::new(script))
}

// Peer test: grpc-java: pushback.
#[tokio::test(start_paused = true)]
async fn pushback_delay_is_exact_and_resets_the_backoff() {
    let harness = six_attempts(vec![
        fails(StatusNumber::UNAVAILABLE).pushback("123"),
        fails(StatusNumber::DATA_LOSS).pushback("4567000"),
        fails(StatusNumber::UNAVAILABLE),
        fails(StatusNumber::UNAVAILABLE),
        fails(StatusNumber::UNAVAILABLE),
        fails(StatusNumber::UNAVAILABLE).pushback("4567000"),
    ]);
    let (outcome, stop_reason) = harness.unary_with_stop_reason("x").await;
    assert_eq!((outcome.code, stop_reason), (Code::Unavailable, StopReason::AttemptsExhausted));
    let expected = [0, 123, 4_567_123, 4_667_123, 4_867_123, 5_267_123];
    assert_eq!(starts(&harness.finish().await), expected);
}

// Peer test: grpc-java: pushback_noRetry.
#[tokio::test(start_paused = true)]
async fn pushback_with_empty_value_means_no_retry() {
    let harness = harness(&six_attempts_config(), fails(StatusNumber::UNAVAILABLE).pushback(""));
    let (outcome, stop_reason) = harness.unary_with_stop_reason("x").await;
    assert_eq!((outcome.code, stop_reason), (Code::Unavailable, StopReason::ServerRefused));
    harness.finish().await;
}

// Peer test: C-core: retry_server_pushback_delay.
#[tokio::test(start_paused = true)]
async fn pushback_delays_the_retry() {
    let harness = harness(
        &aborted_config(3),
        [fails(StatusNumber::ABORTED).pushback("2000"), replies("bar")],
    );
    assert_eq!(harness.unary("foo").await.text, "bar");
    assert_eq!(starts(&harness.finish().await), [0, 2000]);
}

// Peer test: C-core: retry_server_pushback_disabled.
#[tokio::test(start_paused = true)]
async fn pushback_negative_after_a_retry_stops_retries() {
    let harness = harness(
        &aborted_config(3),
        [fails(StatusNumber::ABORTED), fails(StatusNumber::ABORTED).pushback("-1").text("xyz")],
    );
    let (outcome, stop_reason) = harness.unary_with_stop_reason("foo").await;
    assert_eq!(
        (outcome.code, &*outcome.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::ServerRefused)
    );
    harness.finish().await;
}

async fn check_not_retried(values: &[&str]) {
    let answer = fails_after(1, StatusNumber::UNAVAILABLE);
    let harness = harness(
        &four_attempts_config(),
        values.iter().fold(answer, |answer, value| answer.pushback(value)),
    );
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "from the script"));
    assert_eq!(bidi.stop_reason(), StopReason::ServerRefused);
    assert_eq!(starts(&harness.finish().await), [0]);
}

// Peer test: grpc-go: TestRetryStreaming: Negative server pushback - no retry.
#[tokio::test(start_paused = true)]
async fn pushback_negative_on_a_stream_means_no_retry() {
    check_not_retried(&["-1"]).await;
}

// Peer test: grpc-go: TestRetryStreaming: Non-numeric server pushback - no retry.
#[tokio::test(start_paused = true)]
async fn pushback_not_a_number_on_a_stream_means_no_retry() {
    check_not_retried(&["xxx"]).await;
}

// Peer test: grpc-go: TestRetryStreaming: Multiple server pushback values - no retry.
#[tokio::test(start_paused = true)]
async fn pushback_given_twice_on_a_stream_means_no_retry() {
    check_not_retried(&["100", "10"]).await;
}

// Peer test: grpc-go: TestRetryStreaming: 1s server pushback - delayed retry.
#[tokio::test(start_paused = true)]
async fn pushback_of_one_second_delays_the_stream_retry() {
    let script =
        [fails_after(1, StatusNumber::UNAVAILABLE).pushback("1000"), replies_after(1, "a")];
    let harness = harness(&four_attempts_config(), script);
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));
    assert_eq!(starts(&harness.finish().await), [0, 1000]);
}

/// Malformed or negative values, which mean "do not retry".
const GARBAGE: [&str; 14] = [
    "abc",
    "",
    " ",
    "50.5",
    "0x10",
    "1e2",
    "050",
    "+50",
    " 50",
    "50 ",
    "-0",
    "50,60",
    "2147483648",
    "12345678901234567890",
];

/// grpcio 1.85: a pushback of 0 hangs until the deadline.
#[tokio::test(start_paused = true)]
async fn pushback_zero_retries_immediately() {
    let mut harness =
        Harness::new(RETRY, [busy().pushback("0"), busy().pushback("0"), Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 0, 0]));
}

/// grpcio 1.85: a malformed pushback replaces the status of the server with INTERNAL.
#[tokio::test(start_paused = true)]
async fn pushback_malformed_keeps_server_status() {
    for garbage in GARBAGE {
        let answer = busy().text("busy").pushback(garbage).metadata("who", "me");
        let mut harness = Harness::new(RETRY, [answer]);
        let outcome = harness.call().await;
        let status = outcome.status();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "busy"), "{garbage:?}");
        assert_eq!(status.metadata().get("who").unwrap(), "me");
    }
}

/// grpcio 1.85: a malformed pushback also breaks later calls on the same channel.
#[tokio::test(start_paused = true)]
async fn pushback_malformed_does_not_affect_next_call() {
    let script = [busy().pushback("abc"), busy().pushback("5"), Answer::echo()];
    let mut harness = Harness::new(RETRY, script);
    assert_eq!(harness.call().await.code(), Code::Unavailable);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 5]));
}

/// grpc-js: retries at once after a malformed pushback.
#[tokio::test(start_paused = true)]
async fn pushback_garbage_means_no_retry() {
    for garbage in GARBAGE.into_iter().chain(["-1", "-2147483649"]) {
        let mut harness = Harness::new(RETRY, [busy().pushback(garbage), Answer::echo()]);
        let outcome = harness.call().await;
        assert_eq!(
            (outcome.end().0, outcome.starts()),
            (StopReason::ServerRefused, vec![0]),
            "{garbage:?}"
        );
        assert_eq!(harness.tokens(), 9_000, "{garbage:?}");
    }
    let twice = busy().pushback("5").pushback("5");
    let mut harness = Harness::new(RETRY, [twice, Answer::echo()]);
    assert_eq!(harness.call().await.end().0, StopReason::ServerRefused);
}

/// Decision G6: a non-gRPC response counts as a status, including its pushback header.
#[tokio::test(start_paused = true)]
async fn pushback_on_a_non_grpc_response_is_used() {
    let answer = |pushback: &str| {
        Answer::http_empty(StatusCode::SERVICE_UNAVAILABLE).pushback(pushback.as_bytes())
    };
    let table = [("500", vec![0, 500], Code::Ok), ("-1", vec![0], Code::Unavailable)];
    for (pushback, starts, code) in table {
        let mut harness = Harness::new(RETRY, [answer(pushback), Answer::echo()]);
        let outcome = harness.call().await;
        assert_eq!((outcome.code(), outcome.starts()), (code, starts), "{pushback}");
    }
    // A refusal takes a token even without a policy.
    let mut harness = Harness::new("", [answer("-1")]);
    assert_eq!((harness.call().await.end().0, harness.tokens()), (StopReason::NotRetryable, 9_000));
}

/// Decision G10: ignored on OK; after the commit it can only take a token.
#[tokio::test(start_paused = true)]
async fn pushback_in_trailers_only_affects_the_tokens() {
    let trailers = |code| Answer::headers().message("").trailers(code);
    let table = [
        (trailers(StatusNumber::OK).pushback("-1"), Code::Ok, 10_000),
        (trailers(StatusNumber::OK).pushback("50"), Code::Ok, 10_000),
        (trailers(StatusNumber::UNAVAILABLE).pushback("50"), Code::Unavailable, 9_000),
        (trailers(StatusNumber::UNAVAILABLE).pushback("-1"), Code::Unavailable, 9_000),
        (trailers(StatusNumber::ABORTED).pushback("50"), Code::Aborted, 10_000),
        (trailers(StatusNumber::ABORTED).pushback("-1"), Code::Aborted, 9_000),
    ];
    for (answer, code, tokens) in table {
        let mut harness = Harness::new(RETRY, [answer.clone()]);
        let outcome = harness.call().await;
        assert_eq!((outcome.code(), outcome.starts()), (code, vec![0]), "{answer:?}");
        assert_eq!(harness.tokens(), tokens, "{answer:?}");
    }
}

/// Decision G13: "do not retry" takes exactly one token, for every status and policy.
#[tokio::test(start_paused = true)]
async fn pushback_refusal_takes_one_token_for_any_status() {
    for (policy, code) in [
        ("", StatusNumber::ABORTED),
        ("", StatusNumber::UNAVAILABLE),
        (RETRY, StatusNumber::ABORTED),
        (RETRY, StatusNumber::UNAVAILABLE),
    ] {
        for pushback in ["-1", "soon"] {
            let mut harness =
                Harness::new(policy, [Answer::trailers_only(code).pushback(pushback)]);
            let outcome = harness.call().await;
            assert_eq!((outcome.starts(), harness.tokens()), (vec![0], 9_000), "{policy} {code:?}");
        }
    }
}
