//! Cancellation: dropping a call or a response resets its streams, frees its buffer and starts no attempt.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redial::{Event, StopReason};
use redial_echo::EchoRequest;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber, StreamOutcome, WaitFor};
use redial_grpc::{CallOptions, Retries, SharedCallLog};
use tokio::runtime::Handle;
use tokio_stream::StreamExt as _;
use tonic::{Code, Request};
use tower::Service;

use crate::common::harness::{
    HEDGE, Harness, RETRY, busy, layer, message, ms, raw_request, stream_ends,
};
use crate::common::streaming::{
    aborted_config, buffered_size, cancels, config_json, fails, harness, harness_with, no_hang,
    payloads, replies, request, response_bytes, retry_policy, s, several_messages_then,
    six_attempts_config, sleep_until, starts, stop_reason, text, without_jitter,
};

// Peer test: grpc-java: headersRead_cancel.
#[tokio::test(start_paused = true)]
async fn cancellation_after_headers_resets_the_stream() {
    let harness = harness(&six_attempts_config(), Answer::headers());
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let response = bidi.response().await.unwrap();
    sleep_until(&harness, s(1)).await;
    drop(response);
    harness.settle().await;
    assert!(bidi.is_request_dropped());
    assert_eq!(bidi.stop_reason(), StopReason::Cancelled);
    assert_eq!(cancels(&harness.finish().await), [Some(1000)]);
}

// Peer test: grpc-java: retry_headersRead_cancel.
#[tokio::test(start_paused = true)]
async fn cancellation_after_headers_of_a_retry_resets_the_stream() {
    let harness =
        harness(&six_attempts_config(), [fails(StatusNumber::UNAVAILABLE), Answer::headers()]);
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let response = bidi.response().await.unwrap();
    sleep_until(&harness, s(101)).await;
    drop(response);
    assert_eq!(bidi.stop_reason(), StopReason::Cancelled);
    assert_eq!(cancels(&harness.finish().await), [None, Some(101_000)]);
}

// Peer test: grpc-java: cancel_closed.
#[tokio::test(start_paused = true)]
async fn cancellation_before_a_retryable_status_prevents_the_retry() {
    let harness = harness(&six_attempts_config(), fails(StatusNumber::UNAVAILABLE).after(s(2)));
    let bidi = harness.bidi();
    sleep_until(&harness, s(1)).await;
    assert_eq!(stop_reason(&bidi.cancel().await), StopReason::Cancelled);
    sleep_until(&harness, s(1000)).await;
    assert_eq!(cancels(&harness.finish().await), [Some(1000)]);
}

// Peer test: grpc-java: retry_cancel_closed.
#[tokio::test(start_paused = true)]
async fn cancellation_of_a_retry_prevents_further_attempts() {
    let harness = harness(
        &six_attempts_config(),
        [fails(StatusNumber::UNAVAILABLE), fails(StatusNumber::INTERNAL).after(s(2))],
    );
    let bidi = harness.bidi();
    sleep_until(&harness, s(101)).await;
    assert_eq!(stop_reason(&bidi.cancel().await), StopReason::Cancelled);
    sleep_until(&harness, s(1000)).await;
    assert_eq!(cancels(&harness.finish().await), [None, Some(101_000)]);
}

// Peer test: grpc-java: unretriableClosed_cancel.
#[tokio::test(start_paused = true)]
async fn cancellation_after_a_final_status_changes_nothing() {
    let harness = harness(&six_attempts_config(), fails(StatusNumber::INTERNAL));
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    assert_eq!(bidi.response().await.unwrap_err().code(), Code::Internal);
    let call_log = bidi.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::NotRetryable);
    assert_eq!(cancels(&harness.finish().await), [None]);
}

