//! Hedging: when hedges start, which attempt wins, and how pushback and the throttle stop them.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redial::StopReason;
use redial_echo::EchoRequest;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber, StreamOutcome, WaitFor};
use redial_grpc::{RetryLayer, RetryLayerBuilder, RetryService, ServiceConfig};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service, ServiceExt};

use crate::common::harness::{HEDGE, Harness, UNARY, busy, message, ms, raw_request, stream_ends};
use crate::common::streaming::{
    check_unknown_status_is_fatal, config_json, expected_outcome, failing_call, fails,
    harness_with, previous, without_jitter,
};
use crate::common::{echo, hedge_config};

/// Hedging without a delay: all attempts start at once.
fn hedging_layer_without_delay(attempts: u32) -> RetryLayerBuilder {
    without_jitter(&config_json(&format!(
        r#""hedgingPolicy": {{ "maxAttempts": {attempts},
            "nonFatalStatusCodes": [14, "RESOURCE_EXHAUSTED"] }}"#
    )))
}

// Peer test: grpc-js: hedging: basic request.
#[tokio::test(start_paused = true)]
async fn hedging_policy_leaves_a_successful_call_alone() {
    let answer = failing_call(hedging_layer_without_delay(3), 0, Code::Ok).await;
    assert_eq!((answer.code, &*answer.text), (Code::Ok, "x"));
}

// Peer test: grpc-js: hedging: few required attempts.
#[tokio::test(start_paused = true)]
async fn hedging_succeeds_within_max_attempts() {
    let succeeded = expected_outcome(Code::Ok, "x", Some(2));
    assert_eq!(
        failing_call(hedging_layer_without_delay(3), 2, Code::ResourceExhausted).await,
        succeeded
    );
    assert_eq!(failing_call(hedging_layer_without_delay(3), 2, Code::Unavailable).await, succeeded);
}

// Peer test: grpc-js: hedging: many required attempts.
#[tokio::test(start_paused = true)]
async fn hedging_fails_after_max_attempts() {
    // The last of the three failures (G21).
    let failed = failing_call(hedging_layer_without_delay(3), 4, Code::ResourceExhausted).await;
    assert_eq!(failed.code, Code::ResourceExhausted);
    let last = failed.previous.unwrap_or(0);
    assert!(last < 3);
    assert_eq!(failed.text, format!("asked to fail, after {last} attempts"));
}

// Peer test: grpc-js: hedging: fatal status code.
#[tokio::test(start_paused = true)]
async fn hedging_ends_with_a_fatal_code() {
    let failed = failing_call(hedging_layer_without_delay(3), 3, Code::NotFound).await;
    assert_eq!(failed.code, Code::NotFound);
    let first = failed.previous.unwrap_or(0);
    assert_eq!(failed.text, format!("asked to fail, after {first} attempts"));
}

// Peer test: grpc-js: hedging: not more than 5 attempts.
#[tokio::test(start_paused = true)]
async fn hedging_is_capped_at_five_attempts_by_default() {
    let harness = harness_with(
        hedging_layer_without_delay(10),
        Server::new(vec![fails(StatusNumber::RESOURCE_EXHAUSTED); 5]),
    );
    assert_eq!(harness.unary("x").await.code, Code::ResourceExhausted);
    let record = harness.finish().await;
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3), Some(4)]);
}

// Peer test: grpc-js: hedging: more than 5 attempts with a channel argument.
#[tokio::test(start_paused = true)]
async fn hedging_cap_can_be_raised_by_the_client() {
    let layer = || hedging_layer_without_delay(10).attempts_cap(8);
    let succeeded = expected_outcome(Code::Ok, "x", Some(7));
    assert_eq!(failing_call(layer(), 7, Code::ResourceExhausted).await, succeeded);
    assert_eq!(
        failing_call(layer(), 9, Code::ResourceExhausted).await.code,
        Code::ResourceExhausted
    );
}

// Peer test: grpc-js: hedging: custom error code.
#[tokio::test(start_paused = true)]
async fn hedging_treats_an_unknown_status_number_as_fatal() {
    check_unknown_status_is_fatal(hedging_layer_without_delay(3), &[None, Some(1), Some(2)]).await;
}

