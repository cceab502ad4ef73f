//! Faults of connections in front of HTTP, and refused connections.

use std::io::ErrorKind;

use redial_faults::proxy::{ConnectionFault, ConnectionRule, Fault, Proxy, Script};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::support::*;

#[tokio::test]
async fn connection_faults_are_used_in_order() {
    let upstream = Upstream::start().await;
    let script = Script::new().connections([
        ConnectionFault::reset(),
        ConnectionFault::close(),
        ConnectionFault::pass(),
        ConnectionFault::reset().at_down_bytes(20),
    ]);
    let proxy = http_proxy(&upstream, script).await;
    let error = send(&client(), post(&proxy, "/", "x")).await.unwrap_err();
    assert_eq!(io_kind(&*error), Some(ErrorKind::ConnectionReset), "{error:?}");
    let error = send(&client(), post(&proxy, "/", "x")).await.unwrap_err();
    // The request may be in the socket when it is closed: then the client gets a reset.
    let reset = io_kind(&*error) == Some(ErrorKind::ConnectionReset);
    assert!(reset || is_incomplete(&*error), "{error:?}");
    send(&client(), post(&proxy, "/", "x")).await.unwrap();
    let error = send(&client(), post(&proxy, "/", "x")).await.unwrap_err();
    assert_eq!(io_kind(&*error), Some(ErrorKind::ConnectionReset), "{error:?}");
    let record = proxy.shutdown().await;
    assert_eq!(record.counts.connection_faults, 3);
    assert_eq!((upstream.served(), record.connections[3].bytes_down), (2, 20));
}

#[tokio::test]
async fn connection_rule_applies_by_rate_and_seed() {
    let upstream = Upstream::start().await;
    let mut patterns = Vec::new();
    for seed in [5, 5, 6] {
        let rule = ConnectionRule::new(ConnectionFault::reset()).rate(0.5);
        let proxy = http_proxy(&upstream, Script::new().connection_rule(rule).seed(seed)).await;
        let mut pattern = Vec::new();
        for _ in 0..30 {
            pattern.push(send(&client(), post(&proxy, "/", "x")).await.is_ok());
        }
        patterns.push(pattern);
    }
    assert_eq!(patterns[0], patterns[1]);
    assert_ne!(patterns[0], patterns[2]);
}

#[tokio::test]
async fn connection_stall_answers_nothing_and_ends_with_the_client() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, ConnectionFault::stall()).await;
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    assert!(timeout(ms(100), socket.read(&mut [0; 1])).await.is_err());
    drop(socket);
    let closed = proxy.until(|record| record.counts.connections_open == 0);
    timeout(TOLERANCE, closed).await.unwrap();
    assert_eq!((proxy.counts().exchanges, upstream.served()), (0, 0));
}

#[tokio::test]
async fn refused_connections_are_refused_and_keep_the_port() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, Script::new()).await;
    send(&client(), post(&proxy, "/", "x")).await.unwrap();
    for _ in 0..3 {
        proxy.refuse_connections().await;
        for _ in 0..3 {
            let error = TcpStream::connect(proxy.addr()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        proxy.accept_connections().await;
        send(&client(), post(&proxy, "/", "x")).await.unwrap();
    }
    assert_eq!(upstream.served(), 4);
}

#[tokio::test]
async fn refused_connections_by_script_end_with_their_time() {
    let upstream = Upstream::start().await;
    // From the first moment; long enough that a busy machine does not miss it.
    let script = Script::new().refuse(ms(0), ms(2000));
    let proxy = http_proxy(&upstream, script).await;
    let error = TcpStream::connect(proxy.addr()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let accepted = async {
        while TcpStream::connect(proxy.addr()).await.is_err() {
            sleep(ms(20)).await;
        }
    };
    timeout(TOLERANCE, accepted).await.unwrap();
}

#[tokio::test]
async fn proxy_refuses_invalid_scripts_and_stops_when_dropped() {
    let refused = Proxy::http("127.0.0.1:9").script(Fault::status(99)).listen("127.0.0.1:0").await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "99 is no final status of HTTP: 200 to 999");
    for to in ["nowhere", "http://127.0.0.1:9/", ":9", "127.0.0.1:99999"] {
        let error = Proxy::tcp(to).listen("127.0.0.1:0").await.unwrap_err();
        let text = format!("{to:?} is no server: expected a host and a port, like 127.0.0.1:8080");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidInput, text));
    }
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, Script::new()).await;
    let (addr, mut open) = (proxy.addr(), TcpStream::connect(proxy.addr()).await.unwrap());
    proxy.until(|record| record.counts.connections == 1).await;
    drop(proxy);
    assert_eq!(timeout(TOLERANCE, open.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
    let refused = async {
        while TcpStream::connect(addr).await.is_ok() {
            sleep(ms(5)).await;
        }
    };
    timeout(TOLERANCE, refused).await.unwrap();
}
