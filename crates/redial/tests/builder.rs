//! The builder rejects settings that do not apply, and does not ignore them. In a `static`, the same check
//! is a compile error.

use redial::{
    AnyPolicy, Jitter, Policy, PolicyError,
    classify::{Classification, Proof},
    ms,
    rules::{AttemptTimeoutAction, ChargeAt, ExpiredDeadlineAction, Numbering, Rules},
    s, testing,
};

#[test]
fn policy_constant_and_table_have_no_jitter_by_default() {
    static TABLE: [std::time::Duration; 2] = [ms(1), ms(5)];
    assert_eq!(Policy::constant(ms(10)).try_build().expect("valid").rules().jitter, Jitter::None);
    assert_eq!(Policy::table(&TABLE).try_build().expect("valid").rules().jitter, Jitter::None);
    assert_eq!(Policy::immediate().try_build().expect("valid").rules().jitter, Jitter::None);
    assert_eq!(
        Policy::exponential(ms(10)).try_build().expect("valid").rules().jitter,
        Jitter::Full
    );
    assert_eq!(
        Policy::arithmetic(ms(10), ms(5)).try_build().expect("valid").rules().jitter,
        Jitter::Full
    );
    let asked = Policy::constant(ms(10)).jitter(Jitter::Full).try_build().expect("valid");
    assert_eq!(asked.rules().jitter, Jitter::Full);
    let table = Policy::table(&[]).try_build_with_table([ms(3)]).expect("valid");
    assert_eq!(table.rules().jitter, Jitter::None);
}

#[test]
fn builder_rejects_cap_or_factor_without_growth() {
    let capped = Policy::constant(s(1)).cap(ms(5)).try_build();
    assert_eq!(capped.err(), Some(PolicyError::CapWithoutGrowth));
    let grown = Policy::arithmetic(ms(1), ms(1)).factor(3.0).try_build();
    assert_eq!(grown.err(), Some(PolicyError::FactorWithoutGrowth));
    assert!(Policy::arithmetic(ms(1), ms(1)).cap(ms(5)).try_build().is_ok());
    assert!(
        Policy::exponential(ms(1)).factor(3.0).cap(ms(5)).jitter(Jitter::None).try_build().is_ok()
    );
}

#[test]
fn when_accepts_a_failure_and_combines_with_until() {
    let policy = Policy::immediate().attempts(3).try_build().expect("valid");
    let mut tries = 0;
    let call = policy.retry(|| {
        tries += 1;
        if tries == 1 { Err("busy") } else { Ok(tries) }
    });
    let value = call.when(|_| redial::Failure::throttling()).until(|value| *value == 3).call();
    assert_eq!(value.ok(), Some(3));
}

/// Hedged calls are async and idempotent by type (P12); hedging rules in a `Policy` would bypass that.
#[test]
fn builder_rejects_hedging_rules_for_a_retry_policy() {
    let hedged = Policy::hedged(ms(5)).try_build().expect("valid");
    let builder = Policy::from_rules(*hedged.rules());
    assert_eq!(builder.try_build().err(), Some(PolicyError::HedgeAsRetry));
    assert_eq!(builder.try_build_with(|_| ms(1)).err(), Some(PolicyError::HedgeAsRetry));
    assert_eq!(builder.try_build_with_table([ms(1)]).err(), Some(PolicyError::HedgeAsRetry));
    let hedged = Policy::hedged(ms(1)).build();
    let retries = hedged.with_rules(|rules| rules.hedge = None);
    assert_eq!(retries.err(), Some(PolicyError::RetryAsHedge));
    let loaded = AnyPolicy::from_core(hedged.core().clone());
    assert!(matches!(loaded, AnyPolicy::Hedged(_)), "{loaded:?}");
    let core = Policy::constant(ms(5)).try_build().expect("valid").core().clone();
    assert!(matches!(AnyPolicy::from_core(core), AnyPolicy::Policy(_)));
}

#[test]
fn policy_default_has_documented_rules_and_own_budget() {
    let (one, other) = (Policy::default(), Policy::default());
    assert_eq!(*one.rules(), *Policy::exponential(ms(100)).try_build().expect("valid").rules());
    let _ = one.retry(|| Err::<(), _>(())).when(|()| true).call();
    // Two retries, and the refill between them.
    assert!(one.tokens(0).is_some_and(|tokens| (8.0..9.0).contains(&tokens)), "{one:?}");
    assert_eq!(other.tokens(0), Some(10.0));
}

#[test]
fn policy_is_unwind_safe() {
    fn is_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    is_safe::<Policy>();
    is_safe::<redial::Hedged>();
    is_safe::<AnyPolicy>();
    is_safe::<redial_core::Policy>();
    is_safe::<redial::throttle::RetryBudget>();
    let policy = Policy::default();
    let caught = std::panic::catch_unwind(|| {
        policy.retry(|| -> Result<(), ()> { panic!("intended") }).when(|()| true).call()
    });
    assert!(caught.is_err());
    assert_eq!(policy.tokens(0), Some(10.0));
}

#[test]
fn policy_rules_need_no_import_from_core() {
    let rules = Rules {
        numbering: Numbering::Attempts,
        charge_at: ChargeAt::AfterBackoff,
        expired_deadline_action: ExpiredDeadlineAction::StartNoAttempt,
        attempt_timeout_action: AttemptTimeoutAction::Retry,
        jitter: Jitter::None,
        transparent_retries: true,
        ..Rules::DEFAULT
    };
    let policy = Policy::from_rules(rules).try_build().expect("valid");
    let unprocessed = Classification {
        proof: Some(Proof::Unprocessed),
        ..redial::Directive::Retry(redial::Failure::server()).into()
    };
    let played = testing::play(&policy, [testing::classified_as(unprocessed), testing::succeeds()]);
    assert_eq!(played.starts(), [ms(0), ms(0)], "a replacement waits for nothing");
}
