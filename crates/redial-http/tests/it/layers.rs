//! The layer around services of tower: readiness, boxed errors, types.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use redial::throttle::{Bucket, RetryBudget};
use redial::{BoxError, Policy, Report, ms, s};
use redial_http::{RetryLayer, RetryService};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::server::{Answer, Server, client, fast};

fn get(server: &Server) -> Request<Empty<Bytes>> {
    Request::get(server.url("/")).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn layer_around_the_client_of_hyper_retries() {
    let server = Server::answering([Answer::Close, Answer::status(503), Answer::status(200)]).await;
    let mut client = fast().layer(Client::builder(TokioExecutor::new()).build_http());
    let response = client.ready().await.unwrap().call(get(&server)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(redial_http::attempts(response.extensions()), 3);
}

#[tokio::test]
async fn layer_around_the_client_of_reqwest_is_a_service() {
    let server = Server::answering([Answer::status(503), Answer::status(200)]).await;
    let mut service = ServiceBuilder::new().concurrency_limit(1).layer(fast()).service(client());
    let request = client().get(server.url("/")).build().unwrap();
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "body of 200");
}

#[tokio::test]
async fn layer_inspects_boxed_errors() {
    let server = Server::answering([Answer::Close, Answer::status(200)]).await;
    let service = ServiceBuilder::new()
        .layer(fast().boxed_errors())
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());
    let response = service.oneshot(get(&server)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 2));
}

#[tokio::test]
async fn layer_waits_for_the_readiness_of_a_clone() {
    // One permit: the retry waits until the first attempt has released it.
    let server = Server::answering([Answer::status(503), Answer::status(200)]).await;
    let limited = ServiceBuilder::new()
        .concurrency_limit(1)
        .service(Client::builder(TokioExecutor::new()).build_http());
    let response = fast().layer(limited).oneshot(get(&server)).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn layer_returns_the_readiness_error_of_its_service() {
    #[derive(Clone, Debug)]
    struct Broken;
    impl Service<Request<()>> for Broken {
        type Response = Response<Empty<Bytes>>;
        type Error = std::io::Error;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Err(std::io::ErrorKind::Unsupported.into()))
        }
        fn call(&mut self, _: Request<()>) -> Self::Future {
            unreachable!("it is never ready")
        }
    }
    let mut service = fast().layer(Broken);
    let error = service.ready().await.unwrap_err();
    assert_eq!(
        (error.attempts(), error.last().unwrap().kind()),
        (0, std::io::ErrorKind::Unsupported)
    );
}

/// A field of a struct can name the service, and its future can be spawned.
struct Api {
    client: RetryService<reqwest::Client>,
}

#[tokio::test]
async fn layer_makes_a_service_that_can_be_named_and_spawned() {
    let server = Server::answering([Answer::status(200)]).await;
    let mut api = Api { client: RetryLayer::standard().layer(client()) };
    let request = client().get(server.url("/")).build().unwrap();
    let call = tokio::spawn(api.client.call(request));
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn layer_calls_the_service_that_is_ready_at_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let mut service = fast().layer(service_fn(move |_: Request<()>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, std::io::Error>(Response::new(Empty::<Bytes>::new())) }
    }));
    let call = service.call(Request::new(()));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    call.await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// Answers with these statuses, each after a second.
fn slow(
    statuses: &'static [u16],
) -> impl Service<Request<()>, Response = Response<Empty<Bytes>>, Error = std::io::Error> + Clone {
    let calls = Arc::new(AtomicUsize::new(0));
    service_fn(move |_: Request<()>| {
        let status = statuses[calls.fetch_add(1, Ordering::Relaxed)];
        async move {
            tokio::time::sleep(s(1)).await;
            let response = Response::builder().status(status).body(Empty::new());
            Ok(response.expect("a response"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn layer_report_has_the_time_of_the_first_attempt() {
    let policy = Policy::constant(ms(10)).build();
    let mut service = RetryLayer::new(&policy).layer(slow(&[503, 200]));
    let response = service.call(Request::new(())).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert!((2000..2020).contains(&report.elapsed.as_millis()), "{report:?}");
    assert_eq!(report.history.len(), 2);
    let first = &report.history[0];
    assert_eq!((first.attempt, first.started.as_millis()), (1, 0), "{report:?}");
}

// The fast path does not read the clock before the first attempt is pending.
#[tokio::test]
async fn error_elapsed_includes_time_inside_polls() {
    let blocking = service_fn(|_: Request<()>| async {
        std::thread::sleep(ms(30));
        Err::<Response<Empty<Bytes>>, _>(std::io::Error::from(std::io::ErrorKind::NotFound))
    });
    let retries = RetryLayer::new(&Policy::constant(ms(1)).build());
    let error = retries.layer(blocking).call(Request::new(())).await.unwrap_err();
    assert!(!error.report().elapsed_exact && error.report().elapsed < ms(30), "{error:?}");
    assert!(error.to_string().contains("(1 attempt in at least "), "{error}");
    let timed = RetryLayer::new(&Policy::constant(ms(1)).deadline(s(20)).build());
    let error = timed.layer(blocking).call(Request::new(())).await.unwrap_err();
    assert!(error.report().elapsed_exact && error.report().elapsed >= ms(30), "{error:?}");
    assert!(!error.to_string().contains("at least"), "{error}");
}

#[tokio::test]
async fn layer_call_that_has_panicked_can_only_be_dropped() {
    let polls = Arc::new(AtomicUsize::new(0));
    let counter = polls.clone();
    let mut service = fast().layer(service_fn(move |_: Request<()>| {
        let counter = counter.clone();
        std::future::poll_fn(move |_| -> Poll<Result<Response<Empty<Bytes>>, std::io::Error>> {
            counter.fetch_add(1, Ordering::Relaxed);
            panic!("by the service")
        })
    }));
    let mut call = Box::pin(service.call(Request::new(())));
    let mut poll = || {
        let mut context = Context::from_waker(Waker::noop());
        let poll = || drop(call.as_mut().poll(&mut context));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)).unwrap_err();
        *panic.downcast::<&str>().unwrap()
    };
    assert_eq!((poll(), poll()), ("by the service", "polled after completion"));
    assert_eq!(polls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn layer_success_at_once_pays_into_its_budget() {
    let budget = Arc::new(RetryBudget::new(10.0, 1.0).with_tokens(8.0, 0));
    let policy = Policy::constant(ms(10)).build();
    let shared = RetryLayer::new(&policy).shared_budget(budget.clone());
    shared.layer(slow(&[200])).call(Request::new(())).await.unwrap();
    assert_eq!(budget.tokens(0), Some(9.0));
    let of_policy = RetryLayer::new(&policy.with_budget(budget.clone())).policy_throttle();
    of_policy.layer(slow(&[404])).call(Request::new(())).await.unwrap();
    assert_eq!(budget.tokens(0), Some(10.0), "a response that is not retried is a success");
}
