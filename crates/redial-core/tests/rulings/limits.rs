//! Decisions L, and what is refused when a policy is built.

use super::*;

/// 10 ms apart, as often as the limits allow.
fn limited(limits: Limits) -> Rules {
    Rules { attempts: Some(20), limits, ..BASE }
}

const NO_HINTS: &[Option<u64>] = &[];

#[test]
fn a_delay_may_pass_the_soft_limit_but_not_begin_at_it() {
    // L1: 10, 20, 30 are below 35; 40 is not.
    let soft = |soft| limited(Limits { soft: Some(ms(soft)), ..Limits::NONE });
    assert_eq!(delays(soft(35), NO_HINTS), (vec![10.0; 4], StopReason::SoftLimit));
    assert_eq!(delays(soft(30), NO_HINTS), (vec![10.0; 3], StopReason::SoftLimit));
}

#[test]
fn a_delay_may_end_at_the_hard_limit_but_not_above_it() {
    // L2.
    let hard = |hard| Limits { hard: Some(ms(hard)), ..Limits::NONE };
    assert_eq!(delays(limited(hard(30)), NO_HINTS), (vec![10.0; 3], StopReason::HardLimit));
    assert_eq!(delays(limited(hard(35)), NO_HINTS), (vec![10.0; 3], StopReason::HardLimit));
    let truncate =
        limited(Limits { over_limit_action: OverLimitAction::TruncateDelay, ..hard(35) });
    let expected = (vec![10.0, 10.0, 10.0, 5.0], StopReason::HardLimit);
    assert_eq!(delays(truncate, NO_HINTS), expected);
    // At the limit itself it ends whatever the delay: even none.
    let none =
        Rules { backoff: Backoff::Table(const { &[ms(30), Duration::ZERO] }), ..limited(hard(30)) };
    assert_eq!(delays(none, NO_HINTS), (vec![30.0], StopReason::HardLimit));
}

#[test]
fn filling_makes_the_last_delay_that_fits_end_at_the_hard_limit() {
    // L3: after 10 + 10 + 10 the next would end at 40.
    let fill = Limits {
        hard: Some(ms(35)),
        last_delay_action: LastDelayAction::ExtendToLimit,
        ..Limits::NONE
    };
    let (filled, left) = (vec![10.0, 10.0, 15.0], vec![10.0, 10.0, 10.0]);
    assert_eq!(delays(limited(fill), NO_HINTS), (filled.clone(), StopReason::HardLimit));
    // With `elapsed`, D + d stands for the next D; failures take no time here, so it is the same.
    let elapsed = Limits { basis: LimitBasis::Elapsed, ..fill };
    assert_eq!(delays(limited(elapsed), NO_HINTS), (filled, StopReason::HardLimit));
    // The next would end at the limit itself, which is allowed: nothing is filled before it.
    let exact = Limits { hard: Some(ms(30)), ..fill };
    assert_eq!(delays(limited(exact), NO_HINTS), (left.clone(), StopReason::HardLimit));
    // The soft limit would not allow another.
    let soft = Limits { soft: Some(ms(30)), ..fill };
    assert_eq!(delays(limited(soft), NO_HINTS), (left.clone(), StopReason::SoftLimit));
    // No attempt would be left for another.
    let last = Rules { attempts: Some(4), ..limited(fill) };
    assert_eq!(delays(last, NO_HINTS), (left, StopReason::AttemptsExhausted));
}

