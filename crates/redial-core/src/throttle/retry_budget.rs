//! The default throttle: a retry budget funded by successful calls and, slowly, by time (section B
//! of docs/decisions.md).
//!
//! Successes fund retries: with a ratio of 0.1, retries add at most one call in ten to the load on
//! a healthy server, and when the server fails, the reserve runs out and retries stop. The budget
//! bounds load amplification in total, which a maximum number of attempts per call does not. The
//! refill over time is for callers that seldom succeed or seldom call, such as a nightly job: their
//! budget is full again after a while.
//!
//! # Implementation
//!
//! One atomic holds the amount spent and the time up to which the refill has been added (the
//! reference). Only a withdrawal reads the clock: it adds the refill of the whole milliseconds since
//! the reference, and moves the reference on by those milliseconds, so that no remainder is lost. A
//! success changes only the amount spent.
//!
//! The reference is a number of ticks modulo its width, which is enough for 100 days without a
//! retry. A time that is behind the reference adds nothing. A time that is more than a minute behind
//! comes from another clock, as that of a test; the budget then keeps its tokens and follows that
//! clock.
//!
//! Invariant: `0 <= spent <= reserve` at all times, for every thread.

use super::{Bucket, MILLI};
use crate::sync::{AtomicU64, Ordering, const_unless_loom};
use crate::time::Ns;
use crate::{Cost, Grant, PolicyError, Withdrawal};

/// A retry budget that starts full at `reserve`: each retry and hedge withdraws 1, each successful
/// call adds `ratio`, and each second adds `per_second`.
#[derive(Debug)]
pub struct RetryBudget {
    /// The missing amount in thousandths, in the bits of `spent_mask`; above them the reference, in
    /// ticks. A missing amount of 0 is full, so that a success that finds the budget full writes
    /// nothing.
    state: AtomicU64,
    reserve: u32,
    ratio: u32,
    per_second: u32,
    spent_mask: u32,
}

/// The bits of the missing amount, and the length of a tick of the reference. The reference has the
/// other bits, and covers about 200 days in both layouts.
#[derive(Clone, Copy)]
struct Layout {
    spent_bits: u32,
    tick_ns: u64,
}

/// For a reserve of up to 1048.575.
const FINE: Layout = Layout { spent_bits: 20, tick_ns: 1_000 };
/// For a reserve of up to a million.
const COARSE: Layout = Layout { spent_bits: 30, tick_ns: 1_000_000 };

const MILLISECOND_NS: u64 = 1_000_000;
/// How far a clock may be behind the reference: threads read the clock before they withdraw.
const BEHIND_MAX_NS: u64 = 60_000_000_000;

impl Layout {
    const fn spent_mask(self) -> u32 {
        (1 << self.spent_bits) - 1
    }

    /// The largest reference; it wraps after that.
    const fn reference_max(self) -> u64 {
        u64::MAX >> self.spent_bits
    }

    /// The state with the refill until `now`, at `per_second` thousandths per second.
    #[inline(always)]
    const fn refilled(self, state: u64, now: Ns, per_second: u32) -> u64 {
        let at = now / self.tick_ns;
        // Retries come in bursts: in the same tick there is nothing to add.
        if (at << self.spent_bits ^ state) >> self.spent_bits == 0 {
            return state;
        }
        self.refilled_at(state, at & self.reference_max(), per_second)
    }

    #[cold]
    #[inline(never)]
    const fn refilled_at(self, state: u64, at: u64, per_second: u32) -> u64 {
        let ticks_per_ms = MILLISECOND_NS / self.tick_ns;
        let spent = state & self.spent_mask() as u64;
        let reference = state >> self.spent_bits;
        let elapsed = at.wrapping_sub(reference) & self.reference_max();
        if elapsed > self.reference_max() / 2 {
            let behind = self.reference_max() - elapsed + 1;
            let is_same_clock = behind <= BEHIND_MAX_NS / self.tick_ns;
            return if is_same_clock { state } else { at << self.spent_bits | spent };
        }
        let added = (elapsed / ticks_per_ms).saturating_mul(per_second as u64) / 1000;
        if added >= spent {
            return at << self.spent_bits;
        }
        let paid_ms = (added * 1000).div_ceil(per_second as u64);
        let reference = (reference + paid_ms * ticks_per_ms) & self.reference_max();
        reference << self.spent_bits | (spent - added)
    }
}

