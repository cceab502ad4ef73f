//! Model tests of the throttles under every schedule: no token is lost, granted twice or observed
//! outside its range; a permit refunds exactly the tokens that its call did not use; each call site
//! finds one budget; the latency estimator loses no sample.
//!
//! loom runs every interleaving of two threads, including every value that a relaxed load may
//! return. With three threads it runs those with at most [`PREEMPTIONS`] preemptions.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p redial-core --release --test
//! loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use redial_core::throttle::{
    CallSite, CostBucket, CostBucketConfig, RetryBudget, TokenBucket, WhenEmpty, call_site_cell,
    call_sites_share_a_budget,
};
use redial_core::{
    Bucket, Cost, FailureKind, Grant, HedgeAt, LatencyEstimate, LatencyEstimator, Ns, Permit,
};

/// The total number of preemptions with three threads.
const PREEMPTIONS: usize = 5;

const COST: Cost = Cost { kind: FailureKind::Server };

const SECOND: Ns = 1_000_000_000;

/// Ten tokens without refill; a retry costs 5, success at the first attempt adds 1.
const FIXED: CostBucketConfig = CostBucketConfig {
    capacity: 10.0,
    refill_per_second: 0.0,
    empty: WhenEmpty::Fail,
    ..CostBucketConfig::STANDARD
};

/// Runs the users concurrently on a throttle; returns their results and the tokens left.
fn left<T: Bucket + Send + Sync + 'static, R: 'static>(
    throttle: T,
    users: Vec<Box<dyn FnOnce(&T) -> R + Send>>,
) -> (Vec<R>, f64) {
    left_at(0, throttle, users)
}

/// The same, with the tokens left at this time.
fn left_at<T: Bucket + Send + Sync + 'static, R: 'static>(
    now: Ns,
    throttle: T,
    users: Vec<Box<dyn FnOnce(&T) -> R + Send>>,
) -> (Vec<R>, f64) {
    let throttle = Arc::new(throttle);
    let mut users = users.into_iter();
    let mine = users.next().expect("at least one user");
    let others: Vec<_> = users
        .map(|user| {
            let throttle = Arc::clone(&throttle);
            thread::spawn(move || user(&throttle))
        })
        .collect();
    let mut results = vec![mine(&throttle)];
    results.extend(others.into_iter().map(|other| other.join().expect("no user panics")));
    let left = throttle.tokens(now).expect("this throttle counts");
    (results, left)
}

