//! Goal: what other retry libraries were seen to get wrong stays right here. Method: one test for
//! each defect, on tokio's paused clock or with a sleeper of our own; each says which one-line change
//! of our code turns it red, and was seen red with that change.

use std::cell::Cell;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redial::throttles::{Bucket, Budget, Costs, CostsSpec, Empty};
use redial::{
    Backoff, Diary, Failure, Hedged, Jitter, Note, Policy, Rules, Stage, Throttle, Why, ms, s,
};
use tokio::time::Instant;

/// Without jitter and throttle, so that a test sees delays alone.
const fn plain(delay: Duration) -> redial::Builder<Policy> {
    Policy::constant(delay).jitter(Jitter::None).throttle(Throttle::none())
}

async fn fails_after(span: Duration) -> Result<(), &'static str> {
    tokio::time::sleep(span).await;
    Err("busy")
}

// Deadlines.

/// A limit that sums the sleeps lets a slow operation run for minutes. Red if `Policy::deadline` of
/// the core returns `NEVER`.
#[tokio::test(start_paused = true)]
async fn a_deadline_counts_the_operations_own_time() {
    static POLICY: Policy = plain(ms(10)).attempts(100).deadline(s(1)).checked();
    let start = Instant::now();
    let error = POLICY.retry(|| fails_after(s(30))).when(|_| true).await.expect_err("too slow");
    assert_eq!((error.why(), error.attempts(), start.elapsed()), (Why::Deadline, 1, s(1)));
}

/// A check before the sleep that ignores how long it is. Red if `is_late` compares `then > deadline`
/// with the moment now, that is, if `decide` passes `now` in place of `now + after`.
#[tokio::test(start_paused = true)]
async fn no_sleep_begins_that_would_end_after_the_deadline() {
    static POLICY: Policy = plain(s(60)).attempts(9).deadline(s(1)).checked();
    let start = Instant::now();
    let error = POLICY.retry(|| fails_after(ms(5))).when(|_| true).await.expect_err("no time");
    assert_eq!((error.why(), start.elapsed()), (Why::Deadline, ms(5)));
    assert_eq!(error.into_last(), Some("busy"));
}

/// A server's hint that bypasses the limit and goes on for a thousand attempts. Red if `decide`
/// judges the deadline only for delays that are not hinted.
#[tokio::test(start_paused = true)]
async fn a_hint_does_not_pass_the_deadline() {
    static POLICY: Policy = plain(ms(1)).attempts(1000).deadline(s(5)).checked();
    let hinted = |_: &&str| Some(Failure::throttling().retry_after(s(2)));
    let error = POLICY.retry(|| fails_after(ms(0))).when(hinted).await.expect_err("no time");
    assert_eq!((error.why(), error.attempts()), (Why::Deadline, 3));
}

// Hints.

/// A hint that is accepted, told to hooks, and then not slept. Red if `delay` of the core ignores
/// `Hint::After` under `HintRule::Exact`.
#[tokio::test(start_paused = true)]
async fn a_hint_is_really_waited_for_in_async_and_in_blocking_calls() {
    static POLICY: Policy = plain(ms(1)).attempts(2).checked();
    let start = Instant::now();
    let hinted = |_: &&str| Some(Failure::throttling().retry_after(s(60)));
    POLICY.retry(|| fails_after(ms(0))).when(hinted).await.expect_err("always busy");
    assert_eq!(start.elapsed(), s(60));
    let (start, soon) = (std::time::Instant::now(), Failure::throttling().retry_after(ms(30)));
    let blocking = POLICY.retry(|| Err::<(), _>("busy")).when(move |_| Some(soon)).call();
    assert!(blocking.is_err() && start.elapsed() >= ms(30));
}

/// A hint of a day that holds a caller for a day. Red if `delay` of the core does not take the
/// smaller of wish and most.
#[tokio::test(start_paused = true)]
async fn a_hint_can_be_given_a_most() {
    static POLICY: Policy = plain(ms(1)).attempts(2).hint_max(s(5)).checked();
    let start = Instant::now();
    let hinted = |_: &&str| Some(Failure::throttling().retry_after(s(86_400)));
    POLICY.retry(|| fails_after(ms(0))).when(hinted).await.expect_err("always busy");
    assert_eq!(start.elapsed(), s(5));
}

// Jitter and backoff.

/// Jitter that is added after the cap. Red if `jittered` of the core does not take the smaller of
/// span and cap.
#[test]
fn jitter_never_passes_the_cap() {
    let backoff = Backoff::Exponential { first: ms(100), factor: 2.0, cap: Some(ms(100)) };
    for jitter in [Jitter::Full, Jitter::Half, Jitter::Equal, Jitter::Proportional(1.0)] {
        let rules = Rules { backoff, jitter, attempts: Some(50), ..Rules::DEFAULT };
        let policy = Policy::from_rules(rules).throttle(Throttle::none()).build().expect("valid");
        let mut diary = Diary::new();
        let call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true).seed(7);
        let call = call.diary(&mut diary).sleeping_on(redial::testing::Clock);
        redial::testing::block_on(call.into_future()).expect_err("always");
        let longest = diary.notes().iter().filter_map(|(_, note)| match note {
            Note::Retrying { after, .. } => Some(*after),
            _ => None,
        });
        let longest = longest.max().expect("delays");
        assert!(longest <= 100_000_000, "{jitter:?}: {longest}");
    }
}