impl RetryBudget {
    /// The default reserve.
    pub const RESERVE: f64 = 10.0;
    /// The default credit for a successful call.
    pub const RATIO: f64 = 0.1;
    /// The default refill per second.
    pub const PER_SECOND: f64 = 1.0;
    /// The default credit in thousandths, as a constant for the fast path.
    pub(super) const RATIO_MILLI: u32 = (RetryBudget::RATIO * MILLI) as u32;
    /// The bits of the missing amount in the default budget, as a constant for the fast path.
    pub(super) const STANDARD_SPENT_MASK: u32 = FINE.spent_mask();

    const_unless_loom! {
        /// A full budget without a refill over time, with numbers known at run time; they are stored
        /// in thousandths. In a `static`, use [`RetryBudget::new`].
        ///
        /// # Errors
        /// The reserve is below 1, or a number is out of range.
        pub fn try_new(reserve: f64, ratio: f64) -> Result<Self, PolicyError> {
            if !(reserve >= 1.0 && reserve <= 1e6) {
                return Err(PolicyError::Reserve);
            }
            if !(ratio >= 0.0 && ratio <= 1e6) {
                return Err(PolicyError::Ratio);
            }
            let reserve = (reserve * MILLI + 0.5) as u32;
            let fine = reserve <= FINE.spent_mask();
            Ok(RetryBudget {
                state: AtomicU64::new(0),
                reserve,
                ratio: (ratio * MILLI + 0.5) as u32,
                per_second: 0,
                spent_mask: if fine { FINE } else { COARSE }.spent_mask(),
            })
        }
    }

    const_unless_loom! {
        /// A full budget without a refill over time; in a `static`, invalid numbers are a compile
        /// error. Add a refill with [`RetryBudget::per_second`], or the budget of a caller that
        /// stops succeeding stays empty.
        ///
        /// ```
        /// use redial_core::throttle::RetryBudget;
        ///
        /// static PATIENT: RetryBudget = RetryBudget::new(100.0, 0.1).per_second(2.0);
        /// assert_eq!(PATIENT.parameters(), (100.0, 0.1, 2.0));
        /// ```
        ///
        /// # Panics
        /// If the numbers are invalid; [`RetryBudget::try_new`] returns the [`PolicyError`]
        /// instead.
        #[must_use]
        pub fn new(reserve: f64, ratio: f64) -> Self {
            match RetryBudget::try_new(reserve, ratio) {
                Ok(budget) => budget,
                Err(problem) => panic!("{}", problem.text()),
            }
        }
    }

    /// Adds a refill over time, up to the reserve: this many retries per second, in thousandths. It
    /// is added when a retry asks, so that a success reads no clock.
    ///
    /// ```
    /// use redial_core::throttle::{Bucket, RetryBudget};
    /// use redial_core::{Cost, FailureKind, Grant};
    ///
    /// static JOBS: RetryBudget = RetryBudget::new(1.0, 0.0).per_second(0.5);
    ///
    /// const SECOND: u64 = 1_000_000_000;
    /// let retry = |now| JOBS.withdraw(Cost { kind: FailureKind::Server }, now) != Grant::Refused;
    /// assert!(retry(0));
    /// assert!(!retry(SECOND));
    /// assert!(retry(2 * SECOND));
    /// ```
    ///
    /// # Panics
    /// If the number is invalid; [`RetryBudget::try_per_second`] returns the [`PolicyError`]
    /// instead.
    #[must_use]
    pub const fn per_second(mut self, tokens: f64) -> Self {
        self.per_second = match per_second_milli(tokens) {
            Ok(milli) => milli,
            Err(problem) => panic!("{}", problem.text()),
        };
        self
    }

