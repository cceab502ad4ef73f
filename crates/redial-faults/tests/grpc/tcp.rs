//! The same over loopback TCP, in real time. Events are never early, and at most [`TOLERANCE`]
//! late.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use redial_faults::grpc::{
    Answer, Close, Handle, LastStream, OnConnect, Script, Server, StatusNumber, StreamOutcome, Tcp,
    WaitFor,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use super::raw::{Client, message, ms};
use super::tonic_client::{chain, unary};

/// Generous for a busy machine, and shorter than any wrong wait.
const TOLERANCE: Duration = Duration::from_secs(5);

async fn serve(script: impl Into<Script>) -> Handle<Tcp> {
    Server::new(script).listen("127.0.0.1:0").await.unwrap()
}

async fn client(server: &Handle<Tcp>) -> Client {
    Client::over(TcpStream::connect(server.addr()).await.unwrap()).await
}

fn channel(server: &Handle<Tcp>) -> Channel {
    Endpoint::from_shared(format!("http://{}", server.addr())).unwrap().connect_lazy()
}

#[tokio::test]
async fn tcp_answers_are_on_time_after_the_whole_request() {
    let server = serve([
        Answer::trailers_only(StatusNumber::UNAVAILABLE).pushback("50"),
        Answer::headers().after(ms(20)).message("abc").trailers(StatusNumber::OK).after(ms(60)),
    ])
    .await;
    let channel = channel(&server);
    let status = unary(&channel, Request::new("first".into())).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(unary(&channel, Request::new("second".into())).await.unwrap(), "abc");
    let record = server.shutdown().await;
    for (stream, payload) in record.streams.iter().zip(["first", "second"]) {
        assert_eq!(stream.payloads, [payload]);
        assert!(stream.half_closed.is_some());
    }
    let took = record.streams[1].end.unwrap().at - record.streams[1].arrived;
    assert!((ms(60)..TOLERANCE).contains(&took), "{took:?}");
    assert_eq!(record.counts.connections, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_concurrent_calls_are_answered_and_closed() {
    let server =
        serve(Script::new().default_answer(Answer::echo().wait_for(WaitFor::Request))).await;
    let channel = channel(&server);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..500 {
        let channel = channel.clone();
        let payload = Bytes::from(format!("number {number}"));
        calls.spawn(async move {
            let echo = unary(&channel, Request::new(payload.clone())).await.unwrap();
            assert_eq!(echo, payload);
        });
    }
    calls.join_all().await;
    tokio::time::timeout(TOLERANCE, server.idle()).await.unwrap();
    assert_eq!(server.counts().streams, 500);
}

#[tokio::test]
async fn tcp_faults_give_the_same_errors_as_the_pipe() {
    let cases = [
        (Answer::reset(Reason::REFUSED_STREAM), "h2 reset remote REFUSED_STREAM"),
        (Answer::go_away(LastStream::Below, Reason::NO_ERROR), "h2 goaway remote NO_ERROR"),
        (
            Answer::go_away(LastStream::Below, Reason::NO_ERROR).then_close(Close::Graceful),
            "h2 goaway remote NO_ERROR",
        ),
        (
            Answer::go_away(LastStream::This, Reason::NO_ERROR).then_close(Close::Graceful),
            "io BrokenPipe",
        ),
        (Answer::close(Close::Graceful).wait_for(WaitFor::Headers), "io BrokenPipe"),
        (Answer::close(Close::Graceful).wait_for(WaitFor::Request), "io BrokenPipe"),
        (
            Answer::close(Close::Abrupt).wait_for(WaitFor::Request).after(ms(20)),
            "io ConnectionReset",
        ),
    ];
    for (answer, expected) in cases {
        let server = serve(answer.clone()).await;
        let status = unary(&channel(&server), Request::new("x".into())).await.unwrap_err();
        let chain = chain(&status);
        assert_eq!(chain.last().map(String::as_str), Some(expected), "{answer:?} {chain:?}");
    }
}

#[tokio::test]
async fn tcp_connection_can_close_before_the_handshake() {
    let script = Script::new()
        .on_connect(OnConnect::CloseImmediately, Duration::ZERO)
        .on_connect(OnConnect::SendNothing, Duration::ZERO)
        .default_answer(Answer::reply("x"));
    let server = serve(script).await;
    // Over TCP the client may have written its request before it saw the close, but none arrived.
    let unsent = serve(Answer::unsent()).await;
    unary(&channel(&unsent), Request::new("y".into())).await.unwrap_err();
    let record = unsent.shutdown().await;
    assert_eq!(
        (record.counts.streams, record.connections[0].attempt.clone()),
        (0, Some((None, 1)))
    );

    let mut closed = TcpStream::connect(server.addr()).await.unwrap();
    assert_eq!(closed.read(&mut [0; 9]).await.unwrap(), 0, "not even settings");
    let mut silent = TcpStream::connect(server.addr()).await.unwrap();
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert!(tokio::time::timeout(ms(50), silent.read(&mut [0; 9])).await.is_err());
    assert_eq!(unary(&channel(&server), Request::new("y".into())).await.unwrap(), "x");
}

#[tokio::test]
async fn tcp_script_with_a_refused_connection_is_invalid() {
    let server = Server::new([Answer::unconnected()]).listen("127.0.0.1:0").await;
    assert_eq!(server.unwrap_err().kind(), ErrorKind::InvalidInput);
    let script = Script::new().on_connect(OnConnect::Refuse, Duration::ZERO);
    let server = Server::new(script).listen("127.0.0.1:0").await;
    assert_eq!(server.unwrap_err().kind(), ErrorKind::InvalidInput);
    // The address of a server that has stopped.
    let server = serve(Script::new()).await;
    let channel = channel(&server);
    server.shutdown().await;
    let status = unary(&channel, Request::new("x".into())).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(chain(&status).last().unwrap(), "io ConnectionRefused");
}

#[tokio::test]
async fn tcp_closed_window_and_client_reset_are_recorded() {
    let server = serve([Answer::reply("x"), Answer::hang().accepts(1)]).await;
    let mut client = client(&server).await;
    // From here on the client knows the server's settings.
    client.unary("x").await;
    let mut call = client.begin(&[], false).await.unwrap();
    for payload in ["one", "two"] {
        call.request.send_data(message(payload), false).unwrap();
    }
    let one = server.until(|record| record.streams.get(1).is_some_and(|it| it.messages == 1));
    tokio::time::timeout(TOLERANCE, one).await.unwrap();
    tokio::time::sleep(ms(50)).await;
    call.request.send_reset(Reason::CANCEL);
    tokio::time::timeout(TOLERANCE, server.idle()).await.unwrap();
    let record = server.shutdown().await;
    assert_eq!(record.streams[1].payloads, ["one"]);
    assert_eq!(record.streams[1].bytes, 8);
    assert_eq!(
        record.streams[1].end.unwrap().outcome,
        StreamOutcome::ResetByClient(Reason::CANCEL)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_large_message_passes_a_limited_window() {
    let server = serve(Answer::echo().accepts(1).wait_for(WaitFor::Request)).await;
    let mut client = client(&server).await;
    // The largest message that can be echoed: four times the window.
    let payload = "x".repeat(4 * 1024 * 1024);
    assert_eq!(client.unary(&payload).await.data, message(&payload));
}

#[tokio::test]
async fn tcp_dropping_the_handle_stops_the_server() {
    let server = serve(Script::new().default_answer(Answer::hang())).await;
    let addr = server.addr();
    let mut client = client(&server).await;
    let call = client.begin(&[], true).await.unwrap();
    server.until(|record| record.counts.streams_open == 1).await;
    drop(server);
    let seen = tokio::time::timeout(TOLERANCE, call.seen()).await.unwrap();
    assert!(seen.error.unwrap().is_io());
    let refused = async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TOLERANCE, refused).await.unwrap();
}
