//! Retry of streaming calls, before and after the response headers.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, StatusNumber, WaitFor};
use tonic::Code;

use crate::common::streaming::{
    aborted_config, fails, fails_after, four_attempts_config, harness, no_hang, payloads, previous,
    replies_after, response_bytes, s, six_attempts_config, starts, text,
};

// Peer test: grpc-java: headersRead_closed.
#[tokio::test(start_paused = true)]
async fn retry_after_response_headers_is_not_attempted() {
    let answer = Answer::headers().trailers(StatusNumber::UNAVAILABLE).text("late").after(s(1));
    let harness = harness(&six_attempts_config(), answer);
    let mut bidi = harness.bidi();
    let status = bidi.response().await.unwrap().into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "late"));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    harness.finish().await;
}

// Peer test: grpc-java: retry_headersRead_closed.
#[tokio::test(start_paused = true)]
async fn retry_after_headers_of_a_retry_is_not_attempted() {
    let answer = Answer::headers().trailers(StatusNumber::UNAVAILABLE).text("late").after(s(1));
    let harness = harness(&six_attempts_config(), [fails(StatusNumber::UNAVAILABLE), answer]);
    let mut bidi = harness.bidi();
    let status = bidi.response().await.unwrap().into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "late"));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    assert_eq!(starts(&harness.finish().await), [0, 100_000]);
}

// Peer test: grpc-java: messageAvailable.
#[tokio::test(start_paused = true)]
async fn retry_policy_passes_response_messages_through() {
    let answer = Answer::headers()
        .message(response_bytes("a"))
        .message(response_bytes("b"))
        .trailers(StatusNumber::OK);
    let harness = harness(&six_attempts_config(), answer);
    let mut bidi = harness.bidi();
    bidi.half_close();
    assert_eq!(bidi.collect().await, (vec!["a".to_owned(), "b".to_owned()], Code::Ok));
    harness.finish().await;
}

// Peer test: C-core: retry_streaming_after_commit.
#[tokio::test(start_paused = true)]
async fn retry_stream_continues_in_both_directions_after_commit() {
    let answer = Answer::headers().echo_one().echo_one().trailers(StatusNumber::ABORTED);
    let harness = harness(&aborted_config(3), answer.wait_for(WaitFor::Messages(1)));
    let mut bidi = harness.bidi();
    bidi.write(&["foo"]);
    let mut stream = bidi.response().await.unwrap().into_inner();
    assert_eq!(text(&no_hang(stream.message()).await.unwrap().unwrap()), "foo");
    bidi.write(&["bar"]);
    bidi.half_close();
    assert_eq!(text(&no_hang(stream.message()).await.unwrap().unwrap()), "bar");
    let status = no_hang(stream.message()).await.unwrap_err();
    assert_eq!((status.code(), bidi.stop_reason()), (Code::Aborted, StopReason::Committed));
    harness.finish().await;
}

// Peer test: grpc-go: TestRetryStreaming: Non-retryable error code.
#[tokio::test(start_paused = true)]
async fn retry_of_stream_stops_at_non_retryable_code() {
    let harness = harness(&four_attempts_config(), fails_after(1, StatusNumber::INTERNAL));
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "from the script"));
    assert_eq!(bidi.stop_reason(), StopReason::NotRetryable);
    assert_eq!(previous(&harness.finish().await), [None]);
}

// Peer test: grpc-go: TestRetryStreaming: One retry necessary.
#[tokio::test(start_paused = true)]
async fn retry_of_stream_once_and_succeed() {
    let harness = harness(
        &four_attempts_config(),
        [fails_after(1, StatusNumber::UNAVAILABLE), replies_after(1, "a")],
    );
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));
    let record = harness.finish().await;
    assert_eq!(previous(&record), [None, Some(1)]);
    assert!(record.streams.iter().all(|stream| payloads(stream) == ["1"]));
}

// Peer test: grpc-go: TestRetryStreaming: Exceed max attempts (4); check attempts header on server.
#[tokio::test(start_paused = true)]
async fn retry_of_stream_stops_at_max_attempts() {
    let harness =
        harness(&four_attempts_config(), vec![fails_after(1, StatusNumber::UNAVAILABLE); 4]);
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let status = bidi.response().await.unwrap_err();
    // grpc-go adds to the message that retries are exhausted; here it is the message of the server (G3).
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "from the script"));
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "3");
    assert_eq!(bidi.stop_reason(), StopReason::AttemptsExhausted);
    let record = harness.finish().await;
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3)]);
    assert!(record.streams.iter().all(|stream| payloads(stream) == ["1"]));
}

// Peer test: grpc-go: TestRetryStreaming: No retry after receiving.
#[tokio::test(start_paused = true)]
async fn retry_of_stream_stops_after_a_response_message() {
    let committed =
        Answer::headers().message(response_bytes("a")).trailers(StatusNumber::UNAVAILABLE);
    let harness = harness(
        &four_attempts_config(),
        [fails_after(1, StatusNumber::UNAVAILABLE), committed.wait_for(WaitFor::Messages(1))],
    );
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Unavailable));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    assert_eq!(previous(&harness.finish().await), [None, Some(1)]);
}

// Peer test: grpc-go: TestRetryStreaming: Retry via ClientStream.Header().
#[tokio::test(start_paused = true)]
async fn retry_of_stream_happens_while_waiting_for_headers() {
    let ok = Answer::trailers_only(StatusNumber::OK).wait_for(WaitFor::Messages(1));
    let harness = harness(&four_attempts_config(), [fails_after(1, StatusNumber::UNAVAILABLE), ok]);
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let response = bidi.response().await.unwrap();
    assert_eq!(response.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(response.into_inner().message().await.unwrap(), None);
    assert_eq!(previous(&harness.finish().await), [None, Some(1)]);
}

// Peer test: grpc-go: TestRetryStreaming: No retry after header.
#[tokio::test(start_paused = true)]
async fn retry_of_stream_stops_after_response_headers() {
    let answer = Answer::headers().metadata("test_header", "test_value");
    let answer = answer.trailers(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Messages(1));
    let harness = harness(&four_attempts_config(), answer);
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let response = bidi.response().await.unwrap();
    assert_eq!(response.metadata().get("test_header").unwrap(), "test_value");
    let status = response.into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), bidi.stop_reason()), (Code::Unavailable, StopReason::Committed));
    assert_eq!(previous(&harness.finish().await), [None]);
}