// Peer test: grpc-java: retry_unretriableClosed_cancel.
#[tokio::test(start_paused = true)]
async fn cancellation_after_final_status_of_a_retry_changes_nothing() {
    let harness = harness(
        &six_attempts_config(),
        [fails(StatusNumber::UNAVAILABLE), fails(StatusNumber::INTERNAL)],
    );
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    assert_eq!(bidi.response().await.unwrap_err().code(), Code::Internal);
    let call_log = bidi.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::NotRetryable);
    assert_eq!(cancels(&harness.finish().await), [None, None]);
}

// Peer test: grpc-java: retry_cancelWhileBackoff.
#[tokio::test(start_paused = true)]
async fn cancellation_during_backoff_frees_buffer_and_starts_no_attempt() {
    let harness = harness(&six_attempts_config(), fails(StatusNumber::UNAVAILABLE));
    let bidi = harness.bidi();
    bidi.write(&["1"]);
    sleep_until(&harness, s(50)).await;
    assert_eq!(harness.control.bytes_kept(), buffered_size("1"));
    assert_eq!(stop_reason(&bidi.cancel().await), StopReason::Cancelled);
    assert_eq!(harness.control.bytes_kept(), 0);
    sleep_until(&harness, s(1000)).await;
    assert_eq!(cancels(&harness.finish().await), [None]);
}

// Peer test: grpc-java: cancelWhileDraining.
#[tokio::test(start_paused = true)]
async fn cancellation_while_replaying_resets_the_stream() {
    let harness = harness(
        &six_attempts_config(),
        [
            fails(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Messages(3)),
            Answer::hang().accepts(1),
        ],
    );
    let bidi = harness.bidi();
    bidi.write(&["1", "2", "3"]);
    sleep_until(&harness, s(101)).await;
    assert_eq!(stop_reason(&bidi.cancel().await), StopReason::Cancelled);
    let record = harness.finish().await;
    assert_eq!(cancels(&record), [None, Some(101_000)]);
    assert_eq!(payloads(&record.streams[1]), ["1"]);
}

// Peer test: grpc-java: cancelWhileRetryStart.
#[tokio::test(start_paused = true)]
async fn cancellation_as_a_retry_starts_leaves_no_stream() {
    let harness =
        harness(&six_attempts_config(), [fails(StatusNumber::UNAVAILABLE), Answer::hang()]);
    let bidi = harness.bidi();
    bidi.write(&["1"]);
    // Cancelled as soon as the stream arrives at the server, without any delay.
    no_hang(harness.server.until_counts(|counts| counts.streams == 2)).await;
    assert_eq!(stop_reason(&bidi.cancel().await), StopReason::Cancelled);
    assert_eq!(cancels(&harness.finish().await), [None, Some(100_000)]);
}

// Peer test: grpc-java: commitAndCancelWhileDraining.
#[tokio::test(start_paused = true)]
async fn cancellation_after_commit_while_replaying_resets_the_stream() {
    let headers = Answer::headers().accepts(1).wait_for(WaitFor::Messages(1));
    let harness = harness(
        &six_attempts_config(),
        [fails(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Messages(3)), headers],
    );
    let mut bidi = harness.bidi();
    bidi.write(&["1", "2", "3"]);
    let response = bidi.response().await.unwrap();
    assert_eq!(harness.control.bytes_kept(), 0);
    drop(response);
    harness.settle().await;
    assert_eq!(bidi.stop_reason(), StopReason::Cancelled);
    assert!(bidi.is_request_dropped());
    let record = harness.finish().await;
    assert_eq!(cancels(&record), [None, Some(100_000)]);
    assert_eq!(payloads(&record.streams[1]), ["1"]);
}

// Peer test: grpc-java: inboundMessagesClosedOnCancel.
#[tokio::test(start_paused = true)]
async fn cancellation_discards_unread_response_messages() {
    let answer = Answer::headers().message(response_bytes("a")).message(response_bytes("b"));
    let harness = harness(&six_attempts_config(), answer);
    let mut bidi = harness.bidi();
    let mut stream = bidi.response().await.unwrap().into_inner();
    assert_eq!(text(&stream.message().await.unwrap().unwrap()), "a");
    harness.settle().await;
    drop(stream);
    assert_eq!(bidi.stop_reason(), StopReason::Cancelled);
    assert_eq!(cancels(&harness.finish().await), [Some(1)]);
}

