//! Clients of other kinds, and what tonic's own clients put around a channel.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use redial_echo::Responder;
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{Answer, Close, Once, Reason, StatusNumber as Peer, Stream};
use redial_grpc::{BoxError, CallReport, Replay, StopReason};
use tonic::codec::CompressionEncoding;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Status};
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _};

use super::rig::{HEDGE, RETRY, Rig, channel, endpoint, framed, layer, message, ms, raw_of};

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

#[tokio::test(start_paused = true)]
async fn compressed_requests_are_repeated_byte_by_byte() {
    let mut rig = Rig::new(RETRY, [busy(), busy(), Answer::reply("")]);
    rig.client = rig.client.send_compressed(CompressionEncoding::Gzip);
    let told = rig.call_with(tonic::Request::new(message(&"z".repeat(5000)))).await;
    assert_eq!(told.code(), Code::Ok);
    let streams = told.record.streams;
    assert_eq!(streams.len(), 3);
    for stream in &streams {
        assert_eq!(stream.headers["grpc-encoding"], "gzip");
        assert_eq!((stream.bytes, stream.digest), (streams[0].bytes, streams[0].digest));
        assert!(stream.bytes < 500, "{} bytes of 5000", stream.bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn compression_both_ways_and_retries_do_not_disturb_each_other() {
    for policy in [RETRY, HEDGE] {
        let server = EchoServer::new(Responder)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let layer = layer(policy).build();
        let mut client = EchoClient::new(layer.layer(server))
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        let payload = "z".repeat(50_000);
        let request = EchoRequest { failures: 2, ..message(&payload) };
        let answer = client.unary(request.clone()).await.unwrap();
        assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
        let answer: EchoResponse = answer.into_inner();
        assert_eq!((answer.payload.len(), answer.previous_attempts), (50_000, 2));
        let request = EchoRequest { responses: Some(3), ..request };
        let mut stream = client.server_stream(request).await.unwrap().into_inner();
        for _ in 0..3 {
            assert_eq!(stream.message().await.unwrap().unwrap().payload, payload);
        }
        assert_eq!(stream.message().await.unwrap(), None);
        assert_eq!(layer.control().bytes_kept(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_above_runs_once_for_a_call() {
    let rig = Rig::new(RETRY, [busy(), busy(), Answer::echo()]);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let interceptor = move |mut request: tonic::Request<()>| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        request.metadata_mut().insert("number", number.into());
        Ok(request)
    };
    let mut client = EchoClient::with_interceptor(rig.service(), interceptor);
    client.unary(message("x")).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let streams = rig.server.record().streams;
    assert_eq!(streams.len(), 3);
    assert!(streams.iter().all(|stream| stream.headers["number"] == "0"));
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_above_that_refuses_a_call_ends_it_without_an_attempt() {
    let rig = Rig::new(RETRY, [Answer::echo()]);
    let refuses = |_: tonic::Request<()>| Err(Status::unavailable("not today"));
    let mut client = EchoClient::with_interceptor(rig.service(), refuses);
    let status = client.unary(message("x")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "not today"));
    assert_eq!((rig.server.counts().streams, rig.tokens()), (0, 10_000));
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_below_runs_for_every_attempt_and_its_status_is_judged() {
    let rig = Rig::new(RETRY, [busy(), Answer::echo()]);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let interceptor = move |mut request: tonic::Request<()>| {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        request.metadata_mut().insert("number", number.into());
        if number == 1 { Err(Status::unavailable("not now")) } else { Ok(request) }
    };
    let channel = channel(&endpoint(), &rig.server.connector());
    let channel = InterceptedService::new(channel, interceptor);
    let mut client = EchoClient::new(rig.layer.layer(channel));
    client.unary(message("x")).await.unwrap();
    let record = rig.server.record();
    let numbers: Vec<_> = record.streams.iter().map(|it| it.headers["number"].clone()).collect();
    assert_eq!(numbers, ["0", "2"]);
    assert_eq!(record.streams[1].previous_attempts(), Some(2));
    assert_eq!(rig.tokens(), 8_100);
}

/// A service whose attempts fail with an error that is a status.
#[derive(Clone)]
struct Refusing(Status, Arc<AtomicU32>);

impl Service<Request<tonic::body::Body>> for Refusing {
    type Response = Response<tonic::body::Body>;
    type Error = Status;
    type Future = std::future::Ready<Result<Response<tonic::body::Body>, Status>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<tonic::body::Body>) -> Self::Future {
        self.1.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err(self.0.clone()))
    }
}

/// Decision G3 holds for a status that a service below returns as its error.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_an_error_is_judged_like_any_and_handed_on_unchanged() {
    for (code, attempts) in [(Code::Unavailable, 3), (Code::Aborted, 1)] {
        let mut status = Status::with_details(code, "no way", Bytes::from_static(&[1, 2]));
        status.metadata_mut().insert("who", "me".parse().unwrap());
        let calls = Arc::new(AtomicU32::new(0));
        let layer = layer(RETRY).build();
        let mut client = EchoClient::new(layer.layer(Refusing(status, calls.clone())));
        let seen = client.unary(message("x")).await.unwrap_err();
        assert_eq!(calls.load(Ordering::Relaxed), attempts);
        assert_eq!((seen.code(), seen.message(), seen.details()), (code, "no way", &[1, 2][..]));
        assert_eq!(seen.metadata().get("who").unwrap(), "me");
        let previous = seen.metadata().get("grpc-previous-rpc-attempts");
        assert_eq!(previous.map(|it| it.to_str().unwrap()), (attempts > 1).then_some("2"));
    }
}

/// Any body, in a box: what another version of tonic has, or none at all.
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// hyper's own client as a service.
#[derive(Clone)]
struct Hyper(SendRequest<AnyBody>);

impl Service<Request<AnyBody>> for Hyper {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<AnyBody>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

fn boxed(payload: &[u8]) -> AnyBody {
    let never = |it: Infallible| -> BoxError { match it {} };
    Full::new(framed(payload)).map_err(never).boxed_unsync()
}

/// How an attempt's body becomes one.
fn any_body(replay: Replay<AnyBody>) -> AnyBody {
    BodyExt::map_err(replay, |error| -> BoxError { Box::new(error) }).boxed_unsync()
}

async fn hyper_client(rig: &Rig) -> Hyper {
    let io = TokioIo::new(rig.server.connect().await.unwrap());
    let (send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    Hyper(send)
}

#[tokio::test(start_paused = true)]
async fn a_client_without_tonic_is_retried_hedged_and_replaced() {
    let slow = Answer::hang();
    let cases = [
        (RETRY, vec![busy(), busy(), Answer::echo()], vec![None, Some(1), Some(2)]),
        (HEDGE, vec![slow.clone(), slow, Answer::echo()], vec![None, Some(1), Some(2)]),
        ("", vec![Answer::reset(Reason::REFUSED_STREAM), Answer::echo()], vec![None, None]),
    ];
    for (policy, answers, previous) in cases {
        let rig = Rig::new(policy, answers);
        let layer = rig.layer.clone().adapter(any_body);
        let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&rig).await);
        let response = service.ready().await.unwrap().call(raw_of(boxed(b"abc"))).await.unwrap();
        let told = response.headers().get("grpc-previous-rpc-attempts").cloned();
        let last = previous.last().unwrap().map(|it| it.to_string());
        assert_eq!(told.map(|it| it.to_str().unwrap().to_owned()), last);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), framed(b"abc"));
        let record = rig.server.record();
        let seen: Vec<_> = record.streams.iter().map(Stream::previous_attempts).collect();
        assert_eq!((seen, rig.control.bytes_kept()), (previous, 0));
    }
}

/// Without tonic's types, a call that ends on this side is told as every client of gRPC understands.
#[tokio::test(start_paused = true)]
async fn a_client_without_tonic_hears_of_local_ends_by_trailers_only() {
    let table = [
        (Answer::hang(), "4", "the deadline passed (1 attempt)"),
        (Answer::close(Close::Orderly).once(Once::Request), "14", "connection error"),
    ];
    for (answer, code, text) in table {
        let rig = Rig::new("", [answer]);
        let layer = rig.layer.clone().adapter(any_body);
        let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&rig).await);
        let mut request = raw_of(boxed(b"abc"));
        request.headers_mut().insert("grpc-timeout", "100m".parse().unwrap());
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], code);
        let message = response.headers()["grpc-message"].to_str().unwrap();
        assert!(message.contains(text), "{message}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    }
}

