//! The replay buffer: which bytes it holds, its limits per call and per channel, and when it is freed
//! (decisions G23 to G25).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::Message;
use redial::StopReason;
use redial_echo::EchoRequest;
use redial_faults::grpc::{
    Answer, Close, LastStream, OnConnect, Reason, Script, Server, StatusNumber, StreamOutcome,
    StreamRecord, WaitFor,
};
use redial_grpc::{CallOptions, Retries, RetryLayer, RetryLayerBuilder, SharedCallLog};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use tower_service::Service as _;

use crate::common::harness::{
    CallOutcome, HEDGE, Harness, RETRY, UNARY, busy, framed, layer, message, ms, raw_request,
    raw_request_with_body,
};
use crate::common::streaming::{
    aborted_config, buffered_size, config_json, fails, fails_after, four_attempts_config,
    harness_with, payloads, replies, retry_policy, s, six_attempts_config, sleep_until, starts,
    without_jitter,
};

/// Messages of the same size.
const MESSAGES: [&str; 4] = ["1", "2", "3", "4"];

/// A limit per call of two messages and `more` bytes.
fn two_messages(more: u64) -> RetryLayerBuilder {
    without_jitter(&six_attempts_config())
        .per_rpc_buffer_limit_in_bytes(2 * buffered_size("1") + more)
}

/// A limit per channel of three messages.
fn three_messages_together() -> RetryLayerBuilder {
    without_jitter(&six_attempts_config()).retry_buffer_size_in_bytes(3 * buffered_size("1"))
}

// Peer test: grpc-java: perRpcBufferLimitExceeded.
#[tokio::test(start_paused = true)]
async fn buffer_at_the_per_rpc_limit_is_still_replayed() {
    let script =
        [fails(StatusNumber::UNAVAILABLE).after(s(1)), replies("a").wait_for(WaitFor::Messages(2))];
    let harness = harness_with(two_messages(0), Server::new(script));
    let mut bidi = harness.bidi();
    for text in &MESSAGES[..2] {
        harness.settle().await;
        bidi.write(&[text]);
    }
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), 2 * buffered_size("1"));
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));
    assert_eq!(harness.statistics("Bidi").buffers_full, 0);
    harness.finish().await;
}

// Peer test: grpc-java: perRpcBufferLimitExceeded.
#[tokio::test(start_paused = true)]
async fn buffer_over_per_rpc_limit_commits_attempt_in_flight() {
    let harness =
        harness_with(two_messages(0), Server::new(fails(StatusNumber::UNAVAILABLE).after(s(1))));
    let mut bidi = harness.bidi();
    for text in &MESSAGES[..3] {
        harness.settle().await;
        bidi.write(&[text]);
    }
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), 0, "the buffer is freed");
    assert_eq!(bidi.collect().await.1, Code::Unavailable);
    assert_eq!(
        (bidi.stop_reason(), harness.statistics("Bidi").buffers_full),
        (StopReason::Committed, 1)
    );
    let record = harness.finish().await;
    assert_eq!(payloads(&record.streams[0]), MESSAGES[..3]);
}

// Peer test: grpc-java: perRpcBufferLimitExceededDuringBackoff.
#[tokio::test(start_paused = true)]
async fn buffer_over_limit_during_backoff_makes_next_attempt_last() {
    // The extra byte does not make room for a third message.
    let script = [fails(StatusNumber::UNAVAILABLE), fails(StatusNumber::UNAVAILABLE).after(s(1))];
    let harness = harness_with(two_messages(1), Server::new(script));
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    sleep_until(&harness, s(50)).await;
    bidi.write(&["2", "3"]);
    sleep_until(&harness, s(51)).await;
    bidi.write(&["4"]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), bidi.stop_reason()), (Code::Unavailable, StopReason::Committed));
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100_000]);
    assert_eq!(payloads(&record.streams[1]), MESSAGES);
}

// Peer test: grpc-java: channelBufferLimitExceeded.
#[tokio::test(start_paused = true)]
async fn buffer_over_channel_limit_commits_the_call_exceeding_it() {
    let script = [Answer::hang(), fails(StatusNumber::UNAVAILABLE).after(s(1))];
    let harness = harness_with(three_messages_together(), Server::new(script));
    let other = harness.bidi();
    other.write(&MESSAGES[..2]);
    harness.settle().await;
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), 3 * buffered_size("1"));
    bidi.write(&["2"]);
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), 2 * buffered_size("1"), "the bytes of the other call");
    assert_eq!(bidi.collect().await.1, Code::Unavailable);
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    other.cancel().await;
    let record = harness.finish().await;
    assert_eq!(payloads(&record.streams[1]), MESSAGES[..2]);
}