/// Polls a call once, and drops it after the response has arrived.
async fn drop_unread(answer: Answer) {
    let harness = harness(&aborted_config(3), answer);
    let mut client = harness.client.clone();
    {
        let mut call = pin!(client.unary(request("foo")));
        let begun = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
        assert!(begun);
        harness.settle().await;
        harness.settle().await;
        assert_eq!(harness.attempts(), 1);
    }
    harness.settle().await;
    assert_eq!(harness.attempts(), 1, "no retry without a poll");
    harness.finish().await;
}

// Peer test: C-core: retry_cancellation.
#[tokio::test(start_paused = true)]
async fn cancellation_of_the_second_attempt_resets_its_stream() {
    let harness = harness(&aborted_config(3), [fails(StatusNumber::ABORTED), Answer::hang()]);
    let call = harness.spawn("foo");
    sleep_until(&harness, s(2)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(cancels(&harness.finish().await), [None, Some(2000)]);
}

// Peer test: C-core: retry_cancel_during_delay.
#[tokio::test(start_paused = true)]
async fn cancellation_during_backoff_makes_no_second_attempt() {
    let harness = harness(
        &config_json(&retry_policy(3, "10s", "120s", 1.6, "ABORTED")),
        fails(StatusNumber::ABORTED),
    );
    let call = harness.spawn("foo");
    sleep_until(&harness, s(5)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    sleep_until(&harness, s(20)).await;
    assert_eq!(starts(&harness.finish().await), [0]);
}

// Peer test: C-core: retry_cancel_after_first_attempt_starts.
#[tokio::test(start_paused = true)]
async fn cancellation_after_first_attempt_starts_frees_the_buffer() {
    let harness = harness(&aborted_config(3), Answer::hang());
    let call = harness.spawn("foo");
    no_hang(harness.server.until_counts(|counts| counts.streams == 1)).await;
    assert_eq!(harness.control.bytes_kept(), buffered_size("foo"));
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(harness.control.bytes_kept(), 0);
    assert_eq!(cancels(&harness.finish().await), [Some(0)]);
}

// Peer test: C-core: retry_cancel_with_multiple_send_batches.
#[tokio::test(start_paused = true)]
async fn cancellation_with_several_unsent_messages_ends_the_call() {
    let (harness, bidi) = several_messages_then(None).await;
    assert_eq!(stop_reason(&bidi.cancel().await), StopReason::Cancelled);
    sleep_until(&harness, s(20)).await;
    assert_eq!(starts(&harness.finish().await), [0]);
}

// Peer test: C-core: retry_unref_before_finish.
#[tokio::test(start_paused = true)]
async fn cancellation_with_an_unread_status_leaks_nothing() {
    drop_unread(fails(StatusNumber::FAILED_PRECONDITION)).await;
    drop_unread(fails(StatusNumber::ABORTED)).await;
}

// Peer test: C-core: retry_unref_before_recv.
#[tokio::test(start_paused = true)]
async fn cancellation_with_an_unread_message_leaks_nothing() {
    drop_unread(replies("bar")).await;
    drop_unread(Answer::headers().message(response_bytes("bar"))).await;
}

// Peer test: grpc-go: TestRetryTransparentWhenCommitted.
#[tokio::test(start_paused = true)]
async fn cancellation_of_a_retry_waiting_for_a_stream() {
    let policy = retry_policy(2, "0.1s", "0.1s", 1.0, "ALREADY_EXISTS");
    let script = [fails(StatusNumber::ALREADY_EXISTS), Answer::hang(), Answer::hang()];
    let server = Server::new(script).concurrent_streams(1);
    let harness = harness_with(without_jitter(&config_json(&policy)), server);
    let waiting = harness.bidi();
    no_hang(harness.server.until_counts(|it| it.streams == 1 && it.streams_open == 0)).await;
    let blocking = harness.bidi();
    no_hang(harness.server.until_counts(|counts| counts.streams == 2)).await;
    sleep_until(&harness, ms(200)).await;
    waiting.write(&["unread"]);
    let call_log = waiting.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::Cancelled);
    harness.settle().await;
    assert_eq!(harness.attempts(), 2, "the retry was not sent");
    blocking.cancel().await;
    harness.settle().await;
    let record = harness.finish().await;
    // hyper opens the waiting stream as soon as a slot is free, and resets it at once.
    assert_eq!((record.streams.len(), record.streams[2].bytes), (3, 0));
    assert_eq!(cancels(&record), [None, Some(201), Some(201)]);
}

const CANCELLED: StreamOutcome = StreamOutcome::ResetByClient(Reason::CANCEL);

/// grpc-java: #8393, cancellation during the replay of the last entry does not reset the stream.
#[tokio::test(start_paused = true)]
async fn cancellation_in_the_middle_of_a_replay_resets_the_stream() {
    // The flow control window of the retry closes in the middle of the replay.
    for accepts in [0, 1, 2] {
        let first = busy().wait_for(redial_faults::grpc::WaitFor::Messages(3));
        let mut harness = Harness::new(RETRY, [first, Answer::hang().accepts(accepts)]);
        let messages = tokio_stream::iter((0..3).map(|_| message(&"m".repeat(20_000))));
        // The application does not half-close.
        let messages = messages.chain(tokio_stream::pending::<EchoRequest>());
        let call = harness.client.client_stream(messages);
        assert!(tokio::time::timeout(ms(100), call).await.is_err());
        tokio::time::timeout(ms(1), harness.server.idle()).await.expect("the stream has ended");
        let record = harness.server.record();
        assert_eq!((record.streams.len(), record.streams[1].messages), (2, accepts));
        let end = record.streams[1].end.unwrap();
        assert_eq!((end.outcome, end.at), (CANCELLED, ms(100)), "after {accepts} messages");
        assert_eq!(harness.control.bytes_kept(), 0);
    }
}

/// grpc-java: #13034, a stream is leaked when cancellation races with its start.
#[tokio::test(start_paused = true)]
async fn cancellation_before_first_poll_leaks_nothing() {
    for policy in [RETRY, HEDGE] {
        let harness = Harness::new(policy, Script::new().default_answer(Answer::hang()));
        let mut service = harness.service();
        let settled = async || {
            tokio::time::sleep(ms(1)).await;
            Handle::current().metrics().num_alive_tasks()
        };
        let call_log = SharedCallLog::new();
        let mut request = raw_request(b"0123456789");
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let before = settled().await;
        let call = service.call(request);
        assert_eq!(harness.control.bytes_kept(), 15);
        drop(call);
        assert_eq!(harness.control.bytes_kept(), 0);
        let last = call_log.read().events().last().unwrap().1;
        assert_eq!(last, Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None });
        tokio::time::sleep(ms(1_000)).await;
        assert_eq!(settled().await, before, "no task is left");
        let open = harness.server.record().streams.iter().filter(|it| it.end.is_none()).count();
        assert_eq!((open, harness.statistics(), harness.tokens()), (0, (0, 0, 0), 10_000));
    }
}

