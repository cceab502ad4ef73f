//! Options of single requests, the attempt header, and the function that classifies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderName, Request};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use redial::{Directive, Failure, Policy, Throttle, ms};
use redial_http::reqwest::SendWith;
use redial_http::{HttpRules, Outcome, RequestOptions};
use tower::{Layer, ServiceExt};

use crate::server::{Answer, Server, client, fast};

#[tokio::test]
async fn option_sets_another_policy_for_one_request() {
    let server = Server::answering([Answer::status(503)]).await;
    let two = Policy::exponential(ms(1)).attempts(2).throttle(Throttle::none()).build();
    let request = client().get(server.url("/"));
    request.send_with_options(&fast(), RequestOptions::new().policy(&two)).await.unwrap();
    assert_eq!(server.requests(), 2);
    client().get(server.url("/")).send_with(&fast()).await.unwrap();
    assert_eq!(server.requests(), 6, "the next request has the policy of the layer");
}

#[tokio::test]
async fn option_without_retries_keeps_the_timeouts_of_its_policy() {
    for policy in [
        Policy::exponential(ms(1)).attempt_timeout(ms(100)),
        Policy::exponential(ms(1)).deadline(ms(100)),
    ] {
        let server = Server::answering([Answer::status(200).after(ms(20_000))]).await;
        let options = RequestOptions::new().policy(&policy.build()).no_retries();
        let request = client().get(server.url("/"));
        let error = request.send_with_options(&fast(), options).await.unwrap_err();
        assert!(error.is_timeout() && error.attempts() == 1, "{error}");
    }
}

#[tokio::test]
async fn option_as_an_extension_applies_to_a_tower_request() {
    let server = Server::answering([Answer::status(503)]).await;
    let client = fast().layer(Client::builder(TokioExecutor::new()).build_http());
    for (options, attempts) in [(RequestOptions::new().no_retries(), 1), (RequestOptions::new(), 4)]
    {
        let request =
            Request::get(server.url("/")).extension(options).body(Empty::<Bytes>::new()).unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(redial_http::attempts(response.extensions()), attempts);
    }
    assert_eq!(server.requests(), 5);
}

#[tokio::test]
async fn attempt_header_counts_from_one() {
    let server = Server::answering([Answer::status(503)]).await;
    let name = HeaderName::from_static("x-attempt");
    client().get(server.url("/")).send_with(&fast().attempt_header(name)).await.unwrap();
    let numbers: Vec<_> = server
        .received()
        .iter()
        .map(|it| it.headers["x-attempt"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn function_that_classifies_comes_before_the_rules() {
    let rules = HttpRules::standard().classify(|request, outcome| match outcome {
        Outcome::Response { status, .. } if status == 404 => {
            Some(Directive::Retry(Failure::server()))
        }
        Outcome::Response { status, .. } if status == 503 => Some(Directive::Fail),
        Outcome::Error(_) if request.host.starts_with("127.0.0.1:") => Some(Directive::Fail),
        _ => None,
    });
    let retries = fast().rules(rules);
    for (answer, requests) in [(404, 4), (503, 1), (500, 4)] {
        let server = Server::answering([Answer::status(answer)]).await;
        client().get(server.url("/")).send_with(&retries).await.unwrap();
        assert_eq!(server.requests(), requests, "{answer}");
    }
    let server = Server::answering([Answer::Close]).await;
    assert_eq!(client().get(server.url("/")).send_with(&retries).await.unwrap_err().attempts(), 1);
}

#[tokio::test]
async fn function_that_classifies_is_called_once_for_each_attempt() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let rules = HttpRules::standard().classify(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        None
    });
    let server = Server::answering([Answer::status(503), Answer::Close, Answer::status(200)]).await;
    client().get(server.url("/")).send_with(&fast().rules(rules)).await.unwrap();
    assert_eq!((server.requests(), calls.load(Ordering::SeqCst)), (3, 3));
}
