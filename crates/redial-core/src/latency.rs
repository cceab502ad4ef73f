//! A latency estimator for hedging: a quantile of the recent attempt latency of a method, and
//! whether hedges win often enough to be worth their load.
//!
//! The state is one atomic. The quantile `q` is estimated by stochastic approximation: each latency
//! moves the estimate up by `step × q` if it is above the estimate, and down by `step × (1 - q)`
//! otherwise. In equilibrium the share `q` of all latencies is below the estimate, for any
//! distribution, so hedges sent at the estimate are the share `1 - q` of calls in the long run.
//! Only "above or below" matters. An attempt that was cancelled because its hedge won is therefore
//! as good a sample as one that completed: it was above the estimate when the hedge started.
//!
//! Steps are on a logarithmic scale, so that microseconds and minutes work alike: a step is an
//! eighth of an octave (a doubling). After a change of the distribution, the estimate rises by an
//! octave in `8 / q` latencies above it and falls by an octave in `8 / (1 - q)` latencies below it.
//! "Recent" thus means about `8 / (1 - q)` calls: 800 for the 99th percentile, 160 for the 95th.
//!
//! The win rate is a moving average over the hedges. Below [`WIN_RATE_STOP`], calls stop hedging by
//! time, except for an occasional probe; from [`WIN_RATE_RESUME`] on they hedge again.
//!
//! Invariant: every change is one compare-and-swap of the whole state, so readers see a consistent
//! snapshot. The same inputs in the same order give the same state: no clock is read and no random
//! number drawn.

mod call_latency;
mod estimator_state;
mod hedge_at;

pub use call_latency::CallLatency;
pub use hedge_at::{HedgeAt, HedgeAtBuilder, QUANTILE_MAX, QUANTILE_MIN};

use core::time::Duration;

use crate::HedgeDelay;
use crate::sync::{AtomicU64, Ordering, const_unless_loom};
use crate::time::{Ns, duration};
use estimator_state::{EstimatorState, OCTAVE, RATE_FULL, SAMPLES_BITS, scale, unscale};

/// The maximum count of samples, and so the largest minimum that a [`HedgeAt`] can require.
pub const SAMPLES_MAX: u32 = (1 << SAMPLES_BITS) - 1;
/// Below this win rate, calls stop hedging by time.
pub const WIN_RATE_STOP: f64 = 0.1;
/// From this win rate on, they hedge again; well above [`WIN_RATE_STOP`], so that hedging does not
/// flap.
pub const WIN_RATE_RESUME: f64 = 0.3;
/// The number of hedges in the moving average, and the number needed before it is used.
pub const WIN_RATE_WINDOW: u32 = 16;
/// While hedging is stopped: the number of slow calls before a probe is sent.
pub const PROBE_AFTER: u32 = 16;

/// How far the estimate may have moved while a call waited for the estimate of its start time. A
/// hedge within this distance counts as above; otherwise a busy method would lose many samples and
/// its estimate would be too low. A larger distance would let concurrent calls, which all waited
/// for the same estimate, push it up without bound.
const DRIFT_MAX: u32 = OCTAVE / 4;

/// Estimates the latency of one method, and whether hedging it is worthwhile.
#[derive(Debug)]
pub struct LatencyEstimator {
    /// An [`EstimatorState`]. Accesses are relaxed, because the atomic guards no other data.
    state: AtomicU64,
    at: HedgeAt,
}

/// A snapshot of a [`LatencyEstimator`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LatencyEstimate {
    /// The estimated quantile, before floor and cap; `None` before the first sample.
    pub estimate: Option<Duration>,
    /// The number of samples, up to [`SAMPLES_MAX`].
    pub samples: u32,
    /// The hedging delay of a call that starts now; `None`: too few samples, the policy's delay
    /// applies.
    pub delay: Option<HedgeDelay>,
    /// The share of recent hedges that won; `None` before the first one.
    pub win_rate: Option<f64>,
    /// Whether hedging has stopped because hedges do not win. Probes are still sent.
    pub is_stopped: bool,
}

impl LatencyEstimator {
    const_unless_loom! {
        /// An estimator without samples; works in a `static`.
        #[must_use]
        pub fn new(at: HedgeAt) -> Self {
            LatencyEstimator { state: AtomicU64::new(0), at }
        }
    }

    /// The hedging delay of a call that starts now; `None` if there are too few samples.
    #[must_use]
    pub fn delay(&self) -> Option<HedgeDelay> {
        self.delay_of(EstimatorState::from(self.state.load(Ordering::Relaxed)))
    }

    /// Records the latency of an attempt.
    pub fn record_latency(&self, latency: Ns) {
        let latency = scale(latency);
        self.change(|state| {
            state.sample(latency, latency > state.estimate, self.at);
            true
        });
    }

