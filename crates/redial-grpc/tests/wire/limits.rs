//! How large messages may be (decision G41).

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use redial::StopReason;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{Answer, How, Once, Reason, Server, StatusNumber as Peer};
use redial_grpc::{CallOptions, Event, Retries, SharedCallLog};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Request, Status};
use tower::{Layer as _, Service};

use super::rig::{HEDGE, RETRY, Rig, framed, layer, message, ms, raw_of};

/// Messages may have 20 bytes in either direction, and `RESOURCE_EXHAUSTED` is listed: what this
/// side says must not be taken for a server's word.
fn fields(policy: &str) -> String {
    let policy = policy.replace(r#"["UNAVAILABLE"]"#, r#"["UNAVAILABLE", "RESOURCE_EXHAUSTED"]"#);
    format!(r#"{policy}, "maxRequestMessageBytes": 20, "maxResponseMessageBytes": 20"#)
}

/// A message whose payload is so long that all of it has 20 bytes.
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

#[tokio::test(start_paused = true)]
async fn a_request_of_the_limit_passes_and_one_byte_more_is_never_sent() {
    for policy in [RETRY, HEDGE] {
        for retries in [Retries::All, Retries::Transparent, Retries::Off] {
            let layer = layer(&fields(policy)).retries(retries).build();
            let mut rig = Rig::of(layer, Server::new(Answer::echo()));
            let told = rig.call_with(Request::new(largest())).await;
            assert_eq!(told.code(), Code::Ok, "{retries:?}");
            let status = rig.client.unary(too_large()).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, REQUEST_TEXT));
            assert_eq!(rig.server.counts().streams, 1, "{retries:?}");
            assert_eq!(rig.control.bytes_kept(), 0);
        }
    }
}

/// Writes one message that fits, and one that does not 10 ms later.
fn growing() -> ReceiverStream<EchoRequest> {
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

async fn last(mut stream: tonic::Streaming<EchoResponse>) -> Status {
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(status)) => return status,
            None => panic!("it ended well"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_grows_too_large_ends_its_call_in_every_phase() {
    // Before the response, and after it has begun.
    for once in [Once::Request, Once::Headers] {
        for policy in [RETRY, HEDGE] {
            for retries in [Retries::All, Retries::Transparent, Retries::Off] {
                let what = format!("{once:?} {retries:?} {policy}");
                let answers = vec![Answer::echo().once(once); 3];
                let layer = layer(&fields(policy)).retries(retries).build();
                let mut rig = Rig::of(layer, Server::new(answers));
                let call = async {
                    match rig.client.bidi(growing()).await {
                        Ok(response) => (true, last(response.into_inner()).await),
                        Err(status) => (false, status),
                    }
                };
                let (begun, status) = tokio::time::timeout(ms(1000), call).await.expect(&what);
                assert_eq!(begun, once == Once::Headers, "{what}");
                assert_eq!(
                    (status.code(), status.message()),
                    (Code::ResourceExhausted, REQUEST_TEXT),
                    "{what}"
                );
                rig.server.idle().await;
                let record = rig.server.record();
                assert_eq!(record.streams.len(), 1, "{what}");
                assert!(
                    matches!(record.streams[0].end.unwrap().how, How::ResetByClient(_)),
                    "{what}"
                );
                assert_eq!((rig.tokens(), rig.statistics()), (10_000, (0, 0, 0)), "{what}");
                assert_eq!(rig.control.bytes_kept(), 0, "{what}");
            }
        }
    }
}

/// An error of the application's own body is its own: it is never retried, and handed on as it is.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_ends_its_call_with_its_own_error_in_every_phase() {
    let policy =
        RETRY.replace(r#"["UNAVAILABLE"]"#, r#"["UNAVAILABLE", "OUT_OF_RANGE", "INTERNAL"]"#);
    for once in [Once::Request, Once::Headers] {
        let mut rig = Rig::new(&policy, vec![Answer::echo().once(once); 3]);
        // tonic refuses to encode the second message.
        let mut client = rig.client.clone().max_encoding_message_size(20);
        let call = async {
            match client.bidi(growing()).await {
                Ok(response) => last(response.into_inner()).await,
                Err(status) => status,
            }
        };
        let status = tokio::time::timeout(ms(1000), call).await.expect("it ends");
        assert_eq!(status.code(), Code::OutOfRange, "{once:?}");
        assert!(status.message().contains("encoded message length too large"), "{status:?}");
        rig.server.idle().await;
        assert_eq!((rig.server.counts().streams, rig.statistics()), (1, (0, 0, 0)), "{once:?}");
        let status = client.unary(too_large()).await.unwrap_err();
        assert_eq!((status.code(), rig.server.counts().streams), (Code::OutOfRange, 1));
        assert_eq!((rig.tokens(), rig.control.bytes_kept()), (10_000, 0));
        rig.client = client;
    }
}

/// A service whose attempts a test holds in its hands: their bodies, and what answers them.
#[derive(Clone, Default)]
struct InHand(Arc<Mutex<Vec<Withdrawal>>>);

type Withdrawal = (Body, oneshot::Sender<Response<Body>>);

impl Service<http::Request<Body>> for InHand {
    type Response = Response<Body>;
    type Error = oneshot::error::RecvError;
    type Future = oneshot::Receiver<Response<Body>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (answer, answered) = oneshot::channel();
        self.0.lock().unwrap().push((request.into_body(), answer));
        answered
    }
}

/// An answer that may be retried and a message that must not be sent come in the same moment: there
/// is no retry of a call whose body has failed.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_between_two_attempts_ends_its_call() {
    let (inner, layer) = (InHand::default(), layer(&fields(RETRY)).build());
    let mut service = layer.layer(inner.clone());
    let (send, receive) = mpsc::channel(4);
    let frames = ReceiverStream::new(receive);
    let frames = frames.map(|it: Bytes| Ok::<_, Status>(http_body::Frame::data(it)));
    let mut call = Box::pin(service.call(raw_of(Body::new(StreamBody::new(frames)))));
    assert!(tokio::time::timeout(ms(0), &mut call).await.is_err());
    let (mut body, answer) = inner.0.lock().unwrap().remove(0);
    send.send(framed(&[7; 21])).await.unwrap();
    assert!(body.frame().await.unwrap().is_err(), "the connection is told that there is no more");
    let busy = Response::builder().header("grpc-status", "14").body(Body::empty()).unwrap();
    answer.send(busy).unwrap();
    let error = tokio::time::timeout(ms(1), call).await.expect("it ends at once").unwrap_err();
    let status = error.downcast_ref::<Status>().unwrap();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, REQUEST_TEXT));
    assert_eq!((inner.0.lock().unwrap().len(), layer.control().bytes_kept()), (0, 0));
}

