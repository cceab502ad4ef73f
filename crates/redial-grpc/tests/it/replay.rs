//! Replay of request messages to further attempts, and backpressure on the request stream.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use redial_core::StopReason;
use redial_echo::EchoRequest;
use redial_faults::grpc::{Answer, Script, Server, StatusNumber, WaitFor};
use tokio::sync::oneshot;
use tonic::Code;
use tower::ServiceExt;

use crate::common::harness::{HEDGE, Harness, RETRY, busy, message, ms, raw_request_with_body};
use crate::common::streaming::{
    aborted_config, fails, fails_after, four_attempts_config, harness, harness_with, no_hang,
    payloads, previous, replies, replies_after, request, response_bytes, s, six_attempts_config,
    sleep_until, starts, text, without_jitter,
};

/// Request messages of one frame each, with a counter of the messages that were read.
fn counted_messages() -> (Arc<AtomicU32>, impl tokio_stream::Stream<Item = EchoRequest>) {
    // More than tonic buffers before it emits a frame.
    let large = "x".repeat(40 * 1024);
    let read_count = Arc::new(AtomicU32::new(0));
    let counter = read_count.clone();
    let messages = std::iter::repeat_with(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        request(&large)
    });
    (read_count, tokio_stream::iter(messages.take(100)))
}

// Peer test: grpc-java: retry_everythingDrained.
#[tokio::test(start_paused = true)]
async fn replay_sends_all_written_messages_in_order() {
    let script = [
        fails(StatusNumber::DATA_LOSS).after(s(10)),
        fails(StatusNumber::UNAVAILABLE).after(s(10)),
        fails(StatusNumber::INTERNAL).after(s(10)),
    ];
    let harness = harness(&six_attempts_config(), script);
    let mut bidi = harness.bidi();
    bidi.write(&["1", "2"]);
    harness.settle().await;
    bidi.write(&["3"]);
    sleep_until(&harness, s(50)).await;
    bidi.write(&["1 during backoff", "2 during backoff"]);
    sleep_until(&harness, s(115)).await;
    bidi.write(&["1 after retry", "2 after retry"]);
    sleep_until(&harness, s(200)).await;
    bidi.write(&["3 during backoff"]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), bidi.stop_reason()), (Code::Internal, StopReason::NotRetryable));
    assert!(bidi.is_request_dropped());

    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 110_000, 320_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2)]);
    let all = [
        "1",
        "2",
        "3",
        "1 during backoff",
        "2 during backoff",
        "1 after retry",
        "2 after retry",
        "3 during backoff",
    ];
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [&all[..3], &all[..7], &all[..8]]);
}

// Peer test: grpc-java: operationsWhileDraining.
#[tokio::test(start_paused = true)]
async fn replay_precedes_messages_written_during_it() {
    // The application writes during the backoff and during the retry.
    let answer =
        Answer::headers().after(s(10)).message(response_bytes("a")).trailers(StatusNumber::OK);
    let script = [
        fails(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Messages(3)),
        answer.wait_for(WaitFor::Messages(2)),
    ];
    let harness = harness(&six_attempts_config(), script);
    let mut bidi = harness.bidi();
    bidi.write(&["1", "2", "3"]);
    sleep_until(&harness, s(50)).await;
    bidi.write(&["4"]);
    sleep_until(&harness, s(105)).await;
    bidi.write(&["5"]);
    let mut stream = bidi.response().await.unwrap().into_inner();
    assert_eq!(harness.elapsed(), s(110));
    assert_eq!(text(&stream.message().await.unwrap().unwrap()), "a");
    assert_eq!(stream.message().await.unwrap(), None);
    let record = harness.finish().await;
    assert_eq!(payloads(&record.streams[0]), ["1", "2", "3"]);
    assert_eq!(payloads(&record.streams[1]), ["1", "2", "3", "4", "5"]);
}