/// The config of grpc-java's interop tests.
fn ten_seconds_config() -> String {
    config_json(&retry_policy(4, "10s", "10s", 1.0, "UNAVAILABLE"))
}

// Peer test: grpc-java: RetryTest: retryUntilBufferLimitExceeded.
#[tokio::test(start_paused = true)]
async fn buffer_over_limit_on_retry_stops_further_retries() {
    let text = "String of length 20.";
    let layer = without_jitter(&ten_seconds_config())
        .per_rpc_buffer_limit_in_bytes(2 * buffered_size(text) - 1);
    let script = [
        fails(StatusNumber::UNAVAILABLE).text("original attempt failed").after(s(1)),
        fails(StatusNumber::UNAVAILABLE).text("2nd attempt failed").wait_for(WaitFor::Messages(2)),
    ];
    let harness = harness_with(layer, Server::new(script));
    let mut bidi = harness.bidi();
    bidi.write(&[text]);
    sleep_until(&harness, s(12)).await;
    bidi.write(&[text]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "2nd attempt failed"));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    assert_eq!(starts(&harness.finish().await), [0, 11_000]);
}

/// The message size of C-core's tests.
const LARGE: usize = 100 * 1024;

// Peer test: C-core: retry_exceeds_buffer_size_in_initial_batch.
#[tokio::test(start_paused = true)]
async fn buffer_over_limit_with_first_message_prevents_retries() {
    let layer = without_jitter(&aborted_config(3)).per_rpc_buffer_limit_in_bytes(2);
    let harness = harness_with(layer, Server::new(fails(StatusNumber::ABORTED).text("xyz")));
    let (outcome, stop_reason) = harness.unary_with_stop_reason(&"a".repeat(LARGE)).await;
    assert_eq!(
        (outcome.code, &*outcome.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::Committed)
    );
    assert_eq!(harness.statistics("Unary").buffers_full, 1);
    let record = harness.finish().await;
    assert_eq!((record.streams.len(), record.streams[0].messages), (1, 1));
}

// Peer test: C-core: retry_exceeds_buffer_size_in_subsequent_batch.
#[tokio::test(start_paused = true)]
async fn buffer_over_limit_with_later_message_prevents_retries() {
    let layer = without_jitter(&aborted_config(3)).per_rpc_buffer_limit_in_bytes(LARGE as u64);
    let harness = harness_with(
        layer,
        Server::new(fails(StatusNumber::ABORTED).text("xyz").wait_for(WaitFor::Request)),
    );
    let mut bidi = harness.bidi();
    bidi.write(&["small"]);
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), buffered_size("small"));
    bidi.write(&[&"a".repeat(LARGE)]);
    bidi.half_close();
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "xyz"));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    harness.finish().await;
}

// Peer test: C-core: retry_exceeds_buffer_size_in_delay.
#[tokio::test(start_paused = true)]
async fn buffer_over_limit_during_delay_makes_the_retry_last() {
    let policy = retry_policy(3, "2s", "120s", 1.6, "ABORTED");
    let layer = without_jitter(&config_json(&policy)).per_rpc_buffer_limit_in_bytes(LARGE as u64);
    let script = [
        fails(StatusNumber::ABORTED),
        fails(StatusNumber::ABORTED).text("xyz").wait_for(WaitFor::Request),
    ];
    let harness = harness_with(layer, Server::new(script));
    let mut bidi = harness.bidi();
    sleep_until(&harness, s(1)).await;
    bidi.write(&[&"a".repeat(LARGE)]);
    bidi.half_close();
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "xyz"));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    assert_eq!(starts(&harness.finish().await), [0, 2000]);
}

// Peer test: grpc-go: TestRetryStreaming: Overflowing buffer - no retry.
#[tokio::test(start_paused = true)]
async fn buffer_overflow_on_a_stream_means_no_retry() {
    let large = "x".repeat(500);
    let layer = without_jitter(&four_attempts_config()).per_rpc_buffer_limit_in_bytes(200);
    let harness = harness_with(layer, Server::new(fails_after(1, StatusNumber::UNAVAILABLE)));
    let mut bidi = harness.bidi();
    harness.settle().await;
    bidi.write(&[&large]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), bidi.stop_reason()), (Code::Unavailable, StopReason::Committed));
    assert_eq!(harness.statistics("Bidi").buffers_full, 1);
    let record = harness.finish().await;
    assert_eq!(record.streams.len(), 1);
    assert_eq!(payloads(&record.streams[0]), [large]);
}

