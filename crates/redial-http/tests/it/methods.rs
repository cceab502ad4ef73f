//! Which requests are sent again: by method, key, option and proof (decision H2).

use http::Method;
use redial::report::AttemptEnd;
use redial::{Report, StopReason};
use redial_http::reqwest::SendWith;
use redial_http::{HttpRules, IDEMPOTENCY_KEY, RequestOptions, RetryLayer};
use tokio::net::TcpListener;

use crate::server::{Answer, FAST, Server, client, client_builder, fast};

fn unavailable_then_ok() -> Vec<Answer> {
    vec![Answer::status(503), Answer::status(200)]
}

#[tokio::test]
async fn methods_that_are_idempotent_are_retried_after_a_status() {
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"] {
        let server = Server::answering(unavailable_then_ok()).await;
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = client().request(method.clone(), server.url("/"));
        let response = request.send_with(&fast()).await.unwrap();
        assert_eq!(response.status(), 200, "{method}");
        assert_eq!(redial_http::attempts(response.extensions()), 2, "{method}");
        assert!(server.received().iter().all(|received| received.method == method));
    }
}

#[tokio::test]
async fn methods_that_are_not_idempotent_are_sent_once() {
    for method in [Method::POST, Method::PATCH] {
        let server = Server::answering(unavailable_then_ok()).await;
        let request = client().request(method, server.url("/")).body("order");
        let response = request.send_with(&fast()).await.unwrap();
        let report = response.extensions().get::<Report>().unwrap().clone();
        assert_eq!((report.attempts, report.stop_reason), (1, StopReason::NotIdempotent));
        assert_eq!((response.status().as_u16(), server.requests()), (503, 1));
        assert_eq!(response.text().await.unwrap(), "body of 503", "the response is whole");
    }
}

#[tokio::test]
async fn post_after_a_lost_connection_is_sent_once() {
    let server = Server::answering([Answer::Close, Answer::status(200)]).await;
    let error = client().post(server.url("/")).body("order").send_with(&fast()).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotIdempotent));
    assert!(error.last().unwrap().is_request());
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn get_after_a_lost_connection_is_retried() {
    let server = Server::answering([Answer::Close, Answer::Close, Answer::status(200)]).await;
    let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, report.stop_reason), (3, StopReason::Succeeded));
    let AttemptEnd::Failed(failure) = report.history[0].end else { panic!("{report:?}") };
    assert_eq!(failure.reason.unwrap().name(), "connection lost");
}

// Nothing listens on the port until the first attempts have been refused.
#[tokio::test]
async fn post_after_a_refused_connection_is_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let policy =
        redial::Policy::constant(redial::ms(50)).attempts(200).throttle(redial::Throttle::none());
    let retries = RetryLayer::new(&policy.build()).policy_throttle();
    let request = client().post(format!("http://{address}/")).body("order").send_with(&retries);
    let call = tokio::spawn(request);
    tokio::time::sleep(redial::ms(120)).await;
    let server =
        Server::start_on(TcpListener::bind(address).await.unwrap(), |_| Answer::status(201));
    let response = call.await.unwrap().unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (201, 1));
    let report = response.extensions().get::<Report>().unwrap();
    let AttemptEnd::Failed(failure) = report.history[0].end else { panic!("{report:?}") };
    assert!(report.attempts > 1 && failure.proves_not_run());
}

/// A resolver without names: no request of a test leaves this machine.
struct NoNames;

impl reqwest::dns::Resolve for NoNames {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let text = format!("no such host: {}", name.as_str());
        Box::pin(async { Err(text.into()) })
    }
}

// The API of Kubernetes has the group certificates.k8s.io.
#[tokio::test]
async fn url_with_the_word_certificate_is_no_certificate_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = listener.local_addr().unwrap();
    drop(listener);
    let client = client_builder().dns_resolver(std::sync::Arc::new(NoNames)).build().unwrap();
    for url in [
        format!("http://{refused}/apis/certificates.k8s.io/v1"),
        "http://certificates.invalid/".to_owned(),
    ] {
        let error = client.post(&url).body("order").send_with(&fast()).await.unwrap_err();
        assert_eq!(error.stop_reason(), StopReason::AttemptsExhausted, "{url}");
        assert_eq!(error.attempts(), 4, "{url}");
    }
}

/// A resolver that never answers.
struct NoAnswer;

impl reqwest::dns::Resolve for NoAnswer {
    fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(std::future::pending())
    }
}

// Without a connection nothing was sent.
#[tokio::test]
async fn connect_timeout_is_retried_for_every_method() {
    let client = client_builder().dns_resolver(std::sync::Arc::new(NoAnswer));
    let client = client.connect_timeout(redial::ms(50)).build().unwrap();
    let request = client.post("http://example.invalid/").body("order");
    let error = request.send_with(&fast()).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (4, StopReason::AttemptsExhausted));
    assert!(error.last().unwrap().is_connect() && error.last().unwrap().is_timeout());
    let AttemptEnd::Failed(failure) = error.report().history[0].end else { panic!("{error:?}") };
    assert!(failure.proves_not_run() && failure.kind == redial::FailureKind::Timeout);
}

#[tokio::test]
async fn host_that_is_not_found_is_retried_for_every_method() {
    let client = client_builder().dns_resolver(std::sync::Arc::new(NoNames)).build().unwrap();
    let request = client.post("http://host.invalid/").body("order");
    let error = request.send_with(&fast()).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (4, StopReason::AttemptsExhausted));
    assert!(error.last().unwrap().is_connect());
}

