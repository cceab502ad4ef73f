//! Retry budgets that the layer shares with plain calls.

use std::sync::Arc;

use redial::throttle::RetryBudget;
use redial::tower::RetryLayer;
use redial::{Hedged, Policy, StopReason, Throttle, ms};
use tower::{Layer, ServiceExt};

use crate::common::{Failed, Scripted, always};

static BUDGET: RetryBudget = RetryBudget::new(4.0, 1.0);
static SHARED: Policy =
    Policy::constant(ms(10)).attempts(3).throttle(Throttle::budget(&BUDGET)).build();

#[tokio::test(start_paused = true)]
async fn tower_budget_is_shared_with_plain_calls() {
    let layer = RetryLayer::new(&SHARED).when(always);
    let failing = || Scripted::answers(&[Err(Failed::Busy)]);
    layer.layer(failing()).oneshot(1).await.unwrap_err();
    assert_eq!(SHARED.tokens(0), Some(2.0));
    SHARED.retry(async || Err::<(), _>(Failed::Busy)).when(always).await.unwrap_err();
    assert_eq!(SHARED.tokens(0), Some(0.0));
    let error = layer.layer(failing()).oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Throttled, 1));
    // A success of the service adds a retry.
    layer.layer(Scripted::answers(&[Ok(7)])).oneshot(1).await.unwrap();
    assert_eq!(SHARED.tokens(0), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn tower_policy_built_at_run_time_shares_its_budget() {
    let policy = Policy::constant(ms(10)).attempts(2).deadline(ms(500)).build();
    let policy = policy.with_budget(Arc::new(RetryBudget::new(1.0, 0.0)));
    let layers = [RetryLayer::new(policy.clone()), RetryLayer::new(Arc::new(policy.clone()))];
    let inner = Scripted::answers(&[Err(Failed::Busy)]);
    let mut ends = Vec::new();
    for layer in layers {
        let error = layer.when(always).layer(inner.clone()).oneshot(1).await.unwrap_err();
        ends.push((error.stop_reason(), error.attempts()));
    }
    assert_eq!(ends, [(StopReason::AttemptsExhausted, 2), (StopReason::Throttled, 1)]);
    assert_eq!(policy.tokens(0), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn tower_hedge_is_charged_to_the_budget() {
    let policy = Policy::hedged(ms(10)).attempts(2).build();
    let policy: Hedged = policy.with_budget(Arc::new(RetryBudget::new(1.0, 0.0)));
    let inner = Scripted::timed(&[(50, Ok(1))]);
    let log = inner.log();
    let layer = RetryLayer::new(policy).when(always);
    layer.layer(inner.clone()).oneshot(1).await.unwrap();
    assert_eq!(log().len(), 2);
    layer.layer(inner).oneshot(1).await.unwrap();
    assert_eq!(log().len(), 3, "no token for a second hedge");
}

#[tokio::test(start_paused = true)]
async fn tower_standard_layer_has_the_default_policy() {
    let inner = Scripted::answers(&[Err(Failed::Busy)]);
    let error = RetryLayer::standard().when(always).layer(inner).oneshot(1).await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 3));
}
