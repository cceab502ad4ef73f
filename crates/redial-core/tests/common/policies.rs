//! Random policies, throttles and outcomes.
//!
//! Durations come from a short list, so that timers, deadlines and outcomes often coincide; some
//! are the smallest or largest possible.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use redial_core::throttle::{CostBucketConfig, WhenEmpty};
use redial_core::{
    AttemptTimeoutAction, Backoff, CONTROLLED, ChargeAt, Classification, DeadlineAction, Directive,
    ExpiredDeadlineAction, Failure, FailureKind, Hint, HintRule, Jitter, LIVE_MAX, LastDelayAction,
    LimitBasis, Limits, Numbering, OverLimitAction, Policy, Proof, Reason, Rules, Stage, ms,
};

use super::Spec;

/// A duration.
pub(crate) fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        12 => prop::sample::select(&[0, 1, 2, 3, 5, 10, 20, 50, 100, 1000][..]).prop_map(ms),
        1 => prop::sample::select(
            vec![Duration::from_nanos(1), Duration::from_nanos(3), Duration::MAX]
        ),
    ]
}

/// A duration that is neither zero nor extremely long.
fn some_span() -> impl Strategy<Value = Duration> {
    prop::sample::select(&[1, 2, 3, 5, 10, 20, 50, 100, 1000][..]).prop_map(ms)
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    let factor = prop::sample::select(&[1e-9, 0.5, 1.0, 1.5, 2.0, 10.0, 1e300][..]);
    let table = prop::sample::select(vec![
        CONTROLLED,
        Backoff::Table(&[Duration::ZERO]),
        Backoff::Table(const { &[ms(2), Duration::ZERO, ms(5)] }),
    ]);
    prop_oneof![
        any_span().prop_map(Backoff::Constant),
        (any_span(), any_span(), option::of(any_span()))
            .prop_map(|(first, step, cap)| Backoff::Arithmetic { first, step, cap }),
        (any_span(), factor, option::of(any_span()))
            .prop_map(|(first, factor, cap)| Backoff::Exponential { first, factor, cap }),
        (any_span(), option::of(any_span()))
            .prop_map(|(first, cap)| Backoff::Fibonacci { first, cap }),
        table,
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Half),
        Just(Jitter::Equal),
        prop::sample::select(&[0.0, 0.2, 1.0][..]).prop_map(Jitter::Proportional),
        Just(Jitter::Decorrelated),
    ]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let over_limit_action =
        prop_oneof![Just(OverLimitAction::Stop), Just(OverLimitAction::TruncateDelay)];
    let last_delay_action =
        prop_oneof![Just(LastDelayAction::Keep), Just(LastDelayAction::ExtendToLimit)];
    let basis = prop_oneof![Just(LimitBasis::TotalDelay), Just(LimitBasis::Elapsed)];
    (option::of(some_span()), option::of(some_span()), over_limit_action, last_delay_action, basis)
        .prop_map(|(soft, hard, over_limit_action, last_delay_action, basis)| {
            // L4: such contradictions are rejected when a policy is built, and tested there.
            let soft = match (soft, hard) {
                (Some(soft), Some(hard)) => Some(soft.min(hard)),
                _ => soft,
            };
            let over_limit_action =
                if hard.is_some() { over_limit_action } else { OverLimitAction::Stop };
            let last_delay_action =
                if hard.is_some() { last_delay_action } else { LastDelayAction::Keep };
            Limits { soft, hard, over_limit_action, last_delay_action, basis }
        })
}

// Boxed: the strategy of a policy is large, and unboxed it overflows the stack of a test thread.
fn any_hint_rule() -> impl Strategy<Value = HintRule> {
    prop_oneof![
        Just(HintRule::Exact(None)),
        some_span().prop_map(|most| HintRule::Exact(Some(most))),
        any_span().prop_map(HintRule::UpTo),
        any_span().prop_map(HintRule::Within),
        any_span().prop_map(HintRule::AtLeast),
    ]
    .boxed()
}

fn any_attempts() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![8 => (1u32..=8).prop_map(Some), 1 => Just(Some(u32::MAX)), 1 => Just(None)]
}