// Peer test: grpc-java: operationsAfterImmediateCommit.
#[tokio::test(start_paused = true)]
async fn replay_buffer_is_bypassed_after_commit() {
    let harness = harness(&six_attempts_config(), Answer::echo().wait_for(WaitFor::Headers));
    let mut bidi = harness.bidi();
    let mut stream = bidi.response().await.unwrap().into_inner();
    for number in 1..=3 {
        let written = format!("{number}");
        bidi.write(&[&written]);
        let echo = no_hang(stream.message()).await.unwrap().unwrap();
        assert_eq!((text(&echo), harness.control.bytes_kept()), (written, 0));
    }
    bidi.half_close();
    assert_eq!(no_hang(stream.message()).await.unwrap(), None);
    assert_eq!((bidi.stop_reason(), harness.elapsed()), (StopReason::Succeeded, s(0)));
    harness.finish().await;
}

// Peer test: grpc-java: isReady_whenDrained.
#[tokio::test(start_paused = true)]
async fn replay_reads_the_request_only_as_fast_as_the_attempt() {
    let stalls = Answer::hang().accepts(2);
    let layer = without_jitter(&six_attempts_config()).per_rpc_buffer_limit_in_bytes(100 << 20);
    let harness = harness_with(layer, Server::new(stalls));
    let (read_count, messages) = counted_messages();
    let mut client = harness.client.clone();
    let call = tokio::spawn(async move { client.client_stream(messages).await });
    harness.settle().await;
    let taken = harness.server.record().streams[0].messages;
    let read_count = read_count.load(Ordering::Relaxed);
    assert_eq!(taken, 2);
    assert!((2..=6).contains(&read_count), "{read_count} were read");
    call.abort();
    harness.finish().await;
}

// Peer test: grpc-java: isReady_whileDraining.
#[tokio::test(start_paused = true)]
async fn replay_reads_no_new_messages_during_backoff_or_replay() {
    let script = [
        fails(StatusNumber::UNAVAILABLE).accepts(2).wait_for(WaitFor::Messages(2)),
        Answer::hang().accepts(1),
    ];
    let layer = without_jitter(&six_attempts_config()).per_rpc_buffer_limit_in_bytes(100 << 20);
    let harness = harness_with(layer, Server::new(script));
    let (read_count, messages) = counted_messages();
    let mut client = harness.client.clone();
    let call = tokio::spawn(async move { client.client_stream(messages).await });
    harness.settle().await;
    let before = read_count.load(Ordering::Relaxed);
    sleep_until(&harness, s(99)).await;
    assert_eq!(read_count.load(Ordering::Relaxed), before, "during the backoff");
    sleep_until(&harness, s(101)).await;
    assert_eq!(harness.server.record().streams[1].messages, 1);
    assert_eq!(read_count.load(Ordering::Relaxed), before, "during the replay");
    call.abort();
    harness.finish().await;
}

// Peer test: grpc-java: closedWhileDraining.
#[tokio::test(start_paused = true)]
async fn replay_starts_over_if_an_attempt_fails_during_it() {
    let script = [
        fails(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Messages(2)),
        // It fails before it has received any message.
        fails(StatusNumber::UNAVAILABLE).accepts(0).wait_for(WaitFor::Headers),
        replies("a").wait_for(WaitFor::Request),
    ];
    let harness = harness(&six_attempts_config(), script);
    let mut bidi = harness.bidi();
    bidi.write(&["1", "2"]);
    sleep_until(&harness, s(200)).await;
    bidi.write(&["3"]);
    bidi.half_close();
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 300_000]);
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [vec!["1", "2"], vec![], vec!["1", "2", "3"]]);
}

