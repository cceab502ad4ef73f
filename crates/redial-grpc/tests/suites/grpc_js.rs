//! After grpc-js's `test-retry.ts`, against a real tonic server where one can say it.

use hyper_util::rt::TokioIo;
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use redial_faults::grpc::{Server, StatusNumber as Said};
use redial_grpc::{Jitter, Retries, RetryLayer, RetryLayerBuilder, ServiceConfig};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;
use tonic::transport::Endpoint;
use tower::{ServiceBuilder, service_fn};

use super::rig::{ClientOptions, Heard, fails, patiently, previous, rig_of};

/// Codes in both of their forms.
fn retries(attempts: u32) -> RetryLayerBuilder {
    configured(&format!(
        r#""retryPolicy": {{ "maxAttempts": {attempts}, "initialBackoff": "0.1s", "maxBackoff": "10s",
            "backoffMultiplier": 1.2, "retryableStatusCodes": [14, "RESOURCE_EXHAUSTED"] }}"#
    ))
}

/// Without a delay: all at once.
fn hedges(attempts: u32) -> RetryLayerBuilder {
    configured(&format!(
        r#""hedgingPolicy": {{ "maxAttempts": {attempts},
            "nonFatalStatusCodes": [14, "RESOURCE_EXHAUSTED"] }}"#
    ))
}

fn configured(policy: &str) -> RetryLayerBuilder {
    let config = ServiceConfig::parse(&super::rig::config(policy)).unwrap();
    RetryLayer::builder().config(config).jitter(Jitter::None)
}

/// A client of a server that fails as often as a request asks for.
fn client(layer: RetryLayerBuilder) -> ClientOptions {
    let (connections, accepted) = tokio::sync::mpsc::unbounded_channel();
    let server = tonic::transport::Server::builder().add_service(EchoServer::new(Responder));
    tokio::spawn(server.serve_with_incoming(UnboundedReceiverStream::new(accepted)));
    let endpoint = Endpoint::from_static("http://echo");
    let channel = endpoint.connect_with_connector_lazy(service_fn(move |_| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let sent = connections.send(Ok::<_, std::io::Error>(theirs));
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        async move { sent.map(|()| TokioIo::new(ours)).map_err(|_| refused()) }
    }));
    EchoClient::new(ServiceBuilder::new().layer(layer.build()).service(channel))
}

/// A call whose first attempts fail with this code.
async fn call(layer: RetryLayerBuilder, failures: u32, code: Code) -> Heard {
    let code = u32::try_from(i32::from(code)).unwrap();
    let request = EchoRequest { payload: "x".into(), failures, code, ..EchoRequest::default() };
    Heard::of(patiently(client(layer).unary(request)).await)
}

fn heard(code: Code, text: &str, previous: Option<u32>) -> Heard {
    Heard { code, text: text.to_owned(), previous }
}

#[tokio::test(start_paused = true)]
async fn disabled_a_basic_request_is_answered() {
    let layer = retries(3).retries(Retries::Off);
    assert_eq!(call(layer, 0, Code::Ok).await, heard(Code::Ok, "x", None));
}

#[tokio::test(start_paused = true)]
async fn disabled_a_failure_of_the_first_attempt_is_the_calls() {
    let layer = retries(3).retries(Retries::Off);
    let failed = heard(Code::Unavailable, "asked to fail, after 0 attempts", None);
    assert_eq!(call(layer, 1, Code::Unavailable).await, failed);
}

#[tokio::test(start_paused = true)]
async fn not_configured_a_basic_request_is_answered() {
    assert_eq!(call(RetryLayer::builder(), 0, Code::Ok).await, heard(Code::Ok, "x", None));
}

#[tokio::test(start_paused = true)]
async fn not_configured_a_failure_of_the_first_attempt_is_the_calls() {
    let failed = heard(Code::Unavailable, "asked to fail, after 0 attempts", None);
    assert_eq!(call(RetryLayer::builder(), 1, Code::Unavailable).await, failed);
}

#[tokio::test(start_paused = true)]
async fn retries_a_basic_request_is_answered() {
    assert_eq!(call(retries(3), 0, Code::Ok).await, heard(Code::Ok, "x", None));
}

#[tokio::test(start_paused = true)]
async fn retries_few_required_attempts_succeed() {
    let succeeded = heard(Code::Ok, "x", Some(2));
    assert_eq!(call(retries(3), 2, Code::ResourceExhausted).await, succeeded);
    assert_eq!(call(retries(3), 2, Code::Unavailable).await, succeeded);
}