/// A layer with this hedging delay, and a throttle with this many tokens.
fn hedging_layer(delay: &str, attempts: u32, tokens: u32) -> RetryLayer {
    let text = format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}], "hedgingPolicy": {{ "maxAttempts": {attempts},
            "hedgingDelay": "{delay}", "nonFatalStatusCodes": ["UNAVAILABLE"] }} }}],
            "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.1 }} }}"#
    );
    RetryLayer::builder().config(ServiceConfig::parse(&text).unwrap()).build()
}

/// An inner service whose first two attempts never complete and whose third one succeeds. A dropped
/// attempt makes another call through the layer.
#[derive(Clone)]
struct ReentrantService {
    layered: Arc<std::sync::OnceLock<RetryService<ReentrantService>>>,
    calls: Arc<AtomicU32>,
}

struct Attempt {
    service: ReentrantService,
    answers: bool,
}

impl Service<http::Request<Body>> for ReentrantService {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = Attempt;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: http::Request<Body>) -> Attempt {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        Attempt { service: self.clone(), answers: number == 3 }
    }
}

impl Future for Attempt {
    type Output = Result<http::Response<Body>, Status>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.answers {
            return Poll::Pending;
        }
        let response = http::Response::builder().header("content-type", "application/grpc");
        Poll::Ready(Ok(response.body(Body::empty()).unwrap()))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Only the losers of the first call, to end the recursion.
        if self.answers || self.service.calls.load(Ordering::SeqCst) > 3 {
            return;
        }
        let Some(layered) = self.service.layered.get() else { return };
        let mut call = Box::pin(layered.clone().call(raw_request(b"again")));
        let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// Request messages, 10 ms apart.
fn messages(count: u32) -> ReceiverStream<EchoRequest> {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for number in 0..count {
            if send.send(message(&number.to_string())).await.is_err() {
                return;
            }
            tokio::time::sleep(ms(10)).await;
        }
    });
    ReceiverStream::new(receive)
}

/// grpc-java: #7222, a call hangs if its own failure makes the throttle refuse the next hedge.
#[tokio::test(start_paused = true)]
async fn hedging_throttled_by_own_failure_returns_failure() {
    let server = Server::new([busy().text("the only one").after(ms(5))]);
    let mut harness = Harness::with_layer(hedging_layer("1s", 3, 2), server);
    let outcome = tokio::time::timeout(ms(5_000), harness.call()).await.expect("the call ends");
    assert_eq!((outcome.code(), outcome.status().message()), (Code::Unavailable, "the only one"));
    assert_eq!((outcome.end(), outcome.starts()), ((StopReason::Throttled, 5), vec![0]));
}

/// grpc-java: #10145, a non-fatal failure does not send the next hedge at once.
#[tokio::test(start_paused = true)]
async fn hedging_nonfatal_failure_sends_next_immediately() {
    let server = Server::new([busy().after(ms(5)), busy().after(ms(5)), Answer::echo()]);
    let mut harness = Harness::with_layer(hedging_layer("1s", 3, 10), server);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 5, 10]));
}

/// grpc-java: #10293, every pushback counted as 0. grpc-js: the hedge timer still fires after a pushback.
#[tokio::test(start_paused = true)]
async fn hedging_waits_for_a_positive_pushback() {
    let server = Server::new([busy().pushback("300").after(ms(5)), Answer::hang(), Answer::echo()]);
    let mut harness = Harness::with_layer(hedging_layer("0.02s", 3, 10), server);
    let outcome = harness.call().await;
    assert_eq!(
        (outcome.code(), outcome.starts()),
        (Code::Ok, vec![0, 305, 325]),
        "then the hedging delay again"
    );
}

/// grpc-js: hedges ignore the throttle.
#[tokio::test(start_paused = true)]
async fn hedging_respects_throttle() {
    let script = Script::new().attempts([busy()]).default_answer(Answer::echo().after(ms(100)));
    let mut harness = Harness::with_layer(hedging_layer("0.02s", 3, 2), Server::new(script));
    assert_eq!(harness.call().await.end().0, StopReason::Throttled);
    // Half of the tokens are left, so only the first attempt is sent.
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0]));
    assert_eq!(harness.tokens(), 1_100);
}

