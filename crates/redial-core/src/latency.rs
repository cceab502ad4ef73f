//! The pace of a method: a quantile of how long its attempts take now, and whether hedges pay.
//!
//! All of it is one atomic word. The quantile is followed, not computed: each latency moves the
//! estimate up by `step × q` if it lay above it, and down by `step × (1 - q)` if it did not. Where
//! it rests, the share `q` of all latencies lies below, whatever their distribution: hedges sent at
//! the estimate are, in the long run, the share `1 - q` of calls. Nothing but "above or below" is
//! asked, so that an attempt whose hedge won, and which was cancelled, counts as exactly
//! as one that answered: it had taken longer than the estimate when the hedge was sent.
//!
//! Steps are in octaves, that is doublings, so that microseconds and minutes are followed alike. A step
//! is an eighth of one: after a change of the distribution the estimate climbs an octave in
//! `8 / q` latencies that lie above it, and falls one in `8 / (1 - q)` that lie below. So "recent"
//! is some `8 / (1 - q)` calls: 800 for the 99th percentile, 160 for the 95th.
//!
//! Whether hedges pay is a running share of those that won. When it falls below
//! [`WIN_RATE_STOP`], calls hedge no more by time; of what would have been hedges now and then one
//! is sent as a probe, and at [`WIN_RATE_RESUME`] all are again.
//!
//! Invariant: every change is one compare-and-swap of the whole word; readers see one moment.
//! The same inputs in the same order give the same word: no clock is read, and nothing is drawn.

mod call_latency;
mod hedge_at;
mod state;

pub use call_latency::CallLatency;
pub use hedge_at::{HedgeAt, HedgeAtBuilder, QUANTILE_MAX, QUANTILE_MIN};

use core::time::Duration;

use crate::HedgeDelay;
use crate::sync::{AtomicU64, Ordering, const_unless_loom};
use crate::time::{Ns, duration};
use state::{EstimatorState, OCTAVE, RATE_FULL, SAMPLES_BITS, scale, unscale};

/// How far samples are counted, and so the most that a pace can wait for.
pub const SAMPLES_MAX: u32 = (1 << SAMPLES_BITS) - 1;
/// Below this share of hedges that win, calls stop to hedge by time.
pub const WIN_RATE_STOP: f64 = 0.1;
/// From this share on they hedge again; well above the other, so that it does not flap.
pub const WIN_RATE_RESUME: f64 = 0.3;
/// How many hedges the share looks back at, and how many it needs before it counts.
pub const RACES: u32 = 16;
/// After how many calls that would have hedged a probe is sent, while hedging is stopped.
pub const PROBE_AFTER: u32 = 16;

/// How far the estimate may have moved away from a call that waited for it as it was then. What lies
/// between is counted as above: otherwise the busier a method is, the more would not count at all,
/// and its estimate would be too low. More than this would let the calls of one moment, which all
/// waited for the same estimate, drive it without end.
const DRIFT_MAX: u32 = OCTAVE / 4;

/// How long the attempts of one method take, and whether hedges pay.
#[derive(Debug)]
pub struct LatencyEstimator {
    /// A [`EstimatorState`]; publishes nothing but itself, so every access is relaxed.
    state: AtomicU64,
    at: HedgeAt,
}

/// What a [`LatencyEstimator`] knows at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LatencyEstimate {
    /// The quantile as it is estimated, before floor and cap; `None` before the first sample.
    pub estimate: Option<Duration>,
    /// How many latencies it has heard of, counted up to [`SAMPLES_MAX`].
    pub samples: u32,
    /// What a call that begins now is told; `None`: there are too few samples, and the policy's own
    /// delay is used.
    pub delay: Option<HedgeDelay>,
    /// The share of recent hedges that won; `None` before the first one.
    pub win_rate: Option<f64>,
    /// Whether hedging has stopped because hedges do not win. Probes are still sent.
    pub is_stopped: bool,
}

impl LatencyEstimator {
    const_unless_loom! {
        /// A pace that has heard of nothing; works in a `static`.
        #[must_use]
        pub fn new(at: HedgeAt) -> Self {
            LatencyEstimator { state: AtomicU64::new(0), at }
        }
    }

    /// When the hedges of a call that begins now follow; `None`: there are too few samples to say.
    #[must_use]
    pub fn delay(&self) -> Option<HedgeDelay> {
        self.delay_of(EstimatorState::from(self.state.load(Ordering::Relaxed)))
    }

    /// An attempt took this long to answer.
    pub fn record_latency(&self, latency: Ns) {
        let latency = scale(latency);
        self.change(|state| {
            state.sample(latency, latency > state.estimate, self.at);
            true
        });
    }

    /// An attempt was given up after this long, so that it is known only to be slower. If that leaves
    /// open on which side of the estimate it lies, it is counted and the estimate stays: hedges at
    /// the delay of a policy, which may all win before the estimate, would otherwise put off for ever
    /// that it is used.
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

    /// An attempt has taken so long that its hedge is sent. Returns whether that says on which side
    /// of the estimate it lies, which is what it waited for, as it was when its call began; if not,
    /// nothing is counted yet.
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

    /// A hedge that was sent by the delay answered before the attempt that it stood in for.
    pub fn hedge_won(&self) {
        self.change(|state| {
            state.count_hedge();
            state.rate += (RATE_FULL - state.rate).div_ceil(state.races);
            state.update_stopped(0);
            true
        });
    }

    /// A hedge that was sent by the delay was in vain.
    pub fn hedge_lost(&self) {
        self.change(|state| {
            state.count_hedge();
            state.rate -= state.rate.div_ceil(state.races);
            state.update_stopped(PROBE_AFTER);
            true
        });
    }

    /// What is known now.
    #[must_use]
    pub fn read(&self) -> LatencyEstimate {
        let state = EstimatorState::from(self.state.load(Ordering::Relaxed));
        LatencyEstimate {
            estimate: (state.samples > 0).then(|| duration(unscale(state.estimate))),
            samples: state.samples,
            delay: self.delay_of(state),
            win_rate: (state.races > 0).then(|| f64::from(state.rate) / f64::from(RATE_FULL)),
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

    /// Puts what the function makes of the word in its place; false if it has nothing to change.
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

    /// Plays so many hedges, of which so many in a hundred win, and returns how often it stopped or
    /// went on.
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
        (1..RACES).for_each(|_| estimator.hedge_lost());
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
        (0..RACES).for_each(|_| estimator.hedge_lost());
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
        // From nothing to three in ten, with a sixteenth of what is missing for each.
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
            // Thirty in a hundred is where it hesitates: there it changes its mind once in a hundred.
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
