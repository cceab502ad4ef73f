//! Message size limits of the service config (decision G41), and errors of the request body.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use redial::StopReason;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{Answer, Reason, Server, StatusNumber, StreamOutcome, WaitFor};
use redial_grpc::{CallOptions, Event, Retries, SharedCallLog};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Request, Status};
use tower::{Layer as _, Service};

use crate::common::harness::{
    HEDGE, Harness, RETRY, framed, layer, message, ms, raw_request_with_body,
};

/// One frame may hold a complete message and the start of an oversized one.
#[tokio::test(start_paused = true)]
async fn message_limit_delivers_messages_before_the_oversized_one() {
    // Field 1 of the response is its payload.
    let small = framed(b"\x0a\x01s");
    let large = framed(&[&b"\x0a\x40"[..], &[b'l'; 64]].concat());
    let both = Bytes::from([small, large].concat());
    let policy = format!(r#"{RETRY}, "maxResponseMessageBytes": 10"#);
    let mut harness =
        Harness::new(&policy, [Answer::headers().data(both).trailers(StatusNumber::OK)]);
    let mut stream = harness.client.server_stream(message("x")).await.unwrap().into_inner();
    let first = stream.message().await;
    assert_eq!(first.unwrap().unwrap().payload, "s");
    assert_eq!(stream.message().await.unwrap_err().code(), Code::ResourceExhausted);
}

/// Limits of 20 bytes in both directions. `RESOURCE_EXHAUSTED` is retryable, to show that the local failure
/// is not retried.
fn limited_fields(policy: &str) -> String {
    let policy = policy.replace(r#"["UNAVAILABLE"]"#, r#"["UNAVAILABLE", "RESOURCE_EXHAUSTED"]"#);
    format!(r#"{policy}, "maxRequestMessageBytes": 20, "maxResponseMessageBytes": 20"#)
}

/// A message of exactly 20 bytes.
fn largest() -> EchoRequest {
    message(&"m".repeat(18))
}

fn too_large() -> EchoRequest {
    message(&"m".repeat(19))
}

const REQUEST_TEXT: &str =
    "the request has a message of 21 bytes, and maxRequestMessageBytes of the service config is 20";

const RESPONSE_TEXT: &str = "the response has a message of 21 bytes, \
                             and maxResponseMessageBytes of the service config is 20";

/// A message within the limit, and 10 ms later one over it.
fn growing_stream() -> ReceiverStream<EchoRequest> {
    let (send, receive) = mpsc::channel(4);
    tokio::spawn(async move {
        for message in [largest(), too_large()] {
            let _ = send.send(message).await;
            tokio::time::sleep(ms(10)).await;
        }
        send.closed().await;
    });
    ReceiverStream::new(receive)
}

async fn final_status(mut stream: tonic::Streaming<EchoResponse>) -> Status {
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(status)) => return status,
            None => panic!("the stream must fail"),
        }
    }
}

/// An inner service that gives the request bodies and the response senders of its attempts to the test.
#[derive(Clone, Default)]
struct ManualService(Arc<Mutex<Vec<PendingAttempt>>>);

type PendingAttempt = (Body, oneshot::Sender<http::Response<Body>>);

impl Service<http::Request<Body>> for ManualService {
    type Response = http::Response<Body>;
    type Error = oneshot::error::RecvError;
    type Future = oneshot::Receiver<http::Response<Body>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (answer, answered) = oneshot::channel();
        self.0.lock().unwrap().push((request.into_body(), answer));
        answered
    }
}

/// Polls a call once.
async fn poll_once<F: Future + Unpin>(call: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *call).poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// A response message with a payload of this many bytes.
fn response_of(payload: usize) -> Bytes {
    use prost::Message as _;
    let payload = vec![b'm'; payload].into();
    EchoResponse { payload, ..EchoResponse::default() }.encode_to_vec().into()
}

