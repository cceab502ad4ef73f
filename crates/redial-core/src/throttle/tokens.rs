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
        while left > 0 {
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
        while left < self.max {
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
