//! The parameters of a latency estimator: quantile, bounds, and the minimum number of samples.
//!
//! Invariant: a [`HedgeAt`] has no [`PolicyError`], and never changes.

use core::time::Duration;

use super::SAMPLES_MAX;
use super::estimator_state::{FRACTION, STEP};
use crate::PolicyError;
use crate::time::{NEVER, Ns, ms, ns};

/// The smallest supported quantile.
pub const QUANTILE_MIN: f64 = 0.001;
/// The largest supported quantile: recent calls do not contain enough samples for a rarer one.
pub const QUANTILE_MAX: f64 = 0.999;

/// Hedging at a quantile of the recent latency.
///
/// ```
/// use redial_core::{HedgeAt, PolicyError, ms};
///
/// const SLOW: HedgeAt = HedgeAt::quantile(0.95).floor(ms(5)).cap(ms(500)).samples(200).build();
/// assert_eq!(SLOW.share(), 0.95);
///
/// let wrong = HedgeAt::quantile(0.95).floor(ms(5)).cap(ms(4)).try_build();
/// assert_eq!(wrong, Err(PolicyError::FloorAboveCap));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeAt {
    quantile: f64,
    pub(super) floor: Ns,
    pub(super) cap: Ns,
    pub(super) samples: u32,
    /// The share of a step for a latency below the estimate, in units of 2^-24.
    pub(super) below: u32,
    /// The number of samples after which steps have their final size.
    pub(super) settled: u32,
}

impl HedgeAt {
    /// The default minimum delay.
    pub const FLOOR: Duration = ms(1);
    /// The default minimum number of samples.
    pub const SAMPLES: u32 = 100;

    /// Hedges at this quantile of the latency, as a share: 0.99 is the 99th percentile.
    pub const fn quantile(share: f64) -> HedgeAtBuilder {
        HedgeAtBuilder {
            quantile: share,
            floor: HedgeAt::FLOOR,
            cap: Duration::MAX,
            samples: HedgeAt::SAMPLES,
        }
    }

    /// The quantile, as a share.
    #[must_use]
    pub const fn share(&self) -> f64 {
        self.quantile
    }
}

/// Builds a [`HedgeAt`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a builder does nothing until it is built"]
pub struct HedgeAtBuilder {
    quantile: f64,
    floor: Duration,
    cap: Duration,
    samples: u32,
}

impl HedgeAtBuilder {
    /// The minimum delay; 1 ms by default.
    pub const fn floor(mut self, shortest: Duration) -> Self {
        self.floor = shortest;
        self
    }

    /// The maximum delay; unlimited by default. A cap below the quantile sends more hedges than the
    /// quantile would.
    pub const fn cap(mut self, longest: Duration) -> Self {
        self.cap = longest;
        self
    }

    /// The minimum number of samples before the delay follows the estimate; 100 by default.
    pub const fn samples(mut self, least: u32) -> Self {
        self.samples = least;
        self
    }

    /// Builds; in a `const` or `static`, invalid parameters are a compile error.
    ///
    /// # Panics
    /// If the parameters are invalid; [`HedgeAtBuilder::try_build`] returns the [`PolicyError`]
    /// instead.
    #[must_use]
    pub const fn build(self) -> HedgeAt {
        match self.try_build() {
            Ok(at) => at,
            Err(problem) => panic!("{}", problem.text()),
        }
    }

    /// Builds from parameters known at run time.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub const fn try_build(self) -> Result<HedgeAt, PolicyError> {
        let HedgeAtBuilder { quantile, samples, .. } = self;
        let (floor, cap) = (ns(self.floor), ns(self.cap));
        if !(quantile >= QUANTILE_MIN && quantile <= QUANTILE_MAX) {
            return Err(PolicyError::Quantile);
        }
        if floor > cap || floor == NEVER {
            return Err(PolicyError::FloorAboveCap);
        }
        if samples == 0 || samples > SAMPLES_MAX {
            return Err(PolicyError::Samples);
        }
        let below = ((1.0 - quantile) * (1 << 24) as f64 + 0.5) as u32;
        let rare = if quantile > 0.5 { 1.0 - quantile } else { quantile };
        // The step size that converges fastest after n samples is 1 / (n × density). In the tail of
        // typical latencies, the density per octave is about 1.5 times the share of the tail.
        let octaves = STEP as f64 / (1 << FRACTION) as f64;
        let settled = (1.0 / (1.5 * rare * octaves)) as u32;
        let settled = if settled > SAMPLES_MAX { SAMPLES_MAX } else { settled };
        Ok(HedgeAt { quantile, floor, cap, samples, below, settled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hedge_at_rejects_invalid_parameters() {
        let of = HedgeAt::quantile;
        for share in [0.0, 0.000_99, 0.999_1, 1.0, -0.5, 99.0, f64::NAN, f64::INFINITY] {
            assert_eq!(of(share).try_build(), Err(PolicyError::Quantile), "{share}");
        }
        for share in [QUANTILE_MIN, 0.5, QUANTILE_MAX] {
            assert_eq!(of(share).build().share(), share);
        }
        assert!(of(0.9).floor(ms(7)).cap(ms(7)).try_build().is_ok());
        assert_eq!(of(0.9).floor(ms(8)).cap(ms(7)).try_build(), Err(PolicyError::FloorAboveCap));
        assert_eq!(of(0.9).cap(Duration::ZERO).try_build(), Err(PolicyError::FloorAboveCap));
        assert_eq!(of(0.9).floor(Duration::MAX).try_build(), Err(PolicyError::FloorAboveCap));
        assert!(of(0.9).floor(Duration::ZERO).cap(Duration::ZERO).try_build().is_ok());
        for (samples, fits) in [(0, false), (1, true), (SAMPLES_MAX, true), (4096, false)] {
            let built = of(0.9).samples(samples).try_build();
            assert_eq!(built.err(), (!fits).then_some(PolicyError::Samples), "{samples}");
        }
    }

    #[test]
    fn hedge_at_rounds_shares_and_bounds_settling() {
        let of = |share| HedgeAt::quantile(share).build();
        // 0.1 × 2^24 is 1677721.6.
        assert_eq!((of(0.9).below, of(0.5).below), (1_677_722, 1 << 23));
        assert_eq!(of(0.999).settled, SAMPLES_MAX);
        assert!(of(0.9).settled < SAMPLES_MAX);
        assert_eq!(of(0.9).settled, of(0.1).settled, "both are as rare");
    }

    #[test]
    #[should_panic(expected = "write 0.99 for the 99th percentile")]
    fn hedge_at_percentage_error_shows_how_to_write_it() {
        let _ = HedgeAt::quantile(99.0).build();
    }
}