    /// Records that an attempt was cancelled after `waited`, so that its latency is at least that.
    /// If the latency may be on either side of the estimate, the sample is counted without moving
    /// it: otherwise, with hedges that always win before the estimate, the minimum number of
    /// samples would never be reached.
    pub fn record_latency_above(&self, waited: Ns) {
        let waited = scale(waited);
        self.change(|state| {
            if waited >= state.estimate {
                state.sample(waited, true, self.at);
            } else {
                state.count();
            }
            true
        });
    }

    /// Records that a hedge started after `waited`. Returns whether the attempt counts as a sample
    /// above the estimate, which it waited for as of the start of its call; if not, nothing is
    /// counted yet.
    pub fn record_hedge_sent(&self, waited: Ns) -> bool {
        let waited = scale(waited);
        self.change(|state| {
            let known = waited.saturating_add(DRIFT_MAX) >= state.estimate;
            if known {
                state.sample(waited, true, self.at);
            }
            known
        })
    }

    /// Records that a hedge started by the delay finished before the attempt that it duplicated.
    pub fn hedge_won(&self) {
        self.change(|state| {
            state.count_hedge();
            state.rate += (RATE_FULL - state.rate).div_ceil(state.scored_hedges);
            state.update_stopped(0);
            true
        });
    }

    /// Records that a hedge started by the delay did not win.
    pub fn hedge_lost(&self) {
        self.change(|state| {
            state.count_hedge();
            state.rate -= state.rate.div_ceil(state.scored_hedges);
            state.update_stopped(PROBE_AFTER);
            true
        });
    }

    /// A snapshot of the estimates.
    #[must_use]
    pub fn read(&self) -> LatencyEstimate {
        let state = EstimatorState::from(self.state.load(Ordering::Relaxed));
        LatencyEstimate {
            estimate: (state.samples > 0).then(|| duration(unscale(state.estimate))),
            samples: state.samples,
            delay: self.delay_of(state),
            win_rate: (state.scored_hedges > 0)
                .then(|| f64::from(state.rate) / f64::from(RATE_FULL)),
            is_stopped: state.stopped,
        }
    }

    fn delay_of(&self, state: EstimatorState) -> Option<HedgeDelay> {
        if state.samples < self.at.samples {
            None
        } else if state.stopped && state.slow_until_probe > 0 {
            Some(HedgeDelay::Never)
        } else {
            Some(HedgeDelay::After(unscale(state.estimate).clamp(self.at.floor, self.at.cap)))
        }
    }

    /// Updates the state by compare-and-swap; returns `false` if the function leaves it unchanged.
    fn change(&self, change: impl Fn(&mut EstimatorState) -> bool) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let mut state = EstimatorState::from(now);
            if !change(&mut state) {
                return false;
            }
            let next = u64::from(state);
            match self.state.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(current) => now = current,
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Random;
    use crate::time::NEVER;

    const MS: Ns = 1_000_000;

    fn estimator(quantile: f64) -> LatencyEstimator {
        LatencyEstimator::new(HedgeAt::quantile(quantile).samples(1).build())
    }

    fn estimate(estimator: &LatencyEstimator) -> Ns {
        unscale(EstimatorState::from(estimator.state.load(Ordering::Relaxed)).estimate)
    }

    #[test]
    fn latency_estimator_accepts_any_duration() {
        for quantile in [hedge_at::QUANTILE_MIN, 0.5, hedge_at::QUANTILE_MAX] {
            for spans in [[0, 0], [NEVER, NEVER], [0, NEVER], [1, NEVER - 1]] {
                let estimator = estimator(quantile);
                for turn in 0..10_000 {
                    estimator.record_latency(spans[turn % 2]);
                    estimator.record_latency_above(spans[turn % 2]);
                    estimator.record_hedge_sent(spans[turn / 2 % 2]);
                }
                assert!(estimate(&estimator) >= 1);
                assert_eq!(estimator.read().samples, SAMPLES_MAX);
            }
        }
    }

    #[test]
    fn latency_estimator_waits_for_the_minimum_of_samples() {
        let estimator = LatencyEstimator::new(HedgeAt::quantile(0.9).samples(3).build());
        assert_eq!((estimator.delay(), estimator.read().estimate), (None, None));
        estimator.record_latency(7 * MS);
        assert_eq!(estimate(&estimator), 7 * MS);
        estimator.record_latency(7 * MS);
        assert_eq!(estimator.delay(), None);
        estimator.record_latency(7 * MS);
        assert_eq!(estimator.delay(), Some(HedgeDelay::After(estimate(&estimator))));
        assert_eq!(estimator.read().samples, 3);
    }

