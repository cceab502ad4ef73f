//! Hedging of safe methods.

use std::time::Instant;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use redial::{Hedged, Policy, Report, Throttle, ms, s};
use redial_http::reqwest::SendWith;
use redial_http::{RequestOptions, RetryLayer, RetryMiddleware};
use reqwest_middleware::ClientBuilder;
use tower::{Layer, ServiceExt};

use crate::server::{Answer, Server, client, fast};

static READS: Hedged = Policy::hedged(ms(50)).attempts(2).throttle(Throttle::none()).build();

fn hedging() -> RetryLayer {
    fast().hedge_reads(&READS)
}

async fn slow_first() -> Server {
    Server::answering([Answer::status(200).after(s(20)), Answer::status(200)]).await
}

#[tokio::test]
async fn hedging_second_attempt_wins_if_the_first_is_slow() {
    let server = slow_first().await;
    let start = Instant::now();
    let response = client().get(server.url("/")).send_with(&hedging()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(start.elapsed() < s(10));
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, server.requests()), (2, 2));
}

#[tokio::test]
async fn hedging_works_around_the_client_of_hyper() {
    let server = slow_first().await;
    let service = hedging().layer(Client::builder(TokioExecutor::new()).build_http());
    let start = Instant::now();
    let request = Request::get(server.url("/")).body(Empty::<Bytes>::new()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(redial_http::attempts(response.extensions()), 2);
    assert!(response.status() == 200 && start.elapsed() < s(10));
}

#[tokio::test]
async fn hedging_works_in_the_middleware() {
    let server = slow_first().await;
    let client = ClientBuilder::new(client()).with(RetryMiddleware::new(hedging())).build();
    let start = Instant::now();
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(redial_http::attempts(response.extensions()), 2);
    assert!(response.status() == 200 && start.elapsed() < s(10));
}

#[tokio::test]
async fn hedging_first_attempt_may_win_and_the_report_counts_both() {
    let answers = [Answer::status(200).after(ms(400)), Answer::status(200).after(s(20))];
    let server = Server::answering(answers).await;
    let response = client().get(server.url("/")).send_with(&hedging()).await.unwrap();
    assert_eq!(redial_http::attempts(response.extensions()), 2);
}

#[tokio::test]
async fn hedging_sends_one_request_if_the_answer_is_fast() {
    let server = Server::answering([Answer::status(200)]).await;
    let patient = Policy::hedged(s(20)).attempts(2).build();
    let response =
        client().get(server.url("/")).send_with(&fast().hedge_reads(&patient)).await.unwrap();
    assert_eq!((server.requests(), redial_http::attempts(response.extensions())), (1, 1));
    assert!(response.extensions().get::<Report>().is_none());
}

#[tokio::test]
async fn hedging_is_for_safe_methods_only() {
    for method in [Method::PUT, Method::DELETE, Method::POST] {
        let server =
            Server::answering([Answer::status(200).after(ms(300)), Answer::status(500)]).await;
        let request = client().request(method.clone(), server.url("/"));
        let response = request.send_with(&hedging()).await.unwrap();
        assert_eq!((response.status().as_u16(), server.requests()), (200, 1), "{method}");
    }
}

// Its body can be sent only once, unless a factory makes another.
#[tokio::test]
async fn hedging_of_a_streaming_body_sends_one_request() {
    let stream = || {
        let frames = [Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from("query")))];
        reqwest::Body::wrap(http_body_util::StreamBody::new(tokio_stream::iter(frames)))
    };
    let with_factory = RequestOptions::new().body_factory(stream);
    for (options, requests) in [(RequestOptions::new(), 1), (with_factory, 2)] {
        let server = Server::answering([Answer::status(200).after(ms(400))]).await;
        // Of a GET, hyper sends no body whose length is unknown.
        let query = Method::from_bytes(b"QUERY").unwrap();
        let request = client().request(query, server.url("/")).body(stream());
        let response = request.send_with_options(&hedging(), options).await.unwrap();
        assert_eq!((response.status().as_u16(), server.requests()), (200, requests));
        assert!(server.received().iter().all(|received| received.body == "query"));
    }
}

#[tokio::test]
async fn hedging_is_off_by_option_of_a_request() {
    let policy = Policy::exponential(ms(1)).throttle(Throttle::none()).build();
    for options in [
        RequestOptions::new().no_hedging(),
        RequestOptions::new().no_retries(),
        RequestOptions::new().policy(&policy),
        RequestOptions::new().not_idempotent(),
    ] {
        let server = Server::answering([Answer::status(200).after(ms(300))]).await;
        client().get(server.url("/")).send_with_options(&hedging(), options).await.unwrap();
        assert_eq!(server.requests(), 1);
    }
}

#[tokio::test]
async fn hedging_stops_when_the_budget_of_the_host_is_empty() {
    let server = Server::answering([Answer::status(200).after(ms(300))]).await;
    let budget = std::sync::Arc::new(redial::throttle::RetryBudget::new(1.0, 0.0));
    let retries = RetryLayer::standard().hedge_reads(&READS).shared_budget(budget);
    for requests in [2, 3] {
        client().get(server.url("/")).send_with(&retries).await.unwrap();
        assert_eq!(server.requests(), requests);
    }
}

#[tokio::test]
async fn hedging_of_a_failed_attempt_returns_the_last_response() {
    let server = Server::answering([Answer::status(503)]).await;
    let response = client().get(server.url("/")).send_with(&hedging()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (503, 2));
    assert_eq!(response.text().await.unwrap(), "body of 503");
}