    /// Adds a refill over time, with a number known at run time.
    ///
    /// ```
    /// use redial_core::PolicyError;
    /// use redial_core::throttle::RetryBudget;
    ///
    /// let budget = |tokens| RetryBudget::standard().try_per_second(tokens);
    /// assert_eq!(budget(2.5).unwrap().parameters(), (10.0, 0.1, 2.5));
    /// assert_eq!(budget(-1.0).unwrap_err(), PolicyError::PerSecond);
    /// ```
    ///
    /// # Errors
    /// The number is neither 0 nor between 0.001 and a million.
    pub fn try_per_second(mut self, tokens: f64) -> Result<Self, PolicyError> {
        self.per_second = per_second_milli(tokens)?;
        Ok(self)
    }

    const_unless_loom! {
        /// A full budget with the defaults: a reserve of 10, one retry per ten successful calls, and
        /// one per second.
        ///
        /// ```
        /// use redial_core::throttle::RetryBudget;
        ///
        /// static DATABASE: RetryBudget = RetryBudget::standard();
        /// assert_eq!(DATABASE.parameters(), (10.0, 0.1, 1.0));
        /// ```
        #[must_use]
        pub fn standard() -> Self {
            RetryBudget::new(RetryBudget::RESERVE, RetryBudget::RATIO)
                .per_second(RetryBudget::PER_SECOND)
        }
    }

    /// The reserve, the ratio and the refill per second.
    ///
    /// ```
    /// use redial_core::throttle::RetryBudget;
    ///
    /// assert_eq!(RetryBudget::new(50.0, 0.2).parameters(), (50.0, 0.2, 0.0));
    /// ```
    #[must_use]
    pub fn parameters(&self) -> (f64, f64, f64) {
        let tokens = |milli: u32| f64::from(milli) / MILLI;
        (tokens(self.reserve), tokens(self.ratio), tokens(self.per_second))
    }

    /// Whether the budget refills over time, so that a withdrawal needs the time.
    ///
    /// ```
    /// use redial_core::throttle::RetryBudget;
    ///
    /// assert!(RetryBudget::standard().refills() && !RetryBudget::new(10.0, 0.1).refills());
    /// ```
    #[inline]
    #[must_use]
    pub const fn refills(&self) -> bool {
        self.per_second != 0
    }

    /// Whether a full budget can pay for this many retries of one call: because it refills, or from its
    /// reserve. What other calls add is not counted.
    ///
    /// ```
    /// use redial_core::throttle::RetryBudget;
    ///
    /// assert!(RetryBudget::new(10.0, 0.1).pays_for(10) && !RetryBudget::new(10.0, 0.1).pays_for(11));
    /// assert!(RetryBudget::standard().pays_for(1000));
    /// ```
    #[must_use]
    pub const fn pays_for(&self, retries: u32) -> bool {
        self.refills() || retries as u64 * 1000 <= self.reserve as u64
    }

    /// A full budget with the same parameters.
    ///
    /// ```
    /// use redial_core::throttle::{Bucket, RetryBudget};
    ///
    /// let budget = RetryBudget::new(50.0, 0.2);
    /// assert_eq!(budget.fresh().parameters(), budget.parameters());
    /// assert_eq!(budget.fresh().tokens(0), Some(50.0));
    /// ```
    #[must_use]
    pub fn fresh(&self) -> Self {
        RetryBudget { state: AtomicU64::new(0), ..*self }
    }