#[tokio::test(start_paused = true)]
async fn retries_many_required_attempts_fail() {
    let failed = heard(Code::ResourceExhausted, "asked to fail, after 2 attempts", Some(2));
    assert_eq!(call(retries(3), 4, Code::ResourceExhausted).await, failed);
}

#[tokio::test(start_paused = true)]
async fn retries_a_fatal_code_fails_at_once() {
    let failed = heard(Code::NotFound, "asked to fail, after 0 attempts", None);
    assert_eq!(call(retries(3), 2, Code::NotFound).await, failed);
}

#[tokio::test(start_paused = true)]
async fn retries_there_are_no_more_than_five_attempts() {
    let failed = heard(Code::ResourceExhausted, "asked to fail, after 4 attempts", Some(4));
    assert_eq!(call(retries(10), 6, Code::ResourceExhausted).await, failed);
}

#[tokio::test(start_paused = true)]
async fn retries_the_client_can_allow_more_than_five_attempts() {
    let layer = || retries(10).attempts_cap(8);
    let succeeded = heard(Code::Ok, "x", Some(7));
    assert_eq!(call(layer(), 7, Code::ResourceExhausted).await, succeeded);
    let failed = heard(Code::ResourceExhausted, "asked to fail, after 7 attempts", Some(7));
    assert_eq!(call(layer(), 9, Code::ResourceExhausted).await, failed);
}

#[tokio::test(start_paused = true)]
async fn retries_a_code_that_does_not_exist_is_not_retried() {
    a_code_that_does_not_exist_is_fatal(retries(3), &[None]).await;
}

#[tokio::test(start_paused = true)]
async fn hedging_a_basic_request_is_answered() {
    let answer = call(hedges(3), 0, Code::Ok).await;
    assert_eq!((answer.code, &*answer.text), (Code::Ok, "x"));
}

#[tokio::test(start_paused = true)]
async fn hedging_few_required_attempts_succeed() {
    let succeeded = heard(Code::Ok, "x", Some(2));
    assert_eq!(call(hedges(3), 2, Code::ResourceExhausted).await, succeeded);
    assert_eq!(call(hedges(3), 2, Code::Unavailable).await, succeeded);
}

#[tokio::test(start_paused = true)]
async fn hedging_many_required_attempts_fail() {
    // Whichever of the three came last (G21).
    let failed = call(hedges(3), 4, Code::ResourceExhausted).await;
    assert_eq!(failed.code, Code::ResourceExhausted);
    let last = failed.previous.unwrap_or(0);
    assert!(last < 3);
    assert_eq!(failed.text, format!("asked to fail, after {last} attempts"));
}

#[tokio::test(start_paused = true)]
async fn hedging_a_fatal_code_fails_at_once() {
    let failed = call(hedges(3), 3, Code::NotFound).await;
    assert_eq!(failed.code, Code::NotFound);
    let first = failed.previous.unwrap_or(0);
    assert_eq!(failed.text, format!("asked to fail, after {first} attempts"));
}

#[tokio::test(start_paused = true)]
async fn hedging_there_are_no_more_than_five_attempts() {
    let rig = rig_of(hedges(10), Server::new(vec![fails(Said::RESOURCE_EXHAUSTED); 5]));
    assert_eq!(rig.unary("x").await.code, Code::ResourceExhausted);
    let record = rig.finish().await;
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3), Some(4)]);
}

#[tokio::test(start_paused = true)]
async fn hedging_the_client_can_allow_more_than_five_attempts() {
    let layer = || hedges(10).attempts_cap(8);
    let succeeded = heard(Code::Ok, "x", Some(7));
    assert_eq!(call(layer(), 7, Code::ResourceExhausted).await, succeeded);
    assert_eq!(call(layer(), 9, Code::ResourceExhausted).await.code, Code::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn hedging_a_code_that_does_not_exist_is_fatal() {
    a_code_that_does_not_exist_is_fatal(hedges(3), &[None, Some(1), Some(2)]).await;
}

/// A server that knows more codes than gRPC.
async fn a_code_that_does_not_exist_is_fatal(layer: RetryLayerBuilder, attempts: &[Option<u64>]) {
    let strange = fails(Said::UNKNOWN).without("grpc-status").metadata("grpc-status", "300");
    let rig = rig_of(layer, Server::new(vec![strange; attempts.len()]));
    let (failed, stop_reason) = rig.told("x").await;
    assert_eq!((failed.code, &*failed.text), (Code::Unknown, "from the script"));
    assert_eq!(stop_reason, redial_core::StopReason::NotRetryable);
    assert_eq!(previous(&rig.finish().await), attempts);
}
