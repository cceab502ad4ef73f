//! The deadline layer around small services, on a paused clock: no call starts at or after its
//! deadline, and all other calls are served unchanged.

use std::convert::Infallible;
use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::Full;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, service_fn};

use super::*;

type Body = Full<Bytes>;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn call(timeout: &str) -> Request<()> {
    Request::builder().header("grpc-timeout", timeout).body(()).unwrap()
}

/// Counts the calls that reach it. Each call takes `takes`.
fn service(
    served: &Arc<AtomicU32>,
    takes: Duration,
) -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let served = Arc::clone(served);
    service_fn(move |_: Request<()>| {
        served.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(takes).await;
            Ok(Response::new(Full::from("served")))
        }
    })
}

fn status<B>(response: &Response<B>) -> Option<&str> {
    response.headers().get("grpc-status").map(|value| value.to_str().unwrap())
}

fn served() -> Arc<AtomicU32> {
    Arc::default()
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_serves_calls_and_reports_the_remaining_time() {
    let inner = service_fn(async |request: Request<()>| {
        assert_eq!(remaining(&request), Some(secs(5)));
        tokio::time::sleep(secs(2)).await;
        assert_eq!(remaining(&request), Some(secs(3)));
        let deadline = Deadline::of(&request).unwrap();
        assert!(!deadline.has_passed());
        tokio::time::sleep(secs(3)).await;
        assert!(deadline.has_passed());
        tokio::time::sleep(secs(1)).await;
        assert_eq!(remaining(&request), Some(secs(0)));
        Ok::<_, Infallible>(Response::new(Body::from("served")))
    });
    let answer = DeadlineLayer::new().layer(inner).oneshot(call("5S")).await.unwrap();
    assert_eq!(status(&answer), None);
    assert_eq!(answer.body().size_hint().exact(), Some(6));
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_rejects_expired_calls_without_serving() {
    let served = served();
    let service = DeadlineLayer::new().layer(service(&served, secs(0)));
    let answer = service.oneshot(call("0n")).await.unwrap();
    assert_eq!(status(&answer), Some("4"));
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    assert!(answer.body().is_end_stream());
    assert_eq!(served.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_rejects_queued_calls_at_their_deadline() {
    let served = served();
    let service = ServiceBuilder::new()
        .layer(DeadlineLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(service(&served, secs(10)));
    let begun = Instant::now();
    let first = tokio::spawn(service.clone().oneshot(call("1H")));
    tokio::task::yield_now().await;

    let late = service.clone().oneshot(call("3S")).await.unwrap();
    assert_eq!(status(&late), Some("4"));
    assert_eq!(begun.elapsed(), secs(3));

    let patient = service.oneshot(call("1H")).await.unwrap();
    assert_eq!(status(&patient), None);
    assert_eq!(begun.elapsed(), secs(20), "it came right after the first");
    assert_eq!(status(&first.await.unwrap().unwrap()), None);
    assert_eq!(served.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_starts_nothing_at_the_exact_deadline() {
    for (timeout, expected) in [("10S", Some("4")), ("10001m", None)] {
        let served = served();
        let service = ServiceBuilder::new()
            .layer(DeadlineLayer::new())
            .layer(ConcurrencyLimitLayer::new(1))
            .service(service(&served, secs(10)));
        let first = tokio::spawn(service.clone().oneshot(Request::new(())));
        tokio::task::yield_now().await;
        let second = service.oneshot(call(timeout)).await.unwrap();
        assert_eq!(status(&second), expected, "{timeout}");
        first.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_rejects_calls_polled_too_late() {
    let served = served();
    let mut service = DeadlineLayer::new().layer(service(&served, secs(0)));
    let future = service.ready().await.unwrap().call(call("1S"));
    tokio::time::advance(secs(1)).await;
    assert_eq!(status(&future.await.unwrap()), Some("4"));
    assert_eq!(served.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_inner_uses_the_outer_arrival_time() {
    let served = served();
    for (timeout, expected) in [("3S", None), ("2S", Some("4"))] {
        let below = DeadlineLayer::new().layer(service(&served, secs(0)));
        let slow = service_fn(move |request: Request<()>| {
            let below = below.clone();
            async move {
                tokio::time::sleep(secs(2)).await;
                below.oneshot(request).await
            }
        });
        let answer = DeadlineLayer::new().layer(slow).oneshot(call(timeout)).await.unwrap();
        assert_eq!(status(&answer), expected, "{timeout}");
    }
    assert_eq!(served.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_ignores_invalid_timeouts() {
    let unlimited = service_fn(|request: Request<()>| {
        assert_eq!(Deadline::of(&request), None);
        assert_eq!(remaining(&request), None);
        future::ready(Ok::<_, Infallible>(Response::new(Body::from("served"))))
    });
    let service = DeadlineLayer::new().layer(unlimited);
    for timeout in ["", "5", "S", "123456789S", "-1S", "1.5S", "5s", "+5S"] {
        let answer = service.clone().oneshot(call(timeout)).await.unwrap();
        assert_eq!(status(&answer), None, "{timeout:?}");
    }
    assert_eq!(status(&service.oneshot(Request::new(())).await.unwrap()), None);
}

#[tokio::test(start_paused = true)]
async fn deadline_layer_accepts_every_unit_and_the_longest_timeout() {
    let units =
        [("2H", secs(7200)), ("2M", secs(120)), ("2S", secs(2)), ("2m", Duration::from_millis(2))];
    let fine = [("2u", Duration::from_micros(2)), ("2n", Duration::from_nanos(2))];
    let longest = [("99999999H", secs(99_999_999 * 3600))];
    for (timeout, expected) in units.into_iter().chain(fine).chain(longest) {
        let asked = service_fn(async |request: Request<()>| {
            assert_eq!(remaining(&request), Some(expected), "{timeout}");
            Ok::<_, Infallible>(Response::new(Body::from("served")))
        });
        let answer = DeadlineLayer::new().layer(asked).oneshot(call(timeout)).await.unwrap();
        assert_eq!(status(&answer), None, "{timeout}");
    }
}

#[tokio::test]
async fn deadline_layer_returns_service_errors_unchanged() {
    #[derive(Clone)]
    struct Broken;

    impl Service<Request<()>> for Broken {
        type Response = Response<Body>;
        type Error = &'static str;
        type Future = future::Ready<Result<Response<Body>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Err("not ready, ever"))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            unreachable!("a service that is not ready is not called")
        }
    }

    let answer = DeadlineLayer::new().layer(Broken).oneshot(call("1S")).await;
    assert_eq!(answer.unwrap_err(), "not ready, ever");
    let failing = service_fn(|_: Request<()>| future::ready(Err::<Response<Body>, _>("failed")));
    let answer = DeadlineLayer::new().layer(failing).oneshot(call("1S")).await;
    assert_eq!(answer.unwrap_err(), "failed");
}

#[test]
fn deadline_layer_without_a_timeout_needs_no_timer() {
    let limited = ConcurrencyLimitLayer::new(1).layer(service_fn(|_: Request<()>| {
        future::pending::<Result<Response<Body>, Infallible>>()
    }));
    let mut service = DeadlineLayer::new().layer(limited);
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(service.call(Request::new(())));
    let mut second = Box::pin(service.call(Request::new(())));
    // Outside of a runtime, creating a timer would panic.
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
}
