//! Retry: which failures are retried, and how often.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::StatusCode;
use redial::StopReason;
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{Answer, Reason, Server, StatusNumber};
use redial_grpc::{Retries, RetryLayer, RetryLayerBuilder};
use tokio::runtime::Handle;
use tonic::body::Body;
use tonic::{Code, Status, Streaming};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::common::harness::{HEDGE, Harness, RETRY, UNARY, busy, layer, message, ms};
use crate::common::streaming::{
    UnaryOutcome, aborted_config, check_unknown_status_is_fatal, config_json, expected_outcome,
    failing_call, fails, four_attempts_config, harness, harness_with, no_hang, pipe_channel,
    previous, replies, request, response_bytes, retry_policy, starts, without_jitter,
};
use crate::common::{echo, retry_config};

/// Status codes as number and as name.
fn retry_layer(attempts: u32) -> RetryLayerBuilder {
    without_jitter(&config_json(&format!(
        r#""retryPolicy": {{ "maxAttempts": {attempts}, "initialBackoff": "0.1s", "maxBackoff": "10s",
            "backoffMultiplier": 1.2, "retryableStatusCodes": [14, "RESOURCE_EXHAUSTED"] }}"#
    )))
}

// Peer test: grpc-js: retries disabled: basic request.
#[tokio::test(start_paused = true)]
async fn retry_disabled_call_succeeds() {
    let layer = retry_layer(3).retries(Retries::Off);
    assert_eq!(failing_call(layer, 0, Code::Ok).await, expected_outcome(Code::Ok, "x", None));
}

// Peer test: grpc-js: retries disabled: the server fails the first request.
#[tokio::test(start_paused = true)]
async fn retry_disabled_returns_the_first_failure() {
    let layer = retry_layer(3).retries(Retries::Off);
    let failed = expected_outcome(Code::Unavailable, "asked to fail, after 0 attempts", None);
    assert_eq!(failing_call(layer, 1, Code::Unavailable).await, failed);
}

// Peer test: grpc-js: not configured: basic request.
#[tokio::test(start_paused = true)]
async fn retry_not_configured_call_succeeds() {
    assert_eq!(
        failing_call(RetryLayer::builder(), 0, Code::Ok).await,
        expected_outcome(Code::Ok, "x", None)
    );
}

// Peer test: grpc-js: not configured: the server fails the first request.
#[tokio::test(start_paused = true)]
async fn retry_not_configured_returns_the_first_failure() {
    let failed = expected_outcome(Code::Unavailable, "asked to fail, after 0 attempts", None);
    assert_eq!(failing_call(RetryLayer::builder(), 1, Code::Unavailable).await, failed);
}

// Peer test: grpc-js: retries: basic request.
#[tokio::test(start_paused = true)]
async fn retry_policy_leaves_a_successful_call_alone() {
    assert_eq!(
        failing_call(retry_layer(3), 0, Code::Ok).await,
        expected_outcome(Code::Ok, "x", None)
    );
}

// Peer test: grpc-js: retries: few required attempts.
#[tokio::test(start_paused = true)]
async fn retry_succeeds_within_max_attempts() {
    let succeeded = expected_outcome(Code::Ok, "x", Some(2));
    assert_eq!(failing_call(retry_layer(3), 2, Code::ResourceExhausted).await, succeeded);
    assert_eq!(failing_call(retry_layer(3), 2, Code::Unavailable).await, succeeded);
}

// Peer test: grpc-js: retries: many required attempts.
#[tokio::test(start_paused = true)]
async fn retry_fails_after_max_attempts() {
    let failed =
        expected_outcome(Code::ResourceExhausted, "asked to fail, after 2 attempts", Some(2));
    assert_eq!(failing_call(retry_layer(3), 4, Code::ResourceExhausted).await, failed);
}

// Peer test: grpc-js: retries: fatal status code.
#[tokio::test(start_paused = true)]
async fn retry_does_not_follow_a_non_retryable_code() {
    let failed = expected_outcome(Code::NotFound, "asked to fail, after 0 attempts", None);
    assert_eq!(failing_call(retry_layer(3), 2, Code::NotFound).await, failed);
}

// Peer test: grpc-js: retries: not more than 5 attempts.
#[tokio::test(start_paused = true)]
async fn retry_is_capped_at_five_attempts_by_default() {
    let failed =
        expected_outcome(Code::ResourceExhausted, "asked to fail, after 4 attempts", Some(4));
    assert_eq!(failing_call(retry_layer(10), 6, Code::ResourceExhausted).await, failed);
}

