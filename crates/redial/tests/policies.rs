//! Policies: timeouts that are not retried unless a policy says so, names, delays for hand-written loops,
//! attempts without end, resets, and budgets that cannot pay.
//!
//! Calls run on virtual time, except for blocking ones, which state their tolerance.

use std::cell::Cell;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use redial::rules::{Backoff, Rules};
use redial::testing::{Clock, block_on, draws, fails, fails_with, hangs, play, succeeds};
use redial::throttle::RetryBudget;
use redial::time::Sleeper;
use redial::{
    AnyPolicy, Error, Failure, FailureKind, Hedged, Jitter, Policy, PolicyError, StopReason,
    Throttle, ms, s,
};

/// Calls an operation that takes a second and counts a charge; returns the charges and the result.
fn charge(policy: &Policy) -> (u32, Result<(), Error<&'static str>>) {
    let charges = Cell::new(0);
    let pay = || {
        charges.set(charges.get() + 1);
        async {
            Clock.sleep(s(1)).await;
            Ok(())
        }
    };
    let call = policy.retry(pay).when(|_| false).sleeping_on(Clock);
    let result = block_on(call.into_future());
    (charges.get(), result)
}

// A user's report: a payment that timed out was charged three times, and `when` was never asked.
#[test]
fn attempt_timeout_is_not_retried_without_permission() {
    let timed = Policy::immediate().attempts(3).attempt_timeout(ms(10));
    let (charges, result) = charge(&timed.try_build().expect("valid"));
    let error = result.expect_err("it takes too long");
    assert_eq!((charges, error.stop_reason()), (1, StopReason::AttemptTimeout));
    assert_eq!(error.elapsed(), ms(10));
    let (charges, result) = charge(&timed.retry_timeouts().try_build().expect("valid"));
    let error = result.expect_err("it takes too long");
    assert_eq!((charges, error.stop_reason()), (3, StopReason::AttemptsExhausted));
}

#[test]
fn attempt_timeout_of_a_hedged_policy_starts_the_next_attempt() {
    let hedged = Policy::hedged(s(60)).attempts(3).attempt_timeout(ms(10)).build();
    assert_eq!(play(&hedged, [hangs(), succeeds()]).starts(), [ms(0), ms(10)]);
}

#[test]
fn error_is_timeout_if_no_attempt_returned_in_time() {
    let ends = |policy: &Policy, returns: bool| {
        let tries = Cell::new(0);
        let call = policy.retry(|| {
            tries.set(tries.get() + 1);
            let answers = returns && tries.get() == 1;
            async move { if answers { Err::<(), _>("busy") } else { pending().await } }
        });
        let error =
            block_on(call.when(|_| true).sleeping_on(Clock).into_future()).expect_err("late");
        (error.stop_reason(), error.is_timeout())
    };
    let timed = || Policy::constant(ms(1)).attempts(3).attempt_timeout(ms(10));
    let stops = timed().build();
    let retries = timed().retry_timeouts().build();
    assert_eq!(ends(&stops, false), (StopReason::AttemptTimeout, true));
    assert_eq!(ends(&stops, true), (StopReason::AttemptTimeout, true), "the last one timed out");
    assert_eq!(ends(&retries, false), (StopReason::AttemptsExhausted, true));
    assert_eq!(ends(&retries, true), (StopReason::AttemptsExhausted, false), "one returned");
    let busy = Policy::immediate().attempts(2).build();
    let error = busy.retry(|| Err::<(), _>(())).when(|()| true).call().expect_err("busy");
    assert!(!error.is_timeout());
}

