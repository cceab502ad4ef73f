//! Soft and hard limits on the time that retries take. (The other designs have crates of their own; their
//! examples are listed in `docs/cookbook.md`.)

use redial::rules::{Limits, OverLimitAction};
use redial::testing::{fails, play};
use redial::{Policy, StopReason, ms, s};

#[test]
fn program_bounds_the_time_of_its_retries() {
    let limits = Limits { soft: Some(s(5)), hard: Some(s(8)), ..Limits::NONE };
    let policy = Policy::constant(s(2)).unlimited().limits(limits).build();
    // No retry begins once the delays add up to five seconds.
    let played = play(&policy, [fails().after(ms(10)); 9]);
    assert_eq!((played.starts().len(), played.stop_reason()), (4, Some(StopReason::SoftLimit)));

    // The last delay is cut to what the hard limit leaves.
    let limits = Limits {
        hard: Some(s(5)),
        over_limit_action: OverLimitAction::TruncateDelay,
        ..Limits::NONE
    };
    let policy = Policy::constant(s(2)).unlimited().limits(limits).build();
    let played = play(&policy, [fails(); 9]);
    assert_eq!(played.starts(), [s(0), s(2), s(4), s(5)]);
    assert_eq!(played.stop_reason(), Some(StopReason::HardLimit));
}

#[test]
fn program_uses_the_preset() {
    let policy = redial::presets::limits().build();
    assert_eq!(policy.rules().attempts, Some(6));
}