/// There is no status with a source: the report is a response extension, also by default.
#[tokio::test(start_paused = true)]
async fn report_for_a_client_without_tonic_is_a_response_extension() {
    let busy = || Answer::trailers_only(Peer::UNAVAILABLE).text("busy");
    let closed = || Answer::close(Close::Orderly).once(Once::Request);
    for answers in [vec![busy(); 3], vec![closed(); 3]] {
        let rig = Rig::new(RETRY, answers);
        let layer = rig.layer.clone().adapter(any_body);
        let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&rig).await);
        let response = service.ready().await.unwrap().call(raw_of(boxed(b"abc"))).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "14");
        let report = response.extensions().get::<CallReport>().unwrap();
        assert_eq!(
            (report.attempts(), report.stop_reason()),
            (3, StopReason::AttemptsExhausted),
            "{report}"
        );
    }
}

/// What an error of a response that has begun is, is left to a client without tonic.
#[tokio::test(start_paused = true)]
async fn a_client_without_tonic_gets_the_errors_of_its_own_connection() {
    let rig =
        Rig::new(RETRY, [Answer::headers().message("").then_close(Close::Orderly).after(ms(5))]);
    let layer = rig.layer.clone().adapter(any_body);
    let mut service = ServiceBuilder::new().layer(layer).service(hyper_client(&rig).await);
    let response = service.ready().await.unwrap().call(raw_of(boxed(b"abc"))).await.unwrap();
    let error = response.into_body().collect().await.unwrap_err();
    assert!(error.is::<hyper::Error>(), "{error:?}");
    assert_eq!(rig.tokens(), 9_000, "it is judged as UNAVAILABLE all the same");
}
