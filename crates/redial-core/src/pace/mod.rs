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

mod at;
mod lap;

pub use at::{HedgeAt, HedgeAtBuilder, QUANTILE_MAX, QUANTILE_MIN};
pub use lap::Lap;

use core::time::Duration;

use crate::HedgeDelay;
use crate::sync::{AtomicU64, Ordering, const_unless_loom};
use crate::time::{Ns, duration};

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

/// The bits of an octave.
const FRACTION: u32 = 22;
const OCTAVE: u32 = 1 << FRACTION;
/// What a latency moves the estimate by, all in all: up by one part of it, or down by the other.
const STEP: u32 = OCTAVE / 8;
/// How far the estimate may have moved away from a call that waited for it as it was then. What lies
/// between is counted as above: otherwise the busier a method is, the more would not count at all,
/// and its estimate would be too low. More than this would let the calls of one moment, which all
/// waited for the same estimate, drive it without end.
const MOVED: u32 = OCTAVE / 4;

const ESTIMATE_BITS: u32 = 6 + FRACTION;
const SAMPLES_BITS: u32 = 12;
const RATE_BITS: u32 = 10;
const RACES_BITS: u32 = 5;
const SLOW_BITS: u32 = 8;
const RATE_FULL: u32 = (1 << RATE_BITS) - 1;
const STOP_BELOW: u32 = (WIN_RATE_STOP * RATE_FULL as f64) as u32;
const RESUME_AT: u32 = (WIN_RATE_RESUME * RATE_FULL as f64) as u32;

// The flag takes the last bit.
const _: () = assert!(ESTIMATE_BITS + SAMPLES_BITS + RATE_BITS + RACES_BITS + SLOW_BITS + 1 == 64);
const _: () = assert!(RACES < 1 << RACES_BITS && PROBE_AFTER < 1 << SLOW_BITS);

/// How long the attempts of one method take, and whether hedges pay.
#[derive(Debug)]
pub struct Pace {
    /// A [`Word`]; publishes nothing but itself, so every access is relaxed.
    word: AtomicU64,
    at: HedgeAt,
}

/// What a [`Pace`] knows at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PaceReading {
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

impl Pace {
    const_unless_loom! {
        /// A pace that has heard of nothing; works in a `static`.
        #[must_use]
        pub fn new(at: HedgeAt) -> Self {
            Pace { word: AtomicU64::new(0), at }
        }
    }

    /// When the hedges of a call that begins now follow; `None`: there are too few samples to say.
    #[must_use]
    pub fn delay(&self) -> Option<HedgeDelay> {
        self.delay_of(Word::from(self.word.load(Ordering::Relaxed)))
    }

    /// An attempt took this long to answer.
    pub fn took(&self, latency: Ns) {
        let latency = scale(latency);
        self.change(|word| {
            word.sample(latency, latency > word.estimate, self.at);
            true
        });
    }

    /// An attempt was given up after this long, so that it is known only to be slower. If that leaves
    /// open on which side of the estimate it lies, it is counted and the estimate stays: hedges at
    /// the delay of a policy, which may all win before the estimate, would otherwise put off for ever
    /// that it is used.
    pub fn longer(&self, waited: Ns) {
        let waited = scale(waited);
        self.change(|word| {
            if waited >= word.estimate {
                word.sample(waited, true, self.at);
            } else {
                word.count();
            }
            true
        });
    }

    /// An attempt has taken so long that its hedge is sent. Returns whether that says on which side
    /// of the estimate it lies, which is what it waited for, as it was when its call began; if not,
    /// nothing is counted yet.
    pub fn hedged(&self, waited: Ns) -> bool {
        let waited = scale(waited);
        self.change(|word| {
            let known = waited.saturating_add(MOVED) >= word.estimate;
            if known {
                word.sample(waited, true, self.at);
            }
            known
        })
    }

    /// A hedge that was sent by the delay answered before the attempt that it stood in for.
    pub fn hedge_won(&self) {
        self.change(|word| {
            word.raced();
            word.rate += (RATE_FULL - word.rate).div_ceil(word.races);
            word.judge(0);
            true
        });
    }

