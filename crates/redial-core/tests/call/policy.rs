//! Validation of policies.

use super::*;

#[test]
fn policy_contradictions_are_rejected_when_built() {
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
    // The nearest valid neighbour of each contradiction.
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
fn policy_custom_backoff_requires_a_table_or_function() {
    let rules = Rules { backoff: Backoff::Own, ..Rules::DEFAULT };
    assert_eq!(Policy::try_new(rules).err(), Some(PolicyError::OwnBackoff));
    assert!(Policy::with_table(rules, [ms(1)]).is_ok());
    assert!(Policy::with_function(rules, |_| ms(1)).is_ok());
}

#[test]
fn policy_change_is_checked_and_keeps_or_drops_its_table() {
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
fn policy_has_lasting_delays_unless_a_series_fades() {
    let lasts = |rules: Rules| policy(rules).has_lasting_delays();
    let of = |backoff| lasts(Rules { backoff, ..BASE });
    assert!(of(Backoff::Constant(ms(1))) && !of(Backoff::Constant(Duration::ZERO)));
    assert!(of(Backoff::Arithmetic { first: Duration::ZERO, step: ms(1), cap: None }));
    assert!(!of(Backoff::Exponential { first: ms(1), factor: 0.5, cap: None }));
    assert!(!of(Backoff::Fibonacci { first: ms(1), cap: Some(Duration::ZERO) }));
    let zero = Some(Duration::ZERO);
    assert!(lasts(BASE) && !lasts(Rules { throttling_first: zero, ..BASE }));
    assert!(!lasts(Rules { always: Backoff::Constant(Duration::ZERO), ..BASE }));
    // Decorrelated jitter stays zero if it begins there.
    const FROM_ZERO: Backoff = Backoff::Table(&[Duration::ZERO, ms(10)]);
    let decorrelated = Rules { jitter: Jitter::Decorrelated, backoff: FROM_ZERO, ..BASE };
    assert!(of(FROM_ZERO) && !lasts(decorrelated));
    let table = |table: &[Duration]| Policy::with_table(BASE, table).unwrap();
    assert!(table(&[Duration::ZERO, ms(1)]).has_lasting_delays());
    assert!(!table(&[ms(1), Duration::ZERO]).has_lasting_delays());
    // A function is taken at its word. A change of the rules is followed.
    let function = Policy::with_function(BASE, |_| Duration::ZERO).unwrap();
    assert!(
        function.clone().changed(|rules| rules.attempts = Some(9)).unwrap().has_lasting_delays()
    );
    let constant = function.changed(|rules| rules.backoff = Backoff::Constant(Duration::ZERO));
    assert!(!constant.unwrap().has_lasting_delays());
}

#[test]
fn policy_unlimited_attempts_need_delays_that_reach_a_limit() {
    let endless = Rules {
        attempts: None,
        limits: Limits { hard: Some(ms(100)), ..Limits::NONE },
        throttling_first: Some(ms(5)),
        ..BASE
    };
    const FROM_ZERO: &[Duration] = &[Duration::ZERO, ms(10)];
    const ZERO: Backoff = Backoff::Constant(Duration::ZERO);
    assert_eq!(Policy::try_new(endless).err(), None);
    // Decorrelated jitter grows by a factor of up to 3 from the first delay; from zero it stays
    // zero.
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
        // A deadline or an elapsed limit ends the attempts in any case.
        let ends = [
            Rules { deadline: Some(ms(1)), ..rules },
            Rules { limits: Limits { basis: LimitBasis::Elapsed, ..rules.limits }, ..rules },
        ];
        assert!(ends.into_iter().all(|rules| Policy::try_new(rules).is_ok()));
    }
    let own = Policy::with_table(decorrelated, FROM_ZERO);
    assert_eq!(own.err(), Some(PolicyError::Unlimited));
}

#[test]
fn policy_unlimited_attempts_allow_shrinking_delays_that_reach_a_limit() {
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
        // 100 + 50 + 25 ms; the infinite sum stays just below 200 ms.
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
        // Either limit ends the attempts, and the smaller one is reached first.
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
        // Decorrelated jitter stays at zero if the first delay or the cap is zero.
        (
            rules(
                Backoff::Exponential { first: ms(1), factor: 0.5, cap: Some(Duration::ZERO) },
                Jitter::Decorrelated,
                ms(1),
            ),
            false,
        ),
        // The sum is checked for a bounded number of delays.
        (rules(fading(0.999_999), Jitter::None, ms(1_000_000)), false),
    ];
    for (rules, ends) in table {
        assert_eq!(Policy::try_new(rules).is_ok(), ends, "{rules:?}");
        if let Backoff::Table(entries) = rules.backoff {
            assert_eq!(Policy::with_table(rules, entries).is_ok(), ends, "{rules:?}");
        }
    }
    // A last entry that repeats reaches the limit with any jitter.
    let full = rules(half, Jitter::Full, ms(5));
    assert_eq!(Policy::with_table(full, [Duration::ZERO, ms(1)]).err(), None);
    // The check includes the thousandth delay, and none after it.
    for (zeros, ends) in [(999, true), (1000, false)] {
        let mut entries = vec![Duration::ZERO; zeros];
        entries.extend([ms(5), Duration::ZERO]);
        let policy = Policy::with_table(rules(half, Jitter::None, ms(5)), entries);
        assert_eq!(policy.is_ok(), ends, "{zeros}");
    }
}
