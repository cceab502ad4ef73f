//! The TCP proxy: bytes of any protocol.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Instant;

use redial_faults::proxy::{ConnectionFault, Fault, Handle, Proxy, Script};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::support::{TOLERANCE, ms};

/// A server that echoes bytes.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = socket.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    addr
}

async fn proxy(script: impl Into<Script>) -> Handle {
    Proxy::tcp(echo().await).script(script).listen("127.0.0.1:0").await.unwrap()
}

#[tokio::test]
async fn tcp_bytes_pass_both_ways_and_half_close_is_kept() {
    let proxy = proxy(Script::new()).await;
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    socket.write_all(b"\0any bytes").await.unwrap();
    socket.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes, b"\0any bytes");
    drop(socket);
    let record = proxy.until(|record| record.counts.connections_open == 0).await;
    let connection = &record.connections[0];
    assert_eq!((connection.bytes_up, connection.bytes_down), (10, 10));
    assert!(connection.closed.unwrap() >= connection.opened);
}

#[tokio::test]
async fn tcp_breaks_at_the_scripted_byte_of_each_direction() {
    let proxy = proxy(Script::new().connections([
        ConnectionFault::reset().at_up_bytes(3),
        ConnectionFault::reset().at_down_bytes(3),
        ConnectionFault::close().at_down_bytes(3),
        ConnectionFault::stall().at_down_bytes(3),
    ]))
    .await;
    let sent = [3, 6, 6, 6];
    for (index, sent) in sent.into_iter().enumerate() {
        let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
        socket.write_all(&b"abcdef"[..sent]).await.unwrap();
        let mut bytes = Vec::new();
        let read = timeout(ms(300), socket.read_to_end(&mut bytes)).await;
        match index {
            // What was on its way to the client may be lost.
            0 | 1 => {
                assert_eq!(read.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
                assert!(b"abc".starts_with(&bytes[..]), "{bytes:?}");
            }
            2 => {
                let kind = read.unwrap().map_err(|error| error.kind());
                assert!(matches!(kind, Ok(_) | Err(ErrorKind::ConnectionReset)), "{kind:?}");
                assert_eq!(bytes, b"abc");
            }
            _ => assert!(read.is_err() && bytes == b"abc", "{bytes:?}"),
        }
    }
    let record = proxy.shutdown().await;
    assert_eq!(record.connections[0].bytes_up, 3);
    for connection in &record.connections[1..] {
        assert_eq!(connection.bytes_down, 3, "{connection:?}");
    }
}

#[tokio::test]
async fn tcp_delay_and_latency_are_never_early() {
    let proxy = proxy(Script::new().connections([
        ConnectionFault::pass().delay(ms(60)),
        ConnectionFault::pass().latency(ms(60)),
    ]))
    .await;
    for _ in 0..2 {
        let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
        let start = Instant::now();
        socket.write_all(b"x").await.unwrap();
        socket.read_exact(&mut [0; 1]).await.unwrap();
        assert!((ms(60)..TOLERANCE).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn tcp_unreachable_upstream_is_a_reset() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = free.local_addr().unwrap();
    drop(free);
    let proxy = Proxy::tcp(nowhere).listen("127.0.0.1:0").await.unwrap();
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    let error = socket.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn tcp_proxy_refuses_faults_of_requests() {
    let refused = Proxy::tcp("127.0.0.1:9").script(Fault::status(503)).listen("127.0.0.1:0").await;
    let text = refused.unwrap_err().to_string();
    assert!(text.starts_with("a TCP proxy sees no requests"), "{text}");
}