    /// A hedge that was sent by the delay was in vain.
    pub fn hedge_lost(&self) {
        self.change(|word| {
            word.raced();
            word.rate -= word.rate.div_ceil(word.races);
            word.judge(PROBE_AFTER);
            true
        });
    }

    /// What is known now.
    #[must_use]
    pub fn read(&self) -> PaceReading {
        let word = Word::from(self.word.load(Ordering::Relaxed));
        PaceReading {
            estimate: (word.samples > 0).then(|| duration(unscale(word.estimate))),
            samples: word.samples,
            delay: self.delay_of(word),
            win_rate: (word.races > 0).then(|| f64::from(word.rate) / f64::from(RATE_FULL)),
            is_stopped: word.stopped,
        }
    }

    fn delay_of(&self, word: Word) -> Option<HedgeDelay> {
        if word.samples < self.at.samples {
            None
        } else if word.stopped && word.slow > 0 {
            Some(HedgeDelay::Never)
        } else {
            Some(HedgeDelay::After(unscale(word.estimate).clamp(self.at.floor, self.at.cap)))
        }
    }

    /// Puts what the function makes of the word in its place; false if it has nothing to change.
    fn change(&self, change: impl Fn(&mut Word) -> bool) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            let mut word = Word::from(now);
            if !change(&mut word) {
                return false;
            }
            let next = u64::from(word);
            match self.word.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => now = current,
            }
        }
    }
}

/// All that a pace remembers, out of its 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    /// The quantile, scaled.
    estimate: u32,
    samples: u32,
    /// The share of hedges that won, in parts of [`RATE_FULL`].
    rate: u32,
    /// How many hedges are in it, up to [`RACES`].
    races: u32,
    /// While stopped: how many slow calls until the next probe; 0: the next calls hedge.
    slow: u32,
    stopped: bool,
}

impl Word {
    /// A latency lay above the estimate, or not.
    fn sample(&mut self, latency: u32, above: bool, at: HedgeAt) {
        if self.samples == 0 {
            self.estimate = latency;
            self.count();
            return;
        }
        // Few samples say little about where the quantile is, so that steps begin large.
        let step = (u64::from(STEP) * u64::from(at.settled) / u64::from(self.samples))
            .clamp(u64::from(STEP), u64::from(OCTAVE));
        let down = (step * u64::from(at.below)) >> 24;
        // Both are below an octave.
        let (up, down) = ((step - down) as u32, down as u32);
        if above {
            self.estimate = (self.estimate + up).min((1 << ESTIMATE_BITS) - 1);
            self.slow = self.slow.saturating_sub(1);
        } else {
            self.estimate = self.estimate.saturating_sub(down);
        }
        self.count();
    }

    fn count(&mut self) {
        self.samples = (self.samples + 1).min(SAMPLES_MAX);
    }

    fn raced(&mut self) {
        self.races = (self.races + 1).min(RACES);
    }

    /// Stops or goes on; `slow`: how many slow calls until the next probe, if it stays stopped.
    fn judge(&mut self, slow: u32) {
        if self.stopped {
            self.stopped = self.rate < RESUME_AT;
        } else {
            self.stopped = self.races == RACES && self.rate < STOP_BELOW;
        }
        self.slow = if self.stopped { slow } else { 0 };
    }
}

impl From<u64> for Word {
    fn from(mut bits: u64) -> Self {
        let mut take = |width: u32| {
            let low = bits & ((1 << width) - 1);
            bits >>= width;
            low as u32
        };
        Word {
            estimate: take(ESTIMATE_BITS),
            samples: take(SAMPLES_BITS),
            rate: take(RATE_BITS),
            races: take(RACES_BITS),
            slow: take(SLOW_BITS),
            stopped: take(1) == 1,
        }
    }
}

impl From<Word> for u64 {
    fn from(word: Word) -> u64 {
        let fields = [
            (u32::from(word.stopped), 1),
            (word.slow, SLOW_BITS),
            (word.races, RACES_BITS),
            (word.rate, RATE_BITS),
            (word.samples, SAMPLES_BITS),
            (word.estimate, ESTIMATE_BITS),
        ];
        fields.into_iter().fold(0, |bits, (value, width)| {
            debug_assert!(value >> width == 0, "{value} does not fit into {width} bits");
            bits << width | u64::from(value)
        })
    }
}

