//! Bodies: replayed, made anew, or sent once (decision H4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use redial::{Report, StopReason};
use redial_http::RequestOptions;
use redial_http::reqwest::SendWith;
use tower::{Layer, ServiceExt};

use crate::server::{Answer, Server, client, fast};

fn stream(content: &'static str) -> BoxBody<Bytes, std::io::Error> {
    let frames =
        content.as_bytes().chunks(3).map(|chunk| Ok(Frame::data(Bytes::from_static(chunk))));
    BodyExt::boxed(StreamBody::new(tokio_stream::iter(frames)))
}

async fn failing_twice() -> Server {
    Server::answering([Answer::status(503), Answer::Close, Answer::status(200)]).await
}

#[tokio::test]
async fn body_in_memory_is_replayed_whole() {
    let server = failing_twice().await;
    let content = "0123456789".repeat(30_000);
    let response =
        client().put(server.url("/")).body(content.clone()).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 3));
    assert!(server.received().iter().all(|received| received.body == content));
}

#[tokio::test]
async fn body_that_streams_gets_one_attempt_and_no_error() {
    let server = failing_twice().await;
    let request = client().put(server.url("/")).body(reqwest::Body::wrap(stream("content")));
    let response = request.send_with(&fast()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, report.stop_reason), (1, StopReason::Committed));
    assert_eq!((response.status().as_u16(), server.requests()), (503, 1));
    assert_eq!(server.received()[0].body, "content");
    // A success of a stream is an ordinary success.
    let server = Server::answering([Answer::status(200)]).await;
    let request = client().put(server.url("/")).body(reqwest::Body::wrap(stream("content")));
    assert_eq!(request.send_with(&fast()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn body_factory_makes_a_new_stream_for_each_retry() {
    let server = failing_twice().await;
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let options = RequestOptions::new().body_factory(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        reqwest::Body::wrap(stream("content"))
    });
    let request = client().put(server.url("/")).body(reqwest::Body::wrap(stream("content")));
    assert_eq!(request.send_with_options(&fast(), options).await.unwrap().status(), 200);
    assert!(server.received().iter().all(|received| received.body == "content"));
    assert_eq!((server.requests(), made.load(Ordering::Relaxed)), (3, 2));
}

#[cfg(feature = "tracing")]
#[tokio::test]
async fn body_factory_of_another_type_is_one_warning() {
    let events = crate::events::Warnings::default();
    let guard = tracing::subscriber::set_default(events.clone());
    let server = failing_twice().await;
    // Not a `reqwest::Body`.
    let options = RequestOptions::new().body_factory(|| stream("content"));
    let request = client().put(server.url("/")).body(reqwest::Body::wrap(stream("content")));
    let response = request.send_with_options(&fast(), options).await.unwrap();
    drop(guard);
    assert_eq!((response.status().as_u16(), server.requests()), (503, 1));
    assert_eq!(events.count("body factory for another type"), 1);
    assert_eq!(events.count("reqwest::"), 1, "it names the type of the body");
    assert_eq!(events.count("BoxBody<"), 1, "and that of the factory");
}

#[tokio::test]
async fn hyper_body_factory_is_an_extension_of_the_request() {
    let server = failing_twice().await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let client = fast().layer(client);
    let request = Request::put(server.url("/"))
        .extension(RequestOptions::new().body_factory(|| stream("content")))
        .body(stream("content"))
        .unwrap();
    let response = client.oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 3));
    assert!(server.received().iter().all(|received| received.body == "content"));
}

#[tokio::test]
async fn hyper_body_in_memory_is_replayed() {
    let server = failing_twice().await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::put(server.url("/")).body(Full::new(Bytes::from("content"))).unwrap();
    let response = fast().layer(client).oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 3));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "body of 200");
    assert!(server.received().iter().all(|received| received.body == "content"));
}

#[tokio::test]
async fn headers_of_every_attempt_are_those_of_the_original() {
    let server = failing_twice().await;
    let request = client().get(server.url("/path")).header("x-a", "1").header("x-a", "2");
    request.send_with(&fast()).await.unwrap();
    let received = server.received();
    for other in &received[1..] {
        assert_eq!((&other.headers, &other.path), (&received[0].headers, &received[0].path));
    }
    assert_eq!(received[0].headers.get_all("x-a").iter().count(), 2);
    assert!(received[0].headers.get("x-attempt").is_none());
}
