//! Faults of HTTP/1.1 requests, with hyper's client and with a plain socket.

use std::io::ErrorKind;
use std::time::Instant;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use redial_faults::proxy::{ExchangeOutcome, Fault, Proxy, REQUEST_BYTES_DISCARDED_MAX, Script};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::support::*;

#[tokio::test]
async fn proxy_passes_requests_and_responses_unchanged() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, Script::new()).await;
    let client = client();
    for number in 0..3 {
        let mut request = post(&proxy, "/a/b?c=d", "payload");
        request.headers_mut().append("x-twice", "1".parse().unwrap());
        request.headers_mut().append("x-twice", "2".parse().unwrap());
        let (status, headers, body) = send(&client, request).await.unwrap();
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"payload"[..]), "{number}");
        let twice: Vec<_> = headers.get_all("x-twice").iter().collect();
        assert_eq!(twice, ["1", "2"]);
        assert_eq!(headers["x-query"], "c=d");
    }
    let (status, ..) = send(&client, post(&proxy, "/missing", "")).await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
    proxy.idle().await;
    let record = proxy.shutdown().await;
    assert_eq!((record.counts.exchanges, record.counts.forwarded, upstream.served()), (4, 4, 4));
    assert_eq!(record.counts.faults, 0);
    // The client's connection was kept alive.
    assert_eq!(record.counts.connections, 1);
    let first = &record.exchanges[0];
    assert_eq!(
        (first.path.as_str(), first.request_bytes, first.response_bytes),
        ("/a/b?c=d", 7, 7)
    );
    assert_eq!(first.end.unwrap().outcome, ExchangeOutcome::Answered);
    assert_eq!(first.request_digest, record.exchanges[1].request_digest);
    assert_ne!(first.request_digest, record.exchanges[3].request_digest);
}

#[tokio::test]
async fn proxy_passes_large_bodies_in_both_directions() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, Script::new()).await;
    let payload = vec![7; 5_000_000];
    let request = Request::post(proxy.url()).body(Full::from(payload.clone())).unwrap();
    let (_, _, body) = send(&client(), request).await.unwrap();
    assert!(body == payload);
}

/// Sends one request on a plain socket, and returns all bytes of the response.
async fn raw(proxy: &redial_faults::proxy::Handle) -> String {
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    let request = "GET /x HTTP/1.1\r\nHost: h\r\nX-CamelCase: 1\r\nConnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn proxy_status_has_exactly_the_scripted_headers() {
    let upstream = Upstream::start().await;
    let script = [
        Fault::status(503),
        Fault::status(429).header("retry-after", "7").header("x-a", "b").body("slow down"),
    ];
    let proxy = http_proxy(&upstream, script).await;
    let lines = |text: String| text.to_lowercase();
    let bare = lines(raw(&proxy).await);
    assert!(bare.starts_with("http/1.1 503 service unavailable\r\n"), "{bare}");
    assert!(!bare.contains("date:") && !bare.contains("retry-after"), "{bare}");
    let full = lines(raw(&proxy).await);
    assert!(full.contains("\r\nretry-after: 7\r\n") && full.contains("\r\nx-a: b\r\n"), "{full}");
    assert!(full.ends_with("\r\n\r\nslow down"), "{full}");
    assert_eq!(upstream.served(), 0);
}

#[tokio::test]
async fn proxy_keeps_the_case_of_header_names() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::http(listener.local_addr().unwrap()).listen("127.0.0.1:0").await.unwrap();
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(socket.read_u8().await.unwrap()));
        }
        let response = "HTTP/1.1 200 OK\r\nX-AnsWer: 1\r\nContent-Length: 2\r\n\r\nok";
        socket.write_all(response.as_bytes()).await.unwrap();
        head
    };
    let (head, response) = tokio::join!(server, raw(&proxy));
    assert!(head.contains("\r\nHost: h\r\nX-CamelCase: 1\r\n"), "{head}");
    assert!(response.contains("\r\nX-AnsWer: 1\r\n") && response.ends_with("ok"), "{response}");
}

