//! The errors of a tonic client for each fault, and what their sources prove.

use std::error::Error;

use bytes::Bytes;
use h2::Reason;
use hyper_util::rt::TokioIo;
use redial_faults::grpc::{
    Answer, Close, Connector, LastStream, OnConnect, Script, Server, StatusNumber, StreamOutcome,
    WaitFor,
};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::codec::Raw;
use super::raw::{ms, serve};

fn channel(connector: Connector) -> Channel {
    Endpoint::from_static("http://pipe").connect_with_connector_lazy(tower::service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    }))
}

pub(crate) async fn unary(channel: &Channel, request: Request<Bytes>) -> Result<Bytes, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = "/echo.Echo/Get".parse().unwrap();
    client.unary(request, path, Raw).await.map(tonic::Response::into_inner)
}

/// What the sources of an error prove about the attempt.
pub(crate) fn chain(status: &Status) -> Vec<String> {
    let mut chain = Vec::new();
    let mut next: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            let flags = [
                (error.is_canceled(), "canceled"),
                (error.is_closed(), "closed"),
                (error.is_user(), "user"),
                (error.is_incomplete_message(), "incomplete"),
                (error.is_timeout(), "timeout"),
            ];
            let flags: Vec<_> = flags.iter().filter(|it| it.0).map(|it| it.1).collect();
            chain.push(format!("hyper {}", flags.join(" ")));
        } else if let Some(error) = error.downcast_ref::<h2::Error>() {
            let flags = [
                (error.is_reset(), "reset"),
                (error.is_go_away(), "goaway"),
                (error.is_io(), "io"),
                (error.is_remote(), "remote"),
            ];
            let flags: Vec<_> = flags.iter().filter(|it| it.0).map(|it| it.1).collect();
            let reason = error.reason().map(|reason| format!(" {reason:?}")).unwrap_or_default();
            chain.push(format!("h2 {}{reason}", flags.join(" ")));
        } else if let Some(error) = error.downcast_ref::<std::io::Error>() {
            chain.push(format!("io {:?}", error.kind()));
        } else {
            chain.push(error.to_string());
        }
        next = error.source();
    }
    chain
}

/// The code and the sources that a unary call ends with.
async fn failure(script: impl Into<Script>) -> (tonic::Code, Vec<String>) {
    let server = serve(script);
    let channel = channel(server.connector());
    let status = unary(&channel, Request::new("x".into())).await.unwrap_err();
    (status.code(), chain(&status))
}

const BROKEN: [&str; 3] = ["transport error", "hyper ", "io BrokenPipe"];
const UNSENT: [&str; 3] = ["transport error", "hyper canceled", "connection closed"];

#[tokio::test(start_paused = true)]
async fn tonic_reset_is_a_remote_reset_with_its_code() {
    let reset = |code: &str| {
        ["transport error", "hyper ", &format!("h2 reset remote {code}")].map(str::to_owned)
    };
    let (code, chain) = failure(Answer::reset(Reason::REFUSED_STREAM)).await;
    assert_eq!((code, &chain[..]), (tonic::Code::Unavailable, &reset("REFUSED_STREAM")[..]));
    let (code, chain) = failure(Answer::reset(Reason::CANCEL)).await;
    assert_eq!((code, &chain[..]), (tonic::Code::Cancelled, &reset("CANCEL")[..]));
    let (code, chain) = failure(Answer::reset(Reason::NO_ERROR)).await;
    assert_eq!((code, &chain[..]), (tonic::Code::Internal, &reset("NO_ERROR")[..]));
}

