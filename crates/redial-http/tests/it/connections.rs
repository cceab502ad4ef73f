//! Abandoned responses are read to their end within a limit, so that connections are used again
//! (decision H5).

use redial::{Policy, Throttle, ms, s};
use redial_http::parts::{DRAIN_BYTES_MAX, DRAIN_TIME_MAX};
use redial_http::reqwest::SendWith;

use crate::server::{Answer, Server, client, fast};

#[tokio::test]
async fn connection_is_used_again_after_an_abandoned_response() {
    let body = vec![b'x'; DRAIN_BYTES_MAX as usize];
    let server = Server::answering([Answer::status(503).body(body), Answer::status(200)]).await;
    let client = client();
    for _ in 0..3 {
        let response = client.get(server.url("/")).send_with(&fast()).await.unwrap();
        response.bytes().await.unwrap();
    }
    assert_eq!((server.requests(), server.connections()), (4, 1));
}

#[tokio::test]
async fn connection_of_a_body_past_the_limit_is_closed() {
    let body = vec![b'x'; 32 * DRAIN_BYTES_MAX as usize];
    let server = Server::answering([Answer::status(503).body(body), Answer::status(200)]).await;
    let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests(), server.connections()), (200, 2, 2));
}

#[tokio::test]
async fn body_without_an_end_does_not_hold_the_retry() {
    let server = Server::answering([Answer::Endless(503), Answer::status(200)]).await;
    let start = std::time::Instant::now();
    let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 2));
    // Generous: the limit of bytes ends it long before the limit of time.
    assert!(start.elapsed() < 10 * DRAIN_TIME_MAX);
}

#[tokio::test]
async fn response_after_the_last_attempt_streams_without_a_limit() {
    let body = vec![b'x'; 3 * DRAIN_BYTES_MAX as usize];
    let server = Server::answering([Answer::status(503).body(body.clone())]).await;
    let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (503, 4));
    assert_eq!(response.bytes().await.unwrap(), body);
}

#[tokio::test]
async fn response_that_was_read_and_not_retried_is_whole() {
    // The budget of one retry is spent by the first request, so the second ends after one attempt.
    let server = Server::answering([Answer::status(503).header("x-a", "1")]).await;
    let budget = std::sync::Arc::new(redial::throttle::RetryBudget::new(1.0, 0.0));
    let retries = redial_http::RetryLayer::new(&crate::server::FAST).shared_budget(budget);
    for attempts in [2, 1] {
        let response = client().get(server.url("/x")).send_with(&retries).await.unwrap();
        assert_eq!(redial_http::attempts(response.extensions()), attempts);
        assert_eq!(
            (response.url().as_str(), &response.headers()["x-a"]),
            (&*server.url("/x"), &"1".parse().unwrap())
        );
        assert_eq!(response.content_length(), Some(11));
        assert!(response.remote_addr().is_some());
        assert_eq!(response.text().await.unwrap(), "body of 503");
    }
}

#[tokio::test]
async fn connection_of_a_rejected_post_is_used_again() {
    let body = vec![b'x'; DRAIN_BYTES_MAX as usize];
    let server = Server::answering([Answer::status(429).body(body), Answer::status(200)]).await;
    let retries = fast().rules(redial_http::HttpRules::standard().trust_rejections());
    client().post(server.url("/")).body("order").send_with(&retries).await.unwrap();
    assert_eq!((server.requests(), server.connections()), (2, 1));
}

/// Waits for the connection of the first response to end, and checks that the second request follows later.
async fn is_released_before_the_retry(client: reqwest::Client) {
    let server = Server::answering([Answer::Stalled(503), Answer::status(200)]).await;
    let policy = Policy::constant(s(3)).throttle(Throttle::none()).build();
    let retries = redial_http::RetryLayer::new(&policy).policy_throttle();
    let url = server.url("/");
    let call = tokio::spawn(async move { client.get(url).send_with(&retries).await });
    while server.dropped() == 0 && server.requests() < 2 {
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!((server.dropped(), server.requests()), (1, 1));
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
}

// Decision H5.
#[tokio::test]
async fn connection_of_a_stalled_body_is_closed_before_the_backoff() {
    is_released_before_the_retry(client()).await;
}

#[tokio::test]
async fn http2_stream_of_a_stalled_body_ends_before_the_backoff() {
    let client = crate::server::client_builder().http2_prior_knowledge().build().unwrap();
    is_released_before_the_retry(client).await;
}

#[tokio::test]
async fn response_with_long_body_is_whole_after_a_refused_retry() {
    let body = vec![b'x'; 3 * DRAIN_BYTES_MAX as usize];
    let server = Server::answering([Answer::status(503).body(body.clone())]).await;
    let budget = std::sync::Arc::new(redial::throttle::RetryBudget::new(1.0, 0.0));
    let retries = redial_http::RetryLayer::new(&crate::server::FAST).shared_budget(budget);
    for attempts in [2, 1] {
        let response = client().get(server.url("/")).send_with(&retries).await.unwrap();
        assert_eq!(redial_http::attempts(response.extensions()), attempts);
        assert_eq!(response.bytes().await.unwrap(), body);
    }
}