#[tokio::test]
async fn proxy_status_after_upstream_hides_finished_work() {
    let upstream = Upstream::start().await;
    let script = [Fault::status(500), Fault::status(500).after_upstream()];
    let proxy = http_proxy(&upstream, script).await;
    let client = client();
    for served in 0..2 {
        let (status, _, body) = send(&client, post(&proxy, "/", "abc")).await.unwrap();
        assert_eq!((status.as_u16(), body.len(), upstream.served()), (500, 0, served));
    }
    proxy.idle().await;
    let record = proxy.record();
    assert_eq!(record.exchanges[0].upstream_status, None);
    assert_eq!(record.exchanges[1].upstream_status, Some(StatusCode::OK));
    // The request was read in both cases.
    assert_eq!(record.exchanges[0].request_digest, record.exchanges[1].request_digest);
}

#[tokio::test]
async fn proxy_reset_reaches_the_client_as_connection_reset() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, [Fault::reset(), Fault::reset().after_upstream()]).await;
    for served in 0..2 {
        let error = send(&client(), post(&proxy, "/", "abc")).await.unwrap_err();
        assert_eq!(io_kind(&*error), Some(ErrorKind::ConnectionReset), "{error:?}");
        assert_eq!(upstream.served(), served);
    }
    let record = proxy.shutdown().await;
    for exchange in &record.exchanges {
        assert_eq!(exchange.end.unwrap().outcome, ExchangeOutcome::Reset);
        assert_eq!(exchange.status, None);
    }
}

#[tokio::test]
async fn proxy_close_reaches_the_client_as_incomplete_message() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, Fault::close()).await;
    let error = send(&client(), post(&proxy, "/", "abc")).await.unwrap_err();
    assert!(is_incomplete(&*error), "{error:?}");
    let record = proxy.shutdown().await;
    assert_eq!(record.exchanges[0].end.unwrap().outcome, ExchangeOutcome::Closed);
}

/// Reads the body of a response until it fails.
async fn read_until_error(
    client: &HttpClient,
    request: Request<Full<bytes::Bytes>>,
) -> (usize, hyper::Error) {
    let mut body = client.request(request).await.unwrap().into_body();
    let mut read = 0;
    loop {
        match body.frame().await {
            Some(Ok(frame)) => read += frame.data_ref().map_or(0, bytes::Bytes::len),
            Some(Err(error)) => return (read, error),
            None => panic!("the body ended after {read} bytes"),
        }
    }
}

#[tokio::test]
async fn proxy_breaks_at_the_scripted_byte_of_the_response() {
    let upstream = Upstream::start().await;
    let script = [
        Fault::close().at_response_bytes(4),
        Fault::reset().at_response_bytes(4),
        Fault::close().at_response_bytes(0),
    ];
    let proxy = http_proxy(&upstream, script).await;
    for (bytes, kind) in [(4, None), (4, Some(ErrorKind::ConnectionReset)), (0, None)] {
        let (read, error) = read_until_error(&client(), post(&proxy, "/", "0123456789")).await;
        assert_eq!(read, bytes);
        match kind {
            Some(kind) => assert_eq!(io_kind(&error), Some(kind)),
            None => assert!(is_incomplete(&error), "{error:?}"),
        }
    }
    assert_eq!(upstream.served(), 3);
    let record = proxy.shutdown().await;
    assert_eq!(record.exchanges[0].response_bytes, 4);
}

#[tokio::test]
async fn proxy_break_after_a_response_ended_has_no_effect() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, Fault::reset().at_response_bytes(11)).await;
    let (status, _, body) = send(&client(), post(&proxy, "/", "0123456789")).await.unwrap();
    assert_eq!((status.as_u16(), body.len()), (200, 10));
}