/// A span on a scale on which a doubling is one octave, wherever it begins. Within an octave it is
/// straight rather than a logarithm: only its order and its size in octaves are needed.
fn scale(span: Ns) -> u32 {
    let span = span.max(1);
    let octave = span.ilog2();
    // The bits below the highest one, as a fraction.
    let fraction =
        if octave > FRACTION { span >> (octave - FRACTION) } else { span << (FRACTION - octave) };
    (octave << FRACTION) + (fraction as u32 & (OCTAVE - 1))
}

/// The span at this place of the scale, rounded down.
fn unscale(scaled: u32) -> Ns {
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

    fn pace(quantile: f64) -> Pace {
        Pace::new(HedgeAt::quantile(quantile).samples(1).build().unwrap())
    }

    #[test]
    fn a_win_rate_at_a_threshold_goes_on() {
        let word = Word { estimate: 1, samples: 1, rate: 0, races: RACES, slow: 0, stopped: false };
        for (rate, stopped, then) in [
            (STOP_BELOW, false, false),
            (STOP_BELOW - 1, false, true),
            (RESUME_AT, true, false),
            (RESUME_AT - 1, true, true),
        ] {
            let mut word = Word { rate, stopped, ..word };
            word.judge(7);
            let slow = if then { 7 } else { 0 };
            assert_eq!((word.stopped, word.slow), (then, slow), "{rate}, stopped {stopped}");
        }
    }

    fn estimate(pace: &Pace) -> Ns {
        unscale(Word::from(pace.word.load(Ordering::Relaxed)).estimate)
    }

    #[test]
    fn the_scale_keeps_order_and_comes_back_within_a_millionth() {
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
    fn a_word_holds_every_field_at_its_most() {
        let most = Word {
            estimate: (1 << ESTIMATE_BITS) - 1,
            samples: SAMPLES_MAX,
            rate: RATE_FULL,
            races: (1 << RACES_BITS) - 1,
            slow: (1 << SLOW_BITS) - 1,
            stopped: true,
        };
        assert_eq!((u64::from(most), Word::from(NEVER)), (NEVER, most));
        let mixed = Word { estimate: 5, samples: 0, rate: 9, races: 0, slow: 3, stopped: false };
        assert_eq!(Word::from(u64::from(mixed)), mixed);
    }

    #[test]
    fn no_duration_breaks_it() {
        for quantile in [at::QUANTILE_MIN, 0.5, at::QUANTILE_MAX] {
            for spans in [[0, 0], [NEVER, NEVER], [0, NEVER], [1, NEVER - 1]] {
                let pace = pace(quantile);
                for turn in 0..10_000 {
                    pace.took(spans[turn % 2]);
                    pace.longer(spans[turn % 2]);
                    pace.hedged(spans[turn / 2 % 2]);
                }
                assert!(estimate(&pace) >= 1);
                assert_eq!(pace.read().samples, SAMPLES_MAX);
            }
        }
    }

    #[test]
    fn the_first_latency_is_the_estimate_and_the_minimum_of_samples_is_waited_for() {
        let pace = Pace::new(HedgeAt::quantile(0.9).samples(3).build().unwrap());
        assert_eq!((pace.delay(), pace.read().estimate), (None, None));
        pace.took(7 * MS);
        assert_eq!(estimate(&pace), 7 * MS);
        pace.took(7 * MS);
        assert_eq!(pace.delay(), None);
        pace.took(7 * MS);
        assert_eq!(pace.delay(), Some(HedgeDelay::After(estimate(&pace))));
        assert_eq!(pace.read().samples, 3);
    }

    #[test]
    fn floor_and_cap_hold() {
        let at = HedgeAt::quantile(0.9).floor(duration(5 * MS)).cap(duration(50 * MS)).samples(1);
        for (latency, delay) in [(0, 5), (4, 5), (5, 5), (20, 20), (50, 50), (51, 50), (9_999, 50)]
        {
            let pace = Pace::new(at.build().unwrap());
            pace.took(latency * MS);
            assert_eq!(pace.delay(), Some(HedgeDelay::After(delay * MS)), "{latency} ms");
        }
    }

    #[test]
    fn what_may_lie_on_either_side_does_not_move_the_estimate() {
        let pace = pace(0.9);
        pace.took(100 * MS);
        assert!(!pace.hedged(80 * MS), "more than a quarter of an octave away");
        assert_eq!((estimate(&pace), pace.read().samples), (100 * MS, 1));
        pace.longer(99 * MS);
        assert_eq!((estimate(&pace), pace.read().samples), (100 * MS, 2));
        pace.longer(100 * MS);
        let above = estimate(&pace);
        assert!(above > 100 * MS && pace.hedged(above - above / 8));
        assert_eq!(pace.read().samples, 4);
    }

    /// Plays so many hedges, of which so many in a hundred win, and returns how often it stopped or
    /// went on.
    fn race(pace: &Pace, hedges: u32, percent: u64, random: &mut Random) -> u32 {
        let mut switches = 0;
        for _ in 0..hedges {
            let before = pace.read().is_stopped;
            if random.bits() % 100 < percent {
                pace.hedge_won();
            } else {
                pace.hedge_lost();
            }
            switches += u32::from(pace.read().is_stopped != before);
        }
        switches
    }

    #[test]
    fn hedges_that_never_win_stop_after_sixteen_and_not_before() {
        let pace = pace(0.9);
        pace.took(10 * MS);
        (1..RACES).for_each(|_| pace.hedge_lost());
        assert_eq!((pace.read().is_stopped, pace.read().win_rate), (false, Some(0.0)));
        pace.hedge_lost();
        assert_eq!((pace.read().is_stopped, pace.delay()), (true, Some(HedgeDelay::Never)));
    }

    #[test]
    fn while_stopped_a_probe_follows_sixteen_slow_calls_and_another_one_a_win() {
        let pace = pace(0.5);
        pace.took(10 * MS);
        (0..RACES).for_each(|_| pace.hedge_lost());
        for slow in 1..=PROBE_AFTER {
            assert_eq!(pace.delay(), Some(HedgeDelay::Never), "before slow call {slow}");
            pace.took(1);
            pace.took(NEVER);
        }
        assert!(matches!(pace.delay(), Some(HedgeDelay::After(_))), "a probe");
        pace.hedge_lost();
        assert_eq!(pace.delay(), Some(HedgeDelay::Never));
        (0..PROBE_AFTER).for_each(|_| pace.took(NEVER));
        // From nothing to three in ten, with a sixteenth of what is missing for each.
        for won in 1..=6 {
            assert!(pace.read().is_stopped);
            pace.hedge_won();
            assert!(matches!(pace.delay(), Some(HedgeDelay::After(_))), "after win {won}");
        }
        assert!(!pace.read().is_stopped);
    }

    #[test]
    fn it_does_not_flap_between_stopping_and_going_on() {
        let mut random = Random::new(3);
        for (percent, stops, most) in
            [(100, false, 0), (50, false, 0), (30, false, 20), (2, true, 1)]
        {
            let pace = pace(0.9);
            // Thirty in a hundred is where it hesitates: there it changes its mind once in a hundred.
            let switches = race(&pace, 2_000, percent, &mut random);
            assert!(switches <= most, "{percent} %: {switches} switches");
            assert_eq!(pace.read().is_stopped, stops, "{percent} %");
        }
    }

    #[test]
    fn the_win_rate_is_a_mean_at_first_and_then_looks_back_at_sixteen() {
        let pace = pace(0.9);
        pace.hedge_won();
        pace.hedge_lost();
        let rate = |pace: &Pace| (pace.read().win_rate.unwrap() * 100.0) as u32;
        assert_eq!(rate(&pace), 49);
        (0..200).for_each(|_| pace.hedge_won());
        assert_eq!(rate(&pace), 100);
        (0..16).for_each(|_| pace.hedge_lost());
        assert_eq!(rate(&pace), 35);
    }
}