    /// A budget with the same parameters that had this many tokens at this time, for a budget that
    /// is kept outside of a process: in a file, say. Tokens beyond the reserve are dropped, and a
    /// number below 0, or none, is an empty budget.
    ///
    /// ```
    /// use redial_core::throttle::{Bucket, RetryBudget};
    /// use redial_core::{Cost, FailureKind, Grant};
    ///
    /// const SECOND: u64 = 1_000_000_000;
    /// let stored = RetryBudget::new(5.0, 0.1).per_second(1.0).with_tokens(0.5, 100 * SECOND);
    /// let retry = |now| stored.withdraw(Cost { kind: FailureKind::Server }, now);
    /// assert_eq!(retry(100 * SECOND), Grant::Refused);
    /// assert_ne!(retry(101 * SECOND), Grant::Refused);
    /// assert_eq!(stored.tokens(0), Some(0.5));
    /// ```
    #[must_use]
    pub fn with_tokens(&self, tokens: f64, now: Ns) -> Self {
        // A conversion from a float saturates, and takes 0 for what is not a number.
        let left = ((tokens * MILLI + 0.5) as u32).min(self.reserve);
        let fine = self.spent_mask == FINE.spent_mask();
        let Layout { spent_bits, tick_ns } = if fine { FINE } else { COARSE };
        // Without a refill there is no reference.
        let reference = if self.per_second == 0 { 0 } else { now / tick_ns };
        let state = reference << spent_bits | u64::from(self.reserve - left);
        RetryBudget { state: AtomicU64::new(state), ..*self }
    }

    /// The tokens at this time, with the refill since a retry asked last. The budget does not change.
    /// (`tokens` is without that refill: what the last retry or success left.)
    ///
    /// ```
    /// use redial_core::throttle::{Bucket, RetryBudget};
    /// use redial_core::{Cost, FailureKind};
    ///
    /// static JOBS: RetryBudget = RetryBudget::new(2.0, 0.0).per_second(0.5);
    ///
    /// const SECOND: u64 = 1_000_000_000;
    /// JOBS.withdraw(Cost { kind: FailureKind::Server }, 10 * SECOND);
    /// assert_eq!((JOBS.tokens(11 * SECOND), JOBS.tokens_at(11 * SECOND)), (Some(1.0), 1.5));
    /// assert_eq!(JOBS.tokens_at(60 * SECOND), 2.0);
    /// ```
    #[must_use]
    pub fn tokens_at(&self, now: Ns) -> f64 {
        let state = self.state.load(Ordering::Relaxed);
        let refilled = match self.per_second {
            0 => state,
            rate if self.spent_mask == FINE.spent_mask() => FINE.refilled(state, now, rate),
            rate => COARSE.refilled(state, now, rate),
        };
        f64::from(self.reserve - (refilled as u32 & self.spent_mask)) / MILLI
    }

    /// Fills the budget, for a test, or for an operator who knows that an incident is over.
    ///
    /// ```
    /// use redial_core::throttle::{Bucket, RetryBudget};
    /// use redial_core::{Cost, FailureKind};
    ///
    /// static JOBS: RetryBudget = RetryBudget::new(2.0, 0.1);
    /// JOBS.withdraw(Cost { kind: FailureKind::Server }, 0);
    /// assert_eq!(JOBS.tokens(0), Some(1.0));
    /// JOBS.refill();
    /// assert_eq!(JOBS.tokens(0), Some(2.0));
    /// ```
    pub fn refill(&self) {
        self.add(self.spent_mask, self.reserve);
    }
}

/// A refill per second in thousandths.
const fn per_second_milli(tokens: f64) -> Result<u32, PolicyError> {
    if tokens == 0.0 || tokens >= 0.001 && tokens <= 1e6 {
        Ok((tokens * MILLI + 0.5) as u32)
    } else {
        Err(PolicyError::PerSecond)
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget::standard()
    }
}

impl Bucket for RetryBudget {
    fn watches_calls(&self) -> bool {
        false
    }
    #[inline]
    fn withdraw(&self, _cost: Cost, now: Ns) -> Grant {
        if self.per_second == 0 {
            // Without a refill there is no reference, and the state is the amount spent.
            return self.withdraw_unless_refused(u32::MAX, self.reserve, |state| state);
        }
        self.withdraw_refilled(now)
    }

    fn refund(&self, _withdrawal: Withdrawal) {
        self.add(self.spent_mask, 1000);
    }

