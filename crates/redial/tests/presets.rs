//! Goal: each preset is its design's, by name and as a value, with its own throttle or none. Method:
//! the rules are compared with the rulings' numbers, and the policies play on virtual time.

mod designs;

use std::sync::Arc;

use designs::{Clock, Script};
use redial::presets::{self, Preset};
use redial::throttles::Budget;
use redial::{
    Backoff, Failure, Jitter, Late, Limits, Policy, Problem, Reason, Throttle, Why, ms, s,
};

type Outcome = Result<(), Failure>;

const SERVER: Outcome = Err(Failure::server());

/// Plays a call whose attempts end at once with this; starts, end and why.
fn play(policy: &Policy, outcome: Outcome, seed: u64) -> (Vec<f64>, f64, Why) {
    let clock = Clock::default();
    let script = Script::new(&clock, [(0, outcome)]);
    let call = policy.retry(|| script.attempt()).when(|failure| Some(*failure));
    let result = clock.run(call.sleeping_on(clock).seed(seed).into_future());
    let why = result.map_or_else(|error| error.why(), |()| Why::Succeeded);
    (script.starts(), clock.ms(), why)
}

fn delays(starts: &[f64]) -> Vec<f64> {
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn every_preset_has_a_name_and_is_found_by_it() {
    let names = [
        "smithy-standard",
        "aws-2026",
        "aws-2026-dynamodb",
        "milvus",
        "couchbase-best-effort",
        "limits",
    ];
    assert_eq!(Preset::ALL.map(Preset::name), names);
    for preset in Preset::ALL {
        assert_eq!(presets::by_name(preset.name()), Some(preset));
        assert!(!preset.about().is_empty() && !preset.throttle().is_empty());
    }
    assert_eq!(presets::by_name("Limits"), None);
}

#[test]
fn the_presets_by_name_are_those_in_code() {
    let deadline = s(2);
    let in_code = [
        presets::smithy_standard().time_max(deadline).policy(),
        presets::aws_2026().time_max(deadline).policy(),
        presets::aws_2026_dynamodb().time_max(deadline).policy(),
        redial::milvus::Options::default().deadline(deadline).policy(),
        presets::couchbase_best_effort(deadline).build(),
        presets::limits().deadline(deadline).build(),
    ];
    for (preset, in_code) in Preset::ALL.into_iter().zip(in_code) {
        let by_name = preset.policy_within(deadline).expect("valid");
        assert_eq!(by_name.rules(), in_code.expect("valid").rules(), "{}", preset.name());
    }
    let milvus = Preset::Milvus.policy().expect("valid");
    assert_eq!(milvus.rules(), presets::milvus().checked().rules());
}

#[test]
fn each_keeps_its_designs_throttle_and_never_the_default_budget() {
    for preset in Preset::ALL {
        let tokens = preset.policy_within(s(20)).expect("valid").tokens(0);
        let expected = match preset {
            Preset::SmithyStandard | Preset::Aws2026 | Preset::Aws2026Dynamodb => Some(500.0),
            _ => None,
        };
        assert_eq!(tokens, expected, "{}", preset.name());
        assert_eq!(preset.throttle().starts_with("none"), expected.is_none());
    }
}

#[test]
fn a_budget_can_be_added_to_each() {
    for preset in Preset::ALL {
        let budget = Arc::new(Budget::new(1.0, 0.1).expect("valid"));
        let policy = preset.policy_within(s(20)).expect("valid").sharing(budget);
        let (starts, _, why) = play(&policy, SERVER, 1);
        assert_eq!((starts.len(), why), (2, Why::Throttled), "{}", preset.name());
    }
}

#[test]
fn presets_stand_in_a_static() {
    static LIMITED: Policy = presets::limits().attempts(4).checked();
    static KV: Policy = presets::couchbase_best_effort(ms(2500)).checked();
    static SEARCH: Policy = presets::milvus().throttle(Throttle::here()).checked();
    assert_eq!(LIMITED.rules().attempts, Some(4));
    assert_eq!(KV.rules().deadline, Some(ms(2500)));
    assert_eq!(SEARCH.tokens(0), Some(10.0));
}

#[test]
fn best_effort_waits_1_ms_doubled_up_to_500_ms_until_its_deadline() {
    let policy = presets::couchbase_best_effort(ms(2600)).build().expect("valid");
    let (starts, ended, why) = play(&policy, SERVER, 1);
    let expected: Vec<f64> = (0..9).map(|n| f64::powi(2.0, n)).chain([500.0; 4]).collect();
    assert_eq!(delays(&starts), expected);
    // The next delay would pass the deadline: it is waited for, and nothing is sent (C6).
    assert_eq!((ended, why), (2600.0, Why::Deadline));
    assert_eq!(policy.rules().late, Late::Wait);
}

#[test]
fn best_effort_gives_reasons_that_are_always_retried_the_controlled_backoff() {
    let always = Reason::new("KV_NOT_MY_VBUCKET").allow_non_idempotent().always();
    let policy = presets::couchbase_best_effort(ms(3000)).build().expect("valid");
    let (starts, ..) = play(&policy, Err(Failure::server().because(always)), 1);
    assert_eq!(delays(&starts), [1.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 1000.0]);
}

#[test]
fn best_effort_numbers_its_delays_by_attempt_also_after_a_hint() {
    let clock = Clock::default();
    let policy = presets::couchbase_best_effort(ms(100)).attempts(3).build().expect("valid");
    let hinted = Err(Failure::server().retry_after(ms(7)));
    let script = Script::new(&clock, [(0, hinted), (0, SERVER)]);
    let call = policy.retry(|| script.attempt()).when(|failure| Some(*failure));
    assert!(clock.run(call.sleeping_on(clock).into_future()).is_err());
    assert_eq!(delays(&script.starts()), [7.0, 2.0]);
}

#[test]
fn best_effort_without_a_deadline_is_refused() {
    let refused = Preset::CouchbaseBestEffort.policy().map(|_| ());
    assert_eq!(refused, Err(Problem::Unlimited));
}

#[test]
fn the_limits_are_the_decision_records() {
    let policy = presets::limits().build().expect("valid");
    let rules = policy.rules();
    assert_eq!(rules.attempts, Some(6), "five retries");
    let backoff = Backoff::Exponential { first: ms(100), factor: 2.0, cap: None };
    assert_eq!((rules.backoff, rules.jitter), (backoff, Jitter::Half));
    assert_eq!(rules.limits, Limits { soft: Some(s(1)), hard: Some(s(2)), ..Limits::NONE });
}

#[test]
fn the_limits_bound_every_call_whatever_the_draws() {
    let policy = presets::limits().build().expect("valid");
    for seed in 0..200 {
        let (starts, ended, why) = play(&policy, SERVER, seed);
        let delays = delays(&starts);
        assert!(ended <= 2000.0, "the hard limit: {delays:?}");
        for (n, delay) in (0..).zip(&delays) {
            let base = 100.0 * f64::powi(2.0, n);
            assert!((base..=base * 1.5).contains(delay), "up to half is added: {delays:?}");
        }
        let before_last: f64 = delays[..delays.len() - 1].iter().sum();
        assert!(before_last < 1000.0, "no delay begins at the soft limit: {delays:?}");
        assert!(matches!(why, Why::SoftLimit | Why::HardLimit), "{why:?}");
    }
}

#[test]
fn a_limit_never_cancels_a_running_attempt() {
    let clock = Clock::default();
    let policy = presets::limits().build().expect("valid");
    let script = Script::new(&clock, [(60_000, Ok::<(), Failure>(()))]);
    let call = policy.retry(|| script.attempt()).when(|failure| Some(*failure));
    assert!(clock.run(call.sleeping_on(clock).into_future()).is_ok());
    assert_eq!((clock.ms(), script.cancels().len()), (60_000.0, 0));
}