#[test]
fn filling_looks_at_the_next_base_without_jitter() {
    // L3: whatever the draws, the next base would not fit, for decorrelated jitter too.
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
fn a_servers_hint_counts_in_the_limits_and_is_never_changed_by_them() {
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
    // It is in D: after 20, the backoff's 10 is the last that fits, and is filled up.
    assert_eq!(delays(limited(limits), &[Some(20)]), (vec![20.0, 15.0], StopReason::HardLimit));
}

#[test]
fn a_hint_that_asks_for_no_more_than_the_backoff_leaves_the_delay_ours() {
    // L3, S6: the second delay is the backoff's own 10, and is cut or filled like it.
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
fn an_elapsed_limit_counts_the_attempts_themselves() {
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
fn a_limit_never_cancels_a_running_attempt() {
    let limits = Limits { hard: Some(ms(5)), basis: LimitBasis::Elapsed, ..Limits::NONE };
    retry(limited(limits), |driver| {
        assert_eq!(driver.call.wake_at(), None);
        driver.reach(1000);
        driver.report(1, Directive::Succeed);
        assert_eq!(driver.stop_reason(), Some(StopReason::Succeeded));
    });
}

#[test]
fn contradictions_are_refused_when_a_policy_is_built() {
    // L4 and the list in docs/scenarios.md.
    let limits = |limits| Rules { limits, ..BASE };
    let none = Limits::NONE;
    let endless = Rules { attempts: None, ..BASE };
    let zero = Some(Duration::ZERO);
    let table: &[(Rules, PolicyError)] = &[
        (Rules { attempts: Some(0), ..BASE }, PolicyError::NoAttempt),
        (
            limits(Limits { soft: Some(ms(2)), hard: Some(ms(1)), ..none }),
            PolicyError::SoftAboveHard,
        ),
        (limits(Limits { soft: zero, ..none }), PolicyError::LimitOfZero),
        (limits(Limits { hard: zero, ..none }), PolicyError::LimitOfZero),
        (
            limits(Limits {
                last_delay_action: LastDelayAction::ExtendToLimit,
                soft: Some(ms(1)),
                ..none
            }),
            PolicyError::FillWithoutHard,
        ),
        (
            limits(Limits { over_limit_action: OverLimitAction::TruncateDelay, ..none }),
            PolicyError::TruncateWithoutHard,
        ),
        (
            Rules { deadline: Some(ms(5)), attempt_timeout: Some(ms(5)), ..BASE },
            PolicyError::AttemptTimeout,
        ),
        (
            Rules { limits: Limits { soft: Some(ms(1)), ..none }, ..HEDGED },
            PolicyError::HedgeWithLimits,
        ),
        (Rules { attempts: Some(33), ..HEDGED }, PolicyError::HedgeAttempts),
        (Rules { attempts: None, ..HEDGED }, PolicyError::Unlimited),
        (Rules { uses_strategy: true, ..HEDGED }, PolicyError::HedgeWithStrategy),
        (Rules { backoff: Backoff::Table(&[]), ..BASE }, PolicyError::EmptyTable),
        (Rules { jitter: Jitter::Proportional(1.01), ..BASE }, PolicyError::Proportion),
        (Rules { jitter: Jitter::Proportional(f64::NAN), ..BASE }, PolicyError::Proportion),
        (endless, PolicyError::Unlimited),
        (
            Rules {
                backoff: Backoff::Constant(Duration::ZERO),
                limits: Limits { hard: Some(ms(1)), ..none },
                ..endless
            },
            PolicyError::Unlimited,
        ),
    ];
    for (rules, problem) in table {
        assert_eq!(Policy::try_new(*rules).err(), Some(*problem), "{rules:?}");
        assert!(problem.text().starts_with(problem.field()), "{problem:?}");
    }
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let backoff = Backoff::Exponential { first: ms(1), factor, cap: None };
        assert_eq!(Policy::try_new(Rules { backoff, ..BASE }).err(), Some(PolicyError::Factor));
    }
    assert_eq!(Policy::with_table(BASE, []).err(), Some(PolicyError::EmptyTable));
    // One step away from each, it is a policy.
    let limit = Limits { hard: Some(ms(1)), ..none };
    for rules in [
        limits(Limits { soft: Some(ms(1)), hard: Some(ms(1)), ..none }),
        Rules { deadline: Some(ms(5)), attempt_timeout: Some(ms(4)), ..BASE },
        Rules { attempts: Some(32), ..HEDGED },
        Rules { attempts: None, deadline: Some(ms(5)), ..HEDGED },
        Rules { limits: limit, ..endless },
        Rules { deadline: Some(ms(1)), ..endless },
        Rules {
            limits: Limits { basis: LimitBasis::Elapsed, ..limit },
            backoff: Backoff::Constant(Duration::ZERO),
            ..endless
        },
    ] {
        assert_eq!(Policy::try_new(rules).err(), None, "{rules:?}");
    }
}

#[test]
fn a_backoff_of_its_own_must_be_given() {
    let rules = Rules { backoff: Backoff::Own, ..Rules::DEFAULT };
    assert_eq!(Policy::try_new(rules).err(), Some(PolicyError::OwnBackoff));
    assert!(Policy::with_table(rules, [ms(1)]).is_ok());
    assert!(Policy::with_function(rules, |_| ms(1)).is_ok());
}

#[test]
fn a_policy_that_is_changed_is_checked_again_and_keeps_or_forgets_its_table() {
    let own = Policy::with_table(BASE, [ms(1), ms(2)]).unwrap();
    let more = own.clone().changed(|rules| rules.attempts = Some(9)).unwrap();
    assert_eq!(more.table(), Some(&[ms(1), ms(2)][..]));
    let other = own.clone().changed(|rules| rules.backoff = Backoff::Constant(ms(5))).unwrap();
    assert_eq!(other.table(), None);
    assert_eq!(own.changed(|rules| rules.attempts = Some(0)).err(), Some(PolicyError::NoAttempt));
    assert!(policy(BASE).is_plain());
    let hedged = policy(BASE).changed(|rules| rules.hedge = Some(ms(1))).unwrap();
    assert!(!hedged.is_plain());
}

#[test]
fn unlimited_attempts_need_delays_that_reach_the_limit_whatever_the_failure() {
    let endless = Rules {
        attempts: None,
        limits: Limits { hard: Some(ms(100)), ..Limits::NONE },
        throttling_first: Some(ms(5)),
        ..BASE
    };
    const FROM_ZERO: &[Duration] = &[Duration::ZERO, ms(10)];
    const ZERO: Backoff = Backoff::Constant(Duration::ZERO);
    assert_eq!(Policy::try_new(endless).err(), None);
    // Decorrelated jitter grows from the first delay: three times nothing is nothing.
    let decorrelated = Rules { jitter: Jitter::Decorrelated, ..endless };
    let table = Rules { backoff: Backoff::Table(FROM_ZERO), ..endless };
    assert_eq!(Policy::try_new(decorrelated).err(), None);
    assert_eq!(Policy::try_new(table).err(), None);
    assert_eq!(Policy::with_table(endless, FROM_ZERO).err(), None);
    let refused = [
        Rules { backoff: ZERO, ..endless },
        Rules { throttling_first: Some(Duration::ZERO), ..endless },
        Rules { always: ZERO, ..endless },
        Rules { backoff: Backoff::Table(FROM_ZERO), ..decorrelated },
        Rules {
            backoff: Backoff::Arithmetic { first: Duration::ZERO, step: ms(1), cap: None },
            ..decorrelated
        },
    ];
    for rules in refused {
        assert_eq!(Policy::try_new(rules).err(), Some(PolicyError::Unlimited), "{rules:?}");
        // A deadline or the clock ends them all the same.
        let ends = [
            Rules { deadline: Some(ms(1)), ..rules },
            Rules { limits: Limits { basis: LimitBasis::Elapsed, ..rules.limits }, ..rules },
        ];
        assert!(ends.into_iter().all(|rules| Policy::try_new(rules).is_ok()));
    }
    let own = Policy::with_table(decorrelated, FROM_ZERO);
    assert_eq!(own.err(), Some(PolicyError::Unlimited));
}

/// Red: call every series that fades endless (`return false` before the sum), or none (`return true`).
#[test]
fn unlimited_attempts_may_have_delays_that_fade_if_they_reach_the_limit() {
    let fading = |factor| Backoff::Exponential { first: ms(100), factor, cap: None };
    let soft = |limit| Limits { soft: Some(limit), ..Limits::NONE };
    let rules = |backoff, jitter, limit| Rules {
        attempts: None,
        backoff,
        jitter,
        limits: soft(limit),
        ..BASE
    };
    let (half, three_quarters) = (fading(0.5), fading(0.75));
    const ENDS_IN_NOTHING: &[Duration] = &[ms(5), ms(5), Duration::ZERO];
    let table = [
        // 100 + 50 + 25 ms; all of them are less than 200 ms, if only by a nanosecond.
        (rules(half, Jitter::None, ms(175)), true),
        (rules(half, Jitter::None, ms(200)), false),
        (rules(half, Jitter::Half, ms(175)), true),
        (rules(half, Jitter::Equal, ms(87)), true),
        (rules(half, Jitter::Equal, ms(100)), false),
        (rules(half, Jitter::Proportional(0.2), ms(140)), true),
        (rules(half, Jitter::Proportional(0.2), ms(161)), false),
        (rules(half, Jitter::Full, ms(1)), false),
        (rules(half, Jitter::Decorrelated, ms(1000)), true),
        (rules(three_quarters, Jitter::None, ms(399)), true),
        (rules(three_quarters, Jitter::None, ms(400)), false),
        (rules(Backoff::Table(ENDS_IN_NOTHING), Jitter::None, ms(10)), true),
        (rules(Backoff::Table(ENDS_IN_NOTHING), Jitter::None, ms(11)), false),
        (rules(Backoff::Table(ENDS_IN_NOTHING), Jitter::Decorrelated, ms(11)), true),
        (Rules { uses_strategy: true, ..rules(half, Jitter::None, ms(175)) }, false),
        (Rules { numbering: Numbering::Attempts, ..rules(half, Jitter::None, ms(175)) }, false),
        // Either limit ends it, and the smaller one is reached first.
        (
            Rules {
                limits: Limits { hard: Some(ms(1000)), ..soft(ms(175)) },
                ..rules(half, Jitter::None, ms(1))
            },
            true,
        ),
        (
            Rules {
                limits: Limits { hard: Some(ms(175)), ..Limits::NONE },
                ..rules(half, Jitter::None, ms(1))
            },
            true,
        ),
        // Three times nothing is nothing, be it the first delay or the cap.
        (
            rules(
                Backoff::Exponential { first: ms(1), factor: 0.5, cap: Some(Duration::ZERO) },
                Jitter::Decorrelated,
                ms(1),
            ),
            false,
        ),
        // Nobody counts for ever.
        (rules(fading(0.999_999), Jitter::None, ms(1_000_000)), false),
    ];
    for (rules, ends) in table {
        assert_eq!(Policy::try_new(rules).is_ok(), ends, "{rules:?}");
        if let Backoff::Table(entries) = rules.backoff {
            assert_eq!(Policy::with_table(rules, entries).is_ok(), ends, "{rules:?}");
        }
    }
    // What repeats for ever gets there, whatever jitter leaves of it.
    let full = rules(half, Jitter::Full, ms(5));
    assert_eq!(Policy::with_table(full, [Duration::ZERO, ms(1)]).err(), None);
    // The thousandth delay is looked at, and none after it.
    for (zeros, ends) in [(999, true), (1000, false)] {
        let mut entries = vec![Duration::ZERO; zeros];
        entries.extend([ms(5), Duration::ZERO]);
        let policy = Policy::with_table(rules(half, Jitter::None, ms(5)), entries);
        assert_eq!(policy.is_ok(), ends, "{zeros}");
    }
}
