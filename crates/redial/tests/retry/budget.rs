//! Retry budgets and other throttles.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::throttle::{Bucket, CostBucket, CostBucketConfig, RetryBudget, WhenEmpty};
use redial::time::Sleeper;
use redial::{Error, Failure, Policy, StopReason, Throttle, ms, s};

use crate::common::{Fails, run_one};

const HOUR_NS: u64 = 3_600_000_000_000;

fn with_budget(attempts: u32, reserve: f64, ratio: f64) -> (Policy, Arc<RetryBudget>) {
    let budget = Arc::new(RetryBudget::try_new(reserve, ratio).expect("valid"));
    let policy = Policy::immediate().attempts(attempts).try_build().expect("valid");
    (policy.sharing(budget.clone()), budget)
}

fn fails(policy: &Policy) -> Error<()> {
    policy.retry(|| Err::<(), _>(())).when(|()| true).call().expect_err("it fails")
}

fn succeeds(policy: &Policy) {
    policy.retry(|| Ok::<_, ()>(())).when(|()| true).call().expect("it succeeds");
}

/// In another library, there is no retry budget by default: every client multiplies the load of an
/// outage by its number of attempts.
#[test]
fn retry_budget_default_bounds_a_retry_storm() {
    static FETCH: Policy = Policy::immediate().attempts(5).build();
    let loaded = Policy::immediate().attempts(5).try_build().expect("valid");
    for policy in [&FETCH, &loaded] {
        let attempts: u32 = (0..100).map(|_| fails(policy).attempts()).sum();
        // In real time: a slow machine adds one for each second.
        assert!((100 + 10..100 + 30).contains(&attempts), "one each, and the reserve: {attempts}");
        assert_eq!(fails(policy).stop_reason(), StopReason::Throttled);
    }
    let short = || redial::retry(|| async { Err::<(), _>(()) }).when(|()| true).sleeping_on(Clock);
    let calls = (0..100).map(|_| block_on(short().into_future()).expect_err("it fails"));
    let attempts = calls.map(|error| error.attempts()).sum::<u32>();
    // On virtual time, in which the delays of the first calls can add up to more than a second.
    assert!((100 + 10..=100 + 12).contains(&attempts), "the shortest form: {attempts}");
}

/// In another library, the inverse of a ratio is cut to an integer: 0.6 and 0.7 allow everything,
/// 0.15 allows 16.6 %.
#[test]
fn retry_budget_ratio_is_exact() {
    for (ratio, retries) in [(0.7, 700), (0.6, 600), (0.3, 300), (0.15, 150), (0.001, 1)] {
        let (policy, budget) = with_budget(2, 2000.0, ratio);
        for _ in 0..2000 {
            fails(&policy);
        }
        assert_eq!(budget.tokens(0), Some(0.0));
        for _ in 0..1000 {
            succeeds(&policy);
        }
        let granted = (0..2000).filter(|_| fails(&policy).attempts() == 2).count();
        assert_eq!(granted, retries, "{ratio}");
    }
}

/// In another library, one success adds one retry, so a service that fails half of its calls gets
/// twice the load.
#[test]
fn retry_budget_default_ratio_is_one_tenth() {
    // The default reserve and ratio, without the refill over time.
    let (policy, _) = with_budget(2, RetryBudget::RESERVE, RetryBudget::RATIO);
    for _ in 0..10 {
        fails(&policy);
    }
    for success in 1..=10 {
        assert_eq!(fails(&policy).attempts(), 1, "after {success} successes");
        succeeds(&policy);
    }
    assert_eq!((fails(&policy).attempts(), fails(&policy).attempts()), (2, 1));
}