#[tokio::test(start_paused = true)]
async fn tonic_goaway_below_is_a_remote_goaway() {
    for close in [None, Some(Close::Graceful), Some(Close::Abrupt)] {
        for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
            let mut answer = Answer::go_away(LastStream::Below, reason);
            if let Some(close) = close {
                answer = answer.then_close(close);
            }
            let (_, chain) = failure(answer).await;
            let expected = format!("h2 goaway remote {reason:?}");
            assert_eq!(chain, ["transport error", "hyper ", &expected], "{close:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tonic_close_during_a_stream_proves_nothing() {
    let answers = [
        Answer::go_away(LastStream::This, Reason::NO_ERROR).then_close(Close::Graceful),
        Answer::go_away(LastStream::Above, Reason::NO_ERROR).then_close(Close::Graceful),
        Answer::close(Close::Graceful).wait_for(WaitFor::Headers),
        Answer::close(Close::Abrupt).wait_for(WaitFor::Headers),
        Answer::close(Close::Graceful).wait_for(WaitFor::Request),
    ];
    for answer in answers {
        let (code, chain) = failure(answer.clone()).await;
        assert_eq!(
            (code, &chain[..]),
            (tonic::Code::Unknown, &BROKEN.map(str::to_owned)[..]),
            "{answer:?}"
        );
    }
    let (code, chain) = failure(Answer::headers().then_close(Close::Graceful)).await;
    assert_eq!(
        (code, &chain[..]),
        (tonic::Code::Unknown, &["hyper ".to_owned(), "h2 io".to_owned()][..])
    );
}

#[tokio::test(start_paused = true)]
async fn tonic_close_before_the_request_proves_unsent() {
    for answer in [
        Answer::unsent(),
        Answer::unsent().after(ms(3)),
        Answer::on_connect(OnConnect::CloseImmediately),
        Answer::on_connect(OnConnect::CloseImmediately).after(ms(3)),
    ] {
        let (code, chain) = failure(answer).await;
        assert_eq!((code, &chain[..]), (tonic::Code::Cancelled, &UNSENT.map(str::to_owned)[..]));
    }
}

#[tokio::test(start_paused = true)]
async fn tonic_refused_connection_is_reported_then_reconnects() {
    let server = serve([Answer::unconnected().after(ms(3)), Answer::echo()]);
    let channel = channel(server.connector());
    let start = Instant::now();
    let status = unary(&channel, Request::new("x".into())).await.unwrap_err();
    assert_eq!((status.code(), start.elapsed()), (tonic::Code::Unavailable, ms(3)));
    assert_eq!(chain(&status).last().unwrap(), "io ConnectionRefused");
    assert_eq!(unary(&channel, Request::new("y".into())).await.unwrap(), "y");
}

#[tokio::test(start_paused = true)]
async fn tonic_queued_requests_are_distinguished_when_the_connection_closes() {
    // One stream is open, one request waits inside hyper, one is in tonic's queue.
    let script = Script::new().default_answer(Answer::close(Close::Graceful).after(ms(50)));
    let server = Server::new(script).concurrent_streams(1).on_pipe();
    let channel = channel(server.connector());
    let mut calls = Vec::new();
    for _ in 0..3 {
        let channel = channel.clone();
        calls.push(tokio::spawn(async move { unary(&channel, Request::new("x".into())).await }));
        // Each is queued before the next one is sent.
        tokio::time::sleep(ms(1)).await;
    }
    let mut chains = Vec::new();
    for call in calls {
        chains.push(chain(&call.await.unwrap().unwrap_err()));
    }
    assert_eq!(chains[0], BROKEN);
    assert_eq!(chains[1], ["transport error", "hyper user", "runtime dropped the dispatch task"]);
    assert_eq!(chains[2], UNSENT);
    assert_eq!(server.counts().streams, 1, "the others never came");
}

#[tokio::test(start_paused = true)]
async fn tonic_status_arrives_with_or_without_end_stream() {
    for answer in [
        Answer::trailers_only(StatusNumber::ABORTED),
        Answer::trailers_only(StatusNumber::ABORTED).without_end_stream(),
        Answer::trailers_only(StatusNumber::ABORTED).without("content-type"),
    ] {
        let server = serve(answer.text("boom").pushback("50").pushback(b"\xff").after(ms(4)));
        let start = Instant::now();
        let status =
            unary(&channel(server.connector()), Request::new("x".into())).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (tonic::Code::Aborted, "boom"));
        assert_eq!(start.elapsed(), ms(4));
        let pushback = status.metadata().get_all("grpc-retry-pushback-ms");
        let values: Vec<_> = pushback.iter().map(|it| it.as_encoded_bytes().to_vec()).collect();
        assert_eq!(values, [b"50".to_vec(), b"\xff".to_vec()]);
    }
}

#[tokio::test(start_paused = true)]
async fn tonic_non_grpc_responses_are_errors_without_source() {
    let http = |status| Answer::http_empty(http::StatusCode::from_u16(status).unwrap());
    let cases = [
        (http(404), tonic::Code::Unimplemented),
        (http(503), tonic::Code::Unavailable),
        (http(200), tonic::Code::Unknown),
        (Answer::http(http::StatusCode::OK, "text/html", "<h1>"), tonic::Code::Internal),
        (
            Answer::headers().message("x").trailers(StatusNumber::OK).without("grpc-status"),
            tonic::Code::Unknown,
        ),
        (Answer::headers().message("x").then_reset(Reason::NO_ERROR), tonic::Code::Unknown),
    ];
    for (answer, expected) in cases {
        let (code, chain) = failure(answer.clone()).await;
        assert_eq!((code, chain.is_empty()), (expected, true), "{answer:?} {chain:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tonic_dropped_call_sends_reset_cancel() {
    for answer in [Answer::hang(), Answer::headers(), Answer::headers().message("x")] {
        let server = serve(answer);
        let channel = channel(server.connector());
        let call = unary(&channel, Request::new("x".into()));
        assert!(tokio::time::timeout(ms(30), call).await.is_err());
        server.idle().await;
        let record = server.shutdown().await;
        let stream = &record.streams[0];
        let reset = stream.reset.unwrap();
        assert_eq!((reset.at, reset.reason), (ms(30), Reason::CANCEL));
        assert_eq!((stream.messages, stream.half_closed), (1, Some(ms(0))));
        assert_eq!(stream.end.unwrap().outcome, StreamOutcome::ResetByClient(Reason::CANCEL));
    }
}

#[tokio::test(start_paused = true)]
async fn tonic_first_stream_sees_the_limited_window() {
    let server = serve(Answer::hang().accepts(0));
    let channel = channel(server.connector());
    let call = unary(&channel, Request::new("x".into()));
    assert!(tokio::time::timeout(ms(30), call).await.is_err());
    let record = server.shutdown().await;
    assert_eq!((record.streams[0].bytes, record.streams[0].half_closed), (0, None));
}

#[tokio::test(start_paused = true)]
async fn tonic_accepted_messages_of_a_stream_are_counted() {
    let server = serve(Answer::trailers_only(StatusNumber::ABORTED).accepts(2).after(ms(100)));
    let mut client = Grpc::new(channel(server.connector()));
    client.ready().await.unwrap();
    let messages = async_messages(5, ms(10));
    let path = "/echo.Echo/Put".parse().unwrap();
    let status = client.client_streaming(Request::new(messages), path, Raw).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Aborted);
    let record = server.shutdown().await;
    let stream = &record.streams[0];
    assert_eq!((stream.messages, stream.half_closed), (2, None));
    assert_eq!(stream.payloads, ["0", "1"]);
}

/// A stream of messages.
fn async_messages(count: u64, every: std::time::Duration) -> impl Stream<Item = Bytes> + Send {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for number in 0..count {
            if send.send(Bytes::from(number.to_string())).await.is_err() {
                return;
            }
            tokio::time::sleep(every).await;
        }
    });
    ReceiverStream::new(receive)
}