#[test]
fn policy_name_is_its_place_unless_given() {
    static PLACED: Policy = Policy::constant(ms(1)).build();
    static NAMED: Policy = Policy::constant(ms(1)).name("fetch").build();
    let place = PLACED.name().to_string();
    assert!(place.starts_with("crates/redial/tests/policies.rs:"), "{place}");
    assert!(place.rsplit(':').next().is_some_and(|line| line.parse::<u32>().is_ok()), "{place}");
    assert_eq!((PLACED.name().custom(), NAMED.name().custom()), (None, Some("fetch")));
    assert_eq!(NAMED.with_name("other").name().to_string(), "other");
    assert_eq!(format!("{:>7}|{:?}", NAMED.name(), NAMED.name()), "  fetch|fetch");
    // A throttle from another line does not move the place.
    let budget = Throttle::here();
    let policy = Policy::constant(ms(1)).throttle(budget).build();
    let line: u32 = policy.name().to_string().rsplit(':').next().expect("a line").parse().unwrap();
    assert_eq!(line + 1, line!() - 1);
    for policy in [Policy::default(), Policy::immediate().try_build().expect("valid")] {
        assert!(policy.name().to_string().contains("policies.rs:"), "{policy:?}");
    }
    let core = AnyPolicy::from_core(PLACED.core().clone());
    assert!(core.name().to_string().contains("policies.rs:"), "{core:?}");
    assert!(format!("{NAMED:?}").contains("name: fetch"));
}

/// A loaded policy is changed as its parts are, and keeps its kind.
#[test]
fn any_policy_can_be_changed_as_its_parts() {
    static RETRIES: Policy = Policy::constant(ms(10)).build();
    static HEDGES: Hedged = Policy::hedged(ms(10)).build();
    for policy in [AnyPolicy::from(RETRIES.clone()), AnyPolicy::from(HEDGES.clone())] {
        let bounded = policy.with_rules(|rules| rules.deadline = Some(s(1))).expect("valid");
        assert_eq!(bounded.rules().deadline, Some(s(1)));
        let other_kind = policy.with_rules(|rules| {
            rules.hedge = rules.hedge.xor(Some(ms(10)));
        });
        assert!(other_kind.is_err(), "{policy:?}");
        let budget = Arc::new(RetryBudget::new(2.0, 0.1));
        let named = policy.with_name("loaded").with_budget(budget.clone());
        assert_eq!((named.name().to_string().as_str(), named.tokens_at(0)), ("loaded", Some(2.0)));
        assert_eq!(policy.sharing(budget).tokens_at(0), Some(2.0));
    }
}

/// The kind of a loaded policy is not known to the code that says that its call must not run twice.
#[test]
fn any_policy_attempts_a_call_that_is_not_idempotent_once() {
    let retries = Policy::constant(ms(1)).attempts(3).build();
    let hedges = Policy::hedged(ms(1)).attempts(3).build();
    for policy in [AnyPolicy::from(retries), AnyPolicy::from(hedges)] {
        let tries = Cell::new(0);
        let call = policy.retry(|| {
            tries.set(tries.get() + 1);
            async {
                Clock.sleep(ms(10)).await;
                Err::<(), _>("reset")
            }
        });
        let call = call.when(|_| Failure::client()).not_idempotent().sleeping_on(Clock);
        let error = block_on(call.into_future()).expect_err("it fails");
        assert_eq!((error.stop_reason(), tries.get()), (StopReason::NotIdempotent, 1));
    }
}

#[test]
fn delays_are_those_of_a_call() {
    let policies = [
        Policy::exponential(ms(10)).attempts(6),
        Policy::fibonacci(ms(10)).attempts(6),
        Policy::arithmetic(ms(10), ms(5)).jitter(Jitter::Equal).attempts(6),
        Policy::exponential(ms(10)).jitter(Jitter::Decorrelated).attempts(6),
        Policy::constant(ms(10)).unlimited().deadline(ms(45)),
    ];
    for builder in policies {
        let policy = builder.throttle(Throttle::none()).build();
        let mut starts = vec![Clock.now()];
        let call = policy.retry(|| {
            starts.push(Clock.now());
            async { Err::<(), _>(()) }
        });
        let call = call.when(|()| true).seed(7).sleeping_on(Clock);
        assert!(block_on(call.into_future()).is_err());
        let waited = starts.windows(2).skip(1).map(|pair| Duration::from_nanos(pair[1] - pair[0]));
        assert_eq!(policy.delays().seed(7).collect::<Vec<_>>(), waited.collect::<Vec<_>>());
    }
}

