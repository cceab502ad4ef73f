//! What users of other HTTP retry libraries have reported, each as a test. The comment names the report.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::{Extensions, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use redial::classify::Hint;
use redial::report::AttemptEnd;
use redial::{Directive, Policy, Report, StopReason, Throttle, ms, s};
use redial_http::reqwest::SendWith;
use redial_http::{
    HttpRules, IDEMPOTENCY_KEY, Outcome, RequestOptions, RetryLayer, RetryMiddleware,
};
use reqwest::Response;
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use tower::{Layer, ServiceExt};

use crate::server::{Answer, FAST, Server, client, fast, with_own_retries};

fn stream() -> reqwest::Body {
    let frames = [Ok::<_, std::io::Error>(Frame::data(Bytes::from("content")))];
    reqwest::Body::wrap(StreamBody::new(tokio_stream::iter(frames)))
}

// TrueLayer/reqwest-middleware#146: the policy never sees the response.
#[tokio::test]
async fn middleware_respects_retry_after() {
    let server =
        Server::answering([Answer::status(429).header("retry-after", 1), Answer::status(200)])
            .await;
    let client = ClientBuilder::new(client()).with(RetryMiddleware::new(fast())).build();
    let start = Instant::now();
    assert_eq!(client.get(server.url("/")).send().await.unwrap().status(), 200);
    assert!(start.elapsed() >= s(1) && server.requests() == 2);
}

// TrueLayer/reqwest-middleware#44: a stream fails before it is sent.
#[tokio::test]
async fn middleware_sends_a_streaming_body_once_without_error() {
    let server = Server::answering([Answer::status(200)]).await;
    let client = ClientBuilder::new(client()).with(RetryMiddleware::new(fast())).build();
    assert_eq!(client.post(server.url("/")).body(stream()).send().await.unwrap().status(), 200);
    assert_eq!(server.received()[0].body, "content");
}

// seanmonstar/reqwest#2416: a file cannot be cloned for a retry.
#[tokio::test]
async fn body_of_a_file_is_read_again_for_each_retry() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"content of a file").unwrap();
    let path = file.path().to_owned();
    // A program would stream the file; what matters is that it is opened for each attempt.
    let open = move || reqwest::Body::wrap(Full::new(Bytes::from(std::fs::read(&path).unwrap())));
    let server = Server::answering([Answer::status(503), Answer::Close, Answer::status(200)]).await;
    let request = client().put(server.url("/")).body(open());
    let options = RequestOptions::new().body_factory(open);
    assert_eq!(request.send_with_options(&fast(), options).await.unwrap().status(), 200);
    assert_eq!(server.requests(), 3);
    assert!(server.received().iter().all(|received| received.body == "content of a file"));
}

// Xuanwo/backon#150, #63: the hint of the server does not reach the decision.
#[tokio::test]
async fn hint_of_the_server_is_a_part_of_the_decision() {
    let server =
        Server::answering([Answer::status(503).header("retry-after", 1), Answer::status(200)])
            .await;
    let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    let AttemptEnd::Failed(failure) = report.history[0].end else { panic!("{report:?}") };
    assert_eq!(failure.hint, Hint::After(s(1)));
    assert!(report.history[1].started - report.history[0].ended >= s(1));
}

// dotnet/extensions#5248: a POST runs twice by default.
#[tokio::test]
async fn post_is_never_duplicated_by_default() {
    for answer in [Answer::status(500), Answer::status(503), Answer::status(429), Answer::Close] {
        let server = Server::answering([answer, Answer::status(200)]).await;
        let _ = client().post(server.url("/")).body("order").send_with(&fast()).await;
        assert_eq!(server.requests(), 1);
    }
}

// dotnet/extensions#6708: disabling retries for a method had no effect.
#[tokio::test]
async fn retries_disabled_for_a_method_stay_disabled() {
    let retries = fast().rules(HttpRules::standard().not_idempotent_method(&Method::DELETE));
    let server = Server::answering([Answer::status(503)]).await;
    for _ in 0..2 {
        client().delete(server.url("/")).send_with(&retries).await.unwrap();
    }
    assert_eq!(server.requests(), 2);
    let request = client().get(server.url("/"));
    request.send_with_options(&retries, RequestOptions::new().no_retries()).await.unwrap();
    assert_eq!(server.requests(), 3);
}

/// Appends a header to what it receives, as signing or tracing middleware does.
struct Appending;

#[async_trait::async_trait]
impl Middleware for Appending {
    async fn handle(
        &self,
        mut request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        request.headers_mut().append("x-signature", HeaderValue::from_static("1"));
        next.run(request, extensions).await
    }
}