#[tokio::test]
async fn proxy_breaks_at_the_scripted_byte_of_the_request() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, Fault::reset().at_request_bytes(3)).await;
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n01";
    socket.write_all(head.as_bytes()).await.unwrap();
    proxy.until(|record| record.exchanges.first().is_some_and(|it| it.request_bytes == 2)).await;
    assert_eq!(proxy.counts().exchanges_open, 1, "the third byte is missing");
    socket.write_all(b"2").await.unwrap();
    let error = socket.read(&mut [0; 10]).await.unwrap_err();
    assert_eq!((error.kind(), upstream.served()), (ErrorKind::ConnectionReset, 0));
}

#[tokio::test]
async fn proxy_stall_lasts_until_the_client_leaves() {
    let upstream = Upstream::start().await;
    let script = [Fault::stall(), Fault::stall().at_response_bytes(2)];
    let proxy = http_proxy(&upstream, script).await;
    let client_one = client();
    assert!(timeout(ms(100), send(&client_one, post(&proxy, "/", "abc"))).await.is_err());
    drop(client_one);
    timeout(TOLERANCE, proxy.idle()).await.unwrap();
    // The head and two bytes come, then silence.
    let mut body = client().request(post(&proxy, "/", "abc")).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 2);
    assert!(timeout(ms(100), body.frame()).await.is_err());
    assert_eq!(proxy.counts().exchanges_open, 1);
    let record = proxy.shutdown().await;
    let outcomes: Vec<_> = record.exchanges.iter().map(|it| it.end.unwrap().outcome).collect();
    assert_eq!(outcomes, [ExchangeOutcome::ClientGone, ExchangeOutcome::Stopped]);
}

#[tokio::test]
async fn proxy_delays_are_never_early() {
    let upstream = Upstream::start().await;
    let script = [
        Fault::pass().delay(ms(60)),
        Fault::pass().delay_response(ms(60)),
        Fault::status(503).delay(ms(30)).delay_response(ms(30)),
    ];
    let proxy = http_proxy(&upstream, script).await;
    let client = client();
    for _ in 0..3 {
        let start = Instant::now();
        send(&client, post(&proxy, "/", "x")).await.unwrap();
        let took = start.elapsed();
        assert!((ms(60)..TOLERANCE).contains(&took), "{took:?}");
    }
    let record = proxy.record();
    let waited = |index: usize| {
        record.exchanges[index].forwarded.map(|at| at - record.exchanges[index].arrived)
    };
    assert!(waited(0).unwrap() >= ms(60), "a delay comes before the upstream server");
    assert!(waited(1).unwrap() < ms(60), "a delayed response is work that is done");
    assert_eq!(waited(2), None);
}

#[tokio::test]
async fn proxy_unreachable_upstream_is_status_502_with_the_reason() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = free.local_addr().unwrap();
    drop(free);
    let proxy = Proxy::http(nowhere).listen("127.0.0.1:0").await.unwrap();
    let (status, _, body) = send(&client(), post(&proxy, "/", "x")).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(text.starts_with(&format!("fault proxy: {nowhere}: ")), "{text}");
    let record = proxy.shutdown().await;
    assert_eq!(record.exchanges[0].end.unwrap().outcome, ExchangeOutcome::UpstreamFailed);
}

#[tokio::test]
async fn proxy_answers_when_the_discarded_request_is_too_long() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, [Fault::status(503), Fault::status(503)]).await;
    for more in [0, 1 << 20] {
        let length = REQUEST_BYTES_DISCARDED_MAX + more;
        let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = socket.into_split();
        let writing = tokio::spawn(async move {
            let zeros = vec![0; 1 << 16];
            let mut left = length;
            while left > 0 && writer.write_all(&zeros).await.is_ok() {
                left -= zeros.len() as u64;
            }
            // Dropping it would close the connection.
            writer
        });
        let mut start = [0; 12];
        reader.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 503");
        drop(reader);
        let _ = writing.await;
    }
    let record = proxy.shutdown().await;
    assert_eq!(record.exchanges[0].request_bytes, REQUEST_BYTES_DISCARDED_MAX);
    assert!(record.exchanges[1].request_bytes < REQUEST_BYTES_DISCARDED_MAX + (1 << 20));
}
