//! Goal: what a builder is told and cannot use is refused, not ignored. Method: each wrong word, at
//! run time; in a `static` the same check is a compile error.

use redial::{
    Expired, Jitter, Judgement, Loaded, Numbering, Pay, Policy, Problem, Proof, Rules, TimedOut,
    ms, s, testing,
};

#[test]
fn a_cap_or_factor_that_the_series_does_not_have_is_refused() {
    let capped = Policy::constant(s(1)).cap(ms(5)).build();
    assert_eq!(capped.err(), Some(Problem::CapWithoutGrowth));
    let grown = Policy::arithmetic(ms(1), ms(1)).factor(3.0).build();
    assert_eq!(grown.err(), Some(Problem::FactorWithoutGrowth));
    assert!(Policy::arithmetic(ms(1), ms(1)).cap(ms(5)).build().is_ok());
    assert!(Policy::exponential(ms(1)).factor(3.0).cap(ms(5)).jitter(Jitter::None).build().is_ok());
}

#[test]
fn when_takes_a_failure_and_until_may_follow_it() {
    let policy = Policy::immediate().attempts(3).build().expect("valid");
    let mut tries = 0;
    let call = policy.retry(|| {
        tries += 1;
        if tries == 1 { Err("busy") } else { Ok(tries) }
    });
    let value = call.when(|_| redial::Failure::throttling()).until(|value| *value == 3).call();
    assert_eq!(value.ok(), Some(3));
}

/// A type that hedges has no blocking call and takes nothing that must not run twice (P12); rules must
/// not get around it. Red: `Builder::new(rules)` in `Policy::from_rules`.
#[test]
fn rules_that_hedge_make_no_policy_that_retries() {
    let hedged = Policy::hedged(ms(5)).build().expect("valid");
    let builder = Policy::from_rules(*hedged.rules());
    assert_eq!(builder.build().err(), Some(Problem::HedgeAsRetry));
    assert_eq!(builder.build_with(|_| ms(1)).err(), Some(Problem::HedgeAsRetry));
    assert_eq!(builder.build_with_table([ms(1)]).err(), Some(Problem::HedgeAsRetry));
    let loaded = Loaded::from_core(hedged.core().clone());
    assert!(matches!(loaded, Loaded::Hedged(_)), "{loaded:?}");
    let core = Policy::constant(ms(5)).build().expect("valid").core().clone();
    assert!(matches!(Loaded::from_core(core), Loaded::Policy(_)));
}

#[test]
fn a_policy_that_nobody_wrote_is_the_documented_one_with_a_budget_of_its_own() {
    let (one, other) = (Policy::default(), Policy::default());
    assert_eq!(*one.rules(), *Policy::exponential(ms(100)).build().expect("valid").rules());
    let _ = one.retry(|| Err::<(), _>(())).when(|()| true).call();
    assert_eq!((one.tokens(0), other.tokens(0)), (Some(8.0), Some(10.0)));
}

#[test]
fn policies_may_be_used_where_panics_are_caught() {
    fn is_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    is_safe::<Policy>();
    is_safe::<redial::Hedged>();
    is_safe::<Loaded>();
    is_safe::<redial_core::Policy>();
    is_safe::<redial::throttles::Budget>();
    let policy = Policy::default();
    let caught = std::panic::catch_unwind(|| {
        policy.retry(|| -> Result<(), ()> { panic!("as told") }).when(|()| true).call()
    });
    assert!(caught.is_err());
    assert_eq!(policy.tokens(0), Some(10.0));
}

/// Red if a type of a public field is not exported beside the type that has it.
#[test]
fn every_rule_can_be_written_with_this_crate_alone() {
    let rules = Rules {
        numbering: Numbering::Attempts,
        pay: Pay::AfterBackoff,
        expired: Expired::StartsNone,
        timed_out: TimedOut::Retry,
        jitter: Jitter::None,
        replaces: true,
        ..Rules::DEFAULT
    };
    let policy = Policy::from_rules(rules).build().expect("valid");
    let unprocessed = Judgement {
        proof: Some(Proof::Unprocessed),
        ..redial::Directive::Retry(redial::Failure::server()).into()
    };
    let played = testing::play(&policy, [testing::meets(unprocessed), testing::succeeds()]);
    assert_eq!(played.starts(), [ms(0), ms(0)], "a replacement waits for nothing");
}