/// grpc-js: grpc-node#2301, cancelled calls are never freed if only transparent retries are enabled.
#[tokio::test(start_paused = true)]
async fn cancellation_frees_everything() {
    for retries in [Retries::Transparent, Retries::All, Retries::Off] {
        let script = Script::new().attempts([Answer::reply("")]).default_answer(Answer::hang());
        let mut harness =
            Harness::with_layer(layer(RETRY).retries(retries).build(), Server::new(script));
        harness.client.unary(message("warm")).await.unwrap();
        let settled = async || {
            tokio::time::sleep(ms(1)).await;
            Handle::current().metrics().num_alive_tasks()
        };
        let before = settled().await;
        for after in [0, 1, 20] {
            let call_log = SharedCallLog::new();
            let mut request = Request::new(message("x"));
            request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
            let call = harness.client.unary(request);
            assert!(tokio::time::timeout(Duration::from_millis(after), call).await.is_err());
            assert_eq!(settled().await, before, "{retries:?} after {after} ms");
            assert_eq!(
                (harness.control.bytes_kept(), harness.server.counts().streams_open),
                (0, 0)
            );
            let last = call_log.read().events().last().unwrap().1;
            assert_eq!(
                last,
                Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }
            );
        }
        let streams = harness.server.record().streams;
        assert!(streams[1..].iter().all(|it| it.end.unwrap().outcome == CANCELLED));
    }
}