// Peer test: grpc-js: retries: more than 5 attempts with a channel argument.
#[tokio::test(start_paused = true)]
async fn retry_cap_can_be_raised_by_the_client() {
    let layer = || retry_layer(10).attempts_cap(8);
    let succeeded = expected_outcome(Code::Ok, "x", Some(7));
    assert_eq!(failing_call(layer(), 7, Code::ResourceExhausted).await, succeeded);
    let failed =
        expected_outcome(Code::ResourceExhausted, "asked to fail, after 7 attempts", Some(7));
    assert_eq!(failing_call(layer(), 9, Code::ResourceExhausted).await, failed);
}

// Peer test: grpc-js: retries: custom error code.
#[tokio::test(start_paused = true)]
async fn retry_does_not_follow_an_unknown_status_number() {
    check_unknown_status_is_fatal(retry_layer(3), &[None]).await;
}

// Peer test: C-core: retry, retry_send_recv_batch.
#[tokio::test(start_paused = true)]
async fn retry_once_and_succeed() {
    let harness = harness(&aborted_config(3), [fails(StatusNumber::ABORTED), replies("bar")]);
    let outcome = harness.unary("foo").await;
    assert_eq!((outcome.code, &*outcome.text, outcome.previous), (Code::Ok, "bar", Some(1)));
    let record = harness.finish().await;
    assert_eq!((starts(&record), previous(&record)), (vec![0, 1000], vec![None, Some(1)]));
}

// Peer test: C-core: retry_too_many_attempts.
#[tokio::test(start_paused = true)]
async fn retry_too_many_attempts_returns_the_last_failure() {
    let harness = harness(
        &aborted_config(3),
        [
            fails(StatusNumber::ABORTED),
            fails(StatusNumber::ABORTED),
            fails(StatusNumber::ABORTED).text("xyz"),
        ],
    );
    let (outcome, stop_reason) = harness.unary_with_stop_reason("foo").await;
    assert_eq!(
        (outcome.code, &*outcome.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::AttemptsExhausted)
    );
    assert_eq!(starts(&harness.finish().await), [0, 1000, 2600]);
}

// Peer test: C-core: retry_non_retriable_status.
#[tokio::test(start_paused = true)]
async fn retry_non_retryable_status_is_returned() {
    let harness = harness(&aborted_config(2), fails(StatusNumber::INVALID_ARGUMENT).text("xyz"));
    let (outcome, stop_reason) = harness.unary_with_stop_reason("foo").await;
    assert_eq!(
        (outcome.code, &*outcome.text, stop_reason),
        (Code::InvalidArgument, "xyz", StopReason::NotRetryable)
    );
    harness.finish().await;
}

// Peer test: C-core: retry_non_retriable_status_before_trailers.
#[tokio::test(start_paused = true)]
async fn retry_non_retryable_status_received_before_poll_is_returned() {
    let harness = harness(&aborted_config(2), fails(StatusNumber::INVALID_ARGUMENT).text("xyz"));
    let mut client = harness.client.clone();
    let mut call = pin!(client.unary(request("foo")));
    let begun = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
    assert!(begun);
    no_hang(harness.server.until_counts(|it| it.streams == 1 && it.streams_open == 0)).await;
    harness.settle().await;
    let status = no_hang(call).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "xyz"));
    harness.finish().await;
}

// Peer test: C-core: retry_disabled.
#[tokio::test(start_paused = true)]
async fn retry_disabled_makes_one_attempt() {
    let harness = harness_with(
        without_jitter(&aborted_config(2)).retries(Retries::Off),
        Server::new(fails(StatusNumber::ABORTED).text("xyz")),
    );
    let outcome = harness.unary("foo").await;
    assert_eq!((outcome.code, &*outcome.text, outcome.previous), (Code::Aborted, "xyz", None));
    harness.finish().await;
}

// Peer test: C-core: retry_lb_fail.
#[tokio::test(start_paused = true)]
async fn retry_after_a_refused_connection_follows_the_policy() {
    // C-core tests a failed pick; here that is a refused connection (G28).
    let config = config_json(&retry_policy(2, "1s", "120s", 1.6, "UNAVAILABLE"));
    let harness = harness(&config, vec![Answer::unconnected(); 2]);
    let (outcome, stop_reason) = harness.unary_with_stop_reason("foo").await;
    assert_eq!(
        (outcome.code, outcome.previous, stop_reason),
        (Code::Unavailable, Some(1), StopReason::AttemptsExhausted)
    );
    let record = harness.finish().await;
    let opened: Vec<_> = record.connections.iter().map(|it| it.opened.as_millis()).collect();
    assert_eq!((opened, record.streams.len()), (vec![0, 1000], 0));
}

// Peer test: C-core: retry_recv_initial_metadata.
#[tokio::test(start_paused = true)]
async fn retry_stops_once_response_headers_arrived() {
    let answer =
        Answer::headers().metadata("key1", "val1").trailers(StatusNumber::ABORTED).text("xyz");
    let harness = harness(&aborted_config(3), answer);
    let (outcome, stop_reason) = harness.unary_with_stop_reason("foo").await;
    assert_eq!(
        (outcome.code, &*outcome.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::Committed)
    );
    harness.finish().await;
}

