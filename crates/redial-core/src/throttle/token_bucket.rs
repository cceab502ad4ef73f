//! gRPC's retry throttling: failures drain the bucket, successes refill it (decisions G11 to G14).
//!
//! Invariant: `0 <= left <= max` at all times, for every thread. The tokens and the parameters
//! share one atomic, so that no count is lost while a config changes the parameters (G15).

use super::{Bucket, MILLI};
use crate::sync::{AtomicU64, Ordering};
use crate::time::Ns;
use crate::{Cost, Grant, PolicyError, Withdrawal};

/// A token bucket: each retryable failure removes 1, each success adds `ratio`; retries and hedges
/// are allowed while more than half of the tokens are left.
#[derive(Debug)]
pub struct TokenBucket(AtomicU64);

/// The content of the atomic, in thousandths; each value is at most a million and takes 20 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    left: u32,
    /// 0: no throttling.
    max: u32,
    ratio: u32,
}

const BITS: u32 = 20;

impl Level {
    fn unpack(packed: u64) -> Level {
        let part = |shift: u32| ((packed >> shift) & ((1 << BITS) - 1)) as u32;
        Level { left: part(0), max: part(BITS), ratio: part(2 * BITS) }
    }

    fn pack(self) -> u64 {
        let Level { left, max, ratio } = self;
        u64::from(left) | u64::from(max) << BITS | u64::from(ratio) << (2 * BITS)
    }

    fn failed(self) -> Level {
        Level { left: self.left.saturating_sub(1000), ..self }
    }

    fn succeeded(self) -> Level {
        Level { left: (self.left + self.ratio).min(self.max), ..self }
    }

    /// The same fill level, in proportion, with the parameters of another bucket.
    fn with_parameters_of(self, other: Level) -> Level {
        // A bucket without parameters becomes a full one.
        let (left, max) = if self.max == 0 { (1, 1) } else { (self.left, self.max) };
        let share = u64::from(left) * u64::from(other.max) / u64::from(max);
        // `share` is at most `other.max`, so it fits.
        Level { left: u32::try_from(share).unwrap_or(other.max), ..other }
    }
}

impl TokenBucket {
    /// A full bucket. Decimals of the ratio after the third are cut off (decision G36).
    ///
    /// # Errors
    /// `max` is not a whole number in `(0, 1000]`, or the ratio is below 0.001.
    pub fn new(max: f64, ratio: f64) -> Result<Self, PolicyError> {
        let whole = max as u32;
        if !(1.0..=1000.0).contains(&max) || f64::from(whole) != max {
            return Err(PolicyError::MaxTokens);
        }
        // 0.29 × 1000 is 289.999...: round if the result is within float noise of an integer.
        let milli = ratio * MILLI;
        let nearest = (milli + 0.5) as u32;
        let close = (f64::from(nearest) - milli).abs() < milli * 1e-9;
        let ratio = if close { nearest } else { milli as u32 };
        // The cast turns NaN and negative numbers into 0, too.
        if ratio == 0 {
            return Err(PolicyError::TokenRatio);
        }
        let max = whole * 1000;
        Ok(TokenBucket::at(Level { left: max, max, ratio: ratio.min(max) }))
    }

    /// A bucket without throttling, until it adopts parameters.
    #[must_use]
    pub fn none() -> Self {
        TokenBucket::at(Level { left: 0, max: 0, ratio: 0 })
    }

    fn at(level: Level) -> Self {
        TokenBucket(AtomicU64::new(level.pack()))
    }

    fn level(&self) -> Level {
        Level::unpack(self.0.load(Ordering::Relaxed))
    }

    /// Updates the level by compare-and-swap; an unchanged level is not written.
    fn change(&self, next: impl Fn(Level) -> Level) {
        // The atomic guards no other data.
        let relaxed = Ordering::Relaxed;
        let mut packed = self.0.load(relaxed);
        loop {
            let after = next(Level::unpack(packed)).pack();
            if after == packed {
                return;
            }
            match self.0.compare_exchange_weak(packed, after, relaxed, relaxed) {
                Ok(_) => return,
                Err(current) => packed = current,
            }
        }
    }

