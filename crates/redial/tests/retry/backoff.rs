//! Backoff and jitter.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use redial::rules::{Backoff, Rules};
use redial::testing::draws;
use redial::{CallLog, Event, Failure, Jitter, Policy, PolicyError, Reason, ms, s};

use crate::common::{CallResult, Fails, announced, exact, free, run, run_one};

const NS: Duration = Duration::from_nanos(1);

fn delays(policy: &Policy) -> Vec<Duration> {
    run(policy, Fails::AT_ONCE).delays()
}

/// The delays of one call with its own random draws.
fn drawn(policy: &Policy) -> Vec<Duration> {
    CallResult::delays(&run_one(policy, Fails::AT_ONCE, None))
}

/// In another library, jitter is added after the cap: 100 ms become 199.99 ms, 500 become 749.9.
#[test]
fn backoff_jitter_never_exceeds_the_cap() {
    let jitters = [
        Jitter::Full,
        Jitter::Half,
        Jitter::Equal,
        Jitter::Proportional(1.0),
        Jitter::Decorrelated,
    ];
    for jitter in jitters {
        for u in [0.0, 0.5, 0.999_999] {
            let _guard = draws([u]);
            let policy = Policy::exponential(ms(60)).cap(ms(100)).attempts(6).jitter(jitter);
            let delays = delays(&free(policy));
            assert!(delays.iter().all(|delay| *delay <= ms(100)), "{jitter:?}: {delays:?}");
        }
    }
}

/// In another library, every session gets a clone of the same generator: four calls
/// that failed together slept for 118.162749 ms each, so jitter had no effect inside a process.
#[test]
fn backoff_concurrent_calls_draw_different_delays() {
    let policy = free(Policy::exponential(s(1)).attempts(2));
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        assert!(seen.insert(drawn(&policy.clone())), "without the state machine");
        let mut call_log = CallLog::new();
        run_one(&policy.clone(), Fails::AT_ONCE, Some(&mut call_log));
        assert!(seen.insert(announced(&call_log)), "with the state machine");
    }
    for _ in 0..4 {
        let policy = policy.clone();
        let thread = thread::spawn(move || drawn(&policy));
        assert!(seen.insert(thread.join().expect("no panic")), "in a thread of its own");
    }
    assert_eq!(seen.len(), 12);
}

/// In another library, a range of jitter is drawn once for all delays of a strategy: 379 ms four
/// times.
#[test]
fn backoff_each_delay_has_its_own_draw() {
    let policy = free(Policy::constant(s(1)).jitter(Jitter::Full).attempts(9));
    let different: BTreeSet<Duration> = drawn(&policy).into_iter().collect();
    assert_eq!(different.len(), 8);
    let mut call_log = CallLog::new();
    run_one(&policy, Fails::AT_ONCE, Some(&mut call_log));
    let different: BTreeSet<Duration> = announced(&call_log).into_iter().collect();
    assert_eq!(different.len(), 8);
}

/// In another library, a small proportion panics on an empty range, no delay is ever drawn between
/// the base and 15 % more, and half of all draws are cut to the smallest delay.
#[test]
fn backoff_jitter_is_uniform_over_its_range() {
    let tiny = free(Policy::constant(s(1)).jitter(Jitter::Proportional(0.004)).attempts(500));
    assert!(drawn(&tiny).iter().all(|delay| (ms(996)..=ms(1004)).contains(delay)));
    let policy = free(Policy::constant(s(1)).jitter(Jitter::Proportional(0.3)).attempts(4001));
    let mut parts = [0; 20];
    for delay in drawn(&policy) {
        parts[((delay.as_secs_f64() - 0.7) / 0.6 * 20.0) as usize] += 1;
    }
    assert!(parts.iter().all(|part| (130..=270).contains(part)), "200 each: {parts:?}");
}

/// In another library, the configured delay is the base of a power: 500 ms, 250 s, 35 hours.
#[test]
fn backoff_exponential_starts_at_first_and_grows_by_factor() {
    let policy = exact(Policy::exponential(ms(500)).cap(s(9999)).attempts(5));
    assert_eq!(delays(&policy), [ms(500), s(1), s(2), s(4)]);
}

