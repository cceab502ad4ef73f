//! The state of a latency estimator, packed into 64 bits: the estimate and the win rate of hedges.
//!
//! Invariant: each field stays within its bits, for any number of any latencies.

use super::{HedgeAt, PROBE_AFTER, SAMPLES_MAX, WIN_RATE_RESUME, WIN_RATE_STOP, WIN_RATE_WINDOW};
use crate::time::Ns;

/// The bits of a fraction of an octave.
pub(super) const FRACTION: u32 = 22;
pub(super) const OCTAVE: u32 = 1 << FRACTION;
/// The size of a step, divided between moving up and moving down.
pub(super) const STEP: u32 = OCTAVE / 8;

const ESTIMATE_BITS: u32 = 6 + FRACTION;
pub(super) const SAMPLES_BITS: u32 = 12;
const RATE_BITS: u32 = 10;
const WINDOW_BITS: u32 = 5;
const SLOW_BITS: u32 = 8;
pub(super) const RATE_FULL: u32 = (1 << RATE_BITS) - 1;
const STOP_BELOW: u32 = (WIN_RATE_STOP * RATE_FULL as f64) as u32;
const RESUME_AT: u32 = (WIN_RATE_RESUME * RATE_FULL as f64) as u32;

// The last bit is the flag.
const _: () = assert!(ESTIMATE_BITS + SAMPLES_BITS + RATE_BITS + WINDOW_BITS + SLOW_BITS + 1 == 64);
const _: () = assert!(WIN_RATE_WINDOW < 1 << WINDOW_BITS && PROBE_AFTER < 1 << SLOW_BITS);

/// The unpacked state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EstimatorState {
    /// The quantile on the logarithmic scale.
    pub(super) estimate: u32,
    pub(super) samples: u32,
    /// The win rate, in units of 1 / [`RATE_FULL`].
    pub(super) rate: u32,
    /// The number of hedges in the win rate, up to [`WIN_RATE_WINDOW`].
    pub(super) scored_hedges: u32,
    /// While stopped: the number of slow calls before the next probe; 0: the next calls hedge.
    pub(super) slow_until_probe: u32,
    pub(super) stopped: bool,
}

impl EstimatorState {
    /// Moves the estimate by a sample that was above it, or not.
    pub(super) fn sample(&mut self, latency: u32, above: bool, at: HedgeAt) {
        if self.samples == 0 {
            self.estimate = latency;
            self.count();
            return;
        }
        // Steps start large, because few samples say little about the quantile.
        let step = (u64::from(STEP) * u64::from(at.settled) / u64::from(self.samples))
            .clamp(u64::from(STEP), u64::from(OCTAVE));
        let down = (step * u64::from(at.below)) >> 24;
        // Both are below an octave.
        let (up, down) = ((step - down) as u32, down as u32);
        if above {
            self.estimate = (self.estimate + up).min((1 << ESTIMATE_BITS) - 1);
            self.slow_until_probe = self.slow_until_probe.saturating_sub(1);
        } else {
            self.estimate = self.estimate.saturating_sub(down);
        }
        self.count();
    }

    pub(super) fn count(&mut self) {
        self.samples = (self.samples + 1).min(SAMPLES_MAX);
    }

    pub(super) fn count_hedge(&mut self) {
        self.scored_hedges = (self.scored_hedges + 1).min(WIN_RATE_WINDOW);
    }

    /// Stops or resumes hedging; `slow_until_probe` applies if it is stopped.
    pub(super) fn update_stopped(&mut self, slow_until_probe: u32) {
        if self.stopped {
            self.stopped = self.rate < RESUME_AT;
        } else {
            self.stopped = self.scored_hedges == WIN_RATE_WINDOW && self.rate < STOP_BELOW;
        }
        self.slow_until_probe = if self.stopped { slow_until_probe } else { 0 };
    }
}

impl From<u64> for EstimatorState {
    fn from(mut bits: u64) -> Self {
        let mut take = |width: u32| {
            let low = bits & ((1 << width) - 1);
            bits >>= width;
            low as u32
        };
        EstimatorState {
            estimate: take(ESTIMATE_BITS),
            samples: take(SAMPLES_BITS),
            rate: take(RATE_BITS),
            scored_hedges: take(WINDOW_BITS),
            slow_until_probe: take(SLOW_BITS),
            stopped: take(1) == 1,
        }
    }
}