    /// Adopts the parameters of another bucket and keeps its own fill level in proportion (decision
    /// G15); a bucket without throttling becomes full.
    pub fn adopt_parameters(&self, other: &TokenBucket) {
        let other = other.level();
        self.change(|level| level.with_parameters_of(other));
    }

    /// Fills the bucket, for an operator who knows that an incident is over before enough calls
    /// have succeeded.
    pub fn refill(&self) {
        self.change(|level| Level { left: level.max, ..level });
    }
}

impl Bucket for TokenBucket {
    fn watches_calls(&self) -> bool {
        false
    }
    fn failed(&self) {
        self.change(Level::failed);
    }

    fn withdraw(&self, _cost: Cost, _now: Ns) -> Grant {
        let Level { left, max, .. } = self.level();
        // `tokens > max / 2` in integers, without rounding half of an odd maximum.
        if 2 * left > max || max == 0 { Grant::Now(Withdrawal(0)) } else { Grant::Refused }
    }

    fn refund(&self, _withdrawal: Withdrawal) {}

    fn succeeded(&self, _withdrawal: Option<Withdrawal>) {
        self.change(Level::succeeded);
    }

    fn tokens(&self, _now: Ns) -> Option<f64> {
        let Level { left, max, .. } = self.level();
        (max > 0).then(|| f64::from(left) / MILLI)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::FailureKind;
    use std::thread;

    const COST: Cost = Cost { kind: FailureKind::Server };

    fn allows(tokens: &TokenBucket) -> bool {
        tokens.withdraw(COST, 0) == Grant::Now(Withdrawal(0))
    }

    fn fail(tokens: &TokenBucket, times: usize) {
        (0..times).for_each(|_| tokens.failed());
    }

    #[test]
    fn token_bucket_allows_retries_above_half() {
        // The number of failures that each maximum tolerates; half of an odd maximum is not
        // rounded.
        for (max, survived) in [(1.0, 0), (2.0, 0), (3.0, 1), (4.0, 1), (5.0, 2), (1000.0, 499)] {
            let tokens = TokenBucket::new(max, 0.1).unwrap();
            fail(&tokens, survived);
            assert!(allows(&tokens), "{max} after {survived}");
            tokens.failed();
            assert!(!allows(&tokens), "{max} after {survived} and one");
        }
    }

    #[test]
    fn token_bucket_one_thousandth_above_half_is_enough() {
        let tokens = TokenBucket::new(10.0, 0.001).unwrap();
        fail(&tokens, 5);
        assert!(!allows(&tokens));
        tokens.succeeded(None);
        assert_eq!((allows(&tokens), tokens.tokens(0)), (true, Some(5.001)));
    }

    #[test]
    fn token_bucket_stays_between_zero_and_maximum() {
        let tokens = TokenBucket::new(2.0, 0.7).unwrap();
        tokens.succeeded(None);
        assert_eq!(tokens.tokens(0), Some(2.0));
        fail(&tokens, 5);
        assert_eq!(tokens.tokens(0), Some(0.0));
        tokens.succeeded(Some(Withdrawal(0)));
        tokens.failed();
        assert_eq!(tokens.tokens(0), Some(0.0), "0.7 − 1 is not below zero");
        (0..9).for_each(|_| tokens.succeeded(None));
        assert_eq!(tokens.tokens(0), Some(2.0));
    }

    #[test]
    fn token_bucket_ratio_is_truncated_to_three_decimals() {
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
            let tokens = TokenBucket::new(1000.0, written).unwrap();
            fail(&tokens, 1000);
            tokens.succeeded(None);
            assert_eq!(tokens.tokens(0), Some(meant), "{written}");
        }
        for ratio in [0.0, 0.0009, -0.1, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(
                TokenBucket::new(10.0, ratio).err(),
                Some(PolicyError::TokenRatio),
                "{ratio}"
            );
        }
    }

    #[test]
    fn token_bucket_maximum_is_an_integer_up_to_1000() {
        for max in [0.0, 0.5, 1.5, -1.0, 1000.5, 1001.0, f64::NAN, f64::INFINITY] {
            assert_eq!(TokenBucket::new(max, 0.1).err(), Some(PolicyError::MaxTokens), "{max}");
        }
        for max in [1.0, 14.0, 1000.0] {
            assert_eq!(TokenBucket::new(max, 0.1).unwrap().tokens(0), Some(max));
        }
    }

