//! All four kinds of calls of an unchanged generated client, through the layer, against a real
//! tonic server.

#[path = "../common/mod.rs"]
mod common;

use std::time::Duration;

use common::{echo, hedge_config, retry_config};
use redial_echo::{EchoRequest, EchoResponse};
use redial_grpc::{Retries, RetryLayer};
use tokio::time::Instant;
use tonic::{Code, Streaming};

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
