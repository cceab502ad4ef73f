//! All four kinds of calls of an unchanged generated client, through the layer, against a real
//! tonic server.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{echo, hedge_config, retry_config};
use http::{Request, Response};
use redial_echo::{EchoRequest, EchoResponse, Failing};
use redial_grpc::{CallOptions, Event, MethodStatistics, Retries, RetryLayer, SharedCallLog};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Streaming};
use tower::{Layer, ServiceExt};

fn failing(failures: u32, payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), failures, ..EchoRequest::default() }
}

fn many(failures: u32) -> impl tokio_stream::Stream<Item = EchoRequest> {
    tokio_stream::iter([failing(failures, "a"), failing(0, "b"), failing(0, "c")])
}

async fn all(mut stream: Streaming<EchoResponse>) -> Vec<EchoResponse> {
    let mut all = Vec::new();
    while let Some(response) = stream.message().await.unwrap() {
        all.push(response);
    }
    all
}

/// Requests of tonic cannot be cloned, so that tower's own retry is of no use there (grpc-rust#733).
///
/// Red: keep nothing of the request (`let keeps = false;` in `RetryService::begin`).
#[tokio::test(start_paused = true)]
async fn unary_and_all_streaming_kinds_retry() {
    let layer = RetryLayer::from_json(&retry_config(4)).unwrap();
    let mut client = echo(&layer);

    let answer = client.unary(failing(2, "x")).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-previous-rpc-attempts").unwrap(), "2");
    assert_eq!(answer.get_ref().payload, "x");
    assert_eq!(answer.get_ref().previous_attempts, 2);

    let answer = client.client_stream(many(2)).await.unwrap().into_inner();
    assert_eq!((&*answer.payload, answer.received), (&b"abc"[..], 3));

    let request = EchoRequest { responses: Some(3), ..failing(2, "s") };
    let answers = all(client.server_stream(request).await.unwrap().into_inner()).await;
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer.previous_attempts == 2));

    let answers = all(client.bidi(many(2)).await.unwrap().into_inner()).await;
    let payloads: Vec<_> = answers.iter().map(|answer| &*answer.payload).collect();
    assert_eq!(payloads, [b"a", b"b", b"c"]);

    assert_eq!(layer.control().bytes_kept(), 0);
    let statistics = layer.control().statistics();
    assert_eq!(statistics.len(), 4);
    for (path, method) in statistics {
        assert_eq!((method.retries.retries, method.retries.failed), (2, 1), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_run_out_and_the_last_status_is_handed_on() {
    let mut client = echo(&RetryLayer::from_json(&retry_config(3)).unwrap());
    let status = client.unary(failing(9, "x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_hedge_overtakes_a_slow_attempt() {
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

#[tokio::test(start_paused = true)]
async fn the_layer_owns_the_deadline_through_headers_and_body() {
    let mut client = echo(&RetryLayer::from_json(&retry_config(3)).unwrap());
    for delay_ms in [1000, 40] {
        let began = Instant::now();
        let slow = EchoRequest { delay_ms, responses: Some(100), ..failing(0, "x") };
        let mut request = tonic::Request::new(slow);
        request.set_timeout(Duration::from_millis(100));
        let status = match client.server_stream(request).await {
            Err(status) => status,
            Ok(response) => {
                let mut stream = response.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("the stream ended"),
                        Err(status) => break status,
                    }
                }
            }
        };
        assert_eq!(status.code(), Code::DeadlineExceeded, "{delay_ms}: {status:?}");
        let took = began.elapsed().as_millis();
        assert!((100..=102).contains(&took), "{took}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_retries_disabled_one_attempt_is_made() {
    let layer = RetryLayer::from_json(&retry_config(3)).unwrap();
    let mut client = echo(&layer);
    layer.control().set_retries(Retries::Off);
    assert_eq!(client.unary(failing(1, "x")).await.unwrap_err().code(), Code::Unavailable);
    layer.control().set_retries(Retries::All);
    assert_eq!(client.unary(failing(1, "x")).await.unwrap().get_ref().payload, "x");
}

/// A tonic server keeps to `grpc-timeout` too and answers CANCELLED; where a client is polled late,
/// that answer is there when its own timer is.
///
/// Red if `State::outcome` told the machine of a failure that came after the deadline.
#[tokio::test(start_paused = true)]
async fn a_failure_that_is_found_after_the_deadline_came_after_it() {
    let (answer, answered) = tokio::sync::oneshot::channel::<Response<Body>>();
    let answered = Arc::new(Mutex::new(Some(answered)));
    let server = tower::service_fn(move |_request: Request<Body>| {
        let answered = answered.lock().unwrap().take();
        async move { answered.ok_or("one attempt")?.await.map_err(|_| "an answer") }
    });
    let layer = RetryLayer::from_json(&retry_config(3)).unwrap();
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/redial.test.Echo/Unary");
    request.headers_mut().insert("grpc-timeout", http::HeaderValue::from_static("100m"));
    let mut call = pin!(layer.layer(server).oneshot(request));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    tokio::time::advance(Duration::from_millis(150)).await;
    answer.send(tonic::Status::cancelled("Timeout expired").into_http()).unwrap();
    let Poll::Ready(Err(error)) = call.poll(&mut cx) else { panic!("it is late") };
    let status = error.downcast::<tonic::Status>().unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
}

/// Hedges without a delay start after the attempt before them was polled: what it brings may make them
/// superfluous.
#[tokio::test(start_paused = true)]
async fn hedging_without_delay_starts_no_hedge_after_a_fatal_answer() {
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let server = tower::service_fn(move |_request: Request<Body>| {
        *counted.lock().unwrap() += 1;
        std::future::ready(Ok::<_, std::convert::Infallible>(
            tonic::Status::invalid_argument("wrong").into_http::<Body>(),
        ))
    });
    let layer = RetryLayer::from_json(&hedge_config(4, "0s")).unwrap();
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/redial.test.Echo/Unary");
    let error = layer.layer(server).oneshot(request).await.map(drop).unwrap_err();
    let status = error.downcast::<tonic::Status>().unwrap();
    assert_eq!((status.code(), *calls.lock().unwrap()), (Code::InvalidArgument, 1));
    let counted = layer.control().statistics()["/redial.test.Echo/Unary"];
    assert_eq!(counted.retries.retries, 0, "what was never sent is not counted");
}

/// What can be told of a call from outside: how many messages came, its status, what was counted,
/// the throttle's tokens.
type Seen = (usize, Option<Code>, Option<MethodStatistics>, Option<f64>);

/// Makes a call with a throttle of so many tokens, four of which are gone, and drops it after so
/// long.
async fn seen(
    request: EchoRequest,
    tokens: u32,
    dropped_after: Duration,
    call_log: Option<&SharedCallLog>,
) -> Seen {
    let throttle =
        format!(r#"{{ "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.5 }},"#);
    let throttled = retry_config(4).replacen('{', &throttle, 1);
    let layer = RetryLayer::from_json(&throttled).unwrap();
    let mut client = echo(&layer);
    // Into a throttle that is full a success would write nothing.
    client.unary(failing(4, "x")).await.unwrap_err();
    let mut request = tonic::Request::new(request);
    if let Some(call_log) = call_log {
        request.extensions_mut().insert(CallOptions::new().call_log(call_log));
    }
    let mut messages = 0;
    let call = async {
        let mut stream = client.server_stream(request).await?.into_inner();
        while stream.message().await?.is_some() {
            messages += 1;
        }
        Ok::<_, tonic::Status>(())
    };
    let ended = tokio::time::timeout(dropped_after, call).await;
    let code = ended.ok().map(|ended| ended.map_or_else(|status| status.code(), |()| Code::Ok));
    let control = layer.control();
    assert_eq!(control.bytes_kept(), 0);
    let counted = control.statistics().get("/redial.test.Echo/ServerStream").copied();
    (messages, code, counted, control.tokens())
}

/// A call whose notes nobody reads has no machine until it needs one, and nobody can tell.
///
/// Red: leave out `first.committed()` or `first.succeeded(..)` in `state.rs`.
#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_reads_ends_and_counts_like_one_that_somebody_reads() {
    let (fails, slow) = (failing(9, "x"), EchoRequest { delay_ms: 60_000, ..failing(0, "x") });
    let after_messages =
        EchoRequest { failing: Failing::AtEnd as i32, responses: Some(2), ..fails.clone() };
    let fatal = |request: &EchoRequest| EchoRequest { code: 3, ..request.clone() };
    let refused = |request: &EchoRequest| EchoRequest { pushback_ms: Some(-1), ..request.clone() };
    let cases = [
        (failing(0, "x"), (1, Some(Code::Ok))),
        (failing(2, "x"), (1, Some(Code::Ok))),
        (fails.clone(), (0, Some(Code::Unavailable))),
        (fatal(&fails), (0, Some(Code::InvalidArgument))),
        (refused(&fails), (0, Some(Code::Unavailable))),
        (fatal(&refused(&fails)), (0, Some(Code::InvalidArgument))),
        (after_messages.clone(), (2, Some(Code::Unavailable))),
        (fatal(&after_messages), (2, Some(Code::InvalidArgument))),
        (refused(&after_messages), (2, Some(Code::Unavailable))),
        (EchoRequest { responses: Some(3), ..slow.clone() }, (1, None)),
        (slow, (0, None)),
    ];
    for (request, expected) in cases {
        // Long enough for one answer of those that are slow, if more than one is to come.
        let dropped_after = Duration::from_secs(if expected.0 == 1 { 90 } else { 30 });
        // Of 8 tokens so few are left that no retry is granted.
        for tokens in [100, 8] {
            let call_log = SharedCallLog::new();
            let read = seen(request.clone(), tokens, dropped_after, Some(&call_log)).await;
            let unread = seen(request.clone(), tokens, dropped_after, None).await;
            assert_eq!(read, unread, "{request:?}");
            if tokens == 100 {
                assert_eq!((unread.0, unread.1), expected, "{request:?}");
            }
            assert!(matches!(call_log.take().events().last(), Some((_, Event::CallEnded { .. }))));
        }
    }
}
