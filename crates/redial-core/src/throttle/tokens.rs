//! gRPC's retry throttling: failures drain it, successes fill it (rulings G11 to G14).
//!
//! Invariant: `0 <= left <= max` at every instant that any thread can observe.

use super::{Bucket, MILLI};
use crate::sync::{AtomicU32, Ordering};
use crate::time::Ns;
use crate::{Cost, Grant, Problem, Taken};

/// A bucket that each retryable failure takes 1 from and each success adds `ratio` to; retries and
/// hedges are allowed while more than half is left.
#[derive(Debug)]
pub struct Tokens {
    /// Thousandths that are left.
    left: AtomicU32,
    max: u32,
    ratio: u32,
}

impl Tokens {
    /// A full bucket. Decimals of the ratio past the third are cut off (ruling G36).
    ///
    /// # Errors
    /// `max` is not a whole number in `(0, 1000]`, or the ratio is below 0.001.
    pub fn new(max: f64, ratio: f64) -> Result<Self, Problem> {
        let whole = max as u32;
        if !(1.0..=1000.0).contains(&max) || f64::from(whole) != max {
            return Err(Problem::MaxTokens);
        }
        // 0.29 × 1000 is 289.999...: what a decimal says is found by rounding past float noise.
        let milli = ratio * MILLI;
        let nearest = (milli + 0.5) as u32;
        let close = (f64::from(nearest) - milli).abs() < milli * 1e-9;
        let ratio = if close { nearest } else { milli as u32 };
        // A NaN and a negative number are cast to 0 too.
        if ratio == 0 {
            return Err(Problem::TokenRatio);
        }
        let max = whole * 1000;
        Ok(Tokens { left: AtomicU32::new(max), max, ratio: ratio.min(max) })
    }

    /// A bucket with other parameters that is as full as this one, in proportion (ruling G15).
    ///
    /// # Errors
    /// As for [`Tokens::new`].
    pub fn scaled(&self, max: f64, ratio: f64) -> Result<Self, Problem> {
        let scaled = Tokens::new(max, ratio)?;
        let left = u64::from(self.left.load(Ordering::Relaxed));
        let share = left * u64::from(scaled.max) / u64::from(self.max);
        // The product of two values of at most a million, divided by a larger one, fits.
        scaled.left.store(u32::try_from(share).unwrap_or(scaled.max), Ordering::Relaxed);
        Ok(scaled)
    }

    /// Whether it was made with these parameters.
    #[must_use]
    pub fn is_like(&self, other: &Tokens) -> bool {
        (self.max, self.ratio) == (other.max, other.ratio)
    }
}

impl Bucket for Tokens {
    fn failed(&self) {
        let mut left = self.left.load(Ordering::Relaxed);
        while left != 0 {
            let next = left.saturating_sub(1000);
            match self.left.compare_exchange_weak(left, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(current) => left = current,
            }
        }
    }

    fn take(&self, _cost: Cost, _now: Ns) -> Grant {
        // "Allowed while tokens > max / 2", without losing the half of an odd maximum.
        if 2 * self.left.load(Ordering::Relaxed) > self.max {
            Grant::Now(Taken(0))
        } else {
            Grant::Refused
        }
    }

    fn give_back(&self, _taken: Taken) {}

    #[inline]
    fn succeeded(&self, _taken: Option<Taken>) {
        let mut left = self.left.load(Ordering::Relaxed);
        while left != self.max {
            let next = (left + self.ratio).min(self.max);
            match self.left.compare_exchange_weak(left, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(current) => left = current,
            }
        }
    }