#[tokio::test]
async fn post_with_idempotency_key_is_retried_with_the_key() {
    let server = Server::answering(unavailable_then_ok()).await;
    let request = client().post(server.url("/")).header(IDEMPOTENCY_KEY, "order-7").body("order");
    assert_eq!(request.send_with(&fast()).await.unwrap().status(), 200);
    assert_eq!(
        server.received().iter().filter(|it| it.headers[IDEMPOTENCY_KEY] == "order-7").count(),
        2
    );
}

#[tokio::test]
async fn post_gets_one_new_key_for_all_its_attempts() {
    let server = Server::answering(unavailable_then_ok()).await;
    let retries = fast().add_idempotency_keys();
    for _ in 0..2 {
        let request = client().post(server.url("/")).body("order");
        assert_eq!(request.send_with(&retries).await.unwrap().status(), 200);
    }
    let keys: Vec<_> =
        server.received().iter().map(|it| it.headers[IDEMPOTENCY_KEY].clone()).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys[0] == keys[1] && keys[1] != keys[2] && keys[0].len() == 36, "{keys:?}");
    // Methods that are idempotent need none.
    client().put(server.url("/")).send_with(&retries).await.unwrap();
    assert!(!server.received()[3].headers.contains_key(IDEMPOTENCY_KEY));
}

#[tokio::test]
async fn option_of_a_request_overrides_its_method_and_key() {
    let server = Server::answering(unavailable_then_ok()).await;
    let post = client().post(server.url("/")).body("search");
    let options = RequestOptions::new().idempotent();
    assert_eq!(post.send_with_options(&fast(), options).await.unwrap().status(), 200);
    for name in ["PUT", "POST"] {
        let server = Server::answering(unavailable_then_ok()).await;
        let method = Method::from_bytes(name.as_bytes()).unwrap();
        let request = client().request(method, server.url("/")).header(IDEMPOTENCY_KEY, "1");
        let options = RequestOptions::new().not_idempotent();
        let response =
            request.send_with_options(&fast().add_idempotency_keys(), options).await.unwrap();
        assert_eq!((response.status().as_u16(), server.requests()), (503, 1), "{name}");
    }
}

#[tokio::test]
async fn rules_may_trust_rejections_of_every_method() {
    for (answer, requests) in [
        (Answer::status(429), 2),
        (Answer::status(503).header("retry-after", 0), 2),
        (Answer::status(503), 1),
        (Answer::status(500), 1),
    ] {
        let server = Server::answering([answer, Answer::status(200)]).await;
        let retries = fast().rules(HttpRules::standard().trust_rejections());
        client().post(server.url("/")).send_with(&retries).await.unwrap();
        assert_eq!(server.requests(), requests);
    }
}

#[tokio::test]
async fn last_response_is_returned_whole_with_its_attempts() {
    let server = Server::answering([Answer::status(503)]).await;
    let response = client().get(server.url("/x")).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (503, 4));
    assert_eq!(response.url().as_str(), server.url("/x"));
    assert_eq!(response.content_length(), Some(11));
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, report.stop_reason), (4, StopReason::AttemptsExhausted));
    assert_eq!(report.history.len(), 4);
    for attempt in &report.history {
        let AttemptEnd::Failed(failure) = attempt.end else { panic!("{attempt:?}") };
        assert_eq!(failure.reason.unwrap().name(), "503 Service Unavailable");
    }
    assert_eq!(response.text().await.unwrap(), "body of 503");
}

#[tokio::test]
async fn last_error_is_returned_without_a_last_response() {
    let server = Server::answering([Answer::status(503), Answer::Close]).await;
    let error = client().get(server.url("/")).send_with(&fast()).await.unwrap_err();
    assert_eq!((error.attempts(), error.last_status()), (4, None));
    assert!(error.last().is_some() && !error.is_timeout() && !error.is_throttled());
    let text = error.to_string();
    assert!(
        text.contains("(4 attempts in ") && text.ends_with("; gave up: no attempt left)"),
        "{text}"
    );
    // Each cause is printed once.
    let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |it| it.source());
    let texts: Vec<String> = chain.map(ToString::to_string).collect();
    let last = error.last().unwrap().to_string();
    assert!(texts.len() > 1 && texts[0].starts_with(&last), "{texts:?}");
    assert!(texts[1..].iter().all(|text| !text.contains(&last)), "{texts:?}");
}

#[tokio::test]
async fn success_at_once_has_no_report() {
    let server = Server::answering([Answer::status(200)]).await;
    let response = client().get(server.url("/")).send_with(&RetryLayer::new(&FAST)).await.unwrap();
    assert!(response.extensions().get::<Report>().is_none());
    assert_eq!(redial_http::attempts(response.extensions()), 1);
}

#[tokio::test]
async fn status_that_is_not_retried_is_returned_at_once() {
    for status in [301, 400, 404, 413, 422, 501, 505, 511] {
        let server = Server::answering([Answer::status(status)]).await;
        let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
        assert_eq!((response.status().as_u16(), server.requests()), (status, 1));
    }
}

// Decision H6.
#[tokio::test]
async fn errors_that_stay_are_final() {
    let server = Server::answering([Answer::status(302).header("location", "/")]).await;
    let error = client().get(server.url("/")).send_with(&fast()).await.unwrap_err();
    assert!(error.last().unwrap().is_redirect() && error.attempts() == 1);
    assert_eq!(error.stop_reason(), StopReason::NotRetryable);
    let error = client().get("ftp://example.com/").send_with(&fast()).await.unwrap_err();
    assert!(error.last().unwrap().is_builder() && error.attempts() == 1);
    let error = client().get("not a url").send_with(&fast()).await.unwrap_err();
    assert!(error.last().unwrap().is_builder() && error.attempts() == 0);
}
