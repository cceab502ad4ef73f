//! Soft and hard limits on the time spent retrying.

use super::*;

/// 10 ms apart, as often as the limits allow.
fn limited(limits: Limits) -> Rules {
    Rules { attempts: Some(20), limits, ..BASE }
}

const NO_HINTS: &[Option<u64>] = &[];

#[test]
fn limits_soft_allows_delays_that_start_below_it() {
    // L1: 10, 20, 30 are below 35; 40 is not.
    let soft = |soft| limited(Limits { soft: Some(ms(soft)), ..Limits::NONE });
    assert_eq!(delays(soft(35), NO_HINTS), (vec![10.0; 4], StopReason::SoftLimit));
    assert_eq!(delays(soft(30), NO_HINTS), (vec![10.0; 3], StopReason::SoftLimit));
}

#[test]
fn limits_hard_allows_delays_that_end_at_it() {
    // L2.
    let hard = |hard| Limits { hard: Some(ms(hard)), ..Limits::NONE };
    assert_eq!(delays(limited(hard(30)), NO_HINTS), (vec![10.0; 3], StopReason::HardLimit));
    assert_eq!(delays(limited(hard(35)), NO_HINTS), (vec![10.0; 3], StopReason::HardLimit));
    let truncate =
        limited(Limits { over_limit_action: OverLimitAction::TruncateDelay, ..hard(35) });
    let expected = (vec![10.0, 10.0, 10.0, 5.0], StopReason::HardLimit);
    assert_eq!(delays(truncate, NO_HINTS), expected);
    // At the limit the call ends even if the delay is zero.
    let none =
        Rules { backoff: Backoff::Table(const { &[ms(30), Duration::ZERO] }), ..limited(hard(30)) };
    assert_eq!(delays(none, NO_HINTS), (vec![30.0], StopReason::HardLimit));
}

#[test]
fn limits_extend_makes_the_last_delay_end_at_hard() {
    // L3: after 10 + 10 + 10 the next would end at 40.
    let fill = Limits {
        hard: Some(ms(35)),
        last_delay_action: LastDelayAction::ExtendToLimit,
        ..Limits::NONE
    };
    let (filled, left) = (vec![10.0, 10.0, 15.0], vec![10.0, 10.0, 10.0]);
    assert_eq!(delays(limited(fill), NO_HINTS), (filled.clone(), StopReason::HardLimit));
    // With `elapsed`, D + d is the next D; failures take no time here, so the result is the same.
    let elapsed = Limits { basis: LimitBasis::Elapsed, ..fill };
    assert_eq!(delays(limited(elapsed), NO_HINTS), (filled, StopReason::HardLimit));
    // The next delay would end at the limit, which is allowed: this one is not extended.
    let exact = Limits { hard: Some(ms(30)), ..fill };
    assert_eq!(delays(limited(exact), NO_HINTS), (left.clone(), StopReason::HardLimit));
    // The soft limit allows no further delay.
    let soft = Limits { soft: Some(ms(30)), ..fill };
    assert_eq!(delays(limited(soft), NO_HINTS), (left.clone(), StopReason::SoftLimit));
    // No attempt is left for a further delay.
    let last = Rules { attempts: Some(4), ..limited(fill) };
    assert_eq!(delays(last, NO_HINTS), (left, StopReason::AttemptsExhausted));
}

#[test]
fn limits_extend_uses_the_next_base_without_jitter() {
    // L3: for any draw the next base does not fit, also with decorrelated jitter.
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
        let fill = Limits {
            hard: Some(ms(12)),
            last_delay_action: LastDelayAction::ExtendToLimit,
            ..Limits::NONE
        };
        let backoff = Backoff::Exponential { first: ms(5), factor: 100.0, cap: None };
        let rules = Rules { jitter, backoff, ..limited(fill) };
        assert_eq!(delays(rules, NO_HINTS), (vec![12.0], StopReason::HardLimit), "{jitter:?}");
    }
}

#[test]
fn limits_count_server_hints_but_never_change_them() {
    // L3, second part.
    let limits = Limits {
        hard: Some(ms(35)),
        over_limit_action: OverLimitAction::TruncateDelay,
        last_delay_action: LastDelayAction::ExtendToLimit,
        ..Limits::NONE
    };
    let hints = [Some(20), Some(20)];
    assert_eq!(delays(limited(limits), &hints), (vec![20.0], StopReason::HardLimit));
    let hints = [Some(20), Some(8), Some(7)];
    assert_eq!(delays(limited(limits), &hints), (vec![20.0, 8.0, 7.0], StopReason::HardLimit));
    // The hint counts in D: after 20, the backoff's 10 is the last delay that fits, and is
    // extended.
    assert_eq!(delays(limited(limits), &[Some(20)]), (vec![20.0, 15.0], StopReason::HardLimit));
}

#[test]
fn limits_may_change_a_delay_no_hint_extended() {
    // L3, S6: the second delay is the backoff's own 10, so it may be truncated or extended.
    let rules = |limits| Rules { hint: HintRule::Within(ms(5)), ..limited(limits) };
    let hard = |hard| Limits { hard: Some(ms(hard)), ..Limits::NONE };
    let truncate = Limits { over_limit_action: OverLimitAction::TruncateDelay, ..hard(15) };
    let fill = Limits { last_delay_action: LastDelayAction::ExtendToLimit, ..hard(25) };
    for hint in [0, 9, 10] {
        let hints = [None, Some(hint)];
        assert_eq!(
            delays(rules(truncate), &hints),
            (vec![10.0, 5.0], StopReason::HardLimit),
            "{hint}"
        );
        assert_eq!(
            delays(rules(fill), &hints),
            (vec![10.0, 15.0], StopReason::HardLimit),
            "{hint}"
        );
    }
    let hints = [None, Some(11)];
    assert_eq!(delays(rules(truncate), &hints), (vec![10.0], StopReason::HardLimit));
    assert_eq!(delays(rules(fill), &hints), (vec![10.0, 11.0], StopReason::HardLimit));
}

#[test]
fn limits_elapsed_includes_time_spent_in_attempts() {
    let limits = Limits { hard: Some(ms(25)), basis: LimitBasis::Elapsed, ..Limits::NONE };
    retry(limited(limits), |driver| {
        driver.reach(4);
        driver.report(1, FAILED);
        driver.reach(14);
        driver.wake();
        driver.reach(16);
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::HardLimit, Some(2))), "16 + 10 is above 25");
    });
}

#[test]
fn limits_never_cancel_a_running_attempt() {
    let limits = Limits { hard: Some(ms(5)), basis: LimitBasis::Elapsed, ..Limits::NONE };
    retry(limited(limits), |driver| {
        assert_eq!(driver.call.wake_at(), None);
        driver.reach(1000);
        driver.report(1, Directive::Succeed);
        assert_eq!(driver.stop_reason(), Some(StopReason::Succeeded));
    });
}
