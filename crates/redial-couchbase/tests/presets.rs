//! The best-effort preset, on virtual time.

#[path = "../../redial/tests/common/virtual_clock.rs"]
mod virtual_clock;

use redial::{Failure, Reason, StopReason, ms, rules::DeadlineAction};
use redial_couchbase::presets;
use virtual_clock::{Clock, Script, delays, play_repeated};

const SERVER: Result<(), Failure> = Err(Failure::server());

#[test]
fn preset_best_effort_doubles_1_ms_up_to_500_ms() {
    let policy = presets::couchbase_best_effort(ms(2600)).build();
    let (starts, ended, stop_reason) = play_repeated(&policy, SERVER, 1);
    let expected: Vec<f64> = (0..9).map(|n| f64::powi(2.0, n)).chain([500.0; 4]).collect();
    assert_eq!(delays(&starts), expected);
    // The next delay would exceed the deadline: the call waits for the deadline without another attempt (C6).
    assert_eq!((ended, stop_reason), (2600.0, StopReason::Deadline));
    assert_eq!(policy.rules().deadline_action, DeadlineAction::WaitForDeadline);
}

#[test]
fn preset_best_effort_uses_controlled_backoff_for_always_reasons() {
    let always = Reason::new("KV_NOT_MY_VBUCKET").allow_non_idempotent().always();
    let policy = presets::couchbase_best_effort(ms(3000)).build();
    let (starts, ..) = play_repeated(&policy, Err(Failure::server().because(always)), 1);
    assert_eq!(delays(&starts), [1.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 1000.0]);
}

#[test]
fn preset_best_effort_counts_attempts_after_hint() {
    let clock = Clock::default();
    let policy = presets::couchbase_best_effort(ms(100)).attempts(3).build();
    let hinted = Err(Failure::server().retry_after(ms(7)));
    let script = Script::new(&clock, [(0, hinted), (0, SERVER)]);
    let call = policy.retry(|| script.attempt()).when(|failure| Some(*failure));
    assert!(clock.run(call.sleeping_on(clock).into_future()).is_err());
    assert_eq!(delays(&script.starts()), [7.0, 2.0]);
}
