//! HTTP/2: streams that the server has provably not processed are retried for every method.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use http::Response;
use redial::report::AttemptEnd;
use redial::{Report, StopReason};
use redial_http::reqwest::SendWith;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server::{Answer, Server, client_builder, fast};

fn client() -> reqwest::Client {
    client_builder().http2_prior_knowledge().build().unwrap()
}

/// A server that resets the first streams with this reason, and answers the others with 200.
async fn resetting(reason: Reason, streams: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let received = Arc::new(AtomicUsize::new(0));
    let counter = received.clone();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let counter = counter.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    if counter.fetch_add(1, Ordering::SeqCst) < streams {
                        respond.send_reset(reason);
                    } else {
                        let mut send = respond.send_response(Response::new(()), false).unwrap();
                        send.send_data(Bytes::from("done"), true).unwrap();
                    }
                }
            });
        }
    });
    (url, received)
}

#[tokio::test]
async fn http2_requests_are_retried_by_status_on_one_connection() {
    let server = Server::answering([Answer::status(503), Answer::status(200)]).await;
    let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    assert_eq!((server.requests(), server.connections()), (2, 1));
}

#[tokio::test]
async fn http2_refused_stream_of_a_post_is_retried() {
    let (url, received) = resetting(Reason::REFUSED_STREAM, 2).await;
    let response = client().post(url).body("order").send_with(&fast()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    let AttemptEnd::Failed(failure) = report.history[0].end else { panic!("{report:?}") };
    assert!(
        failure.proves_not_run() && failure.reason.unwrap().name() == "not processed by the server"
    );
    assert_eq!((report.attempts, received.load(Ordering::SeqCst)), (3, 3));
    assert_eq!(response.text().await.unwrap(), "done");
}

#[tokio::test]
async fn http2_reset_stream_of_a_post_is_not_retried() {
    let (url, received) = resetting(Reason::INTERNAL_ERROR, 1).await;
    let error = client().post(&url).body("order").send_with(&fast()).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotIdempotent));
    assert_eq!(received.load(Ordering::SeqCst), 1);
    // A GET is.
    let (url, received) = resetting(Reason::INTERNAL_ERROR, 1).await;
    assert_eq!(client().get(&url).send_with(&fast()).await.unwrap().status(), 200);
    assert_eq!(received.load(Ordering::SeqCst), 2);
}

/// SETTINGS without entries; GOAWAY with last stream 0 and `NO_ERROR`.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// The type of a HEADERS frame, and the sizes of the preface and of the head of a frame.
const HEADERS: u8 = 1;
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;

#[tokio::test]
async fn http2_stream_above_a_goaway_of_a_post_is_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::idle(listener.local_addr().unwrap(), |_| Answer::status(201));
    let serving = server.clone();
    tokio::spawn(async move {
        // The first connection reads the request and goes away without processing it.
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(&SETTINGS).await.unwrap();
        let mut skipped = vec![0; PREFACE];
        socket.read_exact(&mut skipped).await.unwrap();
        loop {
            let mut head = [0; FRAME_HEAD];
            socket.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            skipped.resize(length, 0);
            socket.read_exact(&mut skipped).await.unwrap();
            if head[3] == HEADERS {
                break;
            }
        }
        socket.write_all(&GOAWAY).await.unwrap();
        let _keep_open = socket;
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(serving.clone().serve(socket));
        }
    });
    let response = client().post(server.url("/")).body("order").send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (201, 1));
    assert_eq!(redial_http::attempts(response.extensions()), 2);
}