/// Every interleaving of two threads.
fn two(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// The interleavings of three threads with few preemptions.
fn three(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

fn granted(grants: &[Grant]) -> usize {
    grants.iter().filter(|grant| matches!(grant, Grant::Now(_))).count()
}

fn budget(reserve: f64, ratio: f64) -> RetryBudget {
    RetryBudget::try_new(reserve, ratio).expect("valid")
}

fn tokens(max: f64, ratio: f64, failures: usize) -> TokenBucket {
    let tokens = TokenBucket::new(max, ratio).expect("valid");
    (0..failures).for_each(|_| tokens.failed());
    tokens
}

fn costs(spec: CostBucketConfig) -> CostBucket {
    CostBucket::new(spec).expect("valid")
}

// Retry budget.

#[test]
fn budget_last_token_is_granted_once_to_two_threads() {
    two(|| {
        let (grants, left) = left(
            budget(1.0, 0.0),
            vec![
                Box::new(|b: &RetryBudget| b.withdraw(COST, 0)),
                Box::new(|b| b.withdraw(COST, 0)),
            ],
        );
        assert_eq!((granted(&grants), left), (1, 0.0));
    });
}

#[test]
fn budget_last_two_tokens_are_granted_to_two_of_three() {
    three(|| {
        let (grants, left) = left(
            budget(2.0, 0.0),
            vec![
                Box::new(|b: &RetryBudget| b.withdraw(COST, 0)),
                Box::new(|b| b.withdraw(COST, 0)),
                Box::new(|b| b.withdraw(COST, 0)),
            ],
        );
        assert_eq!((granted(&grants), left), (2, 0.0));
    });
}

#[test]
fn budget_concurrent_refund_and_success_both_count() {
    two(|| {
        let full = budget(3.0, 0.5);
        let (Grant::Now(withdrawal), Grant::Now(_)) =
            (full.withdraw(COST, 0), full.withdraw(COST, 0))
        else {
            panic!("a full budget pays");
        };
        let (_, left) = left(
            full,
            vec![
                Box::new(move |b: &RetryBudget| b.refund(withdrawal)),
                Box::new(|b| b.succeeded(None)),
            ],
        );
        assert_eq!(left, 2.5);
    });
}

#[test]
fn budget_concurrent_grant_refund_and_success_all_count() {
    three(|| {
        let full = budget(3.0, 0.5);
        let (Grant::Now(withdrawal), Grant::Now(_)) =
            (full.withdraw(COST, 0), full.withdraw(COST, 0))
        else {
            panic!("a full budget pays");
        };
        let (_, left) = left(
            full,
            vec![
                Box::new(|b: &RetryBudget| {
                    assert_eq!(b.withdraw(COST, 0), Grant::Now(one_withdrawal()))
                }),
                Box::new(move |b| b.refund(withdrawal)),
                Box::new(|b| b.succeeded(None)),
            ],
        );
        assert_eq!(left, 1.5);
    });
}

#[test]
fn budget_refill_is_paid_once_to_two_threads() {
    two(|| {
        let empty = budget(1.0, 0.0).per_second(1.0);
        assert_eq!(granted(&[empty.withdraw(COST, 0)]), 1);
        // Both ask a second later; only one second has passed.
        let (grants, left) = left(
            empty,
            vec![
                Box::new(|b: &RetryBudget| b.withdraw(COST, SECOND)),
                Box::new(|b| b.withdraw(COST, SECOND)),
            ],
        );
        assert_eq!((granted(&grants), left), (1, 0.0));
    });
}

#[test]
fn budget_refill_with_older_time_is_not_paid_twice() {
    three(|| {
        let empty = budget(2.0, 0.0).per_second(1.0);
        assert_eq!(granted(&[empty.withdraw(COST, 0), empty.withdraw(COST, 0)]), 2);
        // The clocks are read in another order than the withdrawals happen in.
        let (grants, left) = left(
            empty,
            vec![
                Box::new(|b: &RetryBudget| b.withdraw(COST, SECOND)),
                Box::new(|b| b.withdraw(COST, SECOND - 1_000)),
                Box::new(|b| b.withdraw(COST, SECOND)),
            ],
        );
        assert_eq!((granted(&grants), left), (1, 0.0));
    });
}

#[test]
fn budget_concurrent_refill_and_success_both_count() {
    two(|| {
        let empty = budget(2.0, 0.5).per_second(1.0);
        assert_eq!(granted(&[empty.withdraw(COST, 0), empty.withdraw(COST, 0)]), 2);
        let (_, left) = left(
            empty,
            vec![
                Box::new(|b: &RetryBudget| {
                    b.withdraw(COST, SECOND / 2);
                }),
                Box::new(|b| b.succeeded(None)),
            ],
        );
        // Half a token from time and half from the success: a retry that sees both takes them.
        assert!([0.0, 1.0].contains(&left), "{left}");
    });
}

/// The withdrawal of one retry from a budget.
fn one_withdrawal() -> redial_core::Withdrawal {
    redial_core::Withdrawal(1000)
}

// Token bucket.

#[test]
fn tokens_concurrent_failures_both_drain() {
    two(|| {
        let (_, left) = left(
            tokens(4.0, 0.5, 0),
            vec![Box::new(|t: &TokenBucket| t.failed()), Box::new(|t| t.failed())],
        );
        assert_eq!(left, 2.0);
    });
}

#[test]
fn tokens_concurrent_failure_and_success_both_count() {
    two(|| {
        let (_, left) = left(
            tokens(4.0, 0.5, 2),
            vec![Box::new(|t: &TokenBucket| t.failed()), Box::new(|t| t.succeeded(None))],
        );
        assert_eq!(left, 1.5);
    });
}

#[test]
fn tokens_stay_within_their_range() {
    three(|| {
        let seen = |t: &TokenBucket| {
            let left = t.tokens(0).expect("tokens count");
            assert!((0.0..=2.0).contains(&left), "{left} of 2 tokens");
        };
        let (_, left) = left(
            tokens(2.0, 0.5, 1),
            vec![
                Box::new(move |t: &TokenBucket| {
                    t.failed();
                    seen(t);
                }),
                Box::new(|t| t.failed()),
                Box::new(seen),
            ],
        );
        assert_eq!(left, 0.0);
    });
}

#[test]
fn tokens_concurrent_successes_never_exceed_the_maximum() {
    three(|| {
        let seen = |t: &TokenBucket| assert!(t.tokens(0).expect("tokens count") <= 2.0);
        let (_, left) = left(
            tokens(2.0, 0.7, 1),
            vec![
                Box::new(move |t: &TokenBucket| {
                    t.succeeded(None);
                    seen(t);
                }),
                Box::new(|t| t.succeeded(None)),
                Box::new(seen),
            ],
        );
        assert_eq!(left, 2.0);
    });
}

// Cost bucket.

#[test]
fn cost_last_tokens_are_granted_to_one_of_two() {
    two(|| {
        let (grants, left) = left(
            costs(CostBucketConfig { capacity: 5.0, throttling: 5.0, timeout: 5.0, ..FIXED }),
            vec![Box::new(|c: &CostBucket| c.withdraw(COST, 0)), Box::new(|c| c.withdraw(COST, 0))],
        );
        assert_eq!((granted(&grants), left), (1, 0.0));
    });
}

#[test]
fn cost_concurrent_debts_are_queued() {
    three(|| {
        let with_debt =
            CostBucketConfig { refill_per_second: 1.0, empty: WhenEmpty::Wait, ..FIXED };
        let wait = |c: &CostBucket| match c.withdraw(COST, 0) {
            Grant::Now(_) => 0,
            Grant::After(wait, _) => wait / 1_000_000_000,
            other => panic!("{other:?}"),
        };
        let with_debt =
            costs(CostBucketConfig { capacity: 5.0, throttling: 5.0, timeout: 5.0, ..with_debt });
        let (mut waits, left) =
            left(with_debt, vec![Box::new(wait), Box::new(wait), Box::new(wait)]);
        waits.sort_unstable();
        assert_eq!((waits, left), (vec![0, 5, 10], -10.0));
    });
}

/// Ten tokens, all withdrawn at time 0, refilled by one per second.
fn refilling() -> CostBucket {
    let costs = costs(CostBucketConfig { refill_per_second: 1.0, ..FIXED });
    for _ in 0..2 {
        assert!(matches!(costs.withdraw(COST, 0), Grant::Now(_)));
    }
    costs
}

#[test]
fn cost_refill_pays_one_of_two_retries_at_different_moments() {
    two(|| {
        let (grants, left) = left_at(
            6 * SECOND,
            refilling(),
            vec![
                Box::new(|c: &CostBucket| c.withdraw(COST, 5 * SECOND)),
                Box::new(|c| c.withdraw(COST, 6 * SECOND)),
            ],
        );
        assert_eq!((granted(&grants), left), (1, 1.0));
    });
}

#[test]
fn cost_refill_counts_a_success_that_reads_no_clock() {
    two(|| {
        let (grants, left) = left_at(
            5 * SECOND,
            refilling(),
            vec![
                Box::new(|c: &CostBucket| Some(c.withdraw(COST, 5 * SECOND))),
                Box::new(|c| {
                    c.succeeded(None);
                    None
                }),
            ],
        );
        // Five tokens are refilled, one is added, and the retry withdraws five, in either order.
        assert!(matches!(grants[0], Some(Grant::Now(_))));
        assert_eq!(left, 1.0);
    });
}

#[test]
fn cost_refill_never_exceeds_the_capacity() {
    two(|| {
        let (_, left) = left_at(
            20 * SECOND,
            refilling(),
            vec![
                Box::new(|c: &CostBucket| {
                    assert!(matches!(c.withdraw(COST, 20 * SECOND), Grant::Now(_)))
                }),
                Box::new(|c| c.succeeded(None)),
            ],
        );
        // A success that found the bucket full added nothing.
        assert!(left == 5.0 || left == 6.0, "{left}");
    });
}

#[test]
fn cost_refill_refunds_unused_withdrawals_of_three_calls() {
    three(|| {
        let takes =
            |c: &CostBucket| u32::from(matches!(c.withdraw(COST, 5 * SECOND), Grant::Now(_)));
        let drops = |c: &CostBucket| {
            Permit::new(c).withdraw(COST, 5 * SECOND);
            0
        };
        let users: Vec<Box<dyn FnOnce(&CostBucket) -> u32 + Send>> =
            vec![Box::new(takes), Box::new(drops), Box::new(drops)];
        let (granted, left) = left_at(5 * SECOND, refilling(), users);
        assert_eq!(left, 5.0 - 5.0 * f64::from(granted[0]));
    });
}

#[test]
fn cost_concurrent_grant_and_success_both_count() {
    two(|| {
        let half = costs(FIXED);
        half.withdraw(COST, 0);
        let (_, left) = left(
            half,
            vec![
                Box::new(|c: &CostBucket| assert!(matches!(c.withdraw(COST, 0), Grant::Now(_)))),
                Box::new(|c| c.succeeded(None)),
            ],
        );
        assert_eq!(left, 1.0);
    });
}

// Permits: whole calls with a shared throttle.

/// A call that withdraws tokens for a retry that never starts.
fn dropped<T: Bucket>(throttle: &T) {
    let mut permit = Permit::new(throttle);
    permit.withdraw(COST, 0);
}

/// A call that withdraws tokens for a retry, starts it, and fails.
fn failed<T: Bucket>(throttle: &T) {
    let mut permit = Permit::new(throttle);
    permit.withdraw(COST, 0);
    permit.started();
    permit.call_failed();
}

/// A call that withdraws tokens for a retry, starts it, and succeeds.
fn retried<T: Bucket>(throttle: &T) {
    let mut permit = Permit::new(throttle);
    permit.withdraw(COST, 0);
    permit.started();
    permit.succeeded();
}

#[test]
fn permit_dropped_call_refunds_while_another_fails() {
    two(|| {
        let (_, left) =
            left(budget(3.0, 0.0), vec![Box::new(dropped), Box::new(failed::<RetryBudget>)]);
        assert_eq!(left, 2.0);
    });
}

#[test]
fn permit_refunds_once_while_another_call_fails() {
    two(|| {
        let ended = |b: &RetryBudget| {
            let mut permit = Permit::new(b);
            permit.withdraw(COST, 0);
            permit.call_failed();
        };
        let (_, left) = left(budget(3.0, 0.0), vec![Box::new(ended), Box::new(failed)]);
        assert_eq!(left, 2.0);
    });
}

#[test]
fn permit_refunds_unused_withdrawals_of_three_calls() {
    three(|| {
        let (_, left) = left(
            costs(CostBucketConfig { capacity: 20.0, ..FIXED }),
            vec![Box::new(dropped), Box::new(retried), Box::new(failed::<CostBucket>)],
        );
        assert_eq!(left, 15.0);
    });
}

#[test]
fn permit_calls_are_each_counted_once_by_tokens() {
    three(|| {
        let failing = |t: &TokenBucket| {
            let mut permit = Permit::new(t);
            permit.failed();
            permit.withdraw(COST, 0);
        };
        let (_, left) = left(
            tokens(8.0, 0.5, 2),
            vec![Box::new(failing), Box::new(retried), Box::new(failing)],
        );
        assert_eq!(left, 4.5);
    });
}

// Call sites: under loom the table has three cells and the shared one.

/// Two copies of one location, and other locations; all have the same first cell.
const COPY: [usize; 2] = [32, 64];
const PLACE: [usize; 3] = [96, 128, 160];
/// The content hash of the copies.
const COPIED: u64 = 9 << 40;

/// The cell of another call site.
fn place(nth: usize) -> usize {
    call_site_cell((nth as u64 + 1) << 40, PLACE[nth])
}

/// Runs the users concurrently, and returns the cells that they find.
fn found<const USERS: usize, R: Send + 'static>(users: [fn() -> R; USERS]) -> Vec<R> {
    let mut users = users.into_iter();
    let mine = users.next().expect("at least one user");
    let others: Vec<_> = users.map(thread::spawn).collect();
    let mut found = vec![mine()];
    found.extend(others.into_iter().map(|other| other.join().expect("no user panics")));
    found
}

#[test]
fn call_sites_hashing_to_one_cell_get_one_each() {
    two(|| {
        let cells = found([|| [place(0), place(0)], || [place(1), place(1)]]);
        assert!(cells.iter().all(|[first, again]| first == again), "{cells:?}");
        assert_ne!(cells[0], cells[1]);
        assert!(!call_sites_share_a_budget());
    });
}

#[test]
fn call_site_concurrent_copies_of_a_location_share_a_cell() {
    two(|| {
        let cells = found([
            || COPY.map(|address| call_site_cell(COPIED, address)),
            || COPY.map(|address| call_site_cell(COPIED, address)),
        ]);
        assert!(cells.iter().flatten().all(|cell| *cell == cells[0][0]), "{cells:?}");
    });
}

#[test]
fn call_site_new_location_is_claimed_once() {
    three(|| {
        let cells = found([|| place(0), || place(0), || place(0)]);
        assert!(cells.iter().all(|cell| *cell == cells[0]), "{cells:?}");
        assert_ne!(place(1), place(2));
        assert!(!call_sites_share_a_budget());
    });
}

#[test]
fn call_site_last_cell_goes_to_one_of_three() {
    three(|| {
        let before =
            [COPY[0], COPY[1]].map(|address| call_site_cell(address as u64 >> 5 << 50, address));
        let cells = found([|| place(0), || place(1), || place(2)]);
        let own: Vec<_> = cells.iter().filter(|cell| **cell < 3).collect();
        assert!(own.len() == 1 && !before.contains(own[0]), "{before:?}, {cells:?}");
        assert!(call_sites_share_a_budget());
    });
}

#[track_caller]
fn written_here() -> CallSite {
    CallSite::here()
}

#[test]
fn call_site_concurrent_calls_share_one_budget() {
    two(|| {
        let place = written_here();
        let withdraw = move || place.withdraw(COST, 0);
        let other = thread::spawn(withdraw);
        let grants = [withdraw(), other.join().expect("no user panics")];
        assert_eq!((granted(&grants), place.tokens(0)), (2, Some(8.0)));
        assert_eq!(written_here().tokens(0), Some(10.0), "another call site has its own");
    });
}

// Latency estimator.

/// A report to the estimator.
type Record = fn(&LatencyEstimator);

/// The estimator and its snapshot after these reports, in this order.
fn estimator_after(records: &[Record]) -> (LatencyEstimator, LatencyEstimate) {
    let estimator = LatencyEstimator::new(HedgeAt::quantile(0.9).samples(1).build());
    estimator.record_latency(1_000_000);
    records.iter().for_each(|record| record(&estimator));
    let reading = estimator.read();
    (estimator, reading)
}

/// Runs both reports concurrently, and checks that the result is that of a sequential order.
fn in_some_order(records: [Record; 2]) {
    let orders = [estimator_after(&records).1, estimator_after(&[records[1], records[0]]).1];
    let estimator = Arc::new(estimator_after(&[]).0);
    let other = {
        let estimator = Arc::clone(&estimator);
        thread::spawn(move || records[1](&estimator))
    };
    records[0](&estimator);
    other.join().expect("no user panics");
    let reading = estimator.read();
    assert!(orders.contains(&reading), "{reading:?} is none of {orders:?}");
}

#[test]
fn latency_concurrent_samples_are_both_counted() {
    let above: Record = |estimator| estimator.record_latency(9_000_000);
    let below: Record = |estimator| estimator.record_latency(1);
    let lost: Record = |estimator| estimator.hedge_lost();
    let won: Record = |estimator| estimator.hedge_won();
    for records in [[above, below], [above, above], [below, lost], [won, lost]] {
        two(move || in_some_order(records));
    }
}
