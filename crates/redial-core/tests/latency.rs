//! The latency estimator follows its quantile: for any distribution, after a change of the
//! distribution, when attempts are cancelled because their hedges won, and with many concurrent
//! callers. It stops hedging where hedges do not win, and only there.
//!
//! Latencies are drawn from seeded distributions. The tests check the rank of the estimate: the
//! share of the distribution below it. Calls run on virtual time, many concurrently, and report the
//! events that a [`redial_core::Call`] would record.
#![cfg(not(loom))]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::thread;

use redial_core::latency::{PROBE_AFTER, SAMPLES_MAX};
use redial_core::{
    CallLatency, Directive, Event, HedgeAt, HedgeDelay, LatencyEstimator, Ns, Random, duration, ms,
    ns,
};

const MS: f64 = 1e6;

/// A distribution of latencies.
#[derive(Clone, Copy, Debug)]
enum Latency {
    /// Median in ms, and standard deviation of the natural logarithm.
    Lognormal(f64, f64),
    /// About 2 ms, and one in a hundred about 200 ms.
    Bimodal,
    /// Always the same.
    Constant(f64),
}

impl Latency {
    fn draw(self, random: &mut Random) -> Ns {
        let normal = |random: &mut Random| {
            let (u, v) = (1.0 - random.draw(), random.draw());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        let millis = match self {
            Latency::Lognormal(median, deviation) => median * (deviation * normal(random)).exp(),
            Latency::Bimodal => {
                let around = if random.draw() < 0.01 { 200.0 } else { 2.0 };
                around * (0.1 * normal(random)).exp()
            }
            Latency::Constant(millis) => millis,
        };
        (millis * MS) as Ns
    }

    /// A sorted sample of the distribution.
    fn sorted(self) -> SortedLatencies {
        let mut random = Random::new(99);
        let mut sorted: Vec<_> = (0..KNOWN).map(|_| self.draw(&mut random)).collect();
        sorted.sort_unstable();
        SortedLatencies(sorted)
    }
}

const KNOWN: usize = 200_000;

/// A sorted sample, for ranks and quantiles.
struct SortedLatencies(Vec<Ns>);

impl SortedLatencies {
    /// The share of latencies that are not above this one.
    fn rank(&self, of: Ns) -> f64 {
        self.0.partition_point(|latency| *latency <= of) as f64 / KNOWN as f64
    }

