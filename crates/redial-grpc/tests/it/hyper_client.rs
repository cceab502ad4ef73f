//! Clients without tonic: hyper's own client with the layer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use redial_faults::grpc::{Answer, Close, Reason, StatusNumber, StreamRecord, WaitFor};
use redial_grpc::{BoxError, CallReport, Replay, StopReason};
use tower::{Service, ServiceBuilder, ServiceExt as _};

use crate::common::harness::{HEDGE, Harness, RETRY, busy, framed, ms, raw_request_with_body};

/// A boxed body, as a client without tonic or with another tonic version has.
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// hyper's own client as a service.
#[derive(Clone)]
struct HyperClient(SendRequest<AnyBody>);

impl Service<http::Request<AnyBody>> for HyperClient {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<http::Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<AnyBody>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

fn boxed_message(payload: &[u8]) -> AnyBody {
    let never = |it: Infallible| -> BoxError { match it {} };
    Full::new(framed(payload)).map_err(never).boxed_unsync()
}

/// Boxes the body of an attempt.
fn boxed_replay(replay: Replay<AnyBody>) -> AnyBody {
    BodyExt::map_err(replay, |error| -> BoxError { Box::new(error) }).boxed_unsync()
}

async fn hyper_client(harness: &Harness) -> HyperClient {
    let io = TokioIo::new(harness.server.connect().await.unwrap());
    let (send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    HyperClient(send)
}

#[tokio::test(start_paused = true)]
async fn hyper_client_is_retried_and_hedged() {
    let slow = Answer::hang();
    let cases = [
        (RETRY, vec![busy(), busy(), Answer::echo()], vec![None, Some(1), Some(2)]),
        (HEDGE, vec![slow.clone(), slow, Answer::echo()], vec![None, Some(1), Some(2)]),
        ("", vec![Answer::reset(Reason::REFUSED_STREAM), Answer::echo()], vec![None, None]),
    ];
    for (policy, answers, previous) in cases {
        let harness = Harness::new(policy, answers);
        let layer = harness.layer.clone().adapter(boxed_replay);
        let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&harness).await);
        let response = service
            .ready()
            .await
            .unwrap()
            .call(raw_request_with_body(boxed_message(b"abc")))
            .await
            .unwrap();
        let outcome = response.headers().get("grpc-previous-rpc-attempts").cloned();
        let last = previous.last().unwrap().map(|it| it.to_string());
        assert_eq!(outcome.map(|it| it.to_str().unwrap().to_owned()), last);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), framed(b"abc"));
        let record = harness.server.record();
        let seen: Vec<_> = record.streams.iter().map(StreamRecord::previous_attempts).collect();
        assert_eq!((seen, harness.control.bytes_kept()), (previous, 0));
    }
}

/// Local failures (deadline, lost connection) become Trailers-Only responses.
#[tokio::test(start_paused = true)]
async fn hyper_client_gets_local_failures_as_trailers_only() {
    let table = [
        (Answer::hang(), "4", "the deadline passed (1 attempt)"),
        (Answer::close(Close::Graceful).wait_for(WaitFor::Request), "14", "connection error"),
    ];
    for (answer, code, text) in table {
        let harness = Harness::new("", [answer]);
        let layer = harness.layer.clone().adapter(boxed_replay);
        let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&harness).await);
        let mut request = raw_request_with_body(boxed_message(b"abc"));
        request.headers_mut().insert("grpc-timeout", "100m".parse().unwrap());
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], code);
        let message = response.headers()["grpc-message"].to_str().unwrap();
        assert!(message.contains(text), "{message}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    }
}

/// After the response headers an error of the connection reaches the client unchanged.
#[tokio::test(start_paused = true)]
async fn hyper_client_gets_its_own_connection_errors() {
    let harness = Harness::new(
        RETRY,
        [Answer::headers().message("").then_close(Close::Graceful).after(ms(5))],
    );
    let layer = harness.layer.clone().adapter(boxed_replay);
    let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&harness).await);
    let response = service
        .ready()
        .await
        .unwrap()
        .call(raw_request_with_body(boxed_message(b"abc")))
        .await
        .unwrap();
    let error = response.into_body().collect().await.unwrap_err();
    assert!(error.is::<hyper::Error>(), "{error:?}");
    assert_eq!(harness.tokens(), 9_000, "it counts as UNAVAILABLE");
}

/// Without tonic there is no status that could have a source.
#[tokio::test(start_paused = true)]
async fn hyper_client_report_is_a_response_extension() {
    let busy = || Answer::trailers_only(StatusNumber::UNAVAILABLE).text("busy");
    let closed = || Answer::close(Close::Graceful).wait_for(WaitFor::Request);
    for answers in [vec![busy(); 3], vec![closed(); 3]] {
        let harness = Harness::new(RETRY, answers);
        let layer = harness.layer.clone().adapter(boxed_replay);
        let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&harness).await);
        let response = service
            .ready()
            .await
            .unwrap()
            .call(raw_request_with_body(boxed_message(b"abc")))
            .await
            .unwrap();
        assert_eq!(response.headers()["grpc-status"], "14");
        let report = response.extensions().get::<CallReport>().unwrap();
        assert_eq!(
            (report.attempts(), report.stop_reason()),
            (3, StopReason::AttemptsExhausted),
            "{report}"
        );
    }
}