// dotnet/extensions#6167: one request object is sent again, with what earlier attempts added to it.
#[tokio::test]
async fn headers_added_by_an_attempt_do_not_reach_the_next() {
    let server = Server::answering([Answer::status(503)]).await;
    let client =
        ClientBuilder::new(client()).with(RetryMiddleware::new(fast())).with(Appending).build();
    client.get(server.url("/")).send().await.unwrap();
    assert_eq!(server.requests(), 4);
    for received in server.received() {
        assert_eq!(received.headers.get_all("x-signature").iter().count(), 1);
    }
}

// hashicorp/go-retryablehttp#169: the function that decides does not get the request.
#[tokio::test]
async fn function_that_classifies_gets_the_request() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let rules = HttpRules::standard().classify(move |request, outcome| {
        let Outcome::Response { status, .. } = outcome else { return None };
        let tenant = request.headers.get("x-tenant").cloned();
        record.lock().unwrap().push((
            request.method.clone(),
            request.idempotent,
            tenant,
            status.as_u16(),
        ));
        // Of this tenant, nothing is retried.
        (request.headers.get("x-tenant")? == "batch").then_some(Directive::Fail)
    });
    let server = Server::answering([Answer::status(503)]).await;
    let request = client().post(server.url("/")).header("x-tenant", "batch");
    request
        .send_with_options(&fast().rules(rules), RequestOptions::new().idempotent())
        .await
        .unwrap();
    assert_eq!(server.requests(), 1);
    let tenant = Some(HeaderValue::from_static("batch"));
    assert_eq!(seen.lock().unwrap()[0], (Method::POST, true, tenant, 503));
}

// urllib3#3401, urllib3#1607, psf/requests#4854: the setting is lost after the first retry.
#[tokio::test]
async fn retry_after_stays_ignored_in_every_attempt() {
    let server = Server::answering([Answer::status(503).header("retry-after", 30)]).await;
    let start = Instant::now();
    let request = client().get(server.url("/"));
    let options = RequestOptions::new().ignore_retry_after();
    request.send_with_options(&fast(), options).await.unwrap();
    // Generous: three delays of a few milliseconds.
    assert!(server.requests() == 4 && start.elapsed() < s(20));
}

// wojtekmach/req#463: which of several settings applies is unclear.
#[tokio::test]
async fn option_of_a_request_precedes_the_layer_and_the_rules() {
    let two = Policy::exponential(ms(1)).attempts(2).throttle(Throttle::none()).build();
    let rules = HttpRules::standard().idempotent_method(Method::POST);
    let retries = RetryLayer::new(&FAST).policy_throttle().rules(rules);
    let server = Server::answering([Answer::status(503)]).await;
    for (options, requests) in [
        (RequestOptions::new(), 4),
        (RequestOptions::new().policy(&two), 2),
        (RequestOptions::new().not_idempotent(), 1),
        (RequestOptions::new().policy(&two).no_retries(), 1),
        (RequestOptions::new().not_idempotent().idempotent(), 4),
    ] {
        let before = server.requests();
        let text = format!("{options:?}");
        client().post(server.url("/")).send_with_options(&retries, options).await.unwrap();
        assert_eq!(server.requests() - before, requests, "{text}");
    }
}

// XAMPPRocky/octocrab#842, fetch-retry#99, cloudflare/mcp#196: a retry has an empty body.
#[tokio::test]
async fn body_of_a_retry_is_never_empty() {
    let server = Server::answering([Answer::status(503), Answer::Close, Answer::status(200)]).await;
    let request = client().post(server.url("/")).header(IDEMPOTENCY_KEY, "1").body("order");
    assert_eq!(request.send_with(&fast()).await.unwrap().status(), 200);
    assert_eq!(server.requests(), 3);
    for received in server.received() {
        assert_eq!(
            (&received.body[..], &received.headers["content-length"]),
            (&b"order"[..], &"5".parse().unwrap())
        );
    }
}

// logstash-output-http#105: a second layer retries what the first one must not.
#[tokio::test]
async fn retries_of_two_layers_repeat_no_unsafe_post() {
    let server = Server::answering([Answer::Close]).await;
    let plain = with_own_retries().build().unwrap();
    let error = plain.post(server.url("/")).body("x").send_with(&fast()).await.unwrap_err();
    assert_eq!((error.stop_reason(), server.requests()), (StopReason::NotIdempotent, 1));
    // Two layers, and an option that travels with the request.
    let server = Server::answering([Answer::status(503)]).await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let service = fast().layer(fast().layer(client));
    let request = Request::put(server.url("/"))
        .extension(RequestOptions::new().not_idempotent())
        .body(Full::new(Bytes::from("x")))
        .unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (503, 1));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "body of 503");
}
