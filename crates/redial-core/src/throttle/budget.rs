//! The default throttle: successes fund retries (section B of the rulings).
//!
//! Invariant: `0 <= spent <= reserve` at every instant that any thread can observe.

use super::{Bucket, MILLI};
use crate::sync::{AtomicU32, Ordering};
use crate::time::Ns;
use crate::{Cost, Grant, Problem, Taken};

/// A bucket that starts full at `reserve`: each retry and hedge takes 1, each successful call adds
/// `ratio`.
#[derive(Debug)]
pub struct Budget {
    /// Thousandths that are gone: 0 is full, so that an untouched budget is all zeros and a
    /// success that finds it full writes nothing.
    spent: AtomicU32,
    reserve: u32,
    ratio: u32,
}

impl Budget {
    /// The reserve of a budget that nobody named.
    pub const RESERVE: f64 = 10.0;
    /// What a success adds to a budget that nobody named.
    pub const RATIO: f64 = 0.1;

    /// A full budget. Both numbers are kept in thousandths; works in a `static`.
    ///
    /// # Errors
    /// The reserve is below 1, or a number is not one.
    pub const fn new(reserve: f64, ratio: f64) -> Result<Self, Problem> {
        if !(reserve >= 1.0 && reserve <= 1e6) {
            return Err(Problem::Reserve);
        }
        if !(ratio >= 0.0 && ratio <= 1e6) {
            return Err(Problem::Ratio);
        }
        Ok(Budget {
            spent: AtomicU32::new(0),
            reserve: (reserve * MILLI + 0.5) as u32,
            ratio: (ratio * MILLI + 0.5) as u32,
        })
    }

    /// A full budget with the default numbers: a reserve of 10, one retry in ten calls.
    #[must_use]
    pub const fn standard() -> Self {
        match Budget::new(Budget::RESERVE, Budget::RATIO) {
            Ok(budget) => budget,
            Err(_) => unreachable!(),
        }
    }

    /// The reserve, and what a success adds.
    #[must_use]
    pub fn parameters(&self) -> (f64, f64) {
        (f64::from(self.reserve) / MILLI, f64::from(self.ratio) / MILLI)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::standard()
    }
}

impl Bucket for Budget {
    #[inline]
    fn take(&self, _cost: Cost, _now: Ns) -> Grant {
        let mut spent = self.spent.load(Ordering::Relaxed);
        while spent + 1000 <= self.reserve {
            let next = spent + 1000;
            match self.spent.compare_exchange_weak(
                spent,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Grant::Now(Taken(1000)),
                Err(current) => spent = current,
            }
        }
        Grant::Refused
    }

    fn give_back(&self, _taken: Taken) {
        self.add(1000);
    }

    #[inline]
    fn succeeded(&self, _taken: Option<Taken>) {
        self.add(self.ratio);
    }

    fn tokens(&self, _now: Ns) -> Option<f64> {
        Some(f64::from(self.reserve - self.spent.load(Ordering::Relaxed)) / MILLI)
    }
}

impl Budget {
    #[inline]
    fn add(&self, milli: u32) {
        let mut spent = self.spent.load(Ordering::Relaxed);
        while spent > 0 {
            let next = spent.saturating_sub(milli);
            match self.spent.compare_exchange_weak(
                spent,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(current) => spent = current,
            }
        }
    }
}