    fn tokens(&self, _now: Ns) -> Option<f64> {
        Some(f64::from(self.left.load(Ordering::Relaxed)) / MILLI)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Kind;
    use std::thread;

    const COST: Cost = Cost { kind: Kind::Server };

    fn allows(tokens: &Tokens) -> bool {
        tokens.take(COST, 0) == Grant::Now(Taken(0))
    }

    fn fail(tokens: &Tokens, times: usize) {
        (0..times).for_each(|_| tokens.failed());
    }

    #[test]
    fn retries_are_allowed_while_more_than_half_is_left() {
        // How many failures each maximum survives; of an odd one the half is not lost.
        for (max, survived) in [(1.0, 0), (2.0, 0), (3.0, 1), (4.0, 1), (5.0, 2), (1000.0, 499)] {
            let tokens = Tokens::new(max, 0.1).unwrap();
            fail(&tokens, survived);
            assert!(allows(&tokens), "{max} after {survived}");
            tokens.failed();
            assert!(!allows(&tokens), "{max} after {survived} and one");
        }
    }

    #[test]
    fn a_success_that_passes_the_half_by_a_thousandth_is_enough() {
        let tokens = Tokens::new(10.0, 0.001).unwrap();
        fail(&tokens, 5);
        assert!(!allows(&tokens));
        tokens.succeeded(None);
        assert_eq!((allows(&tokens), tokens.tokens(0)), (true, Some(5.001)));
    }

    #[test]
    fn it_is_never_below_zero_or_above_its_maximum() {
        let tokens = Tokens::new(2.0, 0.7).unwrap();
        tokens.succeeded(None);
        assert_eq!(tokens.tokens(0), Some(2.0));
        fail(&tokens, 5);
        assert_eq!(tokens.tokens(0), Some(0.0));
        tokens.succeeded(Some(Taken(0)));
        tokens.failed();
        assert_eq!(tokens.tokens(0), Some(0.0), "0.7 − 1 is not below zero");
        (0..9).for_each(|_| tokens.succeeded(None));
        assert_eq!(tokens.tokens(0), Some(2.0));
    }

    #[test]
    fn decimals_of_the_ratio_past_the_third_are_cut_off() {
        let cut = [
            (0.29, 0.29),
            (0.1, 0.1),
            (0.001, 0.001),
            (0.0019, 0.001),
            (0.9999, 0.999),
            (1.0005, 1.0),
            (2.5, 2.5),
            (1e300, 1000.0),
        ];
        for (written, meant) in cut {
            let tokens = Tokens::new(1000.0, written).unwrap();
            fail(&tokens, 1000);
            tokens.succeeded(None);
            assert_eq!(tokens.tokens(0), Some(meant), "{written}");
        }
        for ratio in [0.0, 0.0009, -0.1, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(Tokens::new(10.0, ratio).err(), Some(Problem::TokenRatio), "{ratio}");
        }
    }

    #[test]
    fn the_maximum_is_a_whole_number_up_to_a_thousand() {
        for max in [0.0, 0.5, 1.5, -1.0, 1000.5, 1001.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Tokens::new(max, 0.1).err(), Some(Problem::MaxTokens), "{max}");
        }
        for max in [1.0, 14.0, 1000.0] {
            assert_eq!(Tokens::new(max, 0.1).unwrap().tokens(0), Some(max));
        }
    }

    #[test]
    fn another_maximum_keeps_the_proportion() {
        let tokens = Tokens::new(1000.0, 0.1).unwrap();
        assert_eq!(tokens.scaled(1.0, 0.1).unwrap().tokens(0), Some(1.0), "full stays full");
        fail(&tokens, 250);
        assert_eq!(tokens.scaled(10.0, 0.1).unwrap().tokens(0), Some(7.5));
        assert_eq!(tokens.scaled(3.0, 0.1).unwrap().tokens(0), Some(2.25));
        fail(&tokens, 749);
        // A thousandth of a bucket, in whole thousandths, rounded down.
        assert_eq!(tokens.scaled(1.0, 0.1).unwrap().tokens(0), Some(0.001));
        let small = tokens.scaled(7.0, 0.1).unwrap();
        assert_eq!(small.tokens(0), Some(0.007));
        assert_eq!(small.scaled(1000.0, 0.1).unwrap().tokens(0), Some(1.0));
        fail(&tokens, 1);
        assert_eq!(tokens.scaled(1000.0, 0.5).unwrap().tokens(0), Some(0.0));
        assert_eq!(tokens.scaled(0.0, 0.1).err(), Some(Problem::MaxTokens));
    }

    #[test]
    fn failures_and_successes_are_exact_under_contention() {
        let tokens = Tokens::new(1000.0, 0.003).unwrap();
        fail(&tokens, 100);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fail(&tokens, 100));
                scope.spawn(|| (0..1000).for_each(|_| tokens.succeeded(None)));
            }
        });
        // Neither end is ever reached, so nothing is cut off.
        assert_eq!(tokens.tokens(0), Some(1000.0 - 100.0 - 400.0 + 12.0));
    }
}
