//! Attempt timeouts and the total deadline.

use std::time::Instant;

use redial::report::AttemptEnd;
use redial::{Policy, Report, StopReason, Throttle, ms, s};
use redial_http::reqwest::SendWith;
use redial_http::{RequestOptions, RetryLayer};

use crate::server::{Answer, Server, client, fast};

static TIMEOUT: Policy =
    Policy::exponential(ms(1)).attempt_timeout(ms(200)).throttle(Throttle::none()).build();

fn slow() -> Answer {
    Answer::status(200).after(s(30))
}

#[tokio::test]
async fn attempt_timeout_of_an_idempotent_request_is_retried() {
    let server = Server::answering([slow(), Answer::status(200)]).await;
    let retries = RetryLayer::new(&TIMEOUT).policy_throttle();
    let response = client().get(server.url("/")).send_with(&retries).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, report.history[0].end), (2, AttemptEnd::TimedOut));
}

#[tokio::test]
async fn attempt_timeout_of_a_post_ends_the_call() {
    let server = Server::answering([slow(), Answer::status(200)]).await;
    let retries = RetryLayer::new(&TIMEOUT).policy_throttle();
    let error = client().post(server.url("/")).body("x").send_with(&retries).await.unwrap_err();
    assert!(error.is_timeout() && error.last().is_none(), "{error}");
    assert_eq!((error.attempts(), server.requests()), (1, 1));
}

#[tokio::test]
async fn timeout_of_the_client_is_retried_for_idempotent_requests_only() {
    for (method, requests) in [(http::Method::GET, 2), (http::Method::POST, 1)] {
        let server = Server::answering([slow(), Answer::status(200)]).await;
        let request = client().request(method, server.url("/")).timeout(ms(200));
        let result = request.send_with(&fast()).await;
        assert_eq!((result.is_ok(), server.requests()), (requests == 2, requests));
        if let Err(error) = result {
            assert!(error.last().unwrap().is_timeout());
            assert_eq!(error.stop_reason(), StopReason::NotIdempotent);
        }
    }
}

#[tokio::test]
async fn deadline_bounds_all_attempts_together() {
    let server = Server::answering([Answer::status(503), slow()]).await;
    let start = Instant::now();
    let options = RequestOptions::new().deadline(ms(400));
    let request = client().get(server.url("/"));
    let error = request.send_with_options(&fast(), options).await.unwrap_err();
    assert!(error.is_timeout() && error.stop_reason() == StopReason::Deadline);
    assert_eq!(error.last_status().map(|status| status.as_u16()), Some(503));
    assert_eq!((error.attempts(), server.requests()), (2, 2));
    let text = error.to_string();
    assert!(
        text.starts_with("no response after 503 Service Unavailable (2 attempts in "),
        "{text}"
    );
    let time = start.elapsed();
    assert!(time >= ms(400) && time < s(20), "{time:?}");
}

#[tokio::test]
async fn deadline_is_the_earlier_of_policy_and_request() {
    let server = Server::answering([slow()]).await;
    let long = Policy::exponential(ms(1)).deadline(s(25)).throttle(Throttle::none()).build();
    let start = Instant::now();
    let options = RequestOptions::new().deadline(ms(200)).policy(&long);
    let request = client().get(server.url("/"));
    let error = request.send_with_options(&fast(), options).await.unwrap_err();
    assert!(error.is_timeout() && start.elapsed() < s(15));
    assert_eq!(error.last_status(), None);
    assert!(error.to_string().starts_with("no response (1 attempt in "), "{error}");
}
