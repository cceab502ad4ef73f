//! A real server behind the fault proxy: what the network and overloaded servers do.

use std::time::{Duration, Instant};

use http::Method;
use redial::{Policy, StopReason, Throttle, ms, s};
use redial_faults::proxy::{ConnectionFault, Fault, Handle, Proxy, Script};
use redial_http::reqwest::SendWith;
use redial_http::{IDEMPOTENCY_KEY, RequestOptions, RetryLayer};

use crate::server::{Answer, Server, client, client_builder, fast};

/// A healthy server, and a proxy with this script before it.
async fn behind(script: impl Into<Script>) -> (Server, Handle) {
    let server = Server::answering([Answer::status(200)]).await;
    let proxy = Proxy::http(server.address).script(script).listen("127.0.0.1:0").await.unwrap();
    (server, proxy)
}

/// A TCP reset before the server has the request, after it, or in the response.
fn resets() -> [Fault; 3] {
    [Fault::reset(), Fault::reset().after_upstream(), Fault::close().after_upstream()]
}

#[tokio::test]
async fn proxy_resets_are_retried_for_get_and_not_post() {
    for fault in resets() {
        let (_, proxy) = behind([fault.clone()]).await;
        let response = client().get(proxy.url()).send_with(&fast()).await.unwrap();
        assert_eq!(redial_http::attempts(response.extensions()), 2, "{fault:?}");
        let (server, proxy) = behind([fault.clone()]).await;
        let error = client().post(proxy.url()).body("order").send_with(&fast()).await.unwrap_err();
        assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotIdempotent));
        assert!(server.requests() <= 1, "{fault:?}");
    }
}

#[tokio::test]
async fn proxy_request_that_was_processed_is_repeated_with_its_key() {
    let (server, proxy) = behind([Fault::reset().after_upstream()]).await;
    let request = client().post(proxy.url()).header(IDEMPOTENCY_KEY, "order-7").body("order");
    assert_eq!(request.send_with(&fast()).await.unwrap().status(), 200);
    let received = server.received();
    assert_eq!(received.len(), 2, "the server can tell from the key that it has it already");
    assert!(
        received.iter().all(|it| it.headers[IDEMPOTENCY_KEY] == "order-7" && it.body == "order")
    );
}

#[tokio::test]
async fn proxy_reset_within_a_request_body_repeats_the_whole_body() {
    let (server, proxy) = behind([Fault::reset().at_request_bytes(1000)]).await;
    let content = vec![b'x'; 500_000];
    let response =
        client().put(proxy.url()).body(content.clone()).send_with(&fast()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.received().last().unwrap().body, content, "never half a body");
}

#[tokio::test]
async fn proxy_connections_that_are_reset_at_once_are_retried() {
    let script = Script::new().connections([ConnectionFault::reset(), ConnectionFault::reset()]);
    let (server, proxy) = behind(script).await;
    let response = client().get(proxy.url()).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 1));
}

#[tokio::test]
async fn proxy_refused_connections_are_retried_for_every_method() {
    let script = Script::new().refuse(Duration::ZERO, ms(300));
    let (server, proxy) = behind(script).await;
    let policy = Policy::constant(ms(50)).attempts(400).throttle(Throttle::none()).build();
    let retries = RetryLayer::new(&policy).policy_throttle();
    let response = client().post(proxy.url()).body("order").send_with(&retries).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 1));
}

#[tokio::test]
async fn proxy_rejections_with_retry_after_are_waited_for() {
    let (server, proxy) = behind([Fault::status(429).header("retry-after", "1")]).await;
    let start = Instant::now();
    assert_eq!(client().get(proxy.url()).send_with(&fast()).await.unwrap().status(), 200);
    assert!(start.elapsed() >= s(1) && server.requests() == 1);
}

#[tokio::test]
async fn proxy_that_stalls_is_left_by_the_attempt_timeout() {
    let (_, proxy) = behind([Fault::stall()]).await;
    let policy = Policy::exponential(ms(1)).attempt_timeout(ms(300)).throttle(Throttle::none());
    let retries = RetryLayer::new(&policy.build()).policy_throttle();
    let response = client().get(proxy.url()).send_with(&retries).await.unwrap();
    assert_eq!(redial_http::attempts(response.extensions()), 2);
}

#[tokio::test]
async fn proxy_truncated_response_is_an_error_of_its_body() {
    let (server, proxy) = behind([Fault::close().at_response_bytes(3)]).await;
    let response = client().get(proxy.url()).send_with(&fast()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), redial_http::attempts(response.extensions())),
        (200, 1)
    );
    assert!(response.text().await.is_err(), "the call has ended with the head of the response");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn proxy_truncated_error_response_is_retried() {
    let server =
        Server::answering([Answer::status(503).body("busy now"), Answer::status(200)]).await;
    let script = [Fault::close().at_response_bytes(3)];
    let proxy = Proxy::http(server.address).script(script).listen("127.0.0.1:0").await.unwrap();
    let response = client().get(proxy.url()).send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 2));
}

#[tokio::test]
async fn proxy_faults_of_http2_are_retried() {
    let client = client_builder().http2_prior_knowledge().build().unwrap();
    for fault in [Fault::reset(), Fault::close(), Fault::status(503), Fault::status(502)] {
        let (_, proxy) = behind([fault.clone()]).await;
        let response = client.get(proxy.url()).send_with(&fast()).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert_eq!(redial_http::attempts(response.extensions()), 2, "{fault:?}");
    }
}

// Some seeds, every fault: a POST reaches the server at most once.
#[tokio::test]
async fn proxy_random_faults_never_duplicate_a_post() {
    for seed in 0..8 {
        posts_run_at_most_once(seed).await;
    }
}

async fn posts_run_at_most_once(seed: u64) {
    let server = Server::answering([Answer::status(200)]).await;
    let script = [0.15, 0.15, 0.2]
        .into_iter()
        .zip(resets())
        .fold(Script::new().seed(seed), |script, (rate, fault)| {
            script.rule(redial_faults::proxy::ProxyRule::new(fault).rate(rate))
        });
    let script = script.rule(redial_faults::proxy::ProxyRule::new(Fault::status(503)).rate(0.2));
    let proxy = Proxy::http(server.address).script(script).listen("127.0.0.1:0").await.unwrap();
    let (client, retries) = (client(), fast());
    for number in 0..60 {
        for method in [Method::POST, Method::PUT] {
            let request = client.request(method, format!("{}/{number}", proxy.url())).body("order");
            let _ = request.send_with_options(&retries, RequestOptions::new()).await;
        }
    }
    let received = server.received();
    for number in 0..60 {
        let path = format!("/{number}");
        let of =
            |method| received.iter().filter(|it| it.method == method && it.path == path).count();
        assert!(of(Method::POST) <= 1, "POST {path}, seed {seed}");
    }
    let puts = received.iter().filter(|it| it.method == Method::PUT).count();
    assert!(puts > 60, "a PUT is repeated: {puts}, seed {seed}");
}