    #[inline(always)]
    fn succeeded(&self, _withdrawal: Option<Withdrawal>) {
        self.add(self.spent_mask, self.ratio);
    }

    /// The tokens after the last withdrawal or success. The refill since then is not included, because
    /// it is added when a retry asks.
    fn tokens(&self, _now: Ns) -> Option<f64> {
        let spent = self.state.load(Ordering::Relaxed) as u32 & self.spent_mask;
        Some(f64::from(self.reserve - spent) / MILLI)
    }
}

impl RetryBudget {
    #[inline(always)]
    fn swap(&self, state: u64, next: u64) -> Result<u64, u64> {
        self.state.compare_exchange_weak(state, next, Ordering::Relaxed, Ordering::Relaxed)
    }

    /// Withdraws from a budget with the default parameters, which are constants here.
    #[inline]
    pub(super) fn withdraw_standard(&self, now: Ns) -> Grant {
        const RESERVE: u32 = (RetryBudget::RESERVE * MILLI) as u32;
        const PER_SECOND: u32 = (RetryBudget::PER_SECOND * MILLI) as u32;
        let refill = |state| FINE.refilled(state, now, PER_SECOND);
        self.withdraw_unless_refused(FINE.spent_mask(), RESERVE, refill)
    }

    /// The layout is a constant in each branch, so that no division is left.
    fn withdraw_refilled(&self, now: Ns) -> Grant {
        let (reserve, per_second) = (self.reserve, self.per_second);
        if self.spent_mask == FINE.spent_mask() {
            let refill = |state| FINE.refilled(state, now, per_second);
            self.withdraw_unless_refused(FINE.spent_mask(), reserve, refill)
        } else {
            let refill = |state| COARSE.refilled(state, now, per_second);
            self.withdraw_unless_refused(COARSE.spent_mask(), reserve, refill)
        }
    }