// Peer test: C-core: retry_recv_message.
#[tokio::test(start_paused = true)]
async fn retry_stops_once_a_response_message_arrived() {
    let answer = Answer::headers()
        .message(response_bytes("bar"))
        .trailers(StatusNumber::ABORTED)
        .text("xyz");
    let harness = harness(&aborted_config(3), answer);
    let mut bidi = harness.bidi();
    bidi.write(&["foo"]);
    bidi.half_close();
    assert_eq!(bidi.collect().await, (vec!["bar".to_owned()], Code::Aborted));
    assert_eq!(bidi.stop_reason(), StopReason::Committed);
    harness.finish().await;
}

// Peer test: C-core: retry_send_op_fails, retry_recv_message_replay.
#[tokio::test(start_paused = true)]
async fn retry_follows_a_failure_of_the_inner_service() {
    let server = Server::new(fails(StatusNumber::ABORTED).text("xyz")).on_pipe();
    let first = Arc::new(AtomicBool::new(true));
    let channel = pipe_channel(server.connector());
    let failing_once = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        let (channel, fails) = (channel.clone(), first.swap(false, Ordering::Relaxed));
        async move {
            if fails {
                return Err(redial_grpc::BoxError::from(Status::aborted("failed below")));
            }
            channel.oneshot(request).await.map_err(redial_grpc::BoxError::from)
        }
    });
    let layer = without_jitter(&aborted_config(2)).build();
    let service = ServiceBuilder::new().layer(layer.clone()).service(failing_once);
    let result = no_hang(EchoClient::new(service).unary(request("foo"))).await;
    let outcome = UnaryOutcome::from_result(result);
    assert_eq!((outcome.code, &*outcome.text, outcome.previous), (Code::Aborted, "xyz", Some(1)));
    no_hang(server.idle()).await;
    let record = server.record();
    assert_eq!(previous(&record), [Some(1)]);
    assert_eq!((starts(&record), layer.control().bytes_kept()), (vec![1000], 0));
}