/// grpc-js: a negative pushback cancels the outstanding hedges.
#[tokio::test(start_paused = true)]
async fn hedging_negative_pushback_keeps_outstanding() {
    let slow = Answer::headers().after(ms(100)).message("").trailers(StatusNumber::OK);
    let server = Server::new([slow, busy().pushback("-1")]);
    let mut harness = Harness::with_layer(hedging_layer("0.02s", 3, 10), server);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 20]), "no third attempt");
    assert_eq!(
        (outcome.end(), outcome.previous_attempts_header()),
        ((StopReason::Succeeded, 100), None)
    );
}

/// grpc-java: #10314, deadlock when losers are cancelled while a hedge starts.
#[test]
fn hedging_losers_can_be_cancelled_while_a_hedge_starts() {
    let (done, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let made = runtime.block_on(async {
            let calls = Arc::new(AtomicU32::new(0));
            let service = ReentrantService { layered: Arc::default(), calls: calls.clone() };
            // Without a delay all attempts start at once.
            let mut layered = hedging_layer("0s", 3, 10).layer(service.clone());
            service.layered.set(layered.clone()).ok().unwrap();
            layered.call(raw_request(b"first")).await.unwrap();
            calls.load(Ordering::SeqCst)
        });
        done.send(made).unwrap();
    });
    // In real time, because a deadlock also stops a paused clock.
    let made = over.recv_timeout(Duration::from_secs(30)).expect("a deadlock");
    thread.join().unwrap();
    assert!(made > 3, "the call that was made while losers were cancelled has started: {made}");
}

/// grpc-java: #9185, null pointer when one hedge commits during the replay of another.
#[tokio::test(start_paused = true)]
async fn hedging_commit_while_another_hedge_replays() {
    // The flow control window of the first attempt closes after one message; the second commits after three.
    let bidi = Answer::echo().wait_for(WaitFor::Messages(3));
    let mut harness =
        Harness::new(HEDGE, [Answer::hang().accepts(1), bidi, Answer::hang().accepts(0)]);
    let mut stream = harness.client.bidi(messages(6)).await.unwrap().into_inner();
    for number in 0..6 {
        let echoed = stream.message().await.unwrap().unwrap();
        assert_eq!(echoed.payload, number.to_string(), "in order, and none is missing");
    }
    assert_eq!(stream.message().await.unwrap(), None);
    harness.server.idle().await;
    let streams = harness.server.record().streams;
    assert_eq!((streams[0].messages, streams[1].messages), (1, 6));
    assert_eq!(streams[0].end.unwrap().outcome, StreamOutcome::ResetByClient(Reason::CANCEL));
    assert_eq!(harness.control.bytes_kept(), 0);
}

/// grpc-java: #7089, an open question is whether the slowest or the fastest hedge applies backpressure.
/// Here the layer reads only as many messages as the fastest attempt can send.
#[tokio::test(start_paused = true)]
async fn hedging_backpressure_follows_the_fastest_attempt() {
    let script = [Answer::hang().accepts(2), Answer::hang().accepts(6), Answer::hang().accepts(1)];
    let mut harness = Harness::new(HEDGE, script);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let endless = tokio_stream::iter(std::iter::repeat_with(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        message(&"m".repeat(40_000))
    }));
    let call = harness.client.client_stream(endless);
    assert!(tokio::time::timeout(ms(1_000), call).await.is_err());
    let streams = harness.server.record().streams;
    let messages: Vec<_> = streams.iter().map(|it| it.messages).collect();
    assert_eq!(messages, [2, 6, 1]);
    // The messages of the fastest attempt, and one that waits for its window.
    assert_eq!(asked.load(Ordering::Relaxed), 7);
}

/// Decisions G20 and G21.
#[tokio::test(start_paused = true)]
async fn hedging_fatal_failure_ends_call_otherwise_last_failure_returned() {
    let slow = Answer::hang();
    let fatal = Answer::trailers_only(StatusNumber::ABORTED).text("fatal").after(ms(5));
    let mut harness = Harness::new(HEDGE, [slow.clone(), fatal, slow]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.status().message()), (Code::Aborted, "fatal"));
    assert_eq!(outcome.end(), (StopReason::NotRetryable, 25));
    harness.server.idle().await;
    let record = harness.server.record();
    assert_eq!(record.streams.len(), 2);
    assert_eq!(
        record.streams[0].end.unwrap().outcome,
        StreamOutcome::ResetByClient(Reason::CANCEL)
    );

    let failing = |text, after| busy().text(text).after(ms(after));
    let all = [failing("slowest", 100), failing("fastest", 30), failing("third", 1)];
    let mut harness = Harness::new(HEDGE, all);
    let outcome = harness.call().await;
    assert_eq!(
        (outcome.status().message(), outcome.end()),
        ("slowest", (StopReason::AttemptsExhausted, 100))
    );
    assert_eq!(outcome.starts(), [0, 20, 40]);
    assert_eq!(outcome.previous_attempts_header(), None, "the status is from the first attempt");
    assert_eq!(harness.tokens(), 7_000);
}