    #[test]
    fn latency_estimator_clamps_to_floor_and_cap() {
        let at = HedgeAt::quantile(0.9).floor(duration(5 * MS)).cap(duration(50 * MS)).samples(1);
        for (latency, delay) in [(0, 5), (4, 5), (5, 5), (20, 20), (50, 50), (51, 50), (9_999, 50)]
        {
            let estimator = LatencyEstimator::new(at.build());
            estimator.record_latency(latency * MS);
            assert_eq!(estimator.delay(), Some(HedgeDelay::After(delay * MS)), "{latency} ms");
        }
    }

    #[test]
    fn latency_estimator_ignores_samples_on_an_unknown_side() {
        let estimator = estimator(0.9);
        estimator.record_latency(100 * MS);
        assert!(!estimator.record_hedge_sent(80 * MS), "more than a quarter of an octave away");
        assert_eq!((estimate(&estimator), estimator.read().samples), (100 * MS, 1));
        estimator.record_latency_above(99 * MS);
        assert_eq!((estimate(&estimator), estimator.read().samples), (100 * MS, 2));
        estimator.record_latency_above(100 * MS);
        let above = estimate(&estimator);
        assert!(above > 100 * MS && estimator.record_hedge_sent(above - above / 8));
        assert_eq!(estimator.read().samples, 4);
    }

    /// Records hedges of which `percent` win, and returns how often hedging stopped or resumed.
    fn run_hedges(
        estimator: &LatencyEstimator,
        hedges: u32,
        percent: u64,
        random: &mut Random,
    ) -> u32 {
        let mut switches = 0;
        for _ in 0..hedges {
            let before = estimator.read().is_stopped;
            if random.bits() % 100 < percent {
                estimator.hedge_won();
            } else {
                estimator.hedge_lost();
            }
            switches += u32::from(estimator.read().is_stopped != before);
        }
        switches
    }

    #[test]
    fn latency_hedges_that_never_win_stop_after_sixteen() {
        let estimator = estimator(0.9);
        estimator.record_latency(10 * MS);
        (1..WIN_RATE_WINDOW).for_each(|_| estimator.hedge_lost());
        assert_eq!((estimator.read().is_stopped, estimator.read().win_rate), (false, Some(0.0)));
        estimator.hedge_lost();
        assert_eq!(
            (estimator.read().is_stopped, estimator.delay()),
            (true, Some(HedgeDelay::Never))
        );
    }

    #[test]
    fn latency_probe_follows_sixteen_slow_calls_while_stopped() {
        let estimator = estimator(0.5);
        estimator.record_latency(10 * MS);
        (0..WIN_RATE_WINDOW).for_each(|_| estimator.hedge_lost());
        for slow_until_probe in 1..=PROBE_AFTER {
            assert_eq!(
                estimator.delay(),
                Some(HedgeDelay::Never),
                "before slow call {slow_until_probe}"
            );
            estimator.record_latency(1);
            estimator.record_latency(NEVER);
        }
        assert!(matches!(estimator.delay(), Some(HedgeDelay::After(_))), "a probe");
        estimator.hedge_lost();
        assert_eq!(estimator.delay(), Some(HedgeDelay::Never));
        (0..PROBE_AFTER).for_each(|_| estimator.record_latency(NEVER));
        // From 0 to 0.3, closing a sixteenth of the gap to 1 with each win.
        for won in 1..=6 {
            assert!(estimator.read().is_stopped);
            estimator.hedge_won();
            assert!(matches!(estimator.delay(), Some(HedgeDelay::After(_))), "after win {won}");
        }
        assert!(!estimator.read().is_stopped);
    }

    #[test]
    fn latency_stop_decision_does_not_flap() {
        let mut random = Random::new(3);
        for (percent, stops, most) in
            [(100, false, 0), (50, false, 0), (30, false, 20), (2, true, 1)]
        {
            let estimator = estimator(0.9);
            // A win rate of 30 % is the threshold: there it switches once in a hundred hedges.
            let switches = run_hedges(&estimator, 2_000, percent, &mut random);
            assert!(switches <= most, "{percent} %: {switches} switches");
            assert_eq!(estimator.read().is_stopped, stops, "{percent} %");
        }
    }

    #[test]
    fn latency_win_rate_is_a_mean_over_sixteen_hedges() {
        let estimator = estimator(0.9);
        estimator.hedge_won();
        estimator.hedge_lost();
        let rate =
            |estimator: &LatencyEstimator| (estimator.read().win_rate.unwrap() * 100.0) as u32;
        assert_eq!(rate(&estimator), 49);
        (0..200).for_each(|_| estimator.hedge_won());
        assert_eq!(rate(&estimator), 100);
        (0..16).for_each(|_| estimator.hedge_lost());
        assert_eq!(rate(&estimator), 35);
    }
}