/// In another library, the counter is incremented before it is read, and the first step of 1 ms is
/// never used.
#[test]
fn backoff_table_starts_with_its_first_entry() {
    static MOVED: Reason = Reason::new("MOVED").always();
    let policy = exact(Policy::constant(s(9)).attempts(4));
    let result_of_call = run(&policy, Fails(Duration::ZERO, Failure::server().because(MOVED)));
    assert_eq!(result_of_call.delays(), [ms(1), ms(10), ms(50)]);
    static STEPS: [Duration; 2] = [ms(3), ms(5)];
    assert_eq!(delays(&exact(Policy::table(&STEPS).attempts(4))), [ms(3), ms(5), ms(5)]);
}

/// In another library, a first delay above the cap is used as it is, or cut without a word.
#[test]
fn backoff_first_delay_above_the_cap_is_an_error() {
    let error = |builder: redial::Builder<Policy>| builder.try_build().err();
    let above = Some(PolicyError::FirstAboveCap);
    assert_eq!(error(Policy::exponential(s(20))), None, "the default cap is 20 s");
    assert_eq!(error(Policy::exponential(s(20) + ms(1))), above);
    assert_eq!(error(Policy::exponential(s(10)).cap(s(10))), None);
    assert_eq!(error(Policy::exponential(s(10)).cap(s(9))), above);
    assert_eq!(error(Policy::arithmetic(s(10), s(1)).cap(s(1))), above);
    assert_eq!(error(Policy::fibonacci(s(21))), above);
    // The rules of other designs cut the delay (G1).
    let backoff = Backoff::Exponential { first: s(10), factor: 2.0, cap: Some(s(1)) };
    let rules = Rules { backoff, jitter: Jitter::None, ..Rules::DEFAULT };
    assert_eq!(delays(&free(Policy::from_rules(rules))), [s(1), s(1)]);
}

/// In another library, 32-bit floats lose nanoseconds, jitter is cut to whole milliseconds, and
/// delays are whole seconds.
#[test]
fn backoff_delays_are_exact_to_the_nanosecond() {
    let odd = Duration::from_nanos(123_456_789_123);
    assert_eq!(delays(&exact(Policy::constant(odd))), [odd, odd]);
    let policy = exact(Policy::exponential(odd).cap(s(9999)));
    assert_eq!(delays(&policy), [odd, odd * 2]);
    let _guard = draws([0.25]);
    let policy =
        free(Policy::constant(Duration::from_nanos(4_000_020)).jitter(Jitter::Full).attempts(2));
    assert_eq!(delays(&policy), [Duration::from_nanos(1_000_005)]);
}

/// In another library, a smallest delay below a millisecond divides by zero, and a factor is cut to
/// an integer, so that 1.5 does not grow at all.
#[test]
fn backoff_one_nanosecond_grows_by_factor_one_and_a_half() {
    let policy = exact(Policy::exponential(NS * 8).factor(1.5).attempts(5));
    assert_eq!(delays(&policy), [NS * 8, NS * 12, NS * 18, NS * 27]);
    let policy = exact(Policy::exponential(NS).factor(0.5).attempts(3));
    assert_eq!(delays(&policy), [NS, Duration::ZERO]);
}

/// In another library, a factor that is negative or not a number silently means the longest delay.
#[test]
fn backoff_factor_must_be_above_zero() {
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = Policy::exponential(ms(1)).factor(factor).try_build();
        assert_eq!(refused.err(), Some(PolicyError::Factor), "{factor}");
    }
    for proportion in [-0.1, 1.1, f64::NAN] {
        let refused = Policy::constant(ms(1)).jitter(Jitter::Proportional(proportion)).try_build();
        assert_eq!(refused.err(), Some(PolicyError::Proportion), "{proportion}");
    }
}

/// In another library, there is no jitter by default.
#[test]
fn backoff_default_jitter_is_full() {
    assert_eq!(Rules::DEFAULT.jitter, Jitter::Full);
    for builder in [Policy::exponential(ms(100)), Policy::arithmetic(ms(100), ms(10))] {
        let policy = free(builder.attempts(2));
        let (one, two) = (drawn(&policy), drawn(&policy));
        assert_ne!(one, two, "{policy:?}");
    }
}

/// In another library, a backoff that overflows ends the retries.
#[test]
fn backoff_overflow_stays_at_the_cap() {
    let policy = exact(Policy::exponential(s(1)).factor(1e300).cap(s(20)).attempts(6));
    let mut call_log = CallLog::new();
    let result_of_call = run_one(&policy, Fails::AT_ONCE, Some(&mut call_log));
    assert_eq!(result_of_call.delays(), [s(1), s(20), s(20), s(20), s(20)]);
    let drew = call_log.events().iter().any(|(_, event)| matches!(event, Event::RandomDraw(_)));
    assert!(!drew, "without jitter nothing is drawn");
}