/// The bytes of a frame; decrements the counter when the last reference is dropped.
struct CountedFrame {
    bytes: Bytes,
    live: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for CountedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedFrame {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request of [`STREAM_MESSAGES`] messages of 1,005 bytes that are always ready, and counts its frames.
struct CountedRequest {
    /// The number of frames in memory.
    live: Arc<AtomicUsize>,
    /// Its maximum.
    most: Arc<AtomicUsize>,
}

impl CountedRequest {
    fn new() -> Self {
        CountedRequest { live: Arc::default(), most: Arc::default() }
    }

    fn request(&self, mut each: impl FnMut() + Send + 'static) -> http::Request<tonic::body::Body> {
        let (live, most) = (self.live.clone(), self.most.clone());
        let frames = tokio_stream::iter(0..STREAM_MESSAGES).map(move |_| {
            most.fetch_max(live.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            each();
            let frame = CountedFrame { bytes: framed(&[7; 1_000]), live: live.clone() };
            Ok::<_, Status>(Frame::data(Bytes::from_owner(frame)))
        });
        raw_request_with_body(tonic::body::Body::new(StreamBody::new(frames)))
    }

    /// Checks that all messages arrived, and that at most a fifth of them was in memory at once: the
    /// replay buffer and the frames in the connection.
    fn check_all_arrived(&self, stream: &StreamRecord) {
        assert_eq!(
            (stream.messages, stream.bytes),
            (STREAM_MESSAGES as u64, STREAM_MESSAGES as u64 * 1_005)
        );
        assert_eq!(self.live.load(Ordering::Relaxed), 0);
        let most = self.most.load(Ordering::Relaxed);
        assert!(most < STREAM_MESSAGES / 5, "{most} frames at once");
    }
}

const STREAM_MESSAGES: usize = 10_000;

/// grpc-java: #9340, buffers are leaked when a retry starts.
#[tokio::test(start_paused = true)]
async fn buffer_meter_returns_to_zero_after_every_outcome() {
    let scripts = || -> Vec<Script> {
        let actions =
            [OnConnect::Refuse, OnConnect::CloseImmediately, OnConnect::CloseAfterPreface];
        let actions = actions
            .map(|action| Script::new().on_connect(action, ms(0)).default_answer(Answer::echo()));
        let lists: Vec<Vec<Answer>> = vec![
            vec![Answer::echo()],
            vec![busy(), Answer::echo()],
            vec![busy(); 3],
            vec![busy().pushback("-1")],
            vec![Answer::trailers_only(StatusNumber::ABORTED)],
            vec![Answer::trailers_only(StatusNumber::OK)],
            vec![Answer::headers().message("").trailers(StatusNumber::UNAVAILABLE)],
            vec![Answer::headers().then_reset(Reason::CANCEL)],
            vec![Answer::reset(Reason::REFUSED_STREAM), Answer::echo()],
            vec![Answer::reset(Reason::REFUSED_STREAM); 3],
            vec![Answer::go_away(LastStream::Below, Reason::NO_ERROR), Answer::echo()],
            vec![Answer::close(Close::Abrupt), Answer::hang()],
            vec![Answer::hang(), busy(), Answer::echo()],
            vec![Answer::hang(); 3],
        ];
        actions.into_iter().chain(lists.into_iter().map(Script::from)).collect()
    };
    for policy in [RETRY, HEDGE, ""] {
        for limit in [1 << 20, 10] {
            for script in scripts() {
                let what = format!("{script:?} with {policy:?}");
                let layer = layer(policy).per_rpc_buffer_limit_in_bytes(limit).build();
                let server = Server::new(
                    script.default_answer(Answer::trailers_only(StatusNumber::ABORTED)),
                );
                let mut harness = Harness::with_layer(layer, server);
                let messages = tokio_stream::iter(["a", "b", "c"].map(message));
                let mut request = Request::new(messages);
                request.set_timeout(ms(500));
                let (first, second) = (harness.client.clone(), &mut harness.client);
                // One unary and one streaming call in parallel.
                let unary = async { first.clone().unary(message("x")).await.is_ok() };
                let stream = async { second.client_stream(request).await.is_ok() };
                let _ =
                    tokio::time::timeout(ms(2_000), async { tokio::join!(unary, stream) }).await;
                assert_eq!(harness.control.bytes_kept(), 0, "{what}");
            }
        }
    }
}

/// grpc-java: #10637, a long stream without response headers is buffered as a whole.
#[tokio::test(start_paused = true)]
async fn buffer_of_stream_without_headers_is_bounded_by_limit() {
    const LIMIT: u64 = 100_000;
    let layer = layer(RETRY).per_rpc_buffer_limit_in_bytes(LIMIT).build();
    let answer = Answer::reply("").wait_for(WaitFor::Request);
    let harness = Harness::with_layer(layer, Server::new([answer]).payload_bytes_kept(0));
    let (counted_request, kept) = (CountedRequest::new(), Arc::new(AtomicU64::new(0)));
    let (control, seen) = (harness.control.clone(), kept.clone());
    let request = counted_request.request(move || {
        seen.fetch_max(control.bytes_kept(), Ordering::Relaxed);
    });
    let mut service = harness.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let response = service.call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let kept = kept.load(Ordering::Relaxed);
    assert!((LIMIT / 2..=LIMIT).contains(&kept), "{kept}");
    assert_eq!(harness.control.bytes_kept(), 0);
    counted_request.check_all_arrived(&harness.server.record().streams[0]);
}

/// grpc-js: grpc-node#2371, messages stay in the buffer after the commit.
#[tokio::test(start_paused = true)]
async fn buffer_of_long_stream_after_commit_has_constant_size() {
    // The retry sends headers at once, then reads all messages before the paused clock advances.
    let served =
        Answer::headers().wait_for(WaitFor::Headers).trailers(StatusNumber::OK).after(ms(10_000));
    let script = [busy().wait_for(WaitFor::Headers).accepts(1), served];
    let harness =
        Harness::with_layer(layer(RETRY).build(), Server::new(script).payload_bytes_kept(0));
    let counted_request = CountedRequest::new();
    let mut service = harness.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let mut response = service.call(counted_request.request(|| {})).await.unwrap().into_body();
    assert_eq!(harness.control.bytes_kept(), 0, "the call is committed");
    let trailers = response.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    counted_request.check_all_arrived(&harness.server.record().streams[1]);
}

/// The size of a message on the wire.
fn counted(message: &EchoRequest) -> u64 {
    5 + message.encoded_len() as u64
}

/// A message of this size on the wire.
fn message_of_size(bytes: u64) -> EchoRequest {
    let payload = usize::try_from(bytes).unwrap() - 7;
    let message = message(&"m".repeat(payload));
    assert_eq!(counted(&message), bytes);
    message
}

fn limited(fields: &str, call: u64, channel: u64) -> RetryLayer {
    let layer = layer(fields).per_rpc_buffer_limit_in_bytes(call);
    layer.retry_buffer_size_in_bytes(channel).build()
}

/// A request stream and its sender.
fn request_stream() -> (mpsc::Sender<EchoRequest>, ReceiverStream<EchoRequest>) {
    let (send, receive) = mpsc::channel(16);
    (send, ReceiverStream::new(receive))
}

/// Makes a call with a stream of these messages, 10 ms apart.
async fn stream_call(harness: &mut Harness, messages: Vec<EchoRequest>) -> CallOutcome {
    let (send, receive) = request_stream();
    let call_log = SharedCallLog::new();
    let mut request = Request::new(receive);
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let writing = tokio::spawn(async move {
        for message in messages {
            if send.send(message).await.is_err() {
                return;
            }
            tokio::time::sleep(ms(10)).await;
        }
    });
    let result = harness.client.client_stream(request).await;
    writing.abort();
    harness.outcome(&call_log, result)
}

#[tokio::test(start_paused = true)]
async fn buffer_counts_a_message_with_its_prefix_once() {
    for policy in [RETRY, HEDGE, ""] {
        let mut harness = Harness::new(policy, Script::new().default_answer(Answer::hang()));
        let request = message_of_size(100);
        let control = harness.control.clone();
        let mut call = Box::pin(harness.client.unary(request));
        assert!(tokio::time::timeout(ms(100), &mut call).await.is_err());
        assert_eq!(control.bytes_kept(), 100, "counted once for all attempts: {policy}");
        drop(call);
        assert_eq!(control.bytes_kept(), 0, "dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn buffer_is_empty_after_commit() {
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE).after(ms(10));
    let served =
        Answer::headers().after(ms(10)).message("").after(ms(30)).trailers(StatusNumber::OK);
    let mut harness = Harness::new(RETRY, [busy, served]);
    let control = harness.control.clone();
    let watch = async {
        let began = Instant::now();
        let mut kept = Vec::new();
        for at in [5, 30, 65, 75] {
            tokio::time::sleep_until(began + ms(at)).await;
            kept.push(control.bytes_kept());
        }
        kept
    };
    let call = async {
        let mut stream =
            harness.client.server_stream(message_of_size(100)).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
    };
    let (kept, ()) = tokio::join!(watch, call);
    // In flight, in backoff, in flight again; the response headers arrive at 70 ms.
    assert_eq!(kept, [100, 100, 100, 0]);
    assert_eq!(control.bytes_kept(), 0);
}

/// A message that exceeds a limit is still sent, but cannot be replayed.
#[tokio::test(start_paused = true)]
async fn buffer_limit_is_exact_to_the_byte() {
    let script = || {
        Script::new().attempts([Answer::trailers_only(StatusNumber::UNAVAILABLE), Answer::echo()])
    };
    for policy in [RETRY, HEDGE] {
        for (call, channel, fits) in
            [(100, 1000, true), (99, 1000, false), (1000, 100, true), (1000, 99, false)]
        {
            let mut harness =
                Harness::with_layer(limited(policy, call, channel), Server::new(script()));
            let outcome = harness.call_with(Request::new(message_of_size(100))).await;
            let full = harness.control.statistics()[UNARY].buffers_full;
            if fits {
                assert_eq!((outcome.code(), outcome.starts().len(), full), (Code::Ok, 2, 0));
            } else {
                assert_eq!(
                    (outcome.code(), outcome.end().0),
                    (Code::Unavailable, StopReason::Committed)
                );
                assert_eq!((outcome.starts().len(), full), (1, 1));
                assert_eq!(harness.tokens(), 9_000, "a listed status takes a token");
            }
            assert_eq!(harness.control.bytes_kept(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn buffer_over_limit_prevents_transparent_retries_too() {
    let script = [Answer::reset(Reason::REFUSED_STREAM), Answer::echo()];
    let mut harness = Harness::with_layer(limited("", 99, 1000), Server::new(script));
    let outcome = harness.call_with(Request::new(message_of_size(100))).await;
    assert_eq!((outcome.code(), outcome.starts().len()), (Code::Unavailable, 1));
}

#[tokio::test(start_paused = true)]
async fn buffer_is_used_without_policy_for_transparent_retries() {
    let refused =
        Answer::reset(Reason::REFUSED_STREAM).wait_for(WaitFor::Messages(2)).after(ms(15));
    let mut harness = Harness::new("", [refused, Answer::echo()]);
    let outcome = stream_call(&mut harness, vec![message("a"), message("b"), message("c")]).await;
    let streams = &outcome.record.streams;
    assert_eq!((streams[0].messages, streams[1].messages), (2, 3));
    assert_eq!(streams[0].payloads, streams[1].payloads[..2]);
    assert_eq!(harness.control.bytes_kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn buffer_over_limit_commits_attempt_in_flight() {
    // Two messages of 100 bytes fit, the third does not.
    let fails = Answer::trailers_only(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Request);
    let mut harness = Harness::with_layer(limited(RETRY, 200, 1000), Server::new([fails]));
    let outcome = stream_call(&mut harness, vec![message_of_size(100); 4]).await;
    assert_eq!((outcome.code(), outcome.end().0), (Code::Unavailable, StopReason::Committed));
    let stream = &outcome.record.streams[0];
    assert_eq!((outcome.record.streams.len(), stream.messages), (1, 4), "all of it was sent");
    assert_eq!((stream.bytes, harness.control.bytes_kept()), (400, 0));

    let fails = Answer::trailers_only(StatusNumber::UNAVAILABLE).wait_for(WaitFor::Request);
    let served = Answer::echo().wait_for(WaitFor::Request);
    let mut harness = Harness::with_layer(limited(RETRY, 400, 1000), Server::new([fails, served]));
    let outcome = stream_call(&mut harness, vec![message_of_size(100); 4]).await;
    assert_eq!(outcome.record.streams.len(), 2, "replayed at exactly the limit");
    assert_eq!(outcome.record.streams[0].digest, outcome.record.streams[1].digest);
}

#[tokio::test(start_paused = true)]
async fn buffer_over_limit_keeps_the_hedge_sent_most() {
    // The flow control window of the first attempt closes after one message; the second attempt reads all.
    let script = [
        Answer::hang().accepts(1),
        Answer::echo().wait_for(WaitFor::Request),
        Answer::hang().accepts(0),
    ];
    let mut harness = Harness::with_layer(limited(HEDGE, 300, 10_000), Server::new(script));
    let outcome = stream_call(&mut harness, vec![message_of_size(100); 5]).await;
    assert_eq!(outcome.starts()[..2], [0, 20]);
    let record = outcome.record;
    assert_eq!((record.streams[1].messages, record.streams[1].bytes), (5, 500));
    assert_eq!(
        record.streams[0].end.unwrap().outcome,
        StreamOutcome::ResetByClient(Reason::CANCEL)
    );
    assert_eq!(harness.control.statistics()["/redial.test.Echo/ClientStream"].buffers_full, 1);
    assert_eq!(harness.control.bytes_kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn buffer_over_limit_cancels_the_stalled_hedge() {
    let twice = HEDGE.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 2"#);
    // The window of the first attempt closes after `accepts` messages, and hyper takes one more for it. The
    // second attempt reads all. One more message exceeds the limit.
    for (accepts, limit) in [(0, 40), (1, 100)] {
        let script = [Answer::hang().accepts(accepts), Answer::echo().wait_for(WaitFor::Request)];
        let mut harness = Harness::with_layer(limited(&twice, limit, 10_000), Server::new(script));
        let (send, receive) = request_stream();
        tokio::spawn(async move {
            for at in [0, 50, 100, 10] {
                tokio::time::sleep(ms(at)).await;
                send.send(message_of_size(40)).await.unwrap();
            }
        });
        let call = harness.client.client_stream(receive);
        let answer = tokio::time::timeout(ms(10_000), call).await.expect("the call ends");
        assert!(answer.is_ok(), "{answer:?}");
        let streams = harness.server.record().streams;
        assert_eq!((streams[0].messages, streams[1].messages), (accepts, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn buffer_of_the_channel_is_shared_by_its_calls() {
    let script = Script::new()
        .default_answer(Answer::trailers_only(StatusNumber::UNAVAILABLE).after(ms(10)));
    let twice = RETRY.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 2"#);
    let harness = Harness::with_layer(limited(&twice, 1000, 150), Server::new(script));
    let call = |at| {
        let mut client = harness.client.clone();
        async move {
            tokio::time::sleep(ms(at)).await;
            client.unary(message_of_size(100)).await.unwrap_err()
        }
    };
    let kept = async {
        tokio::time::sleep(ms(5)).await;
        harness.control.bytes_kept()
    };
    let (first, second, kept) = tokio::join!(call(0), call(2), kept);
    assert_eq!(kept, 100);
    assert_eq!(first.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert!(
        !second.metadata().contains_key("grpc-previous-rpc-attempts"),
        "no retry without a buffer"
    );
    // The bytes of the first call are free again.
    let third = call(0).await;
    assert_eq!(third.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(harness.control.bytes_kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn buffer_is_unused_with_retries_disabled() {
    let layer = layer(RETRY).retries(Retries::Off).build();
    let mut harness = Harness::with_layer(layer, Server::new(Answer::hang()));
    let control = harness.control.clone();
    let mut call = Box::pin(harness.client.unary(message_of_size(100)));
    assert!(tokio::time::timeout(ms(10), &mut call).await.is_err());
    assert_eq!(control.bytes_kept(), 0);
}

/// An executor may keep the finished future of a call.
#[tokio::test(start_paused = true)]
async fn buffer_is_freed_before_the_finished_future_is_dropped() {
    let harness = Harness::new(RETRY, vec![Answer::close(Close::Graceful); 3]);
    let mut service = harness.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let mut call = Box::pin(service.call(raw_request(b"0123456789")));
    let control = harness.control.clone();
    let watched = async {
        tokio::time::sleep(ms(10)).await;
        control.bytes_kept()
    };
    let (result, kept) = tokio::join!(&mut call, watched);
    assert!(result.is_err());
    assert_eq!((kept, control.bytes_kept()), (15, 0));
    drop(call);
}