/// In another library, deposits live for 1.1 to 1.2 times as long as written, and a budget that was
/// idle for a week catches up in six million steps. This budget has no refill.
#[test]
fn retry_budget_without_refill_does_not_change_while_idle() {
    let (policy, budget) = with_budget(3, 10.0, 0.1);
    let began = Clock.now();
    run_one(&policy, Fails::AT_ONCE, None);
    let week = block_on(async {
        Clock.sleep(s(7 * 86_400)).await;
        Clock.now() - began
    });
    assert_eq!((budget.tokens(0), budget.tokens(week)), (Some(8.0), Some(8.0)));
    run_one(&policy, Fails::AT_ONCE, None);
    assert_eq!(budget.tokens(week), Some(6.0));
}

/// In another library, the check and the withdrawal of tokens are two steps: 51 grants of 50 with four
/// threads.
#[test]
fn retry_budget_is_exact_across_threads() {
    let (policy, budget) = with_budget(1_000_000, 300_000.0, 0.0);
    let attempts = |()| fails(&policy).attempts() as usize;
    let attempts: usize = thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(move || attempts(())));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!((attempts, budget.tokens(0)), (4 + 300_000, Some(0.0)));
}

type Sleeping<'a> = Pin<Box<dyn Future<Output = Result<(), Error<()>>> + 'a>>;

/// A call that has failed once and sleeps before its retry, with or without the state machine.
fn asleep(policy: &Policy, machine: bool) -> Sleeping<'_> {
    let call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true).sleeping_on(Clock);
    let call = if machine { call.history() } else { call };
    let mut call: Sleeping<'_> = Box::pin(call.into_future());
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    call
}

/// In another library, the token is lost if the caller drops the future during the backoff, so the
/// caller's own timeouts drain the budget.
#[test]
fn retry_budget_refunds_a_call_dropped_in_backoff() {
    let policy = Policy::constant(s(1)).attempts(3).try_build().expect("valid");
    for machine in [false, true] {
        for _ in 0..100 {
            let call = asleep(&policy, machine);
            assert_eq!(policy.tokens(0), Some(9.0), "machine: {machine}");
            drop(call);
        }
        assert_eq!(policy.tokens(0), Some(10.0), "machine: {machine}");
    }
}

/// Ten tokens without a refill; a retry costs 5, a success at the first attempt adds 1.
fn costs() -> Arc<CostBucket> {
    let spec =
        CostBucketConfig { capacity: 10.0, refill_per_second: 0.0, ..CostBucketConfig::STANDARD };
    Arc::new(CostBucket::new(CostBucketConfig { empty: WhenEmpty::Fail, ..spec }).expect("valid"))
}

/// In another library, the permit is stored in the client's strategy, which all of its calls share:
/// while call A sleeps with all the tokens, a success of call B refunds A's tokens; and of two calls that
/// fail together, one permit is lost.
#[test]
fn cost_bucket_success_refunds_only_its_own_call() {
    let bucket = costs();
    let policy = Policy::constant(s(1)).attempts(2).try_build().expect("valid");
    let policy = policy.sharing(bucket.clone());
    let (one, two) = (asleep(&policy, false), asleep(&policy, false));
    assert_eq!(bucket.tokens(0), Some(0.0), "each took its own");
    succeeds(&policy);
    assert_eq!(bucket.tokens(0), Some(1.0), "what a success at the first try adds, and no more");
    drop(one);
    assert_eq!(bucket.tokens(0), Some(6.0));
    drop(two);
    assert_eq!(bucket.tokens(0), Some(10.0), "never above the capacity");
}

/// In another library, the refill comes in whole seconds of the wall clock, and is negative when
/// that steps back.
#[test]
fn cost_bucket_refill_tolerates_a_clock_stepping_back() {
    let spec =
        CostBucketConfig { capacity: 10.0, empty: WhenEmpty::Fail, ..CostBucketConfig::STANDARD };
    let bucket = CostBucket::new(spec).expect("valid");
    let cost = redial::throttle::Cost { kind: redial::FailureKind::Server };
    let now = 100 * HOUR_NS;
    for _ in 0..2 {
        bucket.withdraw(cost, now);
    }
    assert_eq!(bucket.tokens(now), Some(0.0));
    assert_eq!(bucket.tokens(now + 250_000_000), Some(2.5), "ten in a second");
    bucket.withdraw(cost, now - HOUR_NS);
    bucket.succeeded(None);
    let left = bucket.tokens(now).expect("it counts");
    assert!((0.0..=1.0).contains(&left), "{left}");
    assert_eq!(bucket.tokens(now + 2 * 1_000_000_000), Some(10.0), "it fills as before");
}