#[tokio::test(start_paused = true)]
async fn message_limit_of_requests_is_exact() {
    for policy in [RETRY, HEDGE] {
        for retries in [Retries::All, Retries::Transparent, Retries::Off] {
            let layer = layer(&limited_fields(policy)).retries(retries).build();
            let mut harness = Harness::with_layer(layer, Server::new(Answer::echo()));
            let outcome = harness.call_with(Request::new(largest())).await;
            assert_eq!(outcome.code(), Code::Ok, "{retries:?}");
            let status = harness.client.unary(too_large()).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, REQUEST_TEXT));
            assert_eq!(harness.server.counts().streams, 1, "{retries:?}");
            assert_eq!(harness.control.bytes_kept(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn message_limit_of_a_request_stream_ends_the_call() {
    // Before and after the response headers.
    for once in [WaitFor::Request, WaitFor::Headers] {
        for policy in [RETRY, HEDGE] {
            for retries in [Retries::All, Retries::Transparent, Retries::Off] {
                let what = format!("{once:?} {retries:?} {policy}");
                let answers = vec![Answer::echo().wait_for(once); 3];
                let layer = layer(&limited_fields(policy)).retries(retries).build();
                let mut harness = Harness::with_layer(layer, Server::new(answers));
                let call = async {
                    match harness.client.bidi(growing_stream()).await {
                        Ok(response) => (true, final_status(response.into_inner()).await),
                        Err(status) => (false, status),
                    }
                };
                let (begun, status) = tokio::time::timeout(ms(1000), call).await.expect(&what);
                assert_eq!(begun, once == WaitFor::Headers, "{what}");
                assert_eq!(
                    (status.code(), status.message()),
                    (Code::ResourceExhausted, REQUEST_TEXT),
                    "{what}"
                );
                harness.server.idle().await;
                let record = harness.server.record();
                assert_eq!(record.streams.len(), 1, "{what}");
                assert!(
                    matches!(
                        record.streams[0].end.unwrap().outcome,
                        StreamOutcome::ResetByClient(_)
                    ),
                    "{what}"
                );
                assert_eq!((harness.tokens(), harness.statistics()), (10_000, (0, 0, 0)), "{what}");
                assert_eq!(harness.control.bytes_kept(), 0, "{what}");
            }
        }
    }
}

/// An error of the request body is returned unchanged and never retried.
#[tokio::test(start_paused = true)]
async fn request_body_error_sets_the_call_status() {
    let policy =
        RETRY.replace(r#"["UNAVAILABLE"]"#, r#"["UNAVAILABLE", "OUT_OF_RANGE", "INTERNAL"]"#);
    for once in [WaitFor::Request, WaitFor::Headers] {
        let mut harness = Harness::new(&policy, vec![Answer::echo().wait_for(once); 3]);
        // tonic refuses to encode the second message.
        let mut client = harness.client.clone().max_encoding_message_size(20);
        let call = async {
            match client.bidi(growing_stream()).await {
                Ok(response) => final_status(response.into_inner()).await,
                Err(status) => status,
            }
        };
        let status = tokio::time::timeout(ms(1000), call).await.expect("the call ends");
        assert_eq!(status.code(), Code::OutOfRange, "{once:?}");
        assert!(status.message().contains("encoded message length too large"), "{status:?}");
        harness.server.idle().await;
        assert_eq!(
            (harness.server.counts().streams, harness.statistics()),
            (1, (0, 0, 0)),
            "{once:?}"
        );
        let status = client.unary(too_large()).await.unwrap_err();
        assert_eq!((status.code(), harness.server.counts().streams), (Code::OutOfRange, 1));
        assert_eq!((harness.tokens(), harness.control.bytes_kept()), (10_000, 0));
        harness.client = client;
    }
}

/// A retryable response and an oversized request message arrive together: a call whose body failed is not
/// retried.
#[tokio::test(start_paused = true)]
async fn request_body_error_between_attempts_sets_call_status() {
    let (inner, layer) = (ManualService::default(), layer(&limited_fields(RETRY)).build());
    let mut service = layer.layer(inner.clone());
    let (send, receive) = mpsc::channel(4);
    let frames = ReceiverStream::new(receive);
    let frames = frames.map(|it: Bytes| Ok::<_, Status>(http_body::Frame::data(it)));
    let mut call =
        Box::pin(service.call(raw_request_with_body(Body::new(StreamBody::new(frames)))));
    assert!(tokio::time::timeout(ms(0), &mut call).await.is_err());
    let (mut body, answer) = inner.0.lock().unwrap().remove(0);
    send.send(framed(&[7; 21])).await.unwrap();
    assert!(body.frame().await.unwrap().is_err(), "the connection sees the error of the body");
    let busy = http::Response::builder().header("grpc-status", "14").body(Body::empty()).unwrap();
    answer.send(busy).unwrap();
    let error =
        tokio::time::timeout(ms(1), call).await.expect("the call ends at once").unwrap_err();
    let status = error.downcast_ref::<Status>().unwrap();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, REQUEST_TEXT));
    assert_eq!((inner.0.lock().unwrap().len(), layer.control().bytes_kept()), (0, 0));
}

/// A call that is not polled for a while may find an oversized message after its deadline. The deadline was
/// first, and status and call log agree.
#[tokio::test(start_paused = true)]
async fn message_limit_of_request_found_after_deadline_is_deadline_exceeded() {
    for (wait, code, stop_reason) in [
        (100, Code::ResourceExhausted, StopReason::NotRetryable),
        (101, Code::DeadlineExceeded, StopReason::Deadline),
    ] {
        let (inner, layer) = (ManualService::default(), layer(&limited_fields(RETRY)).build());
        let mut service = layer.layer(inner.clone());
        let (send, receive) = mpsc::channel(4);
        let frames = ReceiverStream::new(receive);
        let frames = frames.map(|it: Bytes| Ok::<_, Status>(http_body::Frame::data(it)));
        let call_log = SharedCallLog::new();
        let mut request = raw_request_with_body(Body::new(StreamBody::new(frames)));
        request.headers_mut().insert("grpc-timeout", "100m".parse().unwrap());
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        let mut call = Box::pin(service.call(request));
        assert!(poll_once(&mut call).await.is_none());
        let (mut body, _answer) = inner.0.lock().unwrap().remove(0);
        tokio::time::sleep(ms(wait)).await;
        send.send(framed(&[7; 21])).await.unwrap();
        assert!(body.frame().await.unwrap().is_err());
        let error = poll_once(&mut call).await.expect("the call ends at once").unwrap_err();
        assert_eq!(error.downcast_ref::<Status>().unwrap().code(), code, "after {wait} ms");
        let events = call_log.take();
        let (_, last) = events.events().last().unwrap();
        assert!(
            matches!(last, Event::CallEnded { stop_reason: it, .. } if *it == stop_reason),
            "{last:?}"
        );
    }
}

/// The same for a response.
#[tokio::test(start_paused = true)]
async fn message_limit_of_response_found_after_deadline_is_deadline_exceeded() {
    // In the second case the oversized message follows another one in the same frame.
    let both = Bytes::from([framed(&response_of(1)), framed(&response_of(19))].concat());
    for data in [framed(&response_of(19)), both] {
        for (wait, code, stop_reason) in [
            (99, Code::ResourceExhausted, StopReason::NotRetryable),
            (101, Code::DeadlineExceeded, StopReason::Deadline),
        ] {
            let answer = Answer::headers().data(data.clone()).trailers(StatusNumber::OK);
            let mut harness = Harness::new(&limited_fields(RETRY), [answer]);
            let call_log = SharedCallLog::new();
            let mut request = Request::new(message("x"));
            request.set_timeout(ms(100));
            request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
            let mut stream = harness.client.server_stream(request).await.unwrap().into_inner();
            tokio::time::sleep(ms(wait)).await;
            let found = loop {
                if let Err(status) = stream.message().await {
                    break status.code();
                }
            };
            assert_eq!(found, code, "after {wait} ms");
            let events = call_log.take();
            let (_, last) = events.events().last().unwrap();
            assert!(
                matches!(last, Event::CallEnded { stop_reason: it, .. } if *it == stop_reason),
                "{last:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn message_limit_of_responses_is_never_retried() {
    for retries in [Retries::All, Retries::Transparent, Retries::Off] {
        for policy in [RETRY, HEDGE] {
            let layer = || layer(&limited_fields(policy)).retries(retries).build();
            let mut harness =
                Harness::with_layer(layer(), Server::new(Answer::reply(response_of(18))));
            assert_eq!(harness.call().await.code(), Code::Ok, "{retries:?}");

            let mut harness =
                Harness::with_layer(layer(), Server::new(vec![Answer::reply(response_of(19)); 3]));
            let outcome = harness.call().await;
            assert_eq!(
                (outcome.code(), outcome.status().message()),
                (Code::ResourceExhausted, RESPONSE_TEXT)
            );
            assert_eq!(
                (outcome.end().0, outcome.starts().len()),
                (StopReason::NotRetryable, 1),
                "{retries:?}"
            );
            assert_eq!((harness.tokens(), harness.control.bytes_kept()), (10_000, 0));
        }
    }
}

/// The server would continue to send.
#[tokio::test(start_paused = true)]
async fn message_limit_of_a_response_resets_the_stream() {
    let answer = Answer::headers().message(response_of(1)).message(response_of(19));
    let mut harness = Harness::new(&limited_fields(RETRY), [answer]);
    let mut stream = harness.client.server_stream(message("x")).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().payload.len(), 1);
    assert_eq!(stream.message().await.unwrap_err().code(), Code::ResourceExhausted);
    harness.server.idle().await;
    let how = harness.server.record().streams[0].end.unwrap().outcome;
    assert_eq!(how, StreamOutcome::ResetByClient(Reason::CANCEL));
}

/// Frame boundaries are independent of messages: a length prefix may be split.
#[tokio::test(start_paused = true)]
async fn message_limit_is_checked_across_frames() {
    let bytes = framed(&response_of(19));
    let mut answer = Answer::headers();
    for piece in bytes.chunks(3) {
        answer = answer.data(Bytes::copy_from_slice(piece));
    }
    let mut harness = Harness::new(&limited_fields(RETRY), [answer.trailers(StatusNumber::OK)]);
    assert_eq!(harness.call().await.code(), Code::ResourceExhausted);

    for (size, code) in [(20, None), (21, Some(Code::ResourceExhausted))] {
        let harness = Harness::new(&limited_fields(RETRY), [Answer::echo()]);
        let mut service = harness.service();
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let bytes = [framed(&[7; 3]), framed(&vec![7; size])].concat();
        let pieces: Vec<_> = bytes.chunks(3).map(Bytes::copy_from_slice).collect();
        let frames =
            tokio_stream::iter(pieces).map(|it| Ok::<_, Status>(http_body::Frame::data(it)));
        let result = service.call(raw_request_with_body(Body::new(StreamBody::new(frames)))).await;
        let found = result.err().map(|error| error.downcast_ref::<Status>().unwrap().code());
        assert_eq!(found, code, "{size}");
    }
}

/// The limits of the generated client still apply.
#[tokio::test(start_paused = true)]
async fn message_limit_is_the_smaller_of_config_and_client() {
    let mut harness = Harness::new(&limited_fields(RETRY), [Answer::echo()]);
    let mut client = harness.client.clone().max_decoding_message_size(10);
    let status = client.unary(message(&"m".repeat(10))).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "the status of tonic");
    assert_eq!(harness.call_with(Request::new(too_large())).await.code(), Code::ResourceExhausted);
}