#[test]
fn delays_use_draws_of_tests_and_hints_of_failures() {
    static FETCH: Policy = Policy::exponential(ms(100)).attempts(4).build();
    let _draws = draws([0.5, 0.25]);
    assert_eq!(FETCH.delays().collect::<Vec<_>>(), [50, 50, 100].map(ms));
    let mut delays = FETCH.delays();
    assert_eq!(delays.after(&Failure::server().retry_after(s(3))), Some(s(3)));
    assert_eq!(delays.next(), Some(ms(25)), "a hint does not advance the series");
    assert_eq!(delays.after(&Failure::server().stop()), None);
    assert_eq!(delays.next(), None);
    assert_eq!(FETCH.tokens(0), Some(10.0), "the budget is not charged");
    assert!(format!("{:?}", FETCH.delays()).starts_with("Delays"));
}

#[test]
fn forever_needs_no_deadline_and_no_budget_ends_it() {
    let policy = Policy::constant(ms(1)).forever();
    for policy in [policy.build(), policy.try_build().expect("it is valid")] {
        assert_eq!(policy.tokens(0), None, "no budget");
        let mut attempts = vec![fails(); 1000];
        attempts.push(succeeds());
        assert_eq!(play(&policy, attempts).starts().len(), 1001);
    }
    // A budget that is named applies.
    let policy = policy.throttle(Throttle::here()).build();
    let played = play(&policy, vec![fails(); 1000]);
    assert_eq!(played.stop_reason(), Some(StopReason::Throttled));
    let unlimited = Policy::immediate().unlimited().try_build();
    assert_eq!(unlimited.err(), Some(PolicyError::Unlimited));
}

/// Without delays, only a budget bounds the load, so one must be named.
#[test]
fn forever_needs_delays_that_do_not_fade() {
    const ZERO: Duration = Duration::ZERO;
    let first = Policy::exponential(ms(1));
    const FROM_ZERO: &[Duration] = &[ZERO, ms(1)];
    const TO_ZERO: &[Duration] = &[ms(1), ZERO];
    let from_zero = Policy::table(FROM_ZERO);
    let throttled = Rules { throttling_first: Some(ZERO), ..Rules::DEFAULT };
    for builder in [
        Policy::immediate(),
        Policy::constant(ZERO),
        Policy::exponential(ZERO),
        first.factor(0.5),
        first.cap(ZERO),
        Policy::fibonacci(ZERO),
        Policy::arithmetic(ZERO, ZERO),
        Policy::table(&[ZERO]),
        Policy::table(TO_ZERO),
        from_zero.jitter(Jitter::Decorrelated),
        Policy::from_rules(throttled),
    ] {
        let builder = builder.forever();
        let error = builder.try_build().err();
        // A cap of zero is below the first delay.
        let expected = [Some(PolicyError::ForeverWithoutDelay), Some(PolicyError::FirstAboveCap)];
        assert!(expected.contains(&error), "{builder:?}: {error:?}");
        for named in [Throttle::here(), Throttle::none()] {
            let named = builder.throttle(named).try_build().err();
            assert!(matches!(named, None | Some(PolicyError::FirstAboveCap)), "{named:?}");
        }
    }
    let own = |table: &[Duration]| first.forever().try_build_with_table(table).err();
    assert_eq!(own(&[ZERO]), Some(PolicyError::ForeverWithoutDelay));
    assert_eq!(own(&[ms(1), ZERO]), Some(PolicyError::ForeverWithoutDelay));
    assert_eq!(own(&[ZERO, ms(1)]), None);
    for builder in [first, from_zero, Policy::arithmetic(ZERO, ms(1)), first.factor(1.0)] {
        assert_eq!(builder.forever().try_build().err(), None, "{builder:?}");
    }
    // The delays of a function are its own matter.
    assert!(Policy::immediate().forever().try_build_with(|_| ms(1)).is_ok());
}

