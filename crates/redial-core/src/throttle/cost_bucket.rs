//! Smithy's token bucket: the cost of a retry depends on the kind of failure, and the bucket
//! refills over time (section S of docs/decisions.md).
//!
//! # Implementation
//!
//! A single atomic holds the missing amount. Without refill it is the amount withdrawn, in
//! millionths of a token. With refill it is the time at which the bucket will be full again, in
//! nanoseconds, and a time not after `now` means full. The arithmetic is the same in both cases: a
//! token is worth `unit` units, and without refill `now` is fixed at 0. A success subtracts without
//! reading the clock; the result may be below `now`, which the next withdrawal corrects, so nothing
//! is gained.
//!
//! Invariant: with [`WhenEmpty::Fail`], `0 <= left <= capacity`; with [`WhenEmpty::Wait`], callers
//! wait until a debt is paid.

use super::Bucket;
use crate::sync::{AtomicU64, Ordering};
use crate::time::Ns;
use crate::{Cost, FailureKind, Grant, PolicyError, Withdrawal};

/// What happens if the bucket holds less than the cost of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEmpty {
    /// The bucket lends the tokens, and the caller waits until the refill has paid the debt.
    Wait,
    /// The bucket refuses the retry.
    Fail,
}

/// The parameters of a [`CostBucket`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostBucketConfig {
    /// The number of tokens in a full bucket.
    pub capacity: f64,
    /// The cost of a retry after a server failure.
    pub server: f64,
    /// The cost of a retry after a client failure.
    pub client: f64,
    /// The cost of a retry after throttling.
    pub throttling: f64,
    /// The cost of a retry after a timeout.
    pub timeout: f64,
    /// The credit for a success at the first attempt.
    pub success: f64,
    /// The number of tokens refilled per second.
    pub refill_per_second: f64,
    /// What happens if the bucket holds less than the cost of a retry.
    pub empty: WhenEmpty,
}

impl CostBucketConfig {
    /// Smithy's standard bucket (decision S1).
    pub const STANDARD: CostBucketConfig = CostBucketConfig {
        capacity: 500.0,
        server: 5.0,
        client: 5.0,
        throttling: 10.0,
        timeout: 10.0,
        success: 1.0,
        refill_per_second: 10.0,
        empty: WhenEmpty::Wait,
    };

    /// The bucket of the AWS SDKs' retry rules of 2026 (decision S6).
    pub const AWS_2026: CostBucketConfig = CostBucketConfig {
        server: 14.0,
        client: 14.0,
        throttling: 5.0,
        timeout: 14.0,
        refill_per_second: 0.0,
        empty: WhenEmpty::Fail,
        ..CostBucketConfig::STANDARD
    };

    fn problem(&self) -> Option<PolicyError> {
        if !(0.0..=1e9).contains(&self.capacity) {
            return Some(PolicyError::Capacity);
        }
        let costs = [self.server, self.client, self.throttling, self.timeout];
        let counts = |tokens: f64| tokens >= 0.0 && tokens.is_finite();
        if !costs.iter().all(|cost| counts(*cost)) {
            return Some(PolicyError::Cost);
        }
        if !counts(self.success) {
            return Some(PolicyError::Success);
        }
        // A cost above the capacity for one kind is a way to forbid its retries; if no kind can be
        // paid, the configuration is a mistake.
        if costs.iter().all(|cost| *cost > self.capacity) {
            return Some(PolicyError::CostAboveCapacity);
        }
        let refill = self.refill_per_second;
        if refill == 0.0 {
            return (self.empty == WhenEmpty::Wait).then_some(PolicyError::WaitWithoutRefill);
        }
        let fills =
            refill.is_finite() && refill.is_sign_positive() && self.capacity / refill <= CENTURY;
        (!fills).then_some(PolicyError::Refill)
    }
}

/// A hundred years in seconds: the slowest refill whose arithmetic fits 64 bits.
const CENTURY: f64 = 100.0 * 365.25 * 86_400.0;
/// The longest wait for a debt: a day, in nanoseconds. More is the mark of a clock that went back.
const DEBT_MAX: u64 = 86_400_000_000_000;
/// Units per token without refill.
const MICRO: f64 = 1e6;
/// Units per second of refill.
const NANO: f64 = 1e9;

