//! Hedged requests.

use std::sync::Arc;

use redial::tower::RetryLayer;
use redial::{AnyPolicy, Hedged, Policy, StopReason, Throttle, ms};
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

/// A loaded policy may hedge; the request says that it must not run twice.
#[tokio::test(start_paused = true)]
async fn tower_request_that_is_not_idempotent_is_not_hedged() {
    let retries = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();
    for policy in [AnyPolicy::from(READ.clone()), AnyPolicy::from(retries)] {
        let inner = Scripted::timed(&[(500, Err(Failed::Busy)), (5, Ok(2))]);
        let log = inner.log();
        let layer = RetryLayer::new(policy)
            .when(always)
            .call_options(|_: &u32, options| options.not_idempotent());
        let error = layer.layer(inner).oneshot(1).await.unwrap_err();
        assert_eq!((error.stop_reason(), log().len()), (StopReason::NotIdempotent, 1));
    }
}

/// For requests that must not run twice.
#[tokio::test(start_paused = true)]
async fn tower_request_with_one_attempt_is_not_hedged() {
    let inner = Scripted::timed(&[(500, Err(Failed::Busy)), (5, Ok(2))]);
    let log = inner.log();
    let layer = RetryLayer::new(&READ).when(always);
    let service = layer
        .call_options(
            |request: &u32, options| {
                if *request == 1 { options.attempts(1) } else { options }
            },
        )
        .layer(inner);
    assert_eq!(service.oneshot(1).await.unwrap_err().attempts(), 1);
    assert_eq!(log().len(), 1);
}

/// As a configuration file gives it.
#[tokio::test(start_paused = true)]
async fn tower_policy_of_either_kind_retries_or_hedges() {
    static LOADED: std::sync::LazyLock<AnyPolicy> =
        std::sync::LazyLock::new(|| AnyPolicy::Hedged(READ.clone()));
    let retries = || {
        let policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none());
        AnyPolicy::Policy(policy.build())
    };
    let answers = [Err(Failed::Busy), Ok(7)];
    let service = RetryLayer::new(retries()).when(always).layer(Scripted::answers(&answers));
    assert_eq!(service.oneshot(1).await.unwrap(), 7);
    let shared = RetryLayer::new(Arc::new(retries())).when(always);
    let service = shared.layer(Scripted::answers(&[Err(Failed::Busy)]));
    assert_eq!(service.oneshot(1).await.unwrap_err().attempts(), 3);

    let inner = Scripted::timed(&[(500, Ok(1)), (5, Ok(2))]);
    let log = inner.log();
    let service = RetryLayer::new(&*LOADED).when(always).layer(inner);
    assert_eq!(tokio::spawn(service.oneshot(1)).await.unwrap().unwrap(), 2);
    assert_eq!(log(), [(0, 0), (2, 20)]);
}

#[tokio::test(start_paused = true)]
async fn tower_request_that_cannot_be_cloned_is_not_hedged() {
    let inner = Scripted::timed(&[(500, Ok(1)), (5, Ok(2))]);
    let log = inner.log();
    let service = RetryLayer::new(&READ).when(always).clone_request(|_: &u32| None).layer(inner);
    assert_eq!(service.oneshot(1).await.unwrap(), 1);
    assert_eq!(log().len(), 1);
}
