//! A retry budget of the application's beside the throttle of the config (decision B): what takes a token,
//! what gives one back, and that it is exact when calls of `redial` share it.

use std::convert::Infallible;
use std::sync::Arc;

use redial::throttle::Bucket as _;
use redial::{Policy, StopReason};
use redial_faults::grpc::{Answer, Script, Server, StatusNumber};
use redial_grpc::{Retries, RetryBudget, RetryLayer};
use tonic::Code;

use crate::common::harness::{HEDGE, Harness, RETRY, UNARY, busy, layer, message, ms, within};

/// A layer of which only the budget limits retries.
fn unthrottled(fields: &str) -> redial_grpc::RetryLayerBuilder {
    let text = format!(r#"{{ "methodConfig": [{{ "name": [{{}}], {fields} }}] }}"#);
    RetryLayer::builder().config_json(&text).unwrap()
}

fn harness(fields: &str, budget: &Arc<RetryBudget>, script: impl Into<Script>) -> Harness {
    let layer = unthrottled(fields).retry_budget(budget.clone()).build();
    Harness::with_layer(layer, Server::new(script))
}

fn busy_server() -> Script {
    Script::new().default_answer(busy())
}

fn tokens(budget: &RetryBudget) -> f64 {
    budget.tokens(0).unwrap()
}

/// A call of `redial` that fails; how many attempts it made.
async fn failing_call(policy: &Policy) -> u32 {
    let failing = || async { Err::<Infallible, _>("busy") };
    policy.retry(failing).when(|_| true).await.unwrap_err().attempts()
}

#[tokio::test(start_paused = true)]
async fn retry_budget_shared_with_a_policy_is_exact() {
    let budget = Arc::new(RetryBudget::new(7.0, 0.1));
    let policy = Policy::constant(ms(1)).attempts(3).build().with_budget(budget.clone());
    let mut harness = harness(RETRY, &budget, busy_server());
    let mut left = vec![];
    for _ in 0..2 {
        assert_eq!(harness.call().await.starts().len(), 3);
        left.push(tokens(&budget));
        failing_call(&policy).await;
        left.push(tokens(&budget));
    }
    assert_eq!(left, [5.0, 3.0, 1.0, 0.0]);
    assert_eq!(failing_call(&policy).await, 1);
    let outcome = harness.call().await;
    assert_eq!((outcome.starts().len(), outcome.end().0), (1, StopReason::Throttled));
}

#[tokio::test(start_paused = true)]
async fn retry_budget_is_credited_by_successes_of_both() {
    let budget = Arc::new(RetryBudget::new(2.0, 0.5));
    let policy = Policy::constant(ms(1)).attempts(3).build().with_budget(budget.clone());
    let script = Script::new().attempts([busy(), Answer::echo(), Answer::echo()]);
    let mut harness = harness(RETRY, &budget, script.default_answer(busy()));
    failing_call(&policy).await;
    assert_eq!(tokens(&budget), 0.0);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.end().0), (Code::Unavailable, StopReason::Throttled));
    assert_eq!(harness.call().await.code(), Code::Ok);
    assert_eq!(tokens(&budget), 0.5);
    policy.retry(|| async { Ok::<_, &str>(()) }).when(|_| true).await.unwrap();
    assert_eq!(tokens(&budget), 1.0);
    // A success of the fast path, and a success after a retry.
    harness.client.unary(message("x")).await.unwrap();
    assert_eq!(tokens(&budget), 1.5);
}

#[tokio::test(start_paused = true)]
async fn retry_budget_refusal_returns_the_last_status() {
    let budget = Arc::new(RetryBudget::new(1.0, 0.0));
    let answer = |text| Answer::trailers_only(StatusNumber::UNAVAILABLE).text(text);
    let layer = layer(RETRY).retry_budget(budget.clone()).build();
    let script = Script::new().attempts([answer("first"), answer("second")]);
    let mut harness = Harness::with_layer(layer, Server::new(script));
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.status().message()), (Code::Unavailable, "second"));
    assert_eq!(outcome.end().0, StopReason::Throttled);
    assert_eq!(outcome.report().stop_reason(), StopReason::Throttled);
    assert_eq!(harness.control.statistics()[UNARY].throttled, 1);
    assert_eq!(harness.tokens(), 8_000, "failures count in the throttle of the config as before");
    assert_eq!(tokens(&budget), 0.0);
}

