//! The default throttle: a retry budget funded by successful calls (section B of
//! docs/decisions.md).
//!
//! Successes fund retries: with a ratio of 0.1, retries add at most one call in ten to the load on
//! a healthy server, and when the server fails, the reserve runs out and retries stop. The budget
//! bounds load amplification in total, which a maximum number of attempts per call does not.
//!
//! Invariant: `0 <= spent <= reserve` at all times, for every thread.

use super::{Bucket, MILLI};
use crate::sync::{AtomicU32, Ordering, const_unless_loom};
use crate::time::Ns;
use crate::{Cost, Grant, PolicyError, Withdrawal};

/// A retry budget that starts full at `reserve`: each retry and hedge withdraws 1, each successful
/// call adds `ratio`.
#[derive(Debug)]
pub struct RetryBudget {
    /// The missing amount in thousandths. 0 is full, so that a new budget is all zeros and a
    /// success that finds it full writes nothing.
    spent: AtomicU32,
    reserve: u32,
    ratio: u32,
}

impl RetryBudget {
    /// The default reserve.
    pub const RESERVE: f64 = 10.0;
    /// The default credit for a successful call.
    pub const RATIO: f64 = 0.1;
    /// The default credit in thousandths, as a constant for the fast path.
    pub(super) const RATIO_MILLI: u32 = (RetryBudget::RATIO * MILLI) as u32;

    const_unless_loom! {
        /// A full budget with numbers known at run time; both are stored in thousandths. In a
        /// `static`, use [`RetryBudget::new`].
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
            Ok(RetryBudget {
                spent: AtomicU32::new(0),
                reserve: (reserve * MILLI + 0.5) as u32,
                ratio: (ratio * MILLI + 0.5) as u32,
            })
        }
    }

    const_unless_loom! {
        /// A full budget; in a `static`, invalid numbers are a compile error.
        ///
        /// ```
        /// use redial_core::throttle::RetryBudget;
        ///
        /// static PATIENT: RetryBudget = RetryBudget::new(100.0, 0.1);
        /// assert_eq!(PATIENT.parameters(), (100.0, 0.1));
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

    const_unless_loom! {
        /// A full budget with the defaults: a reserve of 10, and one retry per ten successful
        /// calls.
        #[must_use]
        pub fn standard() -> Self {
            RetryBudget::new(RetryBudget::RESERVE, RetryBudget::RATIO)
        }
    }

    /// The reserve and the ratio.
    #[must_use]
    pub fn parameters(&self) -> (f64, f64) {
        (f64::from(self.reserve) / MILLI, f64::from(self.ratio) / MILLI)
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
    fn withdraw(&self, _cost: Cost, _now: Ns) -> Grant {
        let mut spent = self.spent.load(Ordering::Relaxed);
        while spent + 1000 <= self.reserve {
            let next = spent + 1000;
            match self.spent.compare_exchange_weak(
                spent,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Grant::Now(Withdrawal(1000)),
                Err(current) => spent = current,
            }
        }
        Grant::Refused
    }

    fn refund(&self, _withdrawal: Withdrawal) {
        self.add(1000);
    }

    #[inline(always)]
    fn succeeded(&self, _withdrawal: Option<Withdrawal>) {
        self.add(self.ratio);
    }

    fn tokens(&self, _now: Ns) -> Option<f64> {
        Some(f64::from(self.reserve - self.spent.load(Ordering::Relaxed)) / MILLI)
    }
}

impl RetryBudget {
    #[inline(always)]
    pub(super) fn add(&self, milli: u32) {
        let mut spent = self.spent.load(Ordering::Relaxed);
        // A full budget is the common case, and needs one load.
        while spent != 0 {
            let next = spent.saturating_sub(milli);
            let swap =
                self.spent.compare_exchange_weak(spent, next, Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => return,
                Err(current) => spent = current,
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::FailureKind;
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
        assert_eq!(largest.parameters(), (1e6, 1e6));
        assert_eq!(largest.withdraw(COST, 0), Grant::Now(Withdrawal(1000)));
        largest.succeeded(None);
        assert_eq!(largest.tokens(0), Some(1e6));
        assert_eq!(RetryBudget::try_new(1.0, 0.0).unwrap().parameters(), (1.0, 0.0));
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
}
