//! Calls whose deadline has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use redial_grpc_server::{self as server, DeadlineLayer};
use tokio::time::Instant;
use tonic::Response;
use tonic::transport::Server;
use tower::limit::ConcurrencyLimitLayer;

use super::support::{FrameClient, Handlers, response, serve};

#[tokio::test(start_paused = true)]
async fn deadline_layer_rejects_expired_calls_in_one_frame() {
    let served = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&served);
    let handlers = Handlers::unary(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(response("served")))
    });
    let pipe = serve(|incoming| {
        let mut server = Server::builder().layer(DeadlineLayer::new());
        server.add_service(EchoServer::new(handlers)).serve_with_incoming(incoming)
    });
    let mut raw = FrameClient::over(pipe).await;
    let answer = raw.call("Unary", &[("grpc-timeout", "0n")], &EchoRequest::default()).await;
    assert_eq!(answer.frames, ["HEADERS+END"]);
    assert_eq!(answer.head.status(), 200);
    assert_eq!(answer.header("grpc-status"), Some("4"));
    assert_eq!(served.load(Ordering::Relaxed), 0);

    let answer = raw.call("Unary", &[("grpc-timeout", "1S")], &EchoRequest::default()).await;
    assert_eq!(answer.frames, ["HEADERS", "DATA", "HEADERS+END"]);
    assert_eq!(served.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_rejects_queued_calls_before_tonic_cancels_them() {
    let pipe = serve(|incoming| {
        let mut server =
            Server::builder().layer(DeadlineLayer::new()).layer(ConcurrencyLimitLayer::new(1));
        server.add_service(EchoServer::new(Responder)).serve_with_incoming(incoming)
    });
    let begun = Instant::now();
    let raw = FrameClient::over(pipe).await;
    let slow = EchoRequest { delay_ms: 10_000, ..EchoRequest::default() };
    let mut first = raw.again();
    let first = tokio::spawn(async move { first.call("Unary", &[], &slow).await });
    tokio::time::sleep(Duration::from_secs(1)).await;

    let mut raw = raw;
    let late = raw.call("Unary", &[("grpc-timeout", "3S")], &EchoRequest::default()).await;
    assert_eq!(late.header("grpc-status"), Some("4"));
    assert_eq!(late.frames, ["HEADERS+END"]);
    assert_eq!(begun.elapsed(), Duration::from_secs(4));

    let patient = raw.call("Unary", &[("grpc-timeout", "30S")], &EchoRequest::default()).await;
    assert_eq!(patient.messages.len(), 1);
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    assert_eq!(first.await.unwrap().messages.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_handler_reads_the_remaining_time() {
    let handlers = Handlers::unary(|request| {
        let remaining = server::remaining(&request);
        Ok(Response::new(response(format!("{remaining:?}"))))
    });
    let pipe = serve(|incoming| {
        let mut server = Server::builder().layer(DeadlineLayer::new());
        server.add_service(EchoServer::new(handlers)).serve_with_incoming(incoming)
    });
    let mut raw = FrameClient::over(pipe).await;
    let asked = raw.call("Unary", &[("grpc-timeout", "90S")], &EchoRequest::default()).await;
    assert_eq!(asked.messages[0].payload, "Some(90s)");
    let asked = raw.call("Unary", &[], &EchoRequest::default()).await;
    assert_eq!(asked.messages[0].payload, "None");
}
