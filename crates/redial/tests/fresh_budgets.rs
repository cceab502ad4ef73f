//! Fresh budgets for tests (`testing::fresh_budgets`): tests that spend the budget of one `static` policy,
//! and tests that need it, in one program. Each of them holds the guard.
//!
//! The budgets refill by one per second, so a slow machine may make a few more retries than ten.
#![cfg(feature = "tokio")]

use std::sync::LazyLock;
use std::thread;

use redial::testing::fresh_budgets;
use redial::throttle::{Bucket, Cost, RetryBudget};
use redial::{AnyPolicy, FailureKind, Hedged, Policy, StopReason, Throttle, ms};

static SHARED: Policy = Policy::immediate().attempts(3).build();
static DATABASE: RetryBudget = RetryBudget::new(10.0, 0.1);
static QUERY: Policy =
    Policy::immediate().attempts(3).throttle(Throttle::budget(&DATABASE)).build();

/// A policy that is made at run time owns its budget.
static LOADED: LazyLock<Policy> =
    LazyLock::new(|| Policy::immediate().attempts(3).try_build().expect("valid"));

/// Spends the budget, and checks that it was full.
fn spend(policy: &Policy) {
    let stopped = || policy.retry(|| Err::<(), _>(())).when(|()| true).call().unwrap_err();
    let reasons: Vec<_> = (0..30).map(|_| stopped().stop_reason()).collect();
    assert_eq!(reasons[..5], [StopReason::AttemptsExhausted; 5]);
    assert!(reasons[5..].contains(&StopReason::Throttled), "{reasons:?}");
}

/// Whether the calls of a test together had one full budget.
#[track_caller]
fn assert_one_budget(retries: u32) {
    assert!((10..30).contains(&retries), "{retries}");
}

/// One test: some spend the budget, all need it full.
fn spend_with_guard() {
    let _budgets = fresh_budgets().and(&DATABASE).and(&*LOADED);
    spend(&SHARED);
    spend(&QUERY);
    spend(&LOADED);
}

#[test]
fn fresh_budgets_first_test_finds_them_full() {
    spend_with_guard();
}

#[test]
fn fresh_budgets_second_test_finds_them_full() {
    spend_with_guard();
}

#[test]
fn fresh_budgets_apply_to_threads_of_the_test() {
    let _budgets = fresh_budgets();
    thread::scope(|scope| {
        // Together the threads have one budget.
        let takers = [(); 4].map(|()| {
            scope.spawn(|| {
                let call = || SHARED.retry(|| Err::<(), _>(())).when(|()| true).call();
                (0..10).map(|_| call().unwrap_err().attempts() - 1).sum::<u32>()
            })
        });
        let retries: u32 = takers.map(|taker| taker.join().expect("no panic")).into_iter().sum();
        assert_one_budget(retries);
    });
}

#[tokio::test]
async fn fresh_budgets_apply_to_a_tokio_test() {
    let _budgets = fresh_budgets();
    tokio::task::yield_now().await;
    let call = || async { SHARED.retry(async || Err::<(), _>(())).when(|()| true).await };
    let mut retries = 0;
    for _ in 0..20 {
        retries += call().await.unwrap_err().attempts() - 1;
    }
    assert_one_budget(retries);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fresh_budgets_apply_to_tasks_on_other_threads() {
    let _budgets = fresh_budgets();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn(async {
                let call = SHARED.retry(async || Err::<(), _>(())).when(|()| true);
                call.await.unwrap_err().attempts() - 1
            })
        })
        .collect();
    let mut retries = 0;
    for task in tasks {
        retries += task.await.expect("no panic");
    }
    assert_one_budget(retries);
}

#[test]
fn fresh_budgets_are_filled_again_after_a_panic() {
    let panicked = thread::spawn(|| {
        let _budgets = fresh_budgets().and(&DATABASE);
        DATABASE.withdraw(Cost { kind: FailureKind::Server }, 0);
        panic!("intended");
    });
    assert!(panicked.join().is_err());
    spend_with_guard();
}

#[test]
fn fresh_budgets_fill_policies_of_every_kind() {
    static READ: LazyLock<Hedged> = LazyLock::new(|| {
        Policy::hedged(ms(1)).throttle(Throttle::budget(&READS)).try_build().expect("valid")
    });
    static READS: RetryBudget = RetryBudget::new(2.0, 0.0);
    static ANY: LazyLock<AnyPolicy> = LazyLock::new(|| AnyPolicy::Hedged(READ.clone()));
    let spent = || READS.withdraw(Cost { kind: FailureKind::Server }, 0);
    spent();
    let budgets = fresh_budgets().and(&*READ);
    assert_eq!(READ.tokens(0), Some(2.0));
    spent();
    let _budgets = budgets.and(&*ANY);
    assert_eq!(ANY.tokens(0), Some(2.0));
}

#[test]
fn fresh_budgets_twice_in_one_thread_is_an_error() {
    let _budgets = fresh_budgets();
    let twice = std::panic::catch_unwind(|| drop(fresh_budgets()));
    let message = *twice.unwrap_err().downcast::<&str>().expect("a message");
    assert_eq!(message, "this thread already holds fresh budgets");
}