// Peer test: C-core: retry_streaming.
#[tokio::test(start_paused = true)]
async fn replay_of_a_stream_sends_every_message() {
    let script = [
        fails(StatusNumber::ABORTED).wait_for(WaitFor::Messages(3)),
        Answer::headers()
            .message(response_bytes("quux"))
            .trailers(StatusNumber::OK)
            .wait_for(WaitFor::Request),
    ];
    let harness = harness(&aborted_config(3), script);
    let mut bidi = harness.bidi();
    for text in ["foo", "bar", "baz"] {
        bidi.write(&[text]);
        harness.settle().await;
    }
    sleep_until(&harness, s(2)).await;
    bidi.write(&["quux"]);
    bidi.half_close();
    assert_eq!(bidi.collect().await, (vec!["quux".to_owned()], Code::Ok));
    let record = harness.finish().await;
    assert_eq!(payloads(&record.streams[0]), ["foo", "bar", "baz"]);
    assert_eq!(payloads(&record.streams[1]), ["foo", "bar", "baz", "quux"]);
    assert_eq!(previous(&record), [None, Some(1)]);
}

// Peer test: C-core: retry_streaming_succeeds_before_replay_finished.
#[tokio::test(start_paused = true)]
async fn replay_stops_when_the_call_ends_during_it() {
    let answer = Answer::headers().message(response_bytes("quux")).trailers(StatusNumber::ABORTED);
    let script = [
        fails(StatusNumber::ABORTED).wait_for(WaitFor::Messages(3)),
        answer.accepts(1).wait_for(WaitFor::Messages(1)),
    ];
    let harness = harness(&aborted_config(3), script);
    let mut bidi = harness.bidi();
    for text in ["foo", "bar", "baz"] {
        bidi.write(&[text]);
        harness.settle().await;
    }
    assert_eq!(bidi.collect().await, (vec!["quux".to_owned()], Code::Aborted));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    harness.settle().await;
    assert!(bidi.is_request_dropped());
    let record = harness.finish().await;
    assert_eq!(payloads(&record.streams[0]), ["foo", "bar", "baz"]);
    assert_eq!(payloads(&record.streams[1]), ["foo"]);
}

// Peer test: grpc-go: TestRetryStreaming: Multiple requests.
#[tokio::test(start_paused = true)]
async fn replay_sends_several_messages_again() {
    let harness = harness(
        &four_attempts_config(),
        [fails_after(2, StatusNumber::UNAVAILABLE), replies_after(2, "a")],
    );
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    harness.settle().await;
    bidi.write(&["2"]);
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));
    let record = harness.finish().await;
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [["1", "2"], ["1", "2"]]);
}

// Peer test: grpc-go: TestRetryStreaming: Multiple successive requests.
#[tokio::test(start_paused = true)]
async fn replay_sends_the_messages_written_so_far() {
    let script = [
        fails_after(1, StatusNumber::UNAVAILABLE),
        fails_after(2, StatusNumber::UNAVAILABLE),
        replies_after(3, "a"),
    ];
    let harness = harness(&four_attempts_config(), script);
    let mut bidi = harness.bidi();
    for (text, attempts) in [("1", 2), ("2", 3), ("3", 3)] {
        bidi.write(&[text]);
        no_hang(harness.server.until_counts(|counts| counts.streams == attempts)).await;
    }
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));
    let record = harness.finish().await;
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [vec!["1"], vec!["1", "2"], vec!["1", "2", "3"]]);
}

// Peer test: grpc-go: TestRetryStreaming: Replaying close send.
#[tokio::test(start_paused = true)]
async fn replay_includes_the_half_close() {
    let answer = Answer::headers()
        .message(response_bytes("a"))
        .message(response_bytes("b"))
        .trailers(StatusNumber::OK);
    let script = [
        fails(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Request),
        answer.wait_for(WaitFor::Request),
    ];
    let harness = harness(&four_attempts_config(), script);
    let mut bidi = harness.bidi();
    bidi.write(&["1", "2"]);
    harness.settle().await;
    bidi.half_close();
    assert_eq!(bidi.collect().await, (vec!["a".to_owned(), "b".to_owned()], Code::Ok));
    let record = harness.finish().await;
    for stream in &record.streams {
        assert_eq!(payloads(stream), ["1", "2"]);
        assert!(stream.half_closed.is_some());
    }
    assert_eq!(record.streams.len(), 2);
}

