//! The behaviour of [`Call`] by feature, for the decisions that scenario files do not show
//! directly.
//!
//! Each test runs one call on virtual time, in milliseconds. [`TestDriver`] checks the invariants
//! of `common/invariants.rs` after every step.

#[path = "call/attempt_timeout.rs"]
mod attempt_timeout;
#[path = "call/backoff.rs"]
mod backoff;
#[path = "call/cancellation.rs"]
mod cancellation;
mod common;
#[path = "call/deadline.rs"]
mod deadline;
#[path = "call/hedging.rs"]
mod hedging;
#[path = "call/idempotency.rs"]
mod idempotency;
#[path = "call/limits.rs"]
mod limits;
#[path = "call/policy.rs"]
mod policy;
#[path = "call/poll_loop.rs"]
mod poll_loop;
#[path = "call/pushback.rs"]
mod pushback;
#[path = "call/refund.rs"]
mod refund;
#[path = "call/replay.rs"]
mod replay;
#[path = "call/reset.rs"]
mod reset;
#[path = "call/retry.rs"]
mod retry;
#[path = "call/stop_reason.rs"]
mod stop_reason;
#[path = "call/strategy.rs"]
mod strategy;
#[path = "call/throttle.rs"]
mod throttle;
#[path = "call/timers.rs"]
mod timers;
#[path = "call/transparent_retry.rs"]
mod transparent_retry;
#[path = "call/value.rs"]
mod value;

use common::{Model, Shared, Spec, Starts, TestDriver, TestEnvironment, at, policy};
use redial_core::throttle::{CostBucket, CostBucketConfig, RetryBudget, TokenBucket, WhenEmpty};
use redial_core::{
    Advice, AttemptTimeoutAction, Backoff, Bucket, Call, CallCounters, CallParams, ChargeAt,
    Classification, Command, Cost, DeadlineAction, Directive, Environment, Event,
    ExpiredDeadlineAction, Failure, FailureKind, Grant, HedgeDelay, HintRule, Jitter, LIVE_MAX,
    LastDelayAction, LimitBasis, Limits, NEVER, Ns, Numbering, OverLimitAction, Policy,
    PolicyError, Proof, Random, Reason, Rules, Stage, Step, StopReason, Verdict, decide, ms, ns,
};
use std::time::Duration;

/// Four attempts, 10 ms apart, no jitter: the base that tests modify.
const BASE: Rules = Rules {
    attempts: Some(4),
    backoff: Backoff::Constant(ms(10)),
    jitter: Jitter::None,
    attempt_timeout_action: AttemptTimeoutAction::Retry,
    hint: HintRule::Exact(None),
    ..Rules::DEFAULT
};

const HEDGED: Rules = Rules { hedge: Some(ms(10)), ..BASE };

const FAILED: Directive = Directive::Retry(Failure::server());

/// Smithy's bucket, refilled by one token per millisecond.
const COSTS: CostBucketConfig =
    CostBucketConfig { capacity: 10.0, refill_per_second: 1000.0, ..CostBucketConfig::STANDARD };

fn failed_with(failure: Failure) -> Classification {
    Directive::Retry(failure).into()
}

fn proven(proof: Proof) -> Classification {
    let directive = Directive::Retry(Failure::client().at(Stage::Unsent));
    Classification { directive, proof: Some(proof), drains: false }
}

/// Runs one call from time 0 with a throttle; `later` states which of its answers are deferred.
fn run_call(
    rules: Rules,
    params: CallParams,
    (spec, later): (Spec, &[bool]),
    steps: impl FnOnce(&mut TestDriver<'_, '_, '_>),
) {
    let (policy, shared, mut model) = (policy(rules), spec.build(), Model::new(spec));
    let env = TestEnvironment::with_later(&spec, &shared, 1, later);
    let mut driver = TestDriver::begin(&policy, params, 0, env, &mut model);
    steps(&mut driver);
    if driver.end.is_some() {
        driver.check_after_end();
    }
    driver.drop_call();
}

/// Runs a call with retries and without a throttle.
fn retry(rules: Rules, steps: impl FnOnce(&mut TestDriver<'_, '_, '_>)) {
    run_call(rules, CallParams::default(), (Spec::Free, &[]), steps);
}

/// Runs a call with hedging and without a throttle.
fn hedge(rules: Rules, steps: impl FnOnce(&mut TestDriver<'_, '_, '_>)) {
    run_call(rules, CallParams::default(), (Spec::Free, &[]), steps);
}

/// Runs one call from time 0 with a bucket that other calls have emptied `times` times.
fn with_debt(rules: Rules, times: usize, steps: impl FnOnce(&mut TestDriver<'_, '_, '_>)) {
    let spec = Spec::Costs(CostBucketConfig { server: 10.0, ..COSTS });
    let (policy, shared, mut model) = (policy(rules), spec.build(), Model::new(spec));
    for _ in 0..times {
        let grant = shared.withdraw(Cost { kind: FailureKind::Server }, 0);
        model.withdraw(FailureKind::Server, 0, grant);
    }
    let env = TestEnvironment::new(&spec, &shared, 1);
    let mut driver = TestDriver::begin(&policy, CallParams::default(), 0, env, &mut model);
    steps(&mut driver);
    driver.drop_call();
}

/// The delays after failures that take no time, and why the call stops.
fn delays(rules: Rules, hints: &[Option<u64>]) -> (Vec<f64>, StopReason) {
    let (spec, shared) = (Spec::Free, Spec::Free.build());
    let mut env = TestEnvironment::new(&spec, &shared, 1);
    let mut counters = CallCounters::new(0);
    let (policy, mut now, mut delays) = (policy(rules), 0, Vec::new());
    for i in 0.. {
        counters.attempts += 1;
        let failure = match hints.get(i) {
            Some(Some(hint)) => Failure::server().retry_after(ms(*hint)),
            _ => Failure::server(),
        };
        match decide(&policy, &mut counters, &failure, Advice::None, now, NEVER, &mut env) {
            Verdict::Retry { after, .. } => {
                delays.push(after as f64 / 1e6);
                now += after;
                env.started();
            }
            Verdict::End(stop_reason) => return (delays, stop_reason),
            other => panic!("{other:?}"),
        }
    }
    unreachable!("every policy here ends")
}