#[test]
fn forever_is_replaced_by_unlimited() {
    let policy = Policy::constant(ms(1)).forever().attempts(3).unlimited();
    assert_eq!(policy.try_build().err(), Some(PolicyError::Unlimited));
    let policy = Policy::constant(ms(1)).unlimited().forever();
    assert_eq!(policy.try_build().err(), None);
}

#[test]
fn forever_waits_although_every_hint_is_zero() {
    let policy = Policy::constant(s(1)).forever();
    let hint = || fails_with(Failure::throttling().retry_after(s(0)));
    for policy in [policy, policy.hint_clamp(s(5)), policy.hint_unlimited()] {
        let played = play(&policy.build(), [hint(), hint(), succeeds()]);
        assert_eq!(played.starts(), [s(0), s(1), s(2)], "{policy:?}");
    }
}

#[test]
fn with_rules_refuses_the_mistakes_that_it_makes() {
    static SMALL: RetryBudget = RetryBudget::new(5.0, 0.1);
    let small = Policy::exponential(ms(100)).throttle(Throttle::budget(&SMALL)).build();
    let own = small.with_budget(Arc::new(RetryBudget::new(5.0, 0.1)));
    for policy in [&small, &own] {
        let attempts = |attempts| policy.with_rules(|rules| rules.attempts = Some(attempts)).err();
        assert_eq!(attempts(6), None);
        assert_eq!(attempts(7), Some(PolicyError::AttemptsAboveReserve));
    }
    let backoff = |first| {
        let cap = Some(s(20));
        let backoff = Backoff::Exponential { first, factor: 2.0, cap };
        small.with_rules(|rules| rules.backoff = backoff).err()
    };
    assert_eq!((backoff(s(20)), backoff(s(21))), (None, Some(PolicyError::FirstAboveCap)));
    let zero = small.with_rules(|rules| rules.attempt_timeout = Some(Duration::ZERO));
    assert_eq!(zero.err(), Some(PolicyError::AttemptTimeoutZero));
    // Rules of another design may have a mistake on purpose, and keep it.
    let above = Backoff::Exponential { first: s(60), factor: 2.0, cap: Some(s(20)) };
    let preset = Policy::from_rules(Rules { backoff: above, ..Rules::DEFAULT }).build();
    assert!(preset.with_rules(|rules| rules.attempts = Some(9)).is_ok());
}

#[test]
fn with_rules_forever_has_no_default_budget() {
    let forever = |rules: &mut Rules| (rules.attempts, rules.forever) = (None, true);
    let policy = Policy::constant(ms(1)).try_build().expect("valid");
    for policy in [policy, Policy::constant(ms(1)).build(), Policy::default()] {
        let changed = policy.with_rules(forever).expect("valid");
        assert_eq!((changed.tokens(0), policy.tokens(0)), (None, Some(10.0)));
        // A budget that is named applies.
        let named = policy.with_budget(Arc::new(RetryBudget::new(5.0, 0.1).per_second(1.0)));
        assert_eq!(named.with_rules(forever).expect("valid").tokens(0), Some(5.0));
    }
    let immediate = Policy::immediate().build().with_rules(forever);
    assert_eq!(immediate.err(), Some(PolicyError::ForeverWithoutDelay));
}

#[test]
fn attempt_timeout_of_zero_is_an_error() {
    let timeout = |timeout| Policy::immediate().attempt_timeout(timeout).try_build().err();
    assert_eq!(timeout(Duration::ZERO), Some(PolicyError::AttemptTimeoutZero));
    assert_eq!(timeout(Duration::from_nanos(1)), None);
    let hedged = Policy::hedged(ms(1)).attempt_timeout(Duration::ZERO).try_build().err();
    assert_eq!(hedged, Some(PolicyError::AttemptTimeoutZero));
    // The rules of another design may have it.
    let zero = Rules { attempt_timeout: Some(Duration::ZERO), ..Rules::DEFAULT };
    assert_eq!(Policy::from_rules(zero).try_build().err(), None);
    // A deadline of zero starts one attempt (P10).
    assert_eq!(Policy::immediate().deadline(Duration::ZERO).try_build().err(), None);
}