/// grpc-go: #3292, a buffer returned to its pool while a replay still read it. `Bytes` prevents that; this
/// checks that all attempts send the same.
#[tokio::test(start_paused = true)]
async fn replay_bytes_are_identical() {
    for policy in [RETRY, HEDGE] {
        // Sizes around the frame boundaries: 32 KiB in tonic, 16 KiB in HTTP/2, flow control windows.
        let sizes = [0, 1, 16_379, 16_384, 32_763, 32_768, 65_530, 65_536, 200_000, 3];
        let payloads = sizes.map(|size| {
            let bytes = (0..size).map(|index| (index * 31 + size) as u8);
            EchoRequest { payload: bytes.collect::<Vec<_>>().into(), ..EchoRequest::default() }
        });
        let slow = busy().wait_for(WaitFor::Request).after(ms(100));
        let script =
            [slow.clone(), slow, Answer::reply("").wait_for(WaitFor::Request).after(ms(100))];
        let mut harness = Harness::new(policy, script);
        // The application writes while attempts are in flight.
        let (send, receive) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for payload in payloads {
                send.send(payload).await.unwrap();
                tokio::time::sleep(ms(3)).await;
            }
        });
        let messages = tokio_stream::wrappers::ReceiverStream::new(receive);
        harness.client.client_stream(messages).await.unwrap();
        let streams = harness.server.record().streams;
        assert_eq!(streams.len(), 3);
        for stream in &streams {
            assert_eq!(stream.messages, 10);
            assert_eq!((stream.bytes, stream.digest), (streams[0].bytes, streams[0].digest));
        }
    }
}

fn async_stream<T>(
    poll: impl FnMut(&mut Context<'_>) -> Poll<Option<T>> + Send + 'static + Unpin,
) -> impl tokio_stream::Stream<Item = T> + Send + 'static {
    struct S<F>(F);
    impl<T, F: FnMut(&mut Context<'_>) -> Poll<Option<T>> + Unpin> tokio_stream::Stream for S<F> {
        type Item = T;
        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
            (self.0)(cx)
        }
    }
    S(poll)
}

/// A body of endless empty frames.
struct EmptyFrames;

impl http_body::Body for EmptyFrames {
    type Data = Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::new()))))
    }
}

/// A request stream that reacts to response messages owns the response, and may drop it while polled.
#[test]
fn replay_source_may_own_the_response() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::new(
                RETRY,
                [Answer::headers().message("").after(ms(1000)).trailers(StatusNumber::OK)],
            );
            let mut client = harness.client.clone();
            let (give, given) = oneshot::channel::<tonic::Streaming<redial_echo::EchoResponse>>();
            let mut given = Some(given);
            let requests = async_stream(move |cx: &mut Context<'_>| match given.as_mut() {
                None => Poll::Ready(None),
                Some(it) => match Pin::new(it).poll(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(inbound) => {
                        given = None;
                        // Dropping the response inside the poll of the request must not deadlock.
                        drop(inbound);
                        Poll::Ready(Some(message("bye")))
                    }
                },
            });
            let response = client.bidi(requests).await.unwrap().into_inner();
            give.send(response).unwrap();
            tokio::time::sleep(ms(50)).await;
        });
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(20))
        .expect("the task of the connection does not hang");
}

#[test]
fn replay_source_of_empty_frames_yields_to_other_tasks() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::new(RETRY, Script::new().default_answer(Answer::echo()));
            let request = raw_request_with_body(tonic::body::Body::new(EmptyFrames));
            let mut service = harness.service();
            let service = service.ready().await.unwrap();
            let _ = tokio::time::timeout(ms(200), tower::Service::call(service, request)).await;
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("the call returns");
}