/// In another library, an empty limiter delays first attempts without a bound.
#[test]
fn throttle_never_applies_to_the_first_attempt() {
    let (policy, budget) = with_budget(2, 1.0, 0.0);
    fails(&policy);
    assert_eq!(budget.tokens(0), Some(0.0));
    for _ in 0..10 {
        let result_of_call = run_one(&policy, Fails::AT_ONCE, None);
        assert_eq!(
            (result_of_call.starts, result_of_call.stop_reason),
            (vec![Duration::ZERO], StopReason::Throttled)
        );
        succeeds(&policy);
    }
}

/// In another library, a call waits for a token without regard to its deadline.
#[test]
fn throttle_wait_past_the_deadline_fails_fast() {
    let spec =
        CostBucketConfig { capacity: 5.0, refill_per_second: 0.1, ..CostBucketConfig::STANDARD };
    let bucket = Arc::new(CostBucket::new(spec).expect("valid"));
    let policy = Policy::constant(ms(10)).deadline(s(10)).try_build();
    let policy = policy.expect("valid").sharing(bucket.clone());
    let result_of_call = run_one(&policy, Fails::AT_ONCE, None);
    // The second retry would have to wait for 50 s.
    assert_eq!(
        (result_of_call.starts, result_of_call.stop_reason),
        (vec![ms(0), ms(10)], StopReason::Deadline)
    );
    assert_eq!(result_of_call.elapsed, ms(10));
    let left = bucket.tokens(Clock.now()).expect("it counts");
    assert!(left >= 0.0, "what was lent for it is given back: {left}");
}

/// In another library, a budget is part of a value that is cloned, and each clone has its own.
#[test]
fn retry_budget_is_shared_by_clones_only() {
    let policy = Policy::immediate().attempts(2).try_build().expect("valid");
    let (clone, stranger) =
        (policy.clone(), Policy::immediate().attempts(2).try_build().expect("valid"));
    fails(&policy);
    let left = |policy: &Policy| policy.tokens(0);
    assert_eq!((left(&policy), left(&clone), left(&stranger)), (Some(9.0), Some(9.0), Some(10.0)));
    let (one, budget) = with_budget(2, 5.0, 0.0);
    let other = Policy::immediate().attempts(2).build().sharing(budget.clone());
    fails(&one);
    fails(&other);
    assert_eq!(budget.tokens(0), Some(3.0));
    let none = Policy::immediate().attempts(2).throttle(Throttle::none()).build();
    assert_eq!(left(&none), None);
}

/// In another library, a wrapper function has one budget for all of its callers, and cannot change that.
#[test]
fn retry_budget_call_site_of_a_wrapper_function() {
    const AT_ONCE: Failure = Failure::server().retry_after(Duration::from_nanos(1));
    fn shared() -> u32 {
        let call = redial::retry(|| Err::<(), _>(())).when(|()| AT_ONCE);
        call.call().expect_err("it always fails").attempts() - 1
    }
    #[track_caller]
    fn callers() -> u32 {
        let call = redial::retry(|| Err::<(), _>(())).when(|()| AT_ONCE);
        call.call().expect_err("it always fails").attempts() - 1
    }
    let (one, other): (u32, u32) = ((0..9).map(|_| shared()).sum(), (0..9).map(|_| shared()).sum());
    assert_eq!((one, other), (10, 0), "one budget of ten");
    let mut each = [0, 0];
    for _ in 0..9 {
        each[0] += callers();
        each[1] += callers();
    }
    assert_eq!(each, [10, 10], "a budget for each caller");
}