    /// The tokens left after adopting other parameters.
    fn after(left: u32, max: u32, other: (f64, f64)) -> Option<f64> {
        let tokens = TokenBucket::at(Level { left, max, ratio: 100 });
        tokens.adopt_parameters(&TokenBucket::new(other.0, other.1).unwrap());
        tokens.tokens(0)
    }

    #[test]
    fn token_bucket_new_parameters_keep_the_fill_level() {
        let full = 1_000_000;
        assert_eq!(after(full, full, (1.0, 0.1)), Some(1.0), "full stays full");
        assert_eq!(after(750_000, full, (10.0, 0.1)), Some(7.5));
        assert_eq!(after(750_000, full, (3.0, 0.1)), Some(2.25));
        // A thousandth of a bucket, rounded down to whole thousandths.
        assert_eq!(after(1_000, full, (1.0, 0.1)), Some(0.001));
        assert_eq!(after(1_000, full, (7.0, 0.1)), Some(0.007));
        assert_eq!(after(7, 7_000, (1000.0, 0.1)), Some(1.0));
        assert_eq!(after(0, full, (1000.0, 0.5)), Some(0.0));
        assert_eq!(after(6_300, 10_000, (10.0, 0.5)), Some(6.3), "another ratio moves nothing");
    }

    #[test]
    fn token_bucket_new_ratio_applies_from_then_on() {
        let tokens = TokenBucket::new(10.0, 0.1).unwrap();
        fail(&tokens, 4);
        tokens.adopt_parameters(&TokenBucket::new(10.0, 0.7).unwrap());
        tokens.succeeded(None);
        assert_eq!(tokens.tokens(0), Some(6.7));
    }

    #[test]
    fn token_bucket_refill_makes_it_full() {
        let tokens = TokenBucket::new(10.0, 0.1).unwrap();
        fail(&tokens, 8);
        assert!(!allows(&tokens));
        tokens.refill();
        assert_eq!(tokens.tokens(0), Some(10.0));
    }

    #[test]
    fn token_bucket_without_parameters_allows_everything() {
        let tokens = TokenBucket::none();
        fail(&tokens, 3);
        tokens.succeeded(None);
        assert_eq!((allows(&tokens), tokens.tokens(0)), (true, None));
        tokens.adopt_parameters(&TokenBucket::new(7.0, 0.5).unwrap());
        assert_eq!(tokens.tokens(0), Some(7.0), "the first ones find it full");
        fail(&tokens, 5);
        assert!(!allows(&tokens));
        tokens.adopt_parameters(&TokenBucket::none());
        assert_eq!((allows(&tokens), tokens.tokens(0)), (true, None));
    }

    #[test]
    fn token_bucket_packs_the_largest_parameters() {
        let level = Level { left: 999_999, max: 1_000_000, ratio: 1_000_000 };
        assert_eq!(Level::unpack(level.pack()), level);
        let level = Level { left: 1, max: 2, ratio: 3 };
        assert_eq!(Level::unpack(level.pack()), level);
    }

    #[test]
    fn token_bucket_loses_no_count_while_parameters_change() {
        let tokens = TokenBucket::new(1000.0, 0.003).unwrap();
        let (one, other) =
            (TokenBucket::new(1000.0, 0.001).unwrap(), TokenBucket::new(1000.0, 0.002).unwrap());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fail(&tokens, 200));
            }
            scope.spawn(|| {
                for _ in 0..1000 {
                    tokens.adopt_parameters(&one);
                    tokens.adopt_parameters(&other);
                }
            });
        });
        assert_eq!(tokens.tokens(0), Some(200.0));
    }

    #[test]
    fn token_bucket_is_exact_under_contention() {
        let tokens = TokenBucket::new(1000.0, 0.003).unwrap();
        fail(&tokens, 100);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fail(&tokens, 100));
                scope.spawn(|| (0..1000).for_each(|_| tokens.succeeded(None)));
            }
        });
        // Neither end of the range is reached, so nothing is cut off.
        assert_eq!(tokens.tokens(0), Some(1000.0 - 100.0 - 400.0 + 12.0));
    }
}
