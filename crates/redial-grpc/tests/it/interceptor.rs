//! Interceptors of tonic above and below the layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::Answer;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Status};
use tower::Layer as _;

use crate::common::harness::{Harness, RETRY, busy, channel, endpoint, message};

#[tokio::test(start_paused = true)]
async fn interceptor_above_the_layer_runs_once_per_call() {
    let harness = Harness::new(RETRY, [busy(), busy(), Answer::echo()]);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let interceptor = move |mut request: tonic::Request<()>| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        request.metadata_mut().insert("number", number.into());
        Ok(request)
    };
    let mut client = EchoClient::with_interceptor(harness.service(), interceptor);
    client.unary(message("x")).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let streams = harness.server.record().streams;
    assert_eq!(streams.len(), 3);
    assert!(streams.iter().all(|stream| stream.headers["number"] == "0"));
}

#[tokio::test(start_paused = true)]
async fn interceptor_above_can_fail_a_call_without_an_attempt() {
    let harness = Harness::new(RETRY, [Answer::echo()]);
    let refuses = |_: tonic::Request<()>| Err(Status::unavailable("not today"));
    let mut client = EchoClient::with_interceptor(harness.service(), refuses);
    let status = client.unary(message("x")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "not today"));
    assert_eq!((harness.server.counts().streams, harness.tokens()), (0, 10_000));
}

#[tokio::test(start_paused = true)]
async fn interceptor_below_runs_per_attempt_and_its_status_counts() {
    let harness = Harness::new(RETRY, [busy(), Answer::echo()]);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let interceptor = move |mut request: tonic::Request<()>| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        request.metadata_mut().insert("number", number.into());
        if number == 1 { Err(Status::unavailable("not now")) } else { Ok(request) }
    };
    let channel = channel(&endpoint(), &harness.server.connector());
    let channel = InterceptedService::new(channel, interceptor);
    let mut client = EchoClient::new(harness.layer.layer(channel));
    client.unary(message("x")).await.unwrap();
    let record = harness.server.record();
    let numbers: Vec<_> = record.streams.iter().map(|it| it.headers["number"].clone()).collect();
    assert_eq!(numbers, ["0", "2"]);
    assert_eq!(record.streams[1].previous_attempts(), Some(2));
    assert_eq!(harness.tokens(), 8_100);
}