    /// The distance of the estimate from this quantile, in octaves.
    fn octaves_off(&self, estimator: &LatencyEstimator, quantile: f64) -> f64 {
        let right = self.0[(quantile * KNOWN as f64) as usize] as f64;
        (estimate(estimator) as f64 / right).log2()
    }
}

fn estimator(quantile: f64) -> LatencyEstimator {
    LatencyEstimator::new(HedgeAt::quantile(quantile).build())
}

fn estimate(estimator: &LatencyEstimator) -> Ns {
    ns(estimator.read().estimate.expect("samples"))
}

fn record_samples(
    estimator: &LatencyEstimator,
    latency: Latency,
    samples: usize,
    random: &mut Random,
) {
    (0..samples).for_each(|_| estimator.record_latency(latency.draw(random)));
}

/// Asserts that the rank of the estimate equals the quantile on average, and rarely deviates by
/// more than `within` times the share of the tail.
fn check(latency: Latency, quantile: f64, within: f64) {
    let rare = 1.0 - quantile;
    let random = &mut Random::new(1);
    let (estimator, sorted) = (estimator(quantile), latency.sorted());
    let apart = (4.0 / rare) as usize;
    record_samples(&estimator, latency, 10 * apart, random);
    let ranks: Vec<_> = (0..100)
        .map(|_| {
            record_samples(&estimator, latency, apart, random);
            sorted.rank(estimate(&estimator))
        })
        .collect();
    let mean = ranks.iter().sum::<f64>() / 100.0;
    assert!((mean - quantile).abs() < 0.2 * rare, "{latency:?}, {quantile}: {mean} on average");
    let deviating = ranks.iter().filter(|rank| (**rank - quantile).abs() > within * rare).count();
    assert!(deviating <= 5, "{latency:?}, {quantile}: {deviating} of 100 ranks deviate: {ranks:?}");
}

#[test]
fn latency_estimate_rank_matches_the_quantile() {
    for quantile in [0.5, 0.9, 0.95, 0.99, 0.999] {
        check(Latency::Lognormal(10.0, 1.0), quantile, 1.0);
    }
    check(Latency::Lognormal(0.05, 2.0), 0.99, 1.0);
    // In a short tail, a step of an eighth of an octave covers more of the distribution.
    check(Latency::Lognormal(30_000.0, 0.5), 0.99, 2.0);
}

#[test]
fn latency_estimate_picks_the_right_mode_of_two() {
    let random = &mut Random::new(2);
    for (quantile, from, to) in [(0.95, 1.9, 3.0), (0.98, 1.9, 4.0), (0.995, 150.0, 260.0)] {
        let estimator = estimator(quantile);
        record_samples(&estimator, Latency::Bimodal, 20_000, random);
        let millis = estimate(&estimator) as f64 / MS;
        assert!((from..to).contains(&millis), "{quantile}: {millis} ms");
    }
}

#[test]
fn latency_share_above_the_estimate_matches_every_distribution() {
    let kinds = [Latency::Lognormal(10.0, 1.0), Latency::Bimodal, Latency::Constant(5.0)];
    for latency in kinds {
        for quantile in [0.9, 0.99] {
            let random = &mut Random::new(3);
            let estimator = estimator(quantile);
            record_samples(&estimator, latency, 5_000, random);
            let above = (0..100_000).filter(|_| {
                let took = latency.draw(random);
                let above = took > estimate(&estimator);
                estimator.record_latency(took);
                above
            });
            let (share, rare) = (above.count() as f64 / 100_000.0, 1.0 - quantile);
            assert!((share - rare).abs() < 0.1 * rare, "{latency:?}, {quantile}: {share}");
        }
    }
}

#[test]
fn latency_first_estimate_needs_few_samples() {
    // 100 samples contain only five above the 95th percentile.
    let latency = Latency::Lognormal(10.0, 1.0);
    let sorted = latency.sorted();
    for (quantile, samples) in [(0.5, 100), (0.9, 100), (0.95, 100), (0.99, 500)] {
        let near = (0..100).filter(|&seed| {
            let estimator = estimator(quantile);
            record_samples(&estimator, latency, samples, &mut Random::new(seed));
            sorted.octaves_off(&estimator, quantile).abs() < 1.0
        });
        let near = near.count();
        assert!(near >= 90, "{quantile}: {near} of 100 are within an octave");
    }
}

#[test]
fn latency_change_is_followed_within_the_documented_window() {
    for quantile in [0.9, 0.95, 0.99] {
        let random = &mut Random::new(4);
        let (fast, slow) = (Latency::Lognormal(10.0, 0.5), Latency::Lognormal(100.0, 0.5));
        let (known_fast, known_slow) = (fast.sorted(), slow.sorted());
        let estimator = estimator(quantile);
        record_samples(&estimator, fast, 10_000, random);
        // A factor of ten is 3.3 octaves, and during the last one latencies lie on both sides.
        let (up, down) = (6.0 * 8.0 / quantile, 4.0 * 8.0 / (1.0 - quantile));
        record_samples(&estimator, slow, up as usize, random);
        let off = known_slow.octaves_off(&estimator, quantile);
        assert!((-1.0..0.5).contains(&off), "{quantile}: {off} octaves after {up} samples");
        record_samples(&estimator, slow, 10_000, random);
        record_samples(&estimator, fast, down as usize, random);
        let off = known_fast.octaves_off(&estimator, quantile);
        assert!((-0.5..0.5).contains(&off), "{quantile}: {off} octaves after {down} samples");
    }
}

#[test]
fn latency_estimate_is_accurate_with_concurrent_callers() {
    let (latency, quantile) = (Latency::Lognormal(10.0, 1.0), 0.95);
    let estimator = estimator(quantile);
    thread::scope(|scope| {
        for seed in 0..8 {
            let estimator = &estimator;
            scope.spawn(move || record_samples(estimator, latency, 20_000, &mut Random::new(seed)));
        }
    });
    assert_eq!(estimator.read().samples, SAMPLES_MAX);
    let rank = latency.sorted().rank(estimate(&estimator));
    assert!((rank - quantile).abs() < 0.05, "{rank}");
}

/// The results of a run.
#[derive(Debug, Default)]
struct CallStats {
    calls: u32,
    hedges: u32,
    won: u32,
}

impl CallStats {
    fn share_hedged(&self) -> f64 {
        f64::from(self.hedges) / f64::from(self.calls)
    }
}

/// One caller: the measurement of its current call, and its next event.
struct Caller {
    call_latency: CallLatency,
    began: Ns,
    hedge_at: Option<Ns>,
    ends: Ns,
    winner: u32,
}

/// Runs concurrent callers, each of which starts its next call as soon as the previous one
/// completes. `server` returns the duration of an attempt that starts at a given time.
fn run(
    estimator: &LatencyEstimator,
    callers: usize,
    calls: u32,
    mut server: impl FnMut(Ns) -> Ns,
) -> CallStats {
    let mut stats = CallStats::default();
    let mut timers = BinaryHeap::new();
    let mut all: Vec<Caller> = Vec::new();
    let mut begin = |at: Ns, estimator: &LatencyEstimator| {
        let delay = estimator.delay();
        let mut call_latency = CallLatency::new(delay);
        call_latency.record(at, &Event::AttemptStarted { attempt: 1, number: 1 }, estimator);
        let ends = at + server(at);
        let mut caller = Caller { call_latency, began: at, hedge_at: None, ends, winner: 1 };
        if let Some(HedgeDelay::After(delay)) = delay
            && at + delay < ends
        {
            let hedged = at + delay + server(at + delay);
            caller.hedge_at = Some(at + delay);
            if hedged < ends {
                (caller.ends, caller.winner) = (hedged, 2);
            }
        }
        caller
    };
    let next = |caller: &Caller| caller.hedge_at.unwrap_or(caller.ends);
    for index in 0..callers {
        let caller = begin(index as Ns, estimator);
        timers.push(Reverse((next(&caller), index)));
        all.push(caller);
    }
    while stats.calls < calls {
        let Some(Reverse((at, index))) = timers.pop() else { break };
        let caller = &mut all[index];
        if caller.hedge_at.take().is_some() {
            stats.hedges += 1;
            caller.call_latency.record(
                at,
                &Event::AttemptStarted { attempt: 2, number: 2 },
                estimator,
            );
        } else {
            assert!(at >= caller.began);
            stats.calls += 1;
            stats.won += caller.winner - 1;
            let attempt = caller.winner;
            if stats.calls % 2 == 0 {
                caller.call_latency.record(at, &Event::Committed { attempt }, estimator);
            } else {
                let classification = Directive::Succeed.into();
                caller.call_latency.record(
                    at,
                    &Event::AttemptOutcome { attempt, classification },
                    estimator,
                );
            }
            *caller = begin(at, estimator);
        }
        timers.push(Reverse((next(caller), index)));
    }
    stats
}

/// Attempts that are cancelled because their hedges won would have been the slowest. They count as
/// samples, so that the estimate is the same as without hedging.
#[test]
fn latency_of_attempts_that_lost_to_hedges_is_counted() {
    for (latency, quantile) in [
        (Latency::Lognormal(10.0, 1.0), 0.9),
        (Latency::Lognormal(10.0, 1.0), 0.99),
        (Latency::Lognormal(10.0, 2.0), 0.95),
        (Latency::Bimodal, 0.98),
    ] {
        // The more calls run while one waits for its hedge, the older is the estimate that it waits
        // for: a window of 160 calls is short compared to the thousands that 300 callers make
        // meanwhile.
        for (callers, within) in [(1, 1.15), (10, 1.2), (300, 1.45)] {
            let random = &mut Random::new(6);
            let estimator = estimator(quantile);
            run(&estimator, callers, 20_000, |_| latency.draw(random));
            let stats = run(&estimator, callers, 100_000, |_| latency.draw(random));
            let (share, rare) = (stats.share_hedged(), 1.0 - quantile);
            let case = format!("{latency:?}, {quantile}, {callers}: {share} {stats:?}");
            assert!((1.0 / within..within).contains(&(share / rare)), "{case}");
        }
    }
}

#[test]
fn latency_estimate_settles_at_a_cap_below_the_quantile() {
    let (latency, random) = (Latency::Lognormal(10.0, 1.0), &mut Random::new(7));
    let at = HedgeAt::quantile(0.99).cap(ms(30)).build();
    let estimator = LatencyEstimator::new(at);
    let stats = run(&estimator, 10, 50_000, |_| latency.draw(random));
    assert_eq!(estimator.delay(), Some(HedgeDelay::After(ns(ms(30)))));
    let share = stats.share_hedged();
    let above = 1.0 - latency.sorted().rank(ns(ms(30)));
    assert!((share - above).abs() < 0.1 * above, "{share}, expected {above}");
}

#[test]
fn latency_of_hanging_calls_raises_the_delay() {
    let estimator = estimator(0.95);
    record_samples(&estimator, Latency::Constant(10.0), 1_000, &mut Random::new(8));
    let before = estimate(&estimator);
    // Two hundred concurrent calls hang, and all send their hedges.
    let mut counted = 0;
    for _ in 0..200 {
        let mut call_latency = CallLatency::new(estimator.delay());
        call_latency.record(0, &Event::AttemptStarted { attempt: 1, number: 1 }, &estimator);
        let samples = estimate(&estimator);
        call_latency.record(before, &Event::AttemptStarted { attempt: 2, number: 2 }, &estimator);
        counted += u32::from(estimate(&estimator) != samples);
    }
    assert!(counted >= 1, "the first sample counts at once");
    let raised = estimate(&estimator) as f64 / before as f64;
    assert!(raised < 1.5, "and only as far as the samples show: {raised}");
}

/// A server whose replicas are all slow at the same time, periodically.
fn slow_for_all(now: Ns, random: &mut Random) -> Ns {
    const PERIOD: Ns = 1_000 * 1_000_000;
    const SLOW: Ns = 100 * 1_000_000;
    let phase = now % PERIOD;
    let quick = Latency::Lognormal(2.0, 0.2).draw(random);
    if phase < SLOW { SLOW - phase + quick } else { quick }
}

#[test]
fn latency_hedging_stops_only_where_hedges_do_not_win() {
    let random = &mut Random::new(9);
    let estimator = estimator(0.95);
    let curable = run(&estimator, 20, 20_000, |_| Latency::Bimodal.draw(random));
    assert!(!estimator.read().is_stopped, "{curable:?}");
    assert!(estimator.read().win_rate.unwrap() > 0.1);

    let incurable = run(&estimator, 20, 20_000, |now| slow_for_all(now, random));
    assert!(estimator.read().is_stopped, "{incurable:?}");
    let stopped = run(&estimator, 20, 50_000, |now| slow_for_all(now, random));
    assert!(estimator.read().is_stopped, "{stopped:?}");
    // One call in twenty would hedge; one in sixteen of those is a probe, sent by all callers that
    // start before its result is known.
    let probes = 0.05 / f64::from(PROBE_AFTER);
    let share = stopped.share_hedged();
    assert!(share > 0.0 && share < 4.0 * probes, "{share} {stopped:?}");

    let again = run(&estimator, 20, 20_000, |_| Latency::Lognormal(5.0, 1.0).draw(random));
    assert!(!estimator.read().is_stopped, "{again:?}");
    assert!(again.won > 0);
}

#[test]
fn latency_hedging_stops_for_a_short_tail() {
    let random = &mut Random::new(10);
    let estimator = estimator(0.95);
    let stats = run(&estimator, 5, 20_000, |_| Latency::Lognormal(100.0, 0.05).draw(random));
    assert!(estimator.read().is_stopped, "{stats:?}");
    assert!(stats.share_hedged() < 0.02, "{stats:?}");
}

#[test]
fn latency_estimate_is_deterministic() {
    let played = || {
        let random = &mut Random::new(11);
        let estimator = estimator(0.9);
        run(&estimator, 7, 5_000, |_| Latency::Lognormal(10.0, 1.0).draw(random));
        estimator.read()
    };
    assert_eq!(played(), played());
    assert!(played().estimate.unwrap() > duration(0));
}
