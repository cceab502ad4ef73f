//! Response headers that wait for the first message.

use std::time::Duration;

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::{Echo, EchoServer};
use redial_echo::{EchoRequest, EchoResponse, Failing, Responder};
use redial_grpc_server::{HeaderHold, HoldLayer};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::{Code, Response, Status};

use super::support::{FrameClient, Handlers, channel, response, serve};

/// Long enough to count as never.
const HOUR: Duration = Duration::from_secs(3600);

fn plain(service: impl Echo) -> DuplexStream {
    serve(|incoming| {
        Server::builder().add_service(EchoServer::new(service)).serve_with_incoming(incoming)
    })
}

fn held_by(layer: HoldLayer, service: impl Echo) -> DuplexStream {
    serve(move |incoming| {
        let mut server = Server::builder().layer(layer);
        server.add_service(EchoServer::new(service)).serve_with_incoming(incoming)
    })
}

fn held(service: impl Echo) -> DuplexStream {
    held_by(HoldLayer::new(), service)
}

fn failing_with_its_first_item() -> EchoRequest {
    EchoRequest {
        failures: 1,
        failing: Failing::FirstItem.into(),
        pushback_ms: Some(250),
        delay_ms: 1000,
        ..EchoRequest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn hold_absent_sends_a_first_item_error_after_headers() {
    let mut raw = FrameClient::over(plain(Responder)).await;
    let answer = raw.call("ServerStream", &[], &failing_with_its_first_item()).await;
    assert_eq!(answer.frames, ["HEADERS", "HEADERS+END"]);
    assert_eq!(answer.header("grpc-status"), None);
}

#[tokio::test(start_paused = true)]
async fn hold_sends_first_item_error_with_pushback_in_one_frame() {
    let mut raw = FrameClient::over(held(Responder)).await;
    for method in ["ServerStream", "Bidi"] {
        let answer = raw.call(method, &[], &failing_with_its_first_item()).await;
        assert_eq!(answer.frames, ["HEADERS+END"], "{method}");
        assert_eq!(answer.head.status(), 200);
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
        assert_eq!(answer.header("grpc-status"), Some("14"));
        assert_eq!(answer.header("grpc-retry-pushback-ms"), Some("250"));
        assert!(answer.trailers.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn hold_merged_error_carries_initial_metadata_in_its_status() {
    let handlers = Handlers::server_stream(|_| {
        let failed = Status::with_details(Code::Aborted, "lost, näher besehen", "details".into());
        let mut response = Response::new(Box::pin(tokio_stream::once(Err(failed))) as _);
        response.metadata_mut().insert("early", "1".parse().unwrap());
        Ok(response)
    });
    let mut client = EchoClient::new(channel(held(handlers)).await);
    let status = client.server_stream(EchoRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(status.message(), "lost, näher besehen");
    assert_eq!(status.details(), b"details");
    assert_eq!(status.metadata().get("early").unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn hold_does_not_change_messages() {
    let thrice = EchoRequest { responses: Some(3), delay_ms: 1000, ..EchoRequest::default() };
    let failing_late =
        EchoRequest { failures: 1, failing: Failing::AtEnd.into(), ..thrice.clone() };
    let silent = EchoRequest { responses: Some(0), ..EchoRequest::default() };
    let failing = EchoRequest { failures: 1, ..EchoRequest::default() };
    let mut without = FrameClient::over(plain(Responder)).await;
    let mut with = FrameClient::over(held(Responder)).await;
    let cases = [
        ("ServerStream", &thrice, &["HEADERS", "DATA", "DATA", "DATA", "HEADERS+END"][..]),
        ("ServerStream", &failing_late, &["HEADERS", "DATA", "DATA", "DATA", "HEADERS+END"]),
        ("ServerStream", &silent, &["HEADERS", "HEADERS+END"]),
        ("ServerStream", &failing, &["HEADERS+END"]),
        ("Bidi", &thrice, &["HEADERS", "DATA", "DATA", "DATA", "HEADERS+END"]),
        ("Unary", &silent, &["HEADERS", "DATA", "HEADERS+END"]),
        ("Unary", &failing, &["HEADERS+END"]),
        ("ClientStream", &silent, &["HEADERS", "DATA", "HEADERS+END"]),
        ("Missing", &silent, &["HEADERS+END"]),
    ];
    for (method, request, frames) in cases {
        let expected = without.call(method, &[], request).await;
        let answer = with.call(method, &[], request).await;
        assert_eq!(answer.frames, frames, "{method} {request:?}");
        assert_eq!(answer.frames, expected.frames, "{method} {request:?}");
        assert_eq!(answer.messages, expected.messages, "{method}");
        assert_eq!(answer.trailers, expected.trailers, "{method}");
        for head in [&answer, &expected] {
            assert!(head.header("content-length").is_none_or(|length| length == "0"), "{head:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hold_supports_compression_and_merged_error_names_no_encoding() {
    let pipe = serve(|incoming| {
        let service = EchoServer::new(Responder).send_compressed(CompressionEncoding::Gzip);
        let mut server = Server::builder().layer(HoldLayer::new());
        server.add_service(service).serve_with_incoming(incoming)
    });
    let channel = channel(pipe).await;
    let mut client = EchoClient::new(channel).accept_compressed(CompressionEncoding::Gzip);
    let payload = "x".repeat(10_000);
    let request = EchoRequest { payload: payload.clone().into(), ..EchoRequest::default() };
    let mut stream = client.server_stream(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().payload, payload);
    assert!(stream.message().await.unwrap().is_none());

    let status = client.server_stream(failing_with_its_first_item()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.metadata().get("grpc-encoding").is_none());
}

/// Responds to each message of the client, and sends nothing before the first.
fn echo_each(asked: tonic::Streaming<EchoRequest>) -> tonic::codegen::BoxStream<EchoResponse> {
    Box::pin(asked.map(|asked| Ok(response(asked?.payload))))
}

/// A client that waits for headers before its first message. Returns when it got its response, if
/// it did.
async fn call_waiting_for_headers(pipe: DuplexStream) -> Option<Duration> {
    let mut client = EchoClient::new(channel(pipe).await);
    let begun = Instant::now();
    let (sender, messages) = mpsc::unbounded_channel();
    let call = client.bidi(UnboundedReceiverStream::new(messages));
    let mut answers = timeout(HOUR, call).await.ok()?.unwrap().into_inner();
    let seen = begun.elapsed();
    sender.send(EchoRequest { payload: "hello".into(), ..EchoRequest::default() }).unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().payload, "hello");
    Some(seen)
}

#[tokio::test(start_paused = true)]
async fn hold_flush_resolves_a_bidi_deadlock() {
    let silent = || Handlers::bidi(|request| Ok(Response::new(echo_each(request.into_inner()))));
    let flushing = Handlers::bidi(|request| {
        HeaderHold::of(&request).flush();
        Ok(Response::new(echo_each(request.into_inner())))
    });
    assert_eq!(call_waiting_for_headers(plain(silent())).await, Some(Duration::ZERO));
    assert_eq!(call_waiting_for_headers(held(silent())).await, None);
    assert_eq!(call_waiting_for_headers(held(flushing.clone())).await, Some(Duration::ZERO));
    assert_eq!(call_waiting_for_headers(plain(flushing)).await, Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn hold_time_limit_resolves_a_bidi_deadlock() {
    let silent = Handlers::bidi(|request| Ok(Response::new(echo_each(request.into_inner()))));
    let pipe = held_by(HoldLayer::new().at_most(Duration::from_secs(2)), silent);
    assert_eq!(call_waiting_for_headers(pipe).await, Some(Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn hold_flush_works_from_a_spawned_task() {
    let handlers = Handlers::bidi(|request| {
        let hold = HeaderHold::of(&request);
        let mut asked = request.into_inner();
        let (answer, answers) = mpsc::channel(1);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            hold.flush();
            while let Ok(Some(asked)) = asked.message().await {
                let _ = answer.send(Ok(response(asked.payload))).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    });
    let seen = call_waiting_for_headers(held(handlers)).await;
    assert_eq!(seen, Some(Duration::from_secs(3)));
}

/// Sends a message when it is dropped.
struct Guard(mpsc::UnboundedSender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test(start_paused = true)]
async fn hold_client_cancellation_drops_the_handler_stream() {
    let (dropped, mut is_dropped) = mpsc::unbounded_channel();
    let handlers = Handlers::server_stream(move |_| {
        let guard = Guard(dropped.clone());
        let never = tokio_stream::pending().map(move |nothing: EchoResponse| {
            let _ = &guard;
            Ok(nothing)
        });
        Ok(Response::new(Box::pin(never)))
    });
    let mut client = EchoClient::new(channel(held(handlers)).await);
    let begun = Instant::now();
    let gone = timeout(Duration::from_secs(1), client.server_stream(EchoRequest::default())).await;
    assert!(gone.is_err());
    assert_eq!(timeout(HOUR, is_dropped.recv()).await, Ok(Some(())));
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}
