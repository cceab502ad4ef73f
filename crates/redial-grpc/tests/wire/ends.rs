//! What a call owes to others when it ends, however it does: its place, its stream, its messages, and
//! the number of its attempts.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Close, How, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{Retries, RetryLayer, ServiceConfig};
use tokio::sync::oneshot;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};
use tower::{ServiceBuilder, ServiceExt};

use super::rig::*;

fn within(span: Duration) -> Request<EchoRequest> {
    let mut request = Request::new(message("x"));
    request.set_timeout(span);
    request
}

/// Red: `Seen::More` without its condition in `poll_call`.
#[tokio::test(start_paused = true)]
async fn a_stream_that_always_has_something_ends_at_its_deadline() {
    let mut answer = Answer::headers();
    for _ in 0..200 {
        answer = answer.message("");
    }
    let mut rig = Rig::new(RETRY, [answer.trailers(Peer::OK)]);
    let mut stream = rig.client.server_stream(within(ms(100))).await.unwrap().into_inner();
    let began = tokio::time::Instant::now();
    let mut read = 0;
    let end = loop {
        match stream.message().await {
            Ok(Some(_)) => read += 1,
            Ok(None) => break Code::Ok,
            Err(status) => break status.code(),
        }
        tokio::time::sleep(ms(10)).await;
    };
    assert_eq!(end, Code::DeadlineExceeded, "after {read} messages");
    assert!(began.elapsed() <= ms(120), "{:?}", began.elapsed());
}

/// Red: no `self.give_up_readiness();` where nothing starts in `RetryService::begin`.
#[tokio::test(start_paused = true)]
async fn a_call_that_makes_no_attempt_holds_no_place() {
    let rig = Rig::new(RETRY, Script::new().otherwise(Answer::echo()));
    let channel = channel(&endpoint(), &rig.server.connector());
    let service =
        ServiceBuilder::new().layer(rig.layer.clone()).concurrency_limit(1).service(channel);
    let mut one = EchoClient::new(service.clone());
    let mut other = EchoClient::new(service);
    one.unary(within(Duration::ZERO)).await.unwrap_err();
    let answer = tokio::time::timeout(ms(60_000), other.unary(message("x"))).await;
    answer.expect("the first client holds the only place, though it calls nobody").unwrap();
}

/// A request stream that answers what the response brings owns the response.
/// Red: asking the source under the lock in `Tape::read`.
#[test]
fn a_request_stream_may_own_its_response() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rig =
                Rig::new(RETRY, [Answer::headers().message("").after(ms(1000)).trailers(Peer::OK)]);
            let mut client = rig.client.clone();
            let (give, given) = oneshot::channel::<tonic::Streaming<redial_echo::EchoResponse>>();
            let mut given = Some(given);
            let requests = async_stream(move |cx: &mut Context<'_>| match given.as_mut() {
                None => Poll::Ready(None),
                Some(it) => match Pin::new(it).poll(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(inbound) => {
                        given = None;
                        // It heard enough.
                        drop(inbound);
                        Poll::Ready(Some(message("bye")))
                    }
                },
            });
            let response = client.bidi(requests).await.unwrap().into_inner();
            give.send(response).unwrap();
            tokio::time::sleep(ms(50)).await;
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("the connection's task hangs");
}

fn async_stream<T>(
    poll: impl FnMut(&mut Context<'_>) -> Poll<Option<T>> + Send + 'static + Unpin,
) -> impl tokio_stream::Stream<Item = T> + Send + 'static {
    struct S<F>(F);
    impl<T, F: FnMut(&mut Context<'_>) -> Poll<Option<T>> + Unpin> tokio_stream::Stream for S<F> {
        type Item = T;
        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
            (self.0)(cx)
        }
    }
    S(poll)
}

/// Red: `|| bounded` left out in `RetryService::begin`.
#[tokio::test(start_paused = true)]
async fn with_retries_disabled_the_deadline_resets_the_stream_too() {
    for retries in [Retries::All, Retries::Off] {
        for answer in [Answer::hang(), Answer::headers().message("").message("").after(ms(10_000))]
        {
            let layer = layer(RETRY).retries(retries).build();
            let mut rig =
                Rig::of(layer, Server::new([answer.once(redial_faults::grpc::Once::Headers)]));
            let (send, receive) = tokio::sync::mpsc::channel(4);
            send.send(message("x")).await.unwrap();
            let mut request = Request::new(ReceiverStream::new(receive));
            request.set_timeout(ms(100));
            let code = match rig.client.bidi(request).await {
                Err(status) => status.code(),
                Ok(response) => {
                    let mut stream = response.into_inner();
                    loop {
                        match stream.message().await {
                            Ok(Some(_)) => {}
                            Ok(None) => break Code::Ok,
                            Err(status) => break status.code(),
                        }
                    }
                }
            };
            assert_eq!(code, Code::DeadlineExceeded, "{retries:?}");
            let _ = tokio::time::timeout(ms(5_000), rig.server.idle()).await;
            let end = rig.server.record().streams[0].end.map(|end| (end.how, end.at));
            assert_eq!(end, Some((How::ResetByClient(Reason::CANCEL), ms(100))), "{retries:?}");
            drop(send);
        }
    }
}

