//! Hedged requests.

use std::sync::Arc;

use redial::tower::RetryLayer;
use redial::{Hedged, Policy, StopReason, Throttle, ms};
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::common::{Failed, Scripted, always};

static READ: Hedged = Policy::hedged(ms(20)).attempts(3).throttle(Throttle::none()).build();

#[tokio::test(start_paused = true)]
async fn tower_hedge_wins_over_a_slow_first_attempt() {
    let inner = Scripted::timed(&[(500, Ok(1)), (5, Ok(2))]);
    let log = inner.log();
    let start = Instant::now();
    let service = RetryLayer::new(&READ).when(always).layer(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 2);
    assert_eq!(start.elapsed(), ms(25));
    assert_eq!(log(), [(0, 0), (2, 20)]);
}

#[tokio::test(start_paused = true)]
async fn tower_hedge_waits_until_its_service_is_ready() {
    let inner =
        Scripted::timed(&[(500, Ok(1)), (5, Ok(2))]).ready_after(&[(0, Ok(())), (30, Ok(()))]);
    let log = inner.log();
    let service = RetryLayer::new(&READ).when(always).layer(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 2);
    assert_eq!(log()[1], (2, 50));
}

#[tokio::test(start_paused = true)]
async fn tower_hedging_respects_a_concurrency_limit_inside() {
    let inner = Scripted::timed(&[(70, Ok(1)), (5, Ok(2))]);
    let log = inner.log();
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(&READ).when(always))
        .concurrency_limit(1)
        .service(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 1);
    assert_eq!(log().len(), 1, "hedges wait for the permit");
}

#[tokio::test(start_paused = true)]
async fn tower_hedging_returns_the_last_error() {
    let inner = Scripted::timed(&[(30, Err(Failed::Busy))]);
    let service = RetryLayer::new(Arc::new(READ.clone())).when(always).layer(inner);
    let error = service.oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 3));
}

#[tokio::test(start_paused = true)]
async fn tower_request_that_cannot_be_cloned_is_not_hedged() {
    let inner = Scripted::timed(&[(500, Ok(1)), (5, Ok(2))]);
    let log = inner.log();
    let service = RetryLayer::new(&READ).when(always).clone_request(|_: &u32| None).layer(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 1);
    assert_eq!(log().len(), 1);
}