#[tokio::test(start_paused = true)]
async fn hedging_first_headers_win_even_if_they_fail_later() {
    let winner = Answer::headers()
        .after(ms(1))
        .trailers(StatusNumber::UNAVAILABLE)
        .after(ms(50))
        .text("won");
    let mut harness = Harness::new(HEDGE, [Answer::hang(), winner]);
    let outcome = harness.call().await;
    assert_eq!((outcome.status().message(), outcome.end()), ("won", (StopReason::Committed, 70)));
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("1"));
    let lost = outcome.record.streams[0].reset.unwrap();
    assert_eq!((lost.at, lost.reason), (ms(21), Reason::CANCEL));
}

const CANCELLED: StreamOutcome = StreamOutcome::ResetByClient(Reason::CANCEL);

#[tokio::test(start_paused = true)]
async fn hedging_losers_are_reset_with_cancel() {
    let wins = Answer::headers().message("").after(ms(5)).trailers(StatusNumber::OK).after(ms(50));
    let mut harness = Harness::new(HEDGE, [Answer::hang(), Answer::hang(), wins]);
    let outcome = harness.call().await;
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("2"));
    let answered = StreamOutcome::Answered(Some(StatusNumber::OK));
    // The losers are reset at the response headers, not at the end of the call.
    assert_eq!(
        stream_ends(&harness).await,
        [(CANCELLED, ms(40)), (CANCELLED, ms(40)), (answered, ms(90))]
    );
    assert_eq!(harness.control.statistics()[UNARY].hedges_won, 1);
    assert_eq!(harness.tokens(), 10_000, "a loser is not a failure");
}

#[tokio::test(start_paused = true)]
async fn hedging_transparent_retry_does_not_count_as_hedge_won() {
    let mut harness = Harness::new(HEDGE, [Answer::reset(Reason::REFUSED_STREAM), Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.attempts(), harness.statistics()), (1, (0, 0, 1)));
    assert_eq!(harness.control.statistics()[UNARY].hedges_won, 0);
}

fn failing(failures: u32, payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), failures, ..EchoRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn hedging_second_attempt_overtakes_a_slow_one() {
    let layer = RetryLayer::from_json(&hedge_config(3, "0.01s")).unwrap();
    let mut client = echo(&layer);
    client.unary(failing(0, "warm")).await.unwrap();
    let began = Instant::now();
    let request = EchoRequest { delay_ms: 100, ..failing(2, "x") };
    let answer = client.unary(request).await.unwrap().into_inner();
    assert_eq!(answer.previous_attempts, 2);
    let took = began.elapsed();
    assert!((Duration::from_millis(120)..Duration::from_millis(125)).contains(&took), "{took:?}");
    let method = layer.control().statistics()["/redial.test.Echo/Unary"];
    assert_eq!((method.retries.retries, method.hedges_won), (2, 1));
}

/// Without a delay each hedge starts after the attempt before it was polled, whose response may make the
/// hedge unnecessary.
#[tokio::test(start_paused = true)]
async fn hedging_without_delay_starts_no_hedge_after_fatal_failure() {
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let server = tower::service_fn(move |_request: http::Request<Body>| {
        *counted.lock().unwrap() += 1;
        std::future::ready(Ok::<_, std::convert::Infallible>(
            tonic::Status::invalid_argument("wrong").into_http::<Body>(),
        ))
    });
    let layer = RetryLayer::from_json(&hedge_config(4, "0s")).unwrap();
    let mut request = http::Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/redial.test.Echo/Unary");
    let error = layer.layer(server).oneshot(request).await.map(drop).unwrap_err();
    let status = error.downcast::<tonic::Status>().unwrap();
    assert_eq!((status.code(), *calls.lock().unwrap()), (Code::InvalidArgument, 1));
    let counted = layer.control().statistics()["/redial.test.Echo/Unary"];
    assert_eq!(counted.retries.retries, 0, "unsent hedges are not counted");
}