/// Rules of a plain policy.
fn plain_rules() -> impl Strategy<Value = Rules> {
    let numbering =
        prop::sample::select(&[Numbering::Delays, Numbering::Attempts, Numbering::SinceHint][..]);
    let series = (any_backoff(), any_jitter(), any::<bool>(), numbering);
    let hint_jitter = prop::sample::select(&[0.0, 0.0, 0.1, 1.0][..]);
    let extras = (any_hint_rule(), hint_jitter, option::of(any_span()), any_backoff());
    let deadline_action =
        prop_oneof![Just(DeadlineAction::FailFast), Just(DeadlineAction::WaitForDeadline)];
    (any_attempts(), series, option::of(any_limits()), extras, deadline_action).prop_map(
        |(attempts, series, limits, extras, deadline_action)| {
            let (backoff, jitter, jitter_above_cap, numbering) = series;
            let (hint, hint_jitter, throttling_first, always) = extras;
            Rules {
                attempts,
                backoff,
                jitter,
                jitter_above_cap,
                limits: limits.unwrap_or(Limits::NONE),
                deadline_action,
                numbering,
                hint,
                hint_jitter,
                throttling_first,
                always,
                ..Rules::DEFAULT
            }
        },
    )
}

/// Rules of any policy.
fn any_rules() -> impl Strategy<Value = Rules> {
    let times = (
        option::weighted(0.3, any_span()),
        prop_oneof![
            Just(ExpiredDeadlineAction::StartOneAttempt),
            Just(ExpiredDeadlineAction::StartNoAttempt)
        ],
        option::weighted(0.3, any_span()),
        prop_oneof![
            4 => Just(AttemptTimeoutAction::Retry),
            1 => Just(AttemptTimeoutAction::Stop),
            1 => Just(AttemptTimeoutAction::EndCall),
            1 => prop::bool::ANY.prop_map(|drains| AttemptTimeoutAction::Fail { drains }),
        ],
    );
    let hedge = option::weighted(0.4, (any_span(), 1..=LIVE_MAX as u32));
    let charge_at = prop_oneof![2 => Just(ChargeAt::Decision), 1 => Just(ChargeAt::AfterBackoff)];
    let reset_after = option::weighted(0.2, some_span());
    let rest = (charge_at, prop::bool::weighted(0.3), prop::bool::weighted(0.4), reset_after);
    (plain_rules(), times, hedge, rest).prop_map(|(plain, times, hedge, rest)| {
        let (deadline, expired_deadline_action, attempt_timeout, attempt_timeout_action) = times;
        let (charge_at, uses_strategy, transparent_retries, reset_after) = rest;
        let mut rules = Rules {
            deadline,
            expired_deadline_action,
            attempt_timeout,
            attempt_timeout_action,
            charge_at,
            uses_strategy,
            transparent_retries,
            reset_after,
            ..plain
        };
        if let Some((delay, attempts)) = hedge {
            rules.hedge = Some(delay);
            // With few hedges, events coincide more often.
            rules.attempts = Some(if attempts > 24 { attempts } else { 1 + attempts % 5 });
            rules.limits = Limits::NONE;
            rules.uses_strategy = false;
            rules.reset_after = None;
            rules.hint_jitter = 0.0;
        }
        if rules.deadline.zip(rules.attempt_timeout).is_some_and(|(all, one)| one >= all) {
            rules.attempt_timeout = None;
        }
        rules
    })
}

/// A backoff other than plain data.
#[derive(Clone, Copy, Debug)]
enum Own {
    Nothing,
    Table,
    Function,
}

/// Builds a policy; rules with unlimited attempts that never end get six attempts.
fn build(mut rules: Rules, own: Own) -> Policy {
    let build = |rules| match own {
        Own::Nothing => Policy::try_new(rules),
        Own::Table => Policy::with_table(rules, [ms(1), ms(10), ms(5)]),
        Own::Function => Policy::with_function(rules, |step| {
            step.previous.unwrap_or(ms(1)).saturating_add(ms(u64::from(step.number.min(1000))))
        }),
    };
    build(rules).unwrap_or_else(|_| {
        rules.attempts = Some(6);
        build(rules).expect("the strategies make valid rules")
    })
}