    #[inline(always)]
    fn withdraw_unless_refused(
        &self,
        spent_mask: u32,
        reserve: u32,
        refill: impl Fn(u64) -> u64,
    ) -> Grant {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let refilled = refill(state);
            let is_enough = (refilled as u32 & spent_mask) + 1000 <= reserve;
            let swap = if is_enough {
                self.swap(state, refilled + 1000)
            } else if refilled == state {
                return Grant::Refused;
            } else {
                // Refused, with the refill counted so far.
                self.swap(state, refilled)
            };
            match swap {
                Ok(_) if is_enough => return Grant::Now(Withdrawal(1000)),
                Ok(_) => return Grant::Refused,
                Err(current) => state = current,
            }
        }
    }

    /// Adds to the budget; `spent_mask` is a parameter so that it can be a constant.
    #[inline(always)]
    pub(super) fn add(&self, spent_mask: u32, milli: u32) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let spent = state as u32 & spent_mask;
            // A full budget is the common case, and needs one load.
            if spent == 0 {
                return;
            }
            let next = state - u64::from(spent.min(milli));
            match self.swap(state, next) {
                Ok(_) => return,
                Err(current) => state = current,
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::FailureKind;

    #[test]
    fn budget_with_tokens_clamps_to_the_reserve() {
        for (tokens, left) in [(-1.0, 0.0), (f64::NAN, 0.0), (3.25, 3.25), (1e30, 10.0)] {
            let budget = RetryBudget::standard().with_tokens(tokens, u64::MAX);
            assert_eq!(budget.tokens(0), Some(left), "{tokens}");
        }
        for (tokens, left) in [(-1.0, 0.0), (3.25, 3.25), (1e30, 5000.0)] {
            let budget = RetryBudget::new(5000.0, 0.1).with_tokens(tokens, 7);
            assert_eq!(budget.tokens(0), Some(left), "{tokens}");
        }
    }
    use std::thread;

    const COST: Cost = Cost { kind: FailureKind::Server };

    fn take_all(budget: &RetryBudget) -> usize {
        // The bound ends the test if the budget never refuses.
        (0..20_000).take_while(|_| budget.withdraw(COST, 0) != Grant::Refused).count()
    }

    #[test]
    fn retry_budget_starts_full_and_refuses_below_one() {
        assert_eq!(take_all(&RetryBudget::standard()), 10);
        let uneven = RetryBudget::try_new(2.999, 0.1).unwrap();
        assert_eq!((take_all(&uneven), uneven.tokens(0)), (2, Some(0.999)));
        uneven.succeeded(None);
        assert_eq!((take_all(&uneven), uneven.tokens(0)), (1, Some(0.099)));
    }

    #[test]
    fn retry_budget_ten_successes_fund_exactly_one_retry() {
        let budget = RetryBudget::standard();
        take_all(&budget);
        for round in 0..3 {
            for success in 0..10 {
                assert_eq!(budget.withdraw(COST, 0), Grant::Refused, "round {round}, {success}");
                budget.succeeded(None);
            }
            assert_eq!(take_all(&budget), 1);
        }
    }

    #[test]
    fn retry_budget_success_and_refund_never_exceed_the_reserve() {
        let budget = RetryBudget::try_new(1.5, 0.7).unwrap();
        budget.succeeded(None);
        assert_eq!(budget.tokens(0), Some(1.5));
        let Grant::Now(withdrawal) = budget.withdraw(COST, 0) else { panic!("it is full") };
        budget.succeeded(Some(withdrawal));
        budget.refund(withdrawal);
        assert_eq!(budget.tokens(0), Some(1.5));
    }

    #[test]
    fn retry_budget_rejects_invalid_parameters() {
        for reserve in [0.0, 0.999, -1.0, 1e6 + 1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                RetryBudget::try_new(reserve, 0.1).err(),
                Some(PolicyError::Reserve),
                "{reserve}"
            );
        }
        for ratio in [-0.001, 1e6 + 1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                RetryBudget::try_new(10.0, ratio).err(),
                Some(PolicyError::Ratio),
                "{ratio}"
            );
        }
        let largest = RetryBudget::try_new(1e6, 1e6).unwrap();
        assert_eq!(largest.parameters(), (1e6, 1e6, 0.0));
        assert_eq!(largest.withdraw(COST, 0), Grant::Now(Withdrawal(1000)));
        largest.succeeded(None);
        assert_eq!(largest.tokens(0), Some(1e6));
        assert_eq!(RetryBudget::try_new(1.0, 0.0).unwrap().parameters(), (1.0, 0.0, 0.0));
    }

    #[test]
    #[should_panic(expected = "reserve")]
    fn retry_budget_panics_if_the_reserve_pays_no_retry() {
        let _ = RetryBudget::new(0.5, 0.1);
    }

    #[test]
    fn retry_budget_threads_drain_exactly_the_reserve() {
        let budget = RetryBudget::try_new(10_000.0, 0.1).unwrap();
        let granted: usize = thread::scope(|scope| {
            let takers = [(); 8].map(|()| scope.spawn(|| take_all(&budget)));
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert_eq!((granted, budget.tokens(0)), (10_000, Some(0.0)));
    }

    #[test]
    fn retry_budget_is_exact_under_contention() {
        let budget = RetryBudget::try_new(1000.0, 0.001).unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for i in 0..1000 {
                        if let Grant::Now(withdrawal) = budget.withdraw(COST, 0)
                            && i % 10 != 0
                        {
                            budget.refund(withdrawal);
                        }
                    }
                });
            }
        });
        // One in ten of 8,000 withdrawals was kept; the reserve was never empty, so none was
        // refused.
        assert_eq!(budget.tokens(0), Some(200.0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| budget.succeeded(None)));
            }
        });
        assert_eq!(budget.tokens(0), Some(208.0));
    }

    const SECOND: Ns = 1_000_000_000;
    const DAY: Ns = 86_400 * SECOND;
    /// The time of a process clock, far from 0 and not a whole tick.
    const START: Ns = (1 << 61) + 1;

    /// How many retries are granted at this time.
    fn granted_at(budget: &RetryBudget, now: Ns) -> usize {
        (0..20_000).take_while(|_| budget.withdraw(COST, now) != Grant::Refused).count()
    }

    #[test]
    fn retry_budget_standard_refills_one_per_second_to_the_reserve() {
        for origin in [0, START, Ns::MAX - 20 * DAY] {
            let budget = RetryBudget::standard();
            assert_eq!(granted_at(&budget, origin), 10);
            assert_eq!(granted_at(&budget, origin + SECOND - FINE.tick_ns), 0);
            assert_eq!(granted_at(&budget, origin + SECOND), 1);
            assert_eq!(granted_at(&budget, origin + 3 * SECOND), 2);
            assert_eq!(granted_at(&budget, origin + DAY), 10, "an idle day fills the reserve once");
        }
    }

    #[test]
    fn retry_budget_refill_loses_no_remainder() {
        for (per_second, reserve) in [(1.0, 10.0), (1.0, 2000.0), (0.5, 10.0), (7.0, 10.0)] {
            let budget = RetryBudget::new(reserve, 0.0).per_second(per_second);
            let total = granted_at(&budget, START) + asked_every(&budget, 13_700_000, 100);
            // 100 seconds of refill, asked for in steps that are no whole milliseconds.
            let refill = (100.0 * per_second) as usize;
            assert!((reserve as usize + refill - 1..=reserve as usize + refill).contains(&total));
        }
    }

    /// The retries granted to a caller that asks every `step` nanoseconds.
    fn asked_every(budget: &RetryBudget, step: Ns, seconds: u64) -> usize {
        let end = START + seconds * SECOND;
        (START..=end).step_by(step as usize).map(|now| granted_at(budget, now)).sum()
    }

    #[test]
    fn retry_budget_refill_counts_whole_milliseconds() {
        let budget = RetryBudget::new(1.0, 0.0).per_second(300.0);
        assert_eq!(granted_at(&budget, 0), 1);
        let millisecond = 1_000_000;
        // Three milliseconds pay 900 thousandths, the fourth the rest.
        assert_eq!((granted_at(&budget, 4 * millisecond - 1), budget.tokens(0)), (0, Some(0.9)));
        assert_eq!(granted_at(&budget, 4 * millisecond), 1);
        assert_eq!(budget.tokens(0), Some(0.0), "at the reserve the excess is cut off");
    }

    #[test]
    fn retry_budget_tokens_are_those_of_the_last_request() {
        let budget = RetryBudget::standard();
        granted_at(&budget, 0);
        assert_eq!(budget.tokens(5 * SECOND), Some(0.0));
        assert_eq!(granted_at(&budget, SECOND / 2), 0);
        assert_eq!(budget.tokens(5 * SECOND), Some(0.5));
        budget.succeeded(None);
        assert_eq!(budget.tokens(5 * SECOND), Some(0.6));
    }

    #[test]
    fn retry_budget_success_keeps_the_time_of_the_refill() {
        let budget = RetryBudget::standard();
        granted_at(&budget, 0);
        (0..5).for_each(|_| budget.succeeded(None));
        assert_eq!(granted_at(&budget, SECOND / 2), 1, "half from successes, half from time");
        budget.refill();
        assert_eq!(granted_at(&budget, SECOND / 2), 10);
    }

    // Threads read the clock before they withdraw, so times can arrive out of order.
    #[test]
    fn retry_budget_slightly_older_time_adds_nothing_twice() {
        let budget = RetryBudget::standard();
        assert_eq!(granted_at(&budget, START + 9 * SECOND), 10);
        for older in [1, SECOND, 9 * SECOND] {
            assert_eq!(granted_at(&budget, START + 9 * SECOND - older), 0);
        }
        assert_eq!(granted_at(&budget, START + 10 * SECOND), 1);
    }

    // A paused test clock that advanced, or a clock with another origin.
    #[test]
    fn retry_budget_keeps_its_tokens_after_its_clock_went_back() {
        for reserve in [10.0, 5000.0] {
            let budget = RetryBudget::new(reserve, 0.0).per_second(1.0);
            let later = START + DAY;
            (0..7).for_each(|_| assert_ne!(budget.withdraw(COST, later), Grant::Refused));
            assert_eq!(budget.withdraw(COST, START), Grant::Now(Withdrawal(1000)));
            assert_eq!(budget.tokens(0), Some(reserve - 8.0));
            // From here on the budget follows this clock.
            budget.withdraw(COST, START + SECOND);
            assert_eq!(budget.tokens(0), Some(reserve - 8.0));
        }
    }

    #[test]
    fn retry_budget_tolerates_a_clock_a_minute_behind_at_most() {
        let tokens = |behind: Ns| {
            let budget = RetryBudget::standard();
            granted_at(&budget, START);
            budget.withdraw(COST, START - behind);
            budget.withdraw(COST, START - behind + SECOND / 2);
            budget.tokens(0)
        };
        assert_eq!(tokens(BEHIND_MAX_NS), Some(0.0));
        assert_eq!(tokens(BEHIND_MAX_NS + 1_000), Some(0.5));
    }

    #[test]
    fn retry_budget_reference_lasts_a_hundred_days() {
        for (reserve, layout) in [(10.0, FINE), (1048.575, FINE), (1048.576, COARSE)] {
            let budget = RetryBudget::new(reserve, 0.0).per_second(1000.0);
            let all = reserve as usize;
            assert_eq!(granted_at(&budget, START), all);
            assert_eq!(granted_at(&budget, START + 99 * DAY), all);
            // Half of the range and more looks like a clock that went back, and adds nothing once.
            let half = layout.reference_max() / 2 * layout.tick_ns;
            let late = START + 99 * DAY + half + 2 * layout.tick_ns;
            assert_eq!(granted_at(&budget, late), 0);
            assert_eq!(granted_at(&budget, late + SECOND), all.min(1000));
        }
    }

    #[test]
    fn retry_budget_arithmetic_never_overflows() {
        for reserve in [1.0, 1000.0, 1e6] {
            for per_second in [0.001, 1.0, 1e6] {
                let budget = RetryBudget::new(reserve, 1e6).per_second(per_second);
                for now in [0, 1, Ns::MAX / 2, Ns::MAX, 1, Ns::MAX - 1, SECOND] {
                    budget.withdraw(COST, now);
                    budget.succeeded(None);
                    let tokens = budget.tokens(now).unwrap();
                    assert!((0.0..=reserve).contains(&tokens), "{tokens} of {reserve}");
                }
            }
        }
    }

    #[test]
    fn retry_budget_rejects_an_invalid_refill() {
        for per_second in [-1.0, 0.0009, 1e6 + 1.0, f64::NAN, f64::INFINITY] {
            let budget = RetryBudget::standard().try_per_second(per_second);
            assert_eq!(budget.err(), Some(PolicyError::PerSecond), "{per_second}");
        }
        for per_second in [0.0, 0.001, 1e6] {
            let budget = RetryBudget::standard().try_per_second(per_second).unwrap();
            assert_eq!(budget.parameters().2, per_second);
        }
    }

    #[test]
    #[should_panic(expected = "per_second")]
    fn retry_budget_panics_if_the_refill_is_negative() {
        let _ = RetryBudget::standard().per_second(-1.0);
    }

    #[test]
    fn retry_budget_refill_is_exact_under_contention() {
        let budget = RetryBudget::new(1000.0, 0.0).per_second(1.0);
        let granted: usize = thread::scope(|scope| {
            let takers = [(); 8].map(|()| {
                scope.spawn(|| -> usize {
                    (0..=50).map(|n| granted_at(&budget, START + n * SECOND)).sum()
                })
            });
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        // Threads that lag behind add nothing twice, and none of them loses a second.
        assert_eq!((granted, budget.tokens(0)), (1050, Some(0.0)));
    }
}
