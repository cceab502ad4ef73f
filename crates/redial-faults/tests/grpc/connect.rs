//! Connection faults: refused, closed and silent connections.

use std::io::ErrorKind;

use redial_faults::grpc::{
    Answer, CONNECTIONS_OPEN_MAX, OnConnect, Script, Server, StatusNumber, StreamOutcome,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::raw::{Client, ms, serve};

#[tokio::test(start_paused = true)]
async fn connect_actions_apply_in_order_then_connections_succeed() {
    let script = Script::new()
        .on_connect(OnConnect::Refuse, ms(3))
        .on_connect(OnConnect::CloseImmediately, ms(0))
        .on_connect(OnConnect::CloseAfterPreface, ms(0))
        .on_connect(OnConnect::SendNothing, ms(0))
        .default_answer(Answer::reply("x"));
    let server = serve(script);
    let start = Instant::now();
    let refused = server.connect().await.unwrap_err();
    assert_eq!((refused.kind(), start.elapsed()), (ErrorKind::ConnectionRefused, ms(3)));

    let mut closed = server.connect().await.unwrap();
    assert_eq!(closed.read(&mut [0; 9]).await.unwrap(), 0, "not even settings");

    let mut closed = server.connect().await.unwrap();
    closed.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert_eq!(closed.read(&mut [0; 9]).await.unwrap(), 0);

    let mut silent = server.connect().await.unwrap();
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let waited = tokio::time::timeout(ms(60_000), silent.read(&mut [0; 9])).await;
    assert!(waited.is_err());

    let seen = Client::of(&server).await.unary("x").await;
    assert_eq!(seen.trailer("grpc-status"), Some("0"));

    let record = server.record();
    let actions: Vec<_> =
        record.connections.iter().map(|it| (it.on_connect, it.closed.is_some())).collect();
    let expected = [
        (OnConnect::Refuse, true),
        (OnConnect::CloseImmediately, true),
        (OnConnect::CloseAfterPreface, true),
        (OnConnect::SendNothing, false),
        (OnConnect::Serve, false),
    ];
    assert_eq!(actions, expected);
    assert_eq!(record.connections[0].closed, Some(ms(3)));
    let record = server.shutdown().await;
    assert_eq!(record.counts.connections_open, 0, "the silent one too");
}

#[tokio::test(start_paused = true)]
async fn connect_action_can_belong_to_an_attempt() {
    let script = Script::new()
        .call(
            "a",
            [
                Answer::unconnected().after(ms(7)),
                Answer::trailers_only(StatusNumber::UNAVAILABLE),
                Answer::unsent(),
                Answer::reply("x"),
            ],
        )
        .default_answer(Answer::trailers_only(StatusNumber::INTERNAL));
    let server = serve(script);
    let call = [("x-redial-call", "a")];
    assert_eq!(server.connect().await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let mut client = Client::of(&server).await;
    assert_eq!(client.unary_with(&call, "x").await.header("grpc-status"), Some("14"));
    // The next attempt needs a new connection: this connection accepts no more streams.
    assert!(client.begin(&call, true).await.is_err());
    assert!(client.connection.await.unwrap().is_ok());
    let mut closed = server.connect().await.unwrap();
    closed.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert_eq!(closed.read(&mut [0; 9]).await.unwrap(), 0);
    let seen = Client::of(&server).await.unary_with(&call, "x").await;
    assert_eq!(seen.trailer("grpc-status"), Some("0"));
    let record = server.shutdown().await;
    let actions: Vec<_> = record.connections.iter().map(|it| it.attempt.clone()).collect();
    let name = Some("a".to_owned());
    assert_eq!(actions, [Some((name.clone(), 1)), None, Some((name, 3)), None]);
    let attempts: Vec<_> = record.streams.iter().map(|it| it.attempt.unwrap()).collect();
    assert_eq!(attempts, [2, 4]);
}

#[tokio::test(start_paused = true)]
async fn connect_action_bypassed_by_another_connection_is_unscripted() {
    let server =
        Server::new(Script::new().attempts([Answer::reply("other"), Answer::reply("more")]))
            .on_pipe();
    let mut client = Client::of(&server).await;
    client.unary("x").await;
    server.call("a", [Answer::unsent(), Answer::reply("x")]);
    let seen = client.unary_with(&[("x-redial-call", "a")], "x").await;
    assert_eq!(seen.header("grpc-message"), Some("unscripted attempt"));
    let record = server.shutdown().await;
    assert_eq!((record.streams[1].attempt, record.streams[1].scripted), (Some(1), false));
    assert_eq!(record.counts.streams_unscripted, 1);
    assert_eq!(
        record.streams[1].end.unwrap().outcome,
        StreamOutcome::Answered(Some(StatusNumber::INTERNAL))
    );
}

#[tokio::test(start_paused = true)]
async fn connect_over_the_connection_limit_is_closed() {
    let server = Server::new(Script::new()).pipe_bytes(1024).on_pipe();
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS_OPEN_MAX {
        open.push(server.connect().await.unwrap());
    }
    let mut byte = [0; 1];
    assert_eq!(open.last_mut().unwrap().read(&mut byte).await.unwrap(), 1, "settings");
    let mut more = server.connect().await.unwrap();
    assert_eq!(more.read(&mut byte).await.unwrap(), 0);
    assert_eq!(server.counts().connections_open, CONNECTIONS_OPEN_MAX);
    // A closed connection frees a slot.
    drop(open.pop());
    server.until(|record| record.counts.connections_open < CONNECTIONS_OPEN_MAX).await;
    assert_eq!(server.connect().await.unwrap().read(&mut byte).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn connect_without_http2_is_closed() {
    let server = serve(Script::new());
    let mut noise: u64 = 1;
    for length in [0, 1, 8, 9, 10, 100, 5000] {
        for preface in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let mut client = server.connect().await.unwrap();
            client.write_all(preface).await.unwrap();
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (noise >> 56) as u8
            })
            .take(length)
            .collect();
            // The server may have closed already.
            let _ = client.write_all(&bytes).await;
            let _ = client.shutdown().await;
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert!(!answer.is_empty(), "settings come first");
        }
    }
    server.until_counts(|counts| counts.connections_open == 0).await;
    assert_eq!(server.counts().streams, 0);
}