// Peer test: C-core: retry_recv_trailing_metadata_error.
#[tokio::test(start_paused = true)]
async fn retry_uses_the_status_set_by_the_inner_service() {
    let server = Server::new(fails(StatusNumber::ABORTED)).on_pipe();
    let service = ServiceBuilder::new()
        .layer(without_jitter(&aborted_config(2)).build())
        .map_response(|mut response: http::Response<tonic::body::Body>| {
            response.headers_mut().insert("grpc-status", http::HeaderValue::from_static("3"));
            response
        })
        .service(pipe_channel(server.connector()));
    let status = no_hang(EchoClient::new(service).unary(request("foo"))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(server.counts().streams, 1);
}

// Peer test: grpc-go: TestRetryUnary.
#[tokio::test(start_paused = true)]
async fn retry_stops_at_success_other_code_or_last_attempt() {
    let (busy, fatal) = (|| fails(StatusNumber::ALREADY_EXISTS), || fails(StatusNumber::INTERNAL));
    let ok = || replies("x");
    let script = [
        vec![ok(), busy(), ok(), busy(), busy(), ok()],
        vec![fatal(), busy(), fatal(), busy(), busy(), fatal()],
        vec![busy(), busy(), busy(), busy()],
    ]
    .concat();
    let harness =
        harness(&config_json(&retry_policy(4, "0.01s", "0.01s", 1.0, "ALREADY_EXISTS")), script);
    let expected = [
        (Code::Ok, 1),
        (Code::Ok, 3),
        (Code::Ok, 6),
        (Code::Internal, 7),
        (Code::Internal, 9),
        (Code::Internal, 12),
        (Code::AlreadyExists, 16),
    ];
    for (index, expected) in expected.into_iter().enumerate() {
        let code = harness.unary("x").await.code;
        assert_eq!((code, harness.attempts()), expected, "call {index}");
    }
    harness.finish().await;
}

// Peer test: grpc-go: TestMaxCallAttempts.
#[tokio::test(start_paused = true)]
async fn retry_attempts_are_limited_by_config_and_client() {
    let cases = [
        (9, Some(4), 4),
        (9, Some(7), 7),
        (3, Some(10), 3),
        (8, None, 5),
        (3, None, 3),
        (9, Some(1), 1),
    ];
    for (service, client, expected) in cases {
        let mut layer = without_jitter(&config_json(&retry_policy(
            service,
            "0.01s",
            "0.01s",
            1.0,
            "UNAVAILABLE",
        )));
        if let Some(cap) = client {
            layer = layer.attempts_cap(cap);
        }
        let script = vec![fails(StatusNumber::UNAVAILABLE); 2 * expected];
        let harness = harness_with(layer, Server::new(script));
        let mut bidi = harness.bidi();
        bidi.half_close();
        assert_eq!(bidi.collect().await.1, Code::Unavailable);
        assert_eq!(harness.attempts(), expected as u64, "{service} {client:?}");
        assert_eq!(harness.unary("x").await.code, Code::Unavailable);
        assert_eq!(harness.attempts(), 2 * expected as u64, "{service} {client:?}");
        harness.finish().await;
    }
}

// Peer test: grpc-go: TestNoRetry.
#[tokio::test(start_paused = true)]
async fn retry_disabled_keeps_only_transparent_retries() {
    for retries in [Retries::Transparent, Retries::Off] {
        let harness = harness_with(
            without_jitter(&four_attempts_config()).retries(retries),
            Server::new(fails(StatusNumber::UNAVAILABLE)),
        );
        let outcome = harness.unary("x").await;
        assert_eq!((outcome.code, outcome.previous), (Code::Unavailable, None));
        harness.finish().await;
    }
    // As in grpc-go, transparent retries still happen.
    let script = || [Answer::reset(Reason::REFUSED_STREAM), replies("a")];
    let layer = without_jitter(&four_attempts_config()).retries(Retries::Transparent);
    let transparent = harness_with(layer, Server::new(script()));
    assert_eq!(transparent.unary("x").await.text, "a");
    transparent.finish().await;
    let layer = without_jitter(&four_attempts_config()).retries(Retries::Off);
    let off = harness_with(layer, Server::new(script()));
    assert_eq!((off.unary("x").await.code, off.attempts()), (Code::Unavailable, 1));
    off.finish().await;
}

/// A failed stream that stays open must not block the only stream slot.
#[tokio::test(start_paused = true)]
async fn retry_resets_failed_stream_that_stays_open() {
    let large = Answer::http(StatusCode::SERVICE_UNAVAILABLE, "text/html", vec![b'x'; 10_000_000]);
    for (policy, fault) in
        [(RETRY, busy().without_end_stream()), (HEDGE, busy().without_end_stream()), (RETRY, large)]
    {
        let server = Server::new([fault, Answer::echo()]).concurrent_streams(1);
        let mut harness = Harness::with_layer(layer(policy).build(), server);
        let outcome = tokio::time::timeout(ms(1000), harness.call()).await.unwrap();
        assert_eq!((outcome.code(), outcome.previous()), (Code::Ok, vec![None, Some(1)]));
        assert_eq!(outcome.record.streams[0].reset.unwrap().reason, Reason::CANCEL);
    }
}

/// An inner service whose attempts fail after 10 ms.
#[derive(Clone)]
struct FailingService;

impl Service<http::Request<Body>> for FailingService {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: http::Request<Body>) -> Self::Future {
        Box::pin(async {
            tokio::time::sleep(ms(10)).await;
            Err(Status::unavailable("down"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn retry_spawns_no_task() {
    for policy in [RETRY, HEDGE] {
        let layer: RetryLayer = layer(policy).build();
        let mut client =
            EchoClient::new(ServiceBuilder::new().layer(layer.clone()).service(FailingService));
        let metrics = Handle::current().metrics();
        let before = metrics.num_alive_tasks();
        let watch = async {
            let mut most = 0;
            for _ in 0..200 {
                tokio::time::sleep(ms(1)).await;
                most = most.max(metrics.num_alive_tasks());
            }
            most
        };
        let (result, most) = tokio::join!(client.unary(message("x")), watch);
        assert_eq!(result.unwrap_err().message(), "down");
        assert_eq!((most, metrics.num_alive_tasks()), (before, before));
        let made = layer.control().statistics()[UNARY].retries.retries;
        assert_eq!(made, 2, "{policy}");
    }
}

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

/// tonic: #733, its requests cannot be cloned, so tower's retry layer does not work with them.
#[tokio::test(start_paused = true)]
async fn retry_works_for_unary_and_all_streaming_kinds() {
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
async fn retry_exhausted_returns_the_last_status() {
    let mut client = echo(&RetryLayer::from_json(&retry_config(3)).unwrap());
    let status = client.unary(failing(9, "x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn retry_disabled_at_run_time_makes_one_attempt() {
    let layer = RetryLayer::from_json(&retry_config(3)).unwrap();
    let mut client = echo(&layer);
    layer.control().set_retries(Retries::Off);
    assert_eq!(client.unary(failing(1, "x")).await.unwrap_err().code(), Code::Unavailable);
    layer.control().set_retries(Retries::All);
    assert_eq!(client.unary(failing(1, "x")).await.unwrap().get_ref().payload, "x");
}
