//! Presets, by name and as values: their rules are those of the decisions, and they behave so on virtual
//! time.

#[path = "common/virtual_clock.rs"]
mod virtual_clock;

use redial::presets::{self, Preset};
use redial::{
    Failure, Jitter, StopReason, ms,
    rules::{Backoff, Limits},
    s,
};
use virtual_clock::{Clock, Script, delays, play_repeated};

const SERVER: Result<(), Failure> = Err(Failure::server());

#[test]
fn preset_by_name_equals_the_function() {
    assert_eq!(presets::by_name("limits"), Some(Preset::Limits));
    assert_eq!(presets::by_name("Limits"), None);
    let by_name = Preset::Limits.policy_within(s(2)).expect("valid");
    assert_eq!(
        by_name.rules(),
        presets::limits().deadline(s(2)).try_build().expect("valid").rules()
    );
    assert_eq!(by_name.tokens(0), None);
}

#[test]
fn preset_limits_match_the_decision_record() {
    let policy = presets::limits().try_build().expect("valid");
    let rules = policy.rules();
    assert_eq!(rules.attempts, Some(6), "five retries");
    let backoff = Backoff::Exponential { first: ms(100), factor: 2.0, cap: None };
    assert_eq!((rules.backoff, rules.jitter), (backoff, Jitter::Half));
    assert_eq!(rules.limits, Limits { soft: Some(s(1)), hard: Some(s(2)), ..Limits::NONE });
}

#[test]
fn preset_limits_bound_every_call_for_all_draws() {
    let policy = presets::limits().try_build().expect("valid");
    for seed in 0..200 {
        let (starts, ended, stop_reason) = play_repeated(&policy, SERVER, seed);
        let delays = delays(&starts);
        assert!(ended <= 2000.0, "the hard limit: {delays:?}");
        for (n, delay) in (0..).zip(&delays) {
            let base = 100.0 * f64::powi(2.0, n);
            assert!((base..=base * 1.5).contains(delay), "up to half is added: {delays:?}");
        }
        let before_last: f64 = delays[..delays.len() - 1].iter().sum();
        assert!(before_last < 1000.0, "no delay begins at the soft limit: {delays:?}");
        assert!(
            matches!(stop_reason, StopReason::SoftLimit | StopReason::HardLimit),
            "{stop_reason:?}"
        );
    }
}

#[test]
fn limits_never_cancel_a_running_attempt() {
    let clock = Clock::default();
    let policy = presets::limits().try_build().expect("valid");
    let script = Script::new(&clock, [(60_000, Ok::<(), Failure>(()))]);
    let call = policy.retry(|| script.attempt()).when(|failure| Some(*failure));
    assert!(clock.run(call.sleeping_on(clock).into_future()).is_ok());
    assert_eq!((clock.ms(), script.cancels().len()), (60_000.0, 0));
}