/// Copies of one generator, so that callers who failed together return together. Red if the draws of
/// `draws.rs` start from a constant seed for each call.
#[tokio::test(start_paused = true)]
async fn concurrent_calls_and_clones_draw_different_delays() {
    let policy = Policy::constant(s(1)).attempts(2).build().expect("valid");
    let mut delays = Vec::new();
    for policy in [&policy, &policy.clone(), &policy.clone(), &policy.clone()] {
        let start = Instant::now();
        policy.retry(|| fails_after(ms(0))).when(|_| true).await.expect_err("always busy");
        delays.push(start.elapsed());
    }
    delays.sort();
    delays.dedup();
    assert_eq!(delays.len(), 4, "{delays:?}");
}

/// A first delay above the cap that is not capped, and sums that panic. Red if `Backoff::growing`
/// does not take the smaller of base and cap.
#[tokio::test(start_paused = true)]
async fn a_first_delay_above_the_cap_is_capped_and_nothing_overflows() {
    static POLICY: Policy = Policy::exponential(Duration::MAX)
        .cap(ms(300))
        .jitter(Jitter::None)
        .throttle(Throttle::none())
        .attempts(3)
        .checked();
    let start = Instant::now();
    POLICY.retry(|| fails_after(ms(0))).when(|_| true).await.expect_err("always busy");
    assert_eq!(start.elapsed(), ms(600));
}

/// A factor of 1.5 that is cut to 1. Red if `grow` of the core rounds the power.
#[tokio::test(start_paused = true)]
async fn a_factor_is_not_cut_to_a_whole_number() {
    let builder = Policy::exponential(ms(100)).factor(1.5).jitter(Jitter::None).attempts(3);
    let policy = builder.throttle(Throttle::none()).build().expect("valid");
    let start = Instant::now();
    policy.retry(|| fails_after(ms(0))).when(|_| true).await.expect_err("always busy");
    assert_eq!(start.elapsed(), ms(250));
}

// Budgets and storms.

/// More retries than the budget holds, when threads ask at once. Red if `Budget::take` loads and
/// stores in place of its compare-and-swap (the loom models see it every time).
#[test]
fn a_budget_is_exact_under_threads() {
    static BUDGET: Budget = match Budget::new(50.0, 0.0) {
        Ok(budget) => budget,
        Err(_) => panic!("valid"),
    };
    static POLICY: Policy =
        Policy::immediate().attempts(200).throttle(Throttle::budget(&BUDGET)).checked();
    let calls = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let count = || {
                    calls.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                    Err::<(), _>(())
                };
                POLICY.retry(count).when(|()| true).call().expect_err("always");
            });
        }
    });
    assert_eq!(calls.into_inner(), 4 + 50);
}

/// A token that is gone when its caller drops the future in its sleep. Red if `Driver::dropped` does
/// not give back.
#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_in_the_sleep_gets_the_token_back() {
    let policy = Policy::constant(s(60)).attempts(3).build().expect("valid");
    let call = policy.retry(|| fails_after(ms(0))).when(|_| true);
    assert!(tokio::time::timeout(ms(1), call).await.is_err(), "it sleeps");
    assert_eq!(policy.tokens(0), Some(10.0));
}

/// An unrelated success that gives back what another call holds. Red if `Purse` keeps its payment in
/// the bucket, that is, if `succeeded` gives back without one of its own.
#[tokio::test(start_paused = true)]
async fn one_calls_success_does_not_refund_anothers_retry() {
    let spec = CostsSpec {
        capacity: 10.0,
        success: 0.0,
        refill_per_second: 0.0,
        empty: Empty::Fail,
        ..CostsSpec::STANDARD
    };
    let bucket = Arc::new(Costs::new(spec).expect("valid"));
    let policy = plain(s(60)).build().expect("valid").sharing(bucket.clone());
    let sleeping = policy.retry(|| fails_after(ms(0))).when(|_| true);
    let mut sleeping = std::pin::pin!(sleeping.into_future());
    assert!(tokio::time::timeout(ms(1), &mut sleeping).await.is_err(), "it sleeps");
    policy.retry(|| async { Ok::<_, &str>(()) }).when(|_| true).await.expect("it succeeds");
    assert_eq!(bucket.tokens(0), Some(5.0));
}

/// Retries without any bound on a dead dependency. Red if `Builder::new` says `Throttle::none()`.
#[tokio::test(start_paused = true)]
async fn a_policy_that_says_nothing_about_it_has_a_budget() {
    static POLICY: Policy = Policy::constant(ms(1)).attempts(3).checked();
    let calls = Cell::new(0);
    for _ in 0..100 {
        let count = || {
            calls.set(calls.get() + 1);
            fails_after(ms(0))
        };
        POLICY.retry(count).when(|_| true).await.expect_err("dead");
    }
    assert_eq!(calls.get(), 100 + 10, "ten retries in reserve, and no success to fund another");
}