/// A token bucket whose cost depends on the kind of failure.
#[derive(Debug)]
pub struct CostBucket {
    /// The missing amount; see the module documentation.
    missing: AtomicU64,
    spec: CostBucketConfig,
    /// The capacity in units.
    capacity: u64,
    /// The units of one token.
    unit: f64,
}

impl CostBucket {
    /// A full bucket.
    ///
    /// # Errors
    /// The first contradiction in the parameters, with what to write instead.
    pub fn new(spec: CostBucketConfig) -> Result<Self, PolicyError> {
        if let Some(problem) = spec.problem() {
            return Err(problem);
        }
        let unit =
            if spec.refill_per_second == 0.0 { MICRO } else { NANO / spec.refill_per_second };
        let capacity = to_units(spec.capacity, unit);
        Ok(CostBucket { missing: AtomicU64::new(0), spec, capacity, unit })
    }

    /// The parameters.
    #[must_use]
    pub const fn spec(&self) -> &CostBucketConfig {
        &self.spec
    }

    /// The cost of a retry after a failure of this kind.
    #[must_use]
    pub const fn cost(&self, kind: FailureKind) -> f64 {
        match kind {
            FailureKind::Server => self.spec.server,
            FailureKind::Client => self.spec.client,
            FailureKind::Throttling => self.spec.throttling,
            FailureKind::Timeout => self.spec.timeout,
            FailureKind::NotReady => 0.0,
        }
    }

    /// The value of `missing` that means a full bucket.
    fn full(&self, now: Ns) -> u64 {
        if self.spec.refill_per_second == 0.0 { 0 } else { now }
    }

    /// The value of `missing` that [`withdraw`](Bucket::withdraw) starts from: never below full. A value
    /// more than [`DEBT_MAX`] beyond an empty bucket was written by a clock with another origin, as that
    /// of a test; the bucket then counts as empty.
    fn missing_at(&self, missing: u64, full: u64) -> u64 {
        let empty = full.saturating_add(self.capacity);
        if missing > empty.saturating_add(DEBT_MAX) { empty } else { missing.max(full) }
    }

    fn add(&self, units: u64) {
        let mut missing = self.missing.load(Ordering::Relaxed);
        while missing != 0 {
            let next = missing.saturating_sub(units);
            let swap = self.missing.compare_exchange_weak(
                missing,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swap {
                Ok(_) => return,
                Err(current) => missing = current,
            }
        }
    }
}

impl Bucket for CostBucket {
    fn watches_calls(&self) -> bool {
        false
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        let cost = to_units(self.cost(cost.kind), self.unit);
        let full = self.full(now);
        let mut missing = self.missing.load(Ordering::Relaxed);
        loop {
            let start = self.missing_at(missing, full);
            let debt = (start - full).saturating_add(cost).saturating_sub(self.capacity);
            let refused = debt > 0 && self.spec.empty == WhenEmpty::Fail;
            let next = if refused { start } else { start.saturating_add(cost) };
            if refused && next == missing {
                return Grant::Refused;
            }
            let swap = self.missing.compare_exchange_weak(
                missing,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swap {
                Ok(_) if refused => return Grant::Refused,
                // With refill, units are nanoseconds.
                Ok(_) if debt > 0 => return Grant::After(debt, Withdrawal(cost)),
                Ok(_) => return Grant::Now(Withdrawal(cost)),
                Err(current) => missing = current,
            }
        }
    }

    fn refund(&self, withdrawal: Withdrawal) {
        self.add(withdrawal.0);
    }

    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        let units = withdrawal
            .map_or_else(|| to_units(self.spec.success, self.unit), |withdrawal| withdrawal.0);
        self.add(units);
    }