fn any_own() -> impl Strategy<Value = Own> {
    prop_oneof![6 => Just(Own::Nothing), 1 => Just(Own::Table), 1 => Just(Own::Function)]
}

/// A policy that counters and `decide` can run without a `Call`.
pub(crate) fn plain_policy() -> impl Strategy<Value = Policy> {
    (plain_rules(), any_own()).prop_map(|(rules, own)| build(rules, own))
}

/// A policy of any kind.
pub(crate) fn any_policy() -> impl Strategy<Value = Policy> {
    (any_rules(), any_own()).prop_map(|(rules, own)| build(rules, own))
}

/// A throttle without debts.
pub(crate) fn any_throttle_that_never_waits() -> impl Strategy<Value = Spec> {
    let costs = (
        prop::sample::select(&[0.0, 10.0, 13.0, 500.0][..]),
        prop::sample::select(&[0.0, 1.0, 7.5][..]),
        prop::sample::select(&[0.0, 10.0, 1000.0, 0.001][..]),
    );
    prop_oneof![
        1 => Just(Spec::Free),
        2 => (1u32..=10, prop::sample::select(&[0.001, 0.1, 0.5, 1.0, 2.0][..]))
            .prop_map(|(max, ratio)| Spec::Tokens { max: f64::from(max), ratio }),
        2 => (prop::sample::select(&[1.0, 1.5, 2.0, 10.0][..]),
              prop::sample::select(&[0.0, 0.1, 1.0, 3.0][..]))
            .prop_map(|(reserve, ratio)| Spec::Budget { reserve, ratio }),
        2 => costs.prop_map(|(capacity, success, refill_per_second)| {
            let standard = CostBucketConfig::STANDARD;
            let most = |cost: f64| cost.min(capacity);
            Spec::Costs(CostBucketConfig {
                capacity,
                server: most(standard.server),
                client: most(standard.client),
                throttling: most(standard.throttling),
                timeout: most(standard.timeout),
                success,
                refill_per_second,
                empty: WhenEmpty::Fail,
            })
        }),
    ]
}

/// A throttle of any kind, including those with debt.
pub(crate) fn any_throttle() -> impl Strategy<Value = Spec> {
    (any_throttle_that_never_waits(), any::<bool>()).prop_map(|(spec, waits)| match spec {
        Spec::Costs(spec) if waits && spec.refill_per_second > 0.0 => {
            Spec::Costs(CostBucketConfig { empty: WhenEmpty::Wait, ..spec })
        }
        other => other,
    })
}

/// Any failure.
pub(crate) fn any_failure() -> impl Strategy<Value = Failure> {
    let kind = prop::sample::select(
        &[
            FailureKind::Server,
            FailureKind::Client,
            FailureKind::Throttling,
            FailureKind::Timeout,
            FailureKind::NotReady,
        ][..],
    );
    let stage = prop::sample::select(&[Stage::Unsent, Stage::InFlight, Stage::Answered][..]);
    let reason = prop::sample::select(vec![
        Reason::new("PROVES_NOTHING"),
        Reason::new("DID_NOT_RUN").allow_non_idempotent(),
        Reason::new("TRY_FOR_EVER").allow_non_idempotent().always(),
    ]);
    let hint = prop_oneof![
        12 => Just(Hint::None),
        6 => any_span().prop_map(Hint::After),
        1 => Just(Hint::Stop),
    ];
    (kind, stage, option::weighted(0.3, reason), hint)
        .prop_map(|(kind, stage, reason, hint)| Failure { kind, stage, reason, hint })
}

/// Any directive.
pub(crate) fn any_directive() -> impl Strategy<Value = Directive> {
    prop_oneof![
        1 => Just(Directive::Succeed),
        1 => Just(Directive::Fail),
        16 => any_failure().prop_map(Directive::Retry),
    ]
}

/// Any classification.
pub(crate) fn any_classification() -> impl Strategy<Value = Classification> {
    let proof = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Proof::Unprocessed)),
        2 => Just(Some(Proof::Unsent)),
    ];
    (any_directive(), proof, any::<bool>()).prop_map(|(directive, proof, drains)| Classification {
        directive,
        proof,
        drains,
    })
}