/// A call that nobody asks for a while may find a message that is too large after its deadline, which
/// came first; what the application hears is what the diary says.
/// Red: `if true` in place of `!begun.is_out_of_time()` in `Pending::body_failed`.
#[tokio::test(start_paused = true)]
async fn a_request_that_grows_too_large_after_the_deadline_was_overtaken_by_it() {
    for (wait, code, stop_reason) in [
        (100, Code::ResourceExhausted, StopReason::NotRetryable),
        (101, Code::DeadlineExceeded, StopReason::Deadline),
    ] {
        let (inner, layer) = (InHand::default(), layer(&fields(RETRY)).build());
        let mut service = layer.layer(inner.clone());
        let (send, receive) = mpsc::channel(4);
        let frames = ReceiverStream::new(receive);
        let frames = frames.map(|it: Bytes| Ok::<_, Status>(http_body::Frame::data(it)));
        let call_log = SharedCallLog::new();
        let mut request = raw_of(Body::new(StreamBody::new(frames)));
        request.headers_mut().insert("grpc-timeout", "100m".parse().unwrap());
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        let mut call = Box::pin(service.call(request));
        assert!(now(&mut call).await.is_none());
        let (mut body, _answer) = inner.0.lock().unwrap().remove(0);
        tokio::time::sleep(ms(wait)).await;
        send.send(framed(&[7; 21])).await.unwrap();
        assert!(body.frame().await.unwrap().is_err());
        let error = now(&mut call).await.expect("it ends at once").unwrap_err();
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
/// Red: `if false` in place of `call.is_out_of_time()` in `refuse` of `body.rs`.
#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_large_after_the_deadline_was_overtaken_by_it() {
    // The second comes behind a message in the same frame.
    let both = Bytes::from([framed(&response_of(1)), framed(&response_of(19))].concat());
    for data in [framed(&response_of(19)), both] {
        for (wait, code, stop_reason) in [
            (99, Code::ResourceExhausted, StopReason::NotRetryable),
            (101, Code::DeadlineExceeded, StopReason::Deadline),
        ] {
            let answer = Answer::headers().data(data.clone()).trailers(Peer::OK);
            let mut rig = Rig::new(&fields(RETRY), [answer]);
            let call_log = SharedCallLog::new();
            let mut request = Request::new(message("x"));
            request.set_timeout(ms(100));
            request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
            let mut stream = rig.client.server_stream(request).await.unwrap().into_inner();
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

/// What a call has to say now.
async fn now<F: Future + Unpin>(call: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *call).poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_large_ends_its_call_and_is_never_retried() {
    for retries in [Retries::All, Retries::Transparent, Retries::Off] {
        for policy in [RETRY, HEDGE] {
            let layer = || layer(&fields(policy)).retries(retries).build();
            let mut rig = Rig::of(layer(), Server::new(Answer::reply(response_of(18))));
            assert_eq!(rig.call().await.code(), Code::Ok, "{retries:?}");

            let mut rig = Rig::of(layer(), Server::new(vec![Answer::reply(response_of(19)); 3]));
            let told = rig.call().await;
            assert_eq!(
                (told.code(), told.status().message()),
                (Code::ResourceExhausted, RESPONSE_TEXT)
            );
            assert_eq!(
                (told.end().0, told.starts().len()),
                (StopReason::NotRetryable, 1),
                "{retries:?}"
            );
            assert_eq!((rig.tokens(), rig.control.bytes_kept()), (10_000, 0));
        }
    }
}

/// An answer that a stream of the server's continues after it became too large is reset.
#[tokio::test(start_paused = true)]
async fn the_stream_of_a_response_that_is_too_large_is_reset() {
    let answer = Answer::headers().message(response_of(1)).message(response_of(19));
    let mut rig = Rig::new(&fields(RETRY), [answer]);
    let mut stream = rig.client.server_stream(message("x")).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().payload.len(), 1);
    assert_eq!(stream.message().await.unwrap_err().code(), Code::ResourceExhausted);
    rig.server.idle().await;
    let how = rig.server.record().streams[0].end.unwrap().how;
    assert_eq!(how, How::ResetByClient(Reason::CANCEL));
}

/// Frames and messages have nothing to do with each other: a prefix may come in pieces.
#[tokio::test(start_paused = true)]
async fn sizes_are_read_across_frames_in_both_directions() {
    let bytes = framed(&response_of(19));
    let mut answer = Answer::headers();
    for piece in bytes.chunks(3) {
        answer = answer.data(Bytes::copy_from_slice(piece));
    }
    let mut rig = Rig::new(&fields(RETRY), [answer.trailers(Peer::OK)]);
    assert_eq!(rig.call().await.code(), Code::ResourceExhausted);

    for (size, code) in [(20, None), (21, Some(Code::ResourceExhausted))] {
        let rig = Rig::new(&fields(RETRY), [Answer::echo()]);
        let mut service = rig.service();
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let bytes = [framed(&[7; 3]), framed(&vec![7; size])].concat();
        let pieces: Vec<_> = bytes.chunks(3).map(Bytes::copy_from_slice).collect();
        let frames =
            tokio_stream::iter(pieces).map(|it| Ok::<_, Status>(http_body::Frame::data(it)));
        let result = service.call(raw_of(Body::new(StreamBody::new(frames)))).await;
        let found = result.err().map(|error| error.downcast_ref::<Status>().unwrap().code());
        assert_eq!(found, code, "{size}");
    }
}

/// The client's own limits still hold: the smaller one counts.
#[tokio::test(start_paused = true)]
async fn the_smaller_of_the_configs_and_the_clients_limit_counts() {
    let mut rig = Rig::new(&fields(RETRY), [Answer::echo()]);
    let mut client = rig.client.clone().max_decoding_message_size(10);
    let status = client.unary(message(&"m".repeat(10))).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "tonic's own word");
    assert_eq!(rig.call_with(Request::new(too_large())).await.code(), Code::ResourceExhausted);
}

/// A response's message with a payload of so many bytes.
fn response_of(payload: usize) -> Bytes {
    use prost::Message as _;
    let payload = vec![b'm'; payload].into();
    EchoResponse { payload, ..EchoResponse::default() }.encode_to_vec().into()
}