#[tokio::test(start_paused = true)]
async fn tonic_stream_is_echoed_per_message() {
    let server = serve(Answer::echo());
    let mut client = Grpc::new(channel(server.connector()));
    client.ready().await.unwrap();
    let path = "/echo.Echo/Both".parse().unwrap();
    let messages = async_messages(3, ms(10));
    let mut echoes =
        client.streaming(Request::new(messages), path, Raw).await.unwrap().into_inner();
    let start = Instant::now();
    for number in 0..3 {
        let echo = echoes.message().await.unwrap().unwrap();
        assert_eq!((echo, start.elapsed()), (Bytes::from(number.to_string()), ms(10 * number)));
    }
    assert_eq!(echoes.message().await.unwrap(), None);
    let record = server.shutdown().await;
    assert_eq!((record.streams[0].messages, record.streams[0].half_closed), (3, Some(ms(30))));
    assert_eq!(
        record.streams[0].end.unwrap().outcome,
        StreamOutcome::Answered(Some(StatusNumber::OK))
    );
}

#[tokio::test(start_paused = true)]
async fn tonic_immediate_answer_follows_the_request() {
    let server = serve(Script::new().default_answer(Answer::trailers_only(StatusNumber::ABORTED)));
    let channel = channel(server.connector());
    let calls = (0..20).map(|_| {
        let channel = channel.clone();
        tokio::spawn(async move { unary(&channel, Request::new("x".into())).await.unwrap_err() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().code(), tonic::Code::Aborted);
    }
    let record = server.shutdown().await;
    for stream in &record.streams {
        assert_eq!((stream.messages, stream.half_closed), (1, Some(ms(0))));
        assert_eq!(stream.end.unwrap().at, ms(0));
    }
}
