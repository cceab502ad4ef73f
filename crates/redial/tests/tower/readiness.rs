//! Readiness and backpressure.

use std::time::Duration;

use redial::tower::RetryLayer;
use redial::{Policy, StopReason, Throttle, ms};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::common::{Failed, Scripted, always};

static THRICE: Policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();
static HURRIED: Policy =
    Policy::constant(ms(10)).attempts(3).deadline(ms(100)).throttle(Throttle::none()).build();

#[tokio::test(start_paused = true)]
async fn tower_ready_service_makes_the_first_attempt() {
    let inner = Scripted::answers(&[Err(Failed::Busy), Ok(7)]);
    let log = inner.log();
    let mut service = RetryLayer::new(&THRICE).when(always).layer(inner);
    let answer = service.ready().await.unwrap().call(1).await;
    assert_eq!(answer.unwrap(), 7);
    // Clone 1 replaced the ready service; the retry has a clone of its own.
    assert_eq!(log(), [(0, 0), (2, 10)]);
}

#[tokio::test(start_paused = true)]
async fn tower_service_is_ready_again_after_a_request() {
    let inner = Scripted::answers(&[Ok(7)]).ready_after(&[(5, Ok(()))]);
    let log = inner.log();
    let mut service = RetryLayer::new(&THRICE).when(always).layer(inner);
    for _ in 0..2 {
        service.ready().await.unwrap().call(1).await.unwrap();
    }
    assert_eq!(log(), [(0, 5), (1, 10)]);
}

#[tokio::test(start_paused = true)]
async fn tower_retry_waits_until_its_service_is_ready() {
    let inner =
        Scripted::answers(&[Err(Failed::Busy), Ok(7)]).ready_after(&[(0, Ok(())), (30, Ok(()))]);
    let log = inner.log();
    let mut service = RetryLayer::new(&THRICE).when(always).layer(inner);
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap(), 7);
    // The delay of 10 ms, then 30 ms until the clone is ready.
    assert_eq!(log(), [(0, 0), (2, 40)]);
}

#[tokio::test(start_paused = true)]
async fn tower_deadline_bounds_the_wait_for_readiness() {
    let inner =
        Scripted::answers(&[Err(Failed::Busy)]).ready_after(&[(0, Ok(())), (60_000, Ok(()))]);
    let log = inner.log();
    let mut service = RetryLayer::new(&HURRIED).when(always).layer(inner);
    let start = Instant::now();
    let error = service.ready().await.unwrap().call(1).await.unwrap_err();
    assert_eq!(start.elapsed(), ms(100));
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Deadline, 2));
    assert_eq!(error.last(), Some(&Failed::Busy));
    assert_eq!(log().len(), 1, "the second attempt was not sent");
}

#[tokio::test(start_paused = true)]
async fn tower_readiness_error_of_a_retry_is_classified() {
    let not_ready = Err(Failed::NotReady);
    let inner = Scripted::answers(&[Err(Failed::Busy)]).ready_after(&[(0, Ok(())), (0, not_ready)]);
    let mut service =
        RetryLayer::new(&THRICE).when(|error: &Failed| *error == Failed::Busy).layer(inner);
    let error = service.ready().await.unwrap().call(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotRetryable, 2));
    assert_eq!(error.into_last(), Some(Failed::NotReady));
}

#[tokio::test(start_paused = true)]
async fn tower_readiness_error_before_a_request_is_passed_on() {
    let inner = Scripted::answers(&[Ok(7)]).ready_after(&[(0, Err(Failed::NotReady))]);
    let mut service = RetryLayer::new(&THRICE).when(always).layer(inner);
    let error = service.ready().await.err().unwrap();
    assert_eq!(error.to_string(), "not ready (0 attempts in 0 ms; not retryable)");
    assert_eq!(error.into_last(), Some(Failed::NotReady));
}

#[tokio::test(start_paused = true)]
async fn tower_concurrency_limit_outside_holds_one_permit_per_request() {
    let inner = Scripted::timed(&[(20, Err(Failed::Busy)), (20, Ok(7))]);
    let log = inner.log();
    let service = ServiceBuilder::new()
        .concurrency_limit(1)
        .layer(RetryLayer::new(&THRICE).when(always))
        .service(inner);
    let (one, two) = tokio::join!(service.clone().oneshot(1), service.oneshot(2));
    assert_eq!((one.unwrap(), two.unwrap()), (7, 7));
    // The second request starts when both attempts of the first have ended.
    let times: Vec<_> = log().into_iter().map(|(_, at)| at).collect();
    assert_eq!(times, [0, 30, 50]);
}

#[tokio::test(start_paused = true)]
async fn tower_concurrency_limit_inside_is_held_per_attempt() {
    let inner = Scripted::timed(&[(20, Err(Failed::Busy)), (20, Ok(7))]);
    let log = inner.log();
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(&THRICE).when(always))
        .concurrency_limit(1)
        .service(inner);
    let (one, two) = tokio::join!(service.clone().oneshot(1), service.oneshot(2));
    assert_eq!((one.unwrap(), two.unwrap()), (7, 7));
    // While the first request waits for its retry, the second one has the permit.
    let times: Vec<_> = log().into_iter().map(|(_, at)| at).collect();
    assert_eq!(times, [0, 20, 40]);
}

#[tokio::test(start_paused = true)]
async fn tower_buffer_works_around_and_inside_the_layer() {
    let inner = Scripted::answers(&[Err(Failed::Busy), Ok(7)]);
    let log = inner.log();
    let service = ServiceBuilder::new()
        .buffer::<u32>(1)
        .map_err(redial::Error::boxed)
        .layer(RetryLayer::new(&THRICE).when(|_: &tower::BoxError| true))
        .buffer::<u32>(1)
        .service(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 7);
    assert_eq!(log().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn tower_closed_buffer_ends_a_request_that_is_not_retryable() {
    let service = service_fn(|_: u32| async { Err::<u32, _>(Failed::Busy) });
    let (buffer, worker) = tower::buffer::Buffer::pair(service, 1);
    drop(worker);
    let mut service = RetryLayer::new(&THRICE).when(|_: &tower::BoxError| false).layer(buffer);
    let error = service.ready().await.err().unwrap();
    assert_eq!((error.attempts(), error.elapsed()), (0, Duration::ZERO));
}