    fn tokens(&self, now: Ns) -> Option<f64> {
        let full = self.full(now);
        let missing = self.missing_at(self.missing.load(Ordering::Relaxed), full) - full;
        Some(self.spec.capacity - missing as f64 / self.unit)
    }
}

/// Tokens in units, rounded to the nearest one.
fn to_units(tokens: f64, unit: f64) -> u64 {
    (tokens * unit + 0.5) as u64
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::thread;

    const SECOND: Ns = 1_000_000_000;

    const SERVER: Cost = Cost { kind: FailureKind::Server };

    /// Ten tokens without refill; a retry costs 5 and is refused when the bucket is empty.
    const FIXED: CostBucketConfig = CostBucketConfig {
        capacity: 10.0,
        refill_per_second: 0.0,
        empty: WhenEmpty::Fail,
        ..CostBucketConfig::STANDARD
    };

    /// Ten tokens, refilled by one per second.
    const SLOW: CostBucketConfig =
        CostBucketConfig { capacity: 10.0, refill_per_second: 1.0, ..FIXED };

    fn costs(spec: CostBucketConfig) -> CostBucket {
        CostBucket::new(spec).unwrap()
    }

    /// The wait before a retry; `None` if it is refused.
    fn wait(costs: &CostBucket, now: Ns) -> Option<Ns> {
        match costs.withdraw(SERVER, now) {
            Grant::Now(_) => Some(0),
            Grant::After(wait, _) => Some(wait),
            _ => None,
        }
    }

    #[test]
    fn cost_bucket_charges_by_failure_kind() {
        let left = |spec: CostBucketConfig, kind| {
            let costs = costs(spec);
            assert!(matches!(costs.withdraw(Cost { kind }, 0), Grant::Now(_)));
            costs.tokens(0)
        };
        for (kind, standard, aws) in [
            (FailureKind::Server, 495.0, 486.0),
            (FailureKind::Client, 495.0, 486.0),
            (FailureKind::Throttling, 490.0, 495.0),
            (FailureKind::Timeout, 490.0, 486.0),
        ] {
            assert_eq!(left(CostBucketConfig::STANDARD, kind), Some(standard));
            assert_eq!(left(CostBucketConfig::AWS_2026, kind), Some(aws));
        }
    }

    #[test]
    fn cost_bucket_standard_refills_and_aws_2026_does_not() {
        for (spec, left) in
            [(CostBucketConfig::STANDARD, 500.0), (CostBucketConfig::AWS_2026, 486.0)]
        {
            let costs = costs(spec);
            assert_eq!(wait(&costs, 0), Some(0));
            assert_eq!(costs.tokens(SECOND), Some(left), "{spec:?}");
        }
    }

    #[test]
    fn cost_bucket_is_empty_below_the_cost() {
        let costs = costs(CostBucketConfig { server: 2.5, ..FIXED });
        for left in [7.5, 5.0, 2.5, 0.0] {
            assert_eq!((wait(&costs, 0), costs.tokens(0)), (Some(0), Some(left)));
        }
        assert_eq!((wait(&costs, 0), costs.tokens(0)), (None, Some(0.0)));
        costs.succeeded(None);
        costs.succeeded(None);
        assert_eq!((wait(&costs, 0), costs.tokens(0)), (None, Some(2.0)));
        costs.succeeded(None);
        assert_eq!((wait(&costs, 0), costs.tokens(0)), (Some(0), Some(0.5)));
    }

    #[test]
    fn cost_bucket_refills_evenly_up_to_the_capacity() {
        let costs = costs(SLOW);
        wait(&costs, 0);
        for (now, left) in [(0, 5.0), (SECOND / 4, 5.25), (SECOND, 6.0), (5 * SECOND, 10.0)] {
            assert_eq!(costs.tokens(now), Some(left));
        }
        assert_eq!(costs.tokens(3600 * SECOND), Some(10.0));
        assert_eq!(wait(&costs, 3600 * SECOND), Some(0));
        assert_eq!(costs.tokens(3600 * SECOND), Some(5.0), "an idle hour is worth no more");
    }

    // A paused test clock that advanced, or a clock with another origin.
    #[test]
    fn cost_bucket_counts_as_empty_after_its_clock_went_back() {
        let ahead = 1 << 61;
        for empty in [WhenEmpty::Fail, WhenEmpty::Wait] {
            let costs = costs(CostBucketConfig { empty, ..SLOW });
            assert_eq!(wait(&costs, ahead), Some(0));
            assert_eq!(costs.tokens(0), Some(0.0));
            let first = wait(&costs, 0);
            assert_eq!(first, (empty == WhenEmpty::Wait).then_some(5 * SECOND));
            // From here on the bucket follows this clock.
            let paid = 10 * SECOND;
            assert_eq!(costs.tokens(paid), Some(if first.is_some() { 5.0 } else { 10.0 }));
            assert_eq!(wait(&costs, paid), Some(0));
        }
    }

    #[test]
    fn cost_bucket_lends_for_at_most_a_day() {
        let costs = costs(CostBucketConfig { empty: WhenEmpty::Wait, ..SLOW });
        let debts = (0..).map(|_| wait(&costs, 0).unwrap());
        let most = debts.take_while(|debt| *debt <= DEBT_MAX).last().unwrap();
        assert!(most > DEBT_MAX - 5 * SECOND);
        assert_eq!(wait(&costs, 0), Some(5 * SECOND), "the bucket counts as empty again");
    }

    #[test]
    fn cost_bucket_refund_after_refill_adds_nothing() {
        let costs = costs(SLOW);
        let Grant::Now(withdrawal) = costs.withdraw(SERVER, 0) else { panic!("it is full") };
        let later = 60 * SECOND;
        costs.refund(withdrawal);
        costs.succeeded(Some(withdrawal));
        assert_eq!(costs.tokens(later), Some(10.0));
        assert_eq!((wait(&costs, later), wait(&costs, later)), (Some(0), Some(0)));
        assert_eq!((wait(&costs, later), costs.tokens(later)), (None, Some(0.0)));
    }

    #[test]
    fn cost_bucket_debts_are_exact_and_queued() {
        let costs = costs(CostBucketConfig { empty: WhenEmpty::Wait, ..SLOW });
        assert_eq!((wait(&costs, 0), wait(&costs, 0)), (Some(0), Some(0)));
        assert_eq!((wait(&costs, 0), wait(&costs, 0)), (Some(5 * SECOND), Some(10 * SECOND)));
        assert_eq!(costs.tokens(0), Some(-10.0), "a debt is negative");
        assert_eq!(wait(&costs, 3 * SECOND), Some(12 * SECOND));
        assert_eq!(wait(&costs, 25 * SECOND), Some(0), "all is paid, and half of it is back");
    }

    #[test]
    fn cost_bucket_tolerates_a_slightly_older_clock() {
        let costs = costs(CostBucketConfig { empty: WhenEmpty::Wait, ..SLOW });
        assert_eq!(wait(&costs, SECOND), Some(0));
        assert_eq!(wait(&costs, SECOND), Some(0));
        // With an older clock, the difference is added to the debt.
        assert_eq!(wait(&costs, SECOND - 1), Some(5 * SECOND + 1));
    }

    #[test]
    fn cost_bucket_arithmetic_never_overflows() {
        let slowest =
            CostBucketConfig { refill_per_second: 10.0 / CENTURY, empty: WhenEmpty::Wait, ..SLOW };
        let fastest =
            CostBucketConfig { refill_per_second: f64::MAX, empty: WhenEmpty::Wait, ..SLOW };
        for spec in [slowest, fastest, SLOW, FIXED] {
            for now in [0, 1, SECOND, Ns::MAX / 2, Ns::MAX - 1, Ns::MAX] {
                let costs = costs(spec);
                for _ in 0..100 {
                    let grant = costs.withdraw(SERVER, now);
                    let tokens = costs.tokens(now).unwrap();
                    assert!(tokens.is_finite() && tokens <= 10.0, "{spec:?}: {grant:?}, {tokens}");
                }
                costs.succeeded(None);
                costs.refund(Withdrawal(u64::MAX));
                assert_eq!(costs.tokens(now), Some(10.0), "{spec:?} at {now}");
            }
        }
        // Half of the slowest bucket takes half of a century.
        let costs = costs(slowest);
        assert_eq!((wait(&costs, 0), wait(&costs, 0)), (Some(0), Some(0)));
        let half = wait(&costs, 0).unwrap() as f64 / NANO / CENTURY;
        assert!((half - 0.5).abs() < 1e-9, "{half}");
        // With a refill faster than the clock, no token is ever missing.
        let costs = self::costs(fastest);
        assert!((0..1000).all(|_| wait(&costs, 0) == Some(0)));
    }

    #[test]
    fn cost_bucket_success_never_exceeds_the_capacity() {
        for success in [0.0, 1.0, 1e9, f64::MAX] {
            let costs = costs(CostBucketConfig { success, ..FIXED });
            costs.succeeded(None);
            assert_eq!(costs.tokens(0), Some(10.0));
            wait(&costs, 0);
            costs.succeeded(None);
            assert_eq!(costs.tokens(0), Some((5.0 + success).min(10.0)));
        }
    }

    #[test]
    fn cost_bucket_rejects_invalid_parameters() {
        let of = |spec| CostBucket::new(spec).err();
        for capacity in [-1.0, 2e9, f64::NAN, f64::INFINITY] {
            assert_eq!(of(CostBucketConfig { capacity, ..FIXED }), Some(PolicyError::Capacity));
        }
        for cost in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(of(CostBucketConfig { server: cost, ..FIXED }), Some(PolicyError::Cost));
            assert_eq!(of(CostBucketConfig { success: cost, ..FIXED }), Some(PolicyError::Success));
        }
        assert_eq!(
            of(CostBucketConfig { capacity: 4.0, ..FIXED }),
            Some(PolicyError::CostAboveCapacity)
        );
        for (cost, problem) in [(10.0, None), (10.5, Some(PolicyError::CostAboveCapacity))] {
            let [server, client, throttling, timeout] = [cost; 4];
            assert_eq!(
                of(CostBucketConfig { server, client, throttling, timeout, ..FIXED }),
                problem
            );
        }
        for refill_per_second in [-1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            assert_eq!(
                of(CostBucketConfig { refill_per_second, ..FIXED }),
                Some(PolicyError::Refill)
            );
        }
        // A bucket may take at most a hundred years to fill.
        for (seconds, problem) in [(3_155_760_000.0, None), (3.156e9, Some(PolicyError::Refill))] {
            assert_eq!(
                of(CostBucketConfig { refill_per_second: 10.0 / seconds, ..FIXED }),
                problem
            );
        }
        let endless = CostBucketConfig { empty: WhenEmpty::Wait, ..FIXED };
        assert_eq!(of(endless), Some(PolicyError::WaitWithoutRefill));
        assert_eq!(of(CostBucketConfig::STANDARD), None);
        assert_eq!(of(CostBucketConfig::AWS_2026), None);
    }

    #[test]
    fn cost_bucket_threads_drain_exactly_the_capacity() {
        let costs = costs(CostBucketConfig { capacity: 50_000.0, ..FIXED });
        let granted: usize = thread::scope(|scope| {
            let take = || (0..20_000).map_while(|_| wait(&costs, 0));
            let takers = [(); 8].map(|()| scope.spawn(move || take().count()));
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert_eq!((granted, costs.tokens(0)), (10_000, Some(0.0)));
    }

    #[test]
    fn cost_bucket_threads_in_debt_get_distinct_waits() {
        let costs = costs(CostBucketConfig { empty: WhenEmpty::Wait, ..SLOW });
        let mut waits: Vec<Ns> = thread::scope(|scope| {
            let takers = [(); 8].map(|()| {
                scope.spawn(|| (0..100).map(|_| wait(&costs, 0).unwrap()).collect::<Vec<_>>())
            });
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        waits.sort_unstable();
        // Two withdrawals find enough tokens; the others queue up, five seconds apart.
        let expected = (0..800).map(|k: u64| k.saturating_sub(1) * 5 * SECOND);
        assert!(waits.into_iter().eq(expected));
        assert_eq!(costs.tokens(0), Some(10.0 - 4000.0));
    }
}