#[tokio::test(start_paused = true)]
async fn cancellation_by_dropping_the_future_resets_every_attempt() {
    for (policy, streams) in [(RETRY, 1), (HEDGE, 3)] {
        let mut harness = Harness::new(policy, Script::new().default_answer(Answer::hang()));
        let call_log = SharedCallLog::new();
        let mut request = tonic::Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        assert!(tokio::time::timeout(ms(100), harness.client.unary(request)).await.is_err());
        assert_eq!(stream_ends(&harness).await, vec![(CANCELLED, ms(100)); streams]);
        let last = call_log.read().events().last().unwrap().1;
        assert_eq!(
            last,
            redial::Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }
        );
        assert_eq!((harness.tokens(), harness.control.bytes_kept()), (10_000, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn cancellation_in_backoff_starts_no_attempt() {
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE);
    let mut harness = Harness::new(RETRY, Script::new().default_answer(busy));
    assert!(tokio::time::timeout(ms(20), harness.client.unary(message("x"))).await.is_err());
    tokio::time::sleep(ms(1000)).await;
    assert_eq!((harness.server.counts().streams, harness.control.bytes_kept()), (1, 0));
    assert_eq!((harness.statistics(), harness.tokens()), ((0, 0, 0), 9_000));
}

#[tokio::test(start_paused = true)]
async fn cancellation_by_dropping_the_response_stream_counts_nothing() {
    let answer = Answer::headers().message("").message("").after(ms(1000));
    let mut harness = Harness::new(RETRY, [answer]);
    let mut stream = harness.client.server_stream(message("x")).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    tokio::time::sleep(ms(10)).await;
    drop(stream);
    assert_eq!(stream_ends(&harness).await, [(CANCELLED, ms(10))]);
    assert_eq!((harness.tokens(), harness.statistics()), (10_000, (0, 0, 0)));
}

/// hyper has tasks for the connection. Tasks that a call adds end with it, whatever its outcome.
#[tokio::test(start_paused = true)]
async fn cancellation_leaves_no_task_behind() {
    let slow = || Answer::hang();
    let script = Script::new()
        .attempts([Answer::echo()])
        .attempts([slow(), slow(), Answer::echo()])
        .attempts([Answer::trailers_only(StatusNumber::ABORTED)])
        .attempts([slow(), slow(), slow()]);
    let mut harness = Harness::new(HEDGE, script);
    harness.client.unary(message("warm")).await.unwrap();
    let settled = async || {
        tokio::time::sleep(ms(1)).await;
        Handle::current().metrics().num_alive_tasks()
    };
    let before = settled().await;
    harness.client.unary(message("won")).await.unwrap();
    assert_eq!(settled().await, before, "after a hedge won");
    harness.client.unary(message("failed")).await.unwrap_err();
    assert_eq!(settled().await, before, "after a failure");
    assert!(tokio::time::timeout(ms(100), harness.client.unary(message("x"))).await.is_err());
    assert_eq!(settled().await, before, "after it was dropped");
}
