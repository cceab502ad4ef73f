//! Copies of requests, and options of single requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial::tower::RetryLayer;
use redial::{Failure, Policy, Stage, StopReason, Throttle, ms, s};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

use crate::common::{Failed, Scripted, always};

static THRICE: Policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();
static NOW: Policy = Policy::immediate().attempts(3).throttle(Throttle::none()).build();
static TIMED: Policy =
    Policy::constant(ms(10)).attempts(3).deadline(s(1)).throttle(Throttle::none()).build();
static RETRIES_TIMEOUTS: Policy = Policy::constant(ms(10))
    .attempts(3)
    .attempt_timeout(ms(50))
    .retry_timeouts()
    .throttle(Throttle::none())
    .build();

/// Not `Clone`.
#[derive(Debug)]
struct Upload(u32);

#[tokio::test(start_paused = true)]
async fn tower_request_that_cannot_be_cloned_has_one_attempt() {
    for policy in [&THRICE, &NOW, &TIMED] {
        let calls = Arc::new(AtomicU32::new(0));
        let count = calls.clone();
        let inner = service_fn(move |upload: Upload| {
            count.fetch_add(upload.0, Ordering::Relaxed);
            async { Err::<u32, _>(Failed::Busy) }
        });
        let layer = RetryLayer::new(policy).when(always).clone_request(|_: &Upload| None);
        let error = layer.layer(inner).oneshot(Upload(1)).await.unwrap_err();
        assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Committed, 1));
        assert_eq!(error.last(), Some(&Failed::Busy));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn tower_request_is_made_again_as_often_as_possible() {
    // The second copy is the last.
    let clone_request = |upload: &Upload| (upload.0 < 2).then(|| Upload(upload.0 + 1));
    for policy in [&THRICE, &NOW, &TIMED] {
        let inner = service_fn(|upload: Upload| async move { Err::<u32, _>(upload.0) });
        let layer = RetryLayer::new(policy).when(|_: &u32| true).clone_request(clone_request);
        let error = layer.layer(inner).oneshot(Upload(1)).await.unwrap_err();
        assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Committed, 2));
        assert_eq!(error.into_last(), Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn tower_timed_out_request_that_cannot_be_cloned_ends() {
    let inner = Scripted::timed(&[(500, Ok(1))]);
    let log = inner.log();
    let layer = RetryLayer::new(&RETRIES_TIMEOUTS).when(always).clone_request(|_: &u32| None);
    let error = layer.layer(inner).oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Committed, 1));
    assert_eq!(log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tower_every_attempt_gets_the_request() {
    let inner = service_fn(|request: &'static str| async move {
        assert_eq!(request, "request");
        Err::<u32, _>(Failed::Busy)
    });
    let error = RetryLayer::new(&NOW).when(always).layer(inner).oneshot("request").await;
    assert_eq!(error.unwrap_err().attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn tower_call_options_set_a_deadline_per_request() {
    let inner = Scripted::timed(&[(500, Ok(1))]);
    let service = RetryLayer::new(&THRICE)
        .when(always)
        .call_options(|request: &u32, options| match request {
            1 => options.deadline(ms(40)),
            _ => options,
        })
        .layer(inner);
    let start = Instant::now();
    let error = service.clone().oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), start.elapsed()), (StopReason::Deadline, ms(40)));
    assert_eq!(service.oneshot(2).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn tower_call_options_mark_a_request_as_not_idempotent() {
    let inner = Scripted::answers(&[Err(Failed::Busy)]);
    let service = RetryLayer::new(&THRICE)
        .call_options(|request: &u32, options| match request {
            1 => options.not_idempotent(),
            _ => options,
        })
        .when(|_: &Failed| Failure::server().at(Stage::InFlight))
        .layer(inner);
    let error = service.clone().oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 1));
    assert_eq!(service.oneshot(2).await.unwrap_err().attempts(), 3);
}