#[test]
fn reset_after_a_healthy_attempt_in_async_and_blocking_calls() {
    let policy = Policy::exponential(s(1)).jitter(Jitter::None).attempts(2).reset_after(s(60));
    let policy = policy.throttle(Throttle::none()).build();
    let played = play(&policy, [fails().after(s(61)), fails().after(s(61)), fails().after(s(59))]);
    assert_eq!(played.starts(), [s(0), s(62), s(124)]);
    assert_eq!(played.stop_reason(), Some(StopReason::AttemptsExhausted));
    // The first attempt counts too, also where the call does not begin with its state machine.
    let lived = Cell::new(0);
    let call = policy.retry(|| async {
        lived.set(lived.get() + 1);
        Clock.sleep(if lived.get() <= 3 { s(61) } else { s(1) }).await;
        Err::<(), _>(())
    });
    let error = block_on(call.when(|()| true).sleeping_on(Clock).into_future()).expect_err("ends");
    assert_eq!((error.attempts(), error.elapsed()), (4, s(61 * 3 + 3 + 1)));
    // A blocking call, in real time: two attempts, or three if the second one is healthy. On a slow machine
    // further ones can look healthy.
    let attempts = |healthy| {
        let quick = Policy::immediate().attempts(2).reset_after(healthy).throttle(Throttle::none());
        let (quick, runs) = (quick.build(), Cell::new(0));
        let call = quick.retry(|| {
            runs.set(runs.get() + 1);
            std::thread::sleep(if runs.get() == 2 { ms(50) } else { ms(0) });
            Err::<(), _>(())
        });
        call.when(|()| true).call().expect_err("ends").attempts()
    };
    assert!(attempts(ms(50)) >= 3);
    assert_eq!(attempts(s(3600)), 2);
}

#[test]
fn reset_after_a_long_poll_that_until_rejects() {
    let policy = Policy::constant(s(1)).attempts(2).reset_after(s(60)).build();
    let polls = Cell::new(0);
    let call = policy.retry(|| async {
        polls.set(polls.get() + 1);
        Clock.sleep(if polls.get() < 5 { s(60) } else { s(1) }).await;
        Ok::<_, ()>("no news")
    });
    let call = call.until(|_| false).when(|()| true).sleeping_on(Clock);
    let error = block_on(call.into_future()).expect_err("ends");
    assert_eq!((error.attempts(), error.stop_reason()), (5, StopReason::AttemptsExhausted));
    assert_eq!(error.report().attempts_max, Some(2), "of a series");
}

#[test]
fn builder_rejects_attempts_that_a_budget_cannot_pay() {
    static SMALL: RetryBudget = RetryBudget::new(5.0, 0.1);
    static REFILLED: RetryBudget = RetryBudget::new(5.0, 0.1).per_second(1.0);
    let build = |attempts, budget| {
        let throttle = Throttle::budget(budget);
        Policy::constant(ms(1)).attempts(attempts).throttle(throttle).try_build().err()
    };
    assert_eq!(build(6, &SMALL), None);
    assert_eq!(build(7, &SMALL), Some(PolicyError::AttemptsAboveReserve));
    assert_eq!(build(7, &REFILLED), None);
    let hedged = Policy::hedged(ms(1)).attempts(7).throttle(Throttle::budget(&SMALL)).try_build();
    assert_eq!(hedged.err(), Some(PolicyError::AttemptsAboveReserve));
}

#[test]
fn until_is_classified_as_not_ready() {
    let kinds = std::sync::Mutex::new(Vec::new());
    let policy = Policy::immediate().attempts(2).build();
    let call = policy.retry(|| Ok::<_, ()>(1)).until(|_| false).when(|()| true);
    let call = call.on_event(|_, event| {
        if let redial::Event::RetryScheduled { failure, .. } = event {
            kinds.lock().expect("not poisoned").push(failure.kind);
        }
    });
    assert!(call.call().is_err());
    assert_eq!(*kinds.lock().expect("not poisoned"), [FailureKind::NotReady]);
}