/// Says nothing, for ever.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::new()))))
    }
}

/// Red: `loop` in place of the bounded `for` in `Ahead::read`.
#[test]
fn a_body_of_empty_frames_gives_others_a_turn() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new(RETRY, Script::new().otherwise(Answer::echo()));
            let request = raw_of(tonic::body::Body::new(Nothing));
            let mut service = rig.service();
            let service = service.ready().await.unwrap();
            let _ = tokio::time::timeout(ms(200), tower::Service::call(service, request)).await;
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("the call never returns");
}

/// Red: `Some(1)` as `Some(0)` in `Book::event`.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_policy_has_no_retries_to_lose() {
    let layer = RetryLayer::builder()
        .config(ServiceConfig::default())
        .per_rpc_buffer_limit_in_bytes(3)
        .build();
    let mut rig = Rig::of(layer, Server::new(Script::new().otherwise(Answer::echo())));
    assert_eq!(rig.call().await.code(), Code::Ok);
    assert_eq!(rig.control.statistics()[UNARY].buffers_full, 0);
}

/// Red: `code != Code::Ok` as `code == Code::Ok` in `numbered` of `body.rs`.
#[tokio::test(start_paused = true)]
async fn the_status_of_a_stream_that_fails_after_its_headers_has_the_number() {
    let busy = Answer::trailers_only(Peer::UNAVAILABLE);
    let mut rig = Rig::new(RETRY, [busy, Answer::headers().message("").trailers(Peer::ABORTED)]);
    let mut stream = rig.client.server_stream(message("x")).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    let number = status.metadata().get("grpc-previous-rpc-attempts").map(|it| it.to_str().unwrap());
    assert_eq!(number, Some("1"));
}

/// The same where no status comes, but the connection says that the stream is lost.
/// Red: `Rare::Fails(error)` without `numbered_error` in `rare`.
#[tokio::test(start_paused = true)]
async fn the_status_of_a_stream_that_is_lost_after_its_headers_has_the_number() {
    let lost = Answer::headers().message("").then_reset(Reason::INTERNAL_ERROR);
    let closed = Answer::headers().message("").then_close(Close::Orderly);
    for (answer, code) in [(lost, Code::Internal), (closed, Code::Unavailable)] {
        let busy = Answer::trailers_only(Peer::UNAVAILABLE);
        let mut rig = Rig::new(RETRY, [busy, answer.clone(), answer]);
        for expected in [Some("1"), None] {
            let mut stream = rig.client.server_stream(message("x")).await.unwrap().into_inner();
            stream.message().await.unwrap().unwrap();
            let status = stream.message().await.unwrap_err();
            assert_eq!(status.code(), code);
            let number = status.metadata().get("grpc-previous-rpc-attempts");
            assert_eq!(number.map(|it| it.to_str().unwrap()), expected, "{code:?}");
        }
    }
}

/// A response's frame may hold a whole message and the beginning of one that is too large.
/// Red: `sizes.look_up_to(data)` answering with `look` in `saw`.
#[tokio::test(start_paused = true)]
async fn messages_before_one_that_is_too_large_reach_the_application() {
    // Field 1 of the response is its payload.
    let small = framed(b"\x0a\x01s");
    let large = framed(&[&b"\x0a\x40"[..], &[b'l'; 64]].concat());
    let both = Bytes::from([small, large].concat());
    let policy = format!(r#"{RETRY}, "maxResponseMessageBytes": 10"#);
    let mut rig = Rig::new(&policy, [Answer::headers().data(both).trailers(Peer::OK)]);
    let mut stream = rig.client.server_stream(message("x")).await.unwrap().into_inner();
    let first = stream.message().await;
    assert_eq!(first.unwrap().unwrap().payload, "s");
    assert_eq!(stream.message().await.unwrap_err().code(), Code::ResourceExhausted);
}

/// An error of a service below that is of no connection.
/// Red: `attempts > 1` as `attempts > 9` in `Tonic::failed`.
#[tokio::test(start_paused = true)]
async fn an_error_that_is_handed_on_as_it_is_has_the_number_too() {
    let policy = RETRY.replace("UNAVAILABLE", "UNKNOWN");
    let layer = layer(&policy).build();
    let failing = tower::service_fn(|_: http::Request<tonic::body::Body>| async {
        Err::<http::Response<tonic::body::Body>, _>("broken")
    });
    let failing = ServiceBuilder::new()
        .map_err(|text: &str| Box::<dyn std::error::Error + Send + Sync>::from(text))
        .service(failing);
    let mut client = EchoClient::new(ServiceBuilder::new().layer(layer).service(failing));
    let status = client.unary(message("x")).await.unwrap_err();
    let number = status.metadata().get("grpc-previous-rpc-attempts").map(|it| it.to_str().unwrap());
    assert_eq!(number, Some("2"));
}