impl From<EstimatorState> for u64 {
    fn from(state: EstimatorState) -> u64 {
        let fields = [
            (u32::from(state.stopped), 1),
            (state.slow_until_probe, SLOW_BITS),
            (state.scored_hedges, WINDOW_BITS),
            (state.rate, RATE_BITS),
            (state.samples, SAMPLES_BITS),
            (state.estimate, ESTIMATE_BITS),
        ];
        fields.into_iter().fold(0, |bits, (value, width)| {
            debug_assert!(value >> width == 0, "{value} does not fit into {width} bits");
            bits << width | u64::from(value)
        })
    }
}

/// A duration on a scale on which each doubling is one octave. Within an octave the scale is
/// linear: only order and distance in octaves matter.
pub(super) fn scale(span: Ns) -> u32 {
    let span = span.max(1);
    let octave = span.ilog2();
    // The bits below the highest one, as a fraction.
    let fraction =
        if octave > FRACTION { span >> (octave - FRACTION) } else { span << (FRACTION - octave) };
    (octave << FRACTION) + (fraction as u32 & (OCTAVE - 1))
}

/// The duration at this point of the scale, rounded down.
pub(super) fn unscale(scaled: u32) -> Ns {
    let octave = scaled >> FRACTION;
    let mantissa = u64::from(OCTAVE | scaled & (OCTAVE - 1));
    if octave > FRACTION {
        mantissa << (octave - FRACTION)
    } else {
        mantissa >> (FRACTION - octave)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Random;
    use crate::time::NEVER;

    const MS: Ns = 1_000_000;

    #[test]
    fn estimator_state_continues_at_a_threshold() {
        let state = EstimatorState {
            estimate: 1,
            samples: 1,
            rate: 0,
            scored_hedges: WIN_RATE_WINDOW,
            slow_until_probe: 0,
            stopped: false,
        };
        for (rate, stopped, then) in [
            (STOP_BELOW, false, false),
            (STOP_BELOW - 1, false, true),
            (RESUME_AT, true, false),
            (RESUME_AT - 1, true, true),
        ] {
            let mut state = EstimatorState { rate, stopped, ..state };
            state.update_stopped(7);
            let slow_until_probe = if then { 7 } else { 0 };
            assert_eq!(
                (state.stopped, state.slow_until_probe),
                (then, slow_until_probe),
                "{rate}, stopped {stopped}"
            );
        }
    }

    #[test]
    fn estimator_state_scale_is_monotonic_and_precise() {
        let mut random = Random::new(5);
        for _ in 0..100_000 {
            let shift = (random.bits() % 64) as u32;
            let (one, other) = (random.bits() >> shift, random.bits() >> shift);
            let (less, more) = (one.min(other), one.max(other));
            assert!(scale(less) <= scale(more), "{less} {more}");
            let back = unscale(scale(one));
            assert!(back <= one.max(1) && one.max(1) - back <= one >> 20, "{one} {back}");
        }
        for span in [0, 1, 2, 3, (1 << 22) - 1, 1 << 22, (1 << 22) + 1] {
            assert_eq!(unscale(scale(span)), span.max(1), "small spans are exact");
        }
        assert_eq!(scale(NEVER), (1 << ESTIMATE_BITS) - 1);
        assert_eq!(scale(8 * MS) - scale(4 * MS), OCTAVE);
    }

    #[test]
    fn estimator_state_packs_every_field_at_its_maximum() {
        let most = EstimatorState {
            estimate: (1 << ESTIMATE_BITS) - 1,
            samples: SAMPLES_MAX,
            rate: RATE_FULL,
            scored_hedges: (1 << WINDOW_BITS) - 1,
            slow_until_probe: (1 << SLOW_BITS) - 1,
            stopped: true,
        };
        assert_eq!((u64::from(most), EstimatorState::from(NEVER)), (NEVER, most));
        let mixed = EstimatorState {
            estimate: 5,
            samples: 0,
            rate: 9,
            scored_hedges: 0,
            slow_until_probe: 3,
            stopped: false,
        };
        assert_eq!(EstimatorState::from(u64::from(mixed)), mixed);
    }
}
