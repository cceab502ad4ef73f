//! Goal: the handler implements every field of `echo.proto` for every call type. Method: the
//! generated client calls the generated server directly, without a network, on a paused clock.

use std::time::Duration;

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, EchoResponse, Failing, Responder};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::{Code, Request, Status};

fn client() -> EchoClient<EchoServer<Responder>> {
    EchoClient::new(EchoServer::new(Responder))
}

fn saying(payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), ..EchoRequest::default() }
}

fn as_attempt_after(previous: &'static str, message: EchoRequest) -> Request<EchoRequest> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("grpc-previous-rpc-attempts", previous.parse().unwrap());
    request
}

fn answer(payload: &'static str, received: u32) -> EchoResponse {
    EchoResponse { payload: payload.into(), previous_attempts: 0, received }
}

/// The messages of a response stream, and its error.
async fn read(mut stream: tonic::Streaming<EchoResponse>) -> (Vec<EchoResponse>, Option<Status>) {
    let mut messages = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, None),
            Err(status) => return (messages, Some(status)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn echo_every_call_type_returns_its_payloads() {
    let mut client = client();
    assert_eq!(client.unary(saying("a")).await.unwrap().into_inner(), answer("a", 1));

    let both = tokio_stream::iter([saying("a"), saying("b")]);
    assert_eq!(client.client_stream(both).await.unwrap().into_inner(), answer("ab", 2));

    let thrice = EchoRequest { responses: Some(3), ..saying("a") };
    let stream = client.server_stream(thrice).await.unwrap().into_inner();
    let (messages, error) = read(stream).await;
    assert_eq!(messages, [answer("a", 1), answer("a", 1), answer("a", 1)]);
    assert!(error.is_none());

    let silent = EchoRequest { responses: Some(0), ..saying("b") };
    let inbound = tokio_stream::iter([saying("a"), silent, saying("c")]);
    let (messages, error) = read(client.bidi(inbound).await.unwrap().into_inner()).await;
    assert_eq!(messages, [answer("a", 1), answer("c", 3)]);
    assert!(error.is_none());
}

#[tokio::test(start_paused = true)]
async fn echo_empty_stream_returns_no_messages() {
    let mut client = client();
    let nothing = client.client_stream(tokio_stream::empty()).await.unwrap().into_inner();
    assert_eq!(nothing, answer("", 0));
    let stream = client.bidi(tokio_stream::empty()).await.unwrap().into_inner();
    assert_eq!(read(stream).await.0, []);
}

#[tokio::test(start_paused = true)]
async fn echo_fails_as_many_attempts_as_requested() {
    let mut client = client();
    let twice = EchoRequest { failures: 2, code: Code::Aborted as u32, ..saying("a") };
    for previous in ["0", "1"] {
        let status = client.unary(as_attempt_after(previous, twice.clone())).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        assert!(status.metadata().get("grpc-retry-pushback-ms").is_none());
    }
    let third = client.unary(as_attempt_after("2", twice)).await.unwrap().into_inner();
    assert_eq!(third, EchoResponse { previous_attempts: 2, ..answer("a", 1) });
}

#[tokio::test(start_paused = true)]
async fn echo_failure_has_the_requested_code_and_pushback() {
    let cases = [(0, Code::Unavailable), (1, Code::Cancelled), (16, Code::Unauthenticated)];
    let beyond = [(17, Code::Unavailable), (u32::MAX, Code::Unavailable)];
    for (code, expected) in cases.into_iter().chain(beyond) {
        let failing = EchoRequest { failures: 1, code, pushback_ms: Some(-1), ..saying("a") };
        let status = client().unary(failing).await.unwrap_err();
        assert_eq!(status.code(), expected, "{code}");
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    }
}

#[tokio::test(start_paused = true)]
async fn echo_stream_fails_at_the_requested_point() {
    let mut client = client();
    let failing = |failing: Failing| EchoRequest {
        failures: 1,
        failing: failing.into(),
        responses: Some(2),
        ..saying("a")
    };
    let bidi = |message| tokio_stream::iter([message, saying("b")]);

    assert!(client.server_stream(failing(Failing::AtOnce)).await.is_err());
    assert!(client.bidi(bidi(failing(Failing::AtOnce))).await.is_err());
    assert!(client.client_stream(bidi(failing(Failing::AtEnd))).await.is_err());

    for (place, expected) in [(Failing::FirstItem, [0, 0]), (Failing::AtEnd, [2, 3])] {
        let served = client.server_stream(failing(place)).await.unwrap().into_inner();
        let answered = client.bidi(bidi(failing(place))).await.unwrap().into_inner();
        for (stream, expected) in [served, answered].into_iter().zip(expected) {
            let (messages, error) = read(stream).await;
            assert_eq!(messages.len(), expected, "{place:?}");
            assert_eq!(error.unwrap().code(), Code::Unavailable);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn echo_delay_applies_to_responses_failures_and_messages() {
    let mut client = client();
    let slow = EchoRequest { delay_ms: 1000, responses: Some(3), ..saying("a") };
    let begun = Instant::now();
    client.unary(slow.clone()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    client.unary(EchoRequest { failures: 1, ..slow.clone() }).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));

    let mut stream = client.server_stream(slow).await.unwrap().into_inner();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    for seconds in 3..=5 {
        stream.next().await.unwrap().unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(seconds));
    }
}