// Idempotency.

/// A payment that is made twice because its answer was lost. Red if `proves_not_run` is true for
/// every stage.
#[tokio::test(start_paused = true)]
async fn what_must_not_run_twice_is_not_repeated_in_flight() {
    static POLICY: Policy = plain(ms(1)).checked();
    let lost = |stage: Stage| move |_: &&str| Some(Failure::client().at(stage));
    let pay = || POLICY.retry(|| fails_after(ms(0)));
    let error = pay().when(lost(Stage::InFlight)).not_idempotent().await.expect_err("lost");
    assert_eq!((error.why(), error.attempts()), (Why::Unsafe, 1));
    let error = pay().when(lost(Stage::Unsent)).not_idempotent().await.expect_err("unsent");
    assert_eq!((error.why(), error.attempts()), (Why::Attempts, 3));
}

// Hedging.

/// The first attempt's error that ends the race. Red if `retry_or_hedge` of the core sends a hedged
/// call to `judge`.
#[tokio::test(start_paused = true)]
async fn a_failed_hedge_sends_the_next_at_once_and_does_not_end_the_race() {
    static READ: Hedged = Policy::hedged(s(10)).attempts(2).checked();
    let calls = Cell::new(0);
    let start = Instant::now();
    let winner = READ
        .retry(|| {
            let call = calls.replace(calls.get() + 1);
            async move {
                tokio::time::sleep(ms(5)).await;
                if call == 0 { Err("busy") } else { Ok(call) }
            }
        })
        .when(|_| true)
        .await;
    assert_eq!((winner.ok(), start.elapsed()), (Some(1), ms(10)));
}

/// Hedges that no budget holds back. Red if `use_grant` of the core starts a hedge that was refused.
#[tokio::test(start_paused = true)]
async fn hedges_and_retries_share_one_budget() {
    let budget = Arc::new(Budget::new(1.0, 0.0).expect("valid"));
    let hedged = Policy::hedged(ms(5)).attempts(4).build().expect("valid").sharing(budget.clone());
    let calls = Cell::new(0);
    let slow = || {
        calls.set(calls.get() + 1);
        async {
            tokio::time::sleep(ms(100)).await;
            Ok::<_, &str>(())
        }
    };
    hedged.retry(slow).when(|_| true).await.expect("slow, but it answers");
    assert_eq!(calls.get(), 2, "the first, and the one hedge that the budget pays for");
    let retrying = plain(ms(1)).build().expect("valid").sharing(budget);
    let error = retrying.retry(|| fails_after(ms(0))).when(|_| true).await.expect_err("dead");
    assert_eq!(error.why(), Why::Throttled);
}

// State and lifetime.

/// A closure that is called when the call is written, or before the sleep is over. Red if
/// `Retry::new` starts the operation.
#[tokio::test(start_paused = true)]
async fn the_operation_is_called_when_its_attempt_starts_and_not_before() {
    static POLICY: Policy = plain(s(60)).checked();
    let calls = Cell::new(0);
    let count = || {
        calls.set(calls.get() + 1);
        fails_after(ms(0))
    };
    let call = POLICY.retry(count).when(|_| true).into_future();
    assert_eq!(calls.get(), 0, "never polled");
    assert!(tokio::time::timeout(s(1), call).await.is_err());
    assert_eq!(calls.get(), 1, "asleep before the second");
}

/// Numbers that count from 0 in one place and from 1 in another. Red if `Engine::attempt` hands out
/// `number − 1`.
#[tokio::test(start_paused = true)]
async fn attempts_are_numbered_from_one_everywhere() {
    static POLICY: Policy = plain(ms(1)).checked();
    let (mut seen, mut noted) = (Vec::new(), Vec::new());
    let see = |attempt: redial::Attempt| {
        seen.push(attempt.number());
        fails_after(ms(0))
    };
    let note = |_, note: &Note| {
        if let Note::Started { attempt, number } = note {
            noted.push((*attempt, *number));
        }
    };
    let error = POLICY.retry_with(see).when(|_| true).on_note(note).await.expect_err("always");
    assert_eq!(error.attempts(), 3);
    assert_eq!((seen, noted), (vec![1, 2, 3], vec![(1, 1), (2, 2), (3, 3)]));
}

/// An error that does not say how often, how long or why. Red if `Error`'s text leaves out the
/// report.
#[tokio::test(start_paused = true)]
async fn an_error_says_how_often_how_long_and_why() {
    static POLICY: Policy = plain(ms(250)).checked();
    let error = POLICY.retry(|| fails_after(ms(0))).when(|_| true).await.expect_err("always");
    assert_eq!(error.to_string(), "busy (3 attempts in 500 ms; gave up: no attempt left)");
}