#[tokio::test(start_paused = true)]
async fn retry_budget_is_kept_when_the_config_refuses() {
    let budget = Arc::new(RetryBudget::new(10.0, 0.1));
    let text = format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}], {RETRY} }}],
            "retryThrottling": {{ "maxTokens": 2, "tokenRatio": 0.1 }} }}"#
    );
    let layer = RetryLayer::builder().config_json(&text).unwrap().retry_budget(budget.clone());
    let mut harness = Harness::with_layer(layer.build(), Server::new(busy_server()));
    let outcome = harness.call().await;
    assert_eq!((outcome.starts().len(), outcome.end().0), (1, StopReason::Throttled));
    assert_eq!((tokens(&budget), harness.tokens()), (10.0, 1_000));
}

#[tokio::test(start_paused = true)]
async fn retry_budget_refunds_a_retry_that_never_starts() {
    let budget = Arc::new(RetryBudget::new(10.0, 0.1));
    let mut harness = harness(RETRY, &budget, busy_server());
    let mut client = harness.client.clone();
    let call = async move { client.unary(message("x")).await };
    let call = tokio::time::timeout(ms(30), call);
    let observed = async {
        tokio::time::sleep(ms(20)).await;
        tokens(&budget)
    };
    let (dropped, during) = tokio::join!(call, observed);
    assert!(dropped.is_err(), "the first backoff is 50 ms");
    assert_eq!((during, tokens(&budget)), (9.0, 10.0));
    // The deadline ends a call, too.
    assert_eq!(harness.call_with(within(ms(30))).await.code(), Code::DeadlineExceeded);
    assert_eq!(tokens(&budget), 10.0);
}

#[tokio::test(start_paused = true)]
async fn retry_budget_charges_and_refuses_hedges() {
    let budget = Arc::new(RetryBudget::new(1.0, 0.1));
    let slow = Answer::headers().after(ms(100)).message("").trailers(StatusNumber::OK);
    let mut harness = harness(HEDGE, &budget, vec![slow, Answer::hang()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 20]));
    assert_eq!(tokens(&budget), 0.1, "one hedge, and the credit of the success");
    assert_eq!(harness.control.statistics()[UNARY].throttled, 1);
}

#[tokio::test(start_paused = true)]
async fn retry_budget_ignores_transparent_retries() {
    let budget = Arc::new(RetryBudget::new(1.0, 0.1));
    let script = Script::new().attempts([Answer::unsent(), Answer::unsent(), Answer::echo()]);
    let mut harness = harness(RETRY, &budget, script);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts().len()), (Code::Ok, 3));
    assert_eq!(tokens(&budget), 1.0);
}

#[tokio::test(start_paused = true)]
async fn retry_budget_with_retries_disabled_counts_nothing() {
    let budget = Arc::new(RetryBudget::new(4.0, 1.0));
    let script = Script::new().attempts([busy(), busy(), busy(), Answer::echo()]);
    let mut harness = harness(RETRY, &budget, script.default_answer(Answer::echo()));
    harness.call().await;
    assert_eq!(tokens(&budget), 2.0);
    harness.control.set_retries(Retries::Off);
    assert_eq!(harness.call().await.code(), Code::Ok);
    assert_eq!(tokens(&budget), 2.0);
    harness.control.set_retries(Retries::Transparent);
    assert_eq!(harness.call().await.code(), Code::Ok);
    assert_eq!(tokens(&budget), 3.0);
}

/// The clocks of layers and of `redial` have other origins, and a budget reads the time that a retry gives it.
#[tokio::test(start_paused = true)]
async fn retry_budget_refills_once_for_layers_and_policies() {
    tokio::time::advance(ms(10_000)).await;
    let budget = Arc::new(RetryBudget::new(2.0, 0.0).per_second(1.0));
    let policy = Policy::constant(ms(1)).attempts(2).build().with_budget(budget.clone());
    // A retry of the layer follows at once.
    let pushback = Answer::trailers_only(StatusNumber::UNAVAILABLE).pushback("0");
    let mut harness = harness(RETRY, &budget, Script::new().default_answer(pushback));
    assert_eq!(harness.call().await.starts().len(), 3);
    assert_eq!(tokens(&budget), 0.0);
    for _ in 0..3 {
        assert_eq!(failing_call(&policy).await, 1, "nothing has been refilled");
        assert_eq!(harness.call().await.starts().len(), 1, "nothing has been refilled");
    }
    tokio::time::advance(ms(1_000)).await;
    assert_eq!(failing_call(&policy).await, 2);
    assert_eq!(harness.call().await.starts().len(), 1);
    tokio::time::advance(ms(1_000)).await;
    assert_eq!(harness.call().await.starts().len(), 2);
    assert_eq!(failing_call(&policy).await, 1);
}
