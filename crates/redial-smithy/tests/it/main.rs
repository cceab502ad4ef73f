//! Tests of section S of the decisions: policies of the standard strategy run through the async driver
//! on virtual time; the classification is a table.

mod classifier;
#[cfg(feature = "serde")]
mod config;
#[path = "../../../redial/tests/common/virtual_clock.rs"]
mod designs;
mod standard_strategy;
mod token_bucket;

use std::sync::Arc;

use designs::{Clock, HANG, MS, Script, all, close};
use redial::classify::Hint;
use redial::throttle::{Bucket as _, RetryBudget, WhenEmpty, WithBudget};
use redial::{
    CallLog, Error, Event, Failure, FailureKind, Jitter, Policy, PolicyError, Stage, StopReason,
    ms, s,
};
use redial_smithy::{
    RetryAfterRule, RetryToken, StandardPreset, StandardRetryStrategy, TokenOrder,
};

/// The error of an attempt.
type Outcome = Result<&'static str, Fault>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Retryable(Failure),
    Fatal,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("boom")
    }
}

impl std::error::Error for Fault {}

const OK: Outcome = Ok("ok");
const FATAL: Outcome = Err(Fault::Fatal);
const SERVER: Outcome = failing(Failure::server());
const THROTTLING: Outcome = failing(Failure::throttling());
const TIMEOUT: Outcome = failing(Failure::timeout());

const fn failing(failure: Failure) -> Outcome {
    Err(Fault::Retryable(failure))
}

fn is_retryable(fault: &Fault) -> Option<Failure> {
    match fault {
        Fault::Retryable(failure) => Some(*failure),
        Fault::Fatal => None,
    }
}

/// The result of a call with its start times and tokens.
struct Played {
    result: Result<&'static str, Error<Fault>>,
    starts: Vec<f64>,
    cancels: Vec<f64>,
    ended: f64,
    tokens: f64,
    draws: usize,
}

impl Played {
    fn stop_reason(&self) -> StopReason {
        self.result.as_ref().map_or_else(Error::stop_reason, |_| StopReason::Succeeded)
    }
}

/// Runs a call whose attempts end the given milliseconds after they start; the last step repeats.
fn play_steps(clock: &Clock, policy: &Policy, steps: &[(u64, Outcome)]) -> Played {
    let (script, began) = (Script::new(clock, steps), clock.ms());
    let mut call_log = CallLog::new();
    let call = policy.retry(|| script.attempt()).when(is_retryable).sleeping_on(*clock);
    let result = clock.run(call.seed(7).call_log(&mut call_log).into_future());
    let draws =
        call_log.events().iter().filter(|(_, event)| matches!(event, Event::RandomDraw(_))).count();
    let since = |times: Vec<f64>| times.iter().map(|at| at - began).collect();
    let (starts, cancels) = (since(script.starts()), since(script.cancels()));
    let tokens = policy.tokens(now(clock)).unwrap_or(f64::NAN);
    Played { result, starts, cancels, ended: clock.ms() - began, tokens, draws }
}

/// Runs a call whose attempts end immediately.
fn play(clock: &Clock, policy: &Policy, outcomes: &[Outcome]) -> Played {
    let steps: Vec<_> = outcomes.iter().map(|outcome| (0, *outcome)).collect();
    play_steps(clock, policy, &steps)
}

fn now(clock: &Clock) -> u64 {
    redial::time::Sleeper::now(clock)
}

/// The standard strategy without jitter.
const PLAIN: StandardRetryStrategy = StandardRetryStrategy::standard().jitter(Jitter::None);
/// The AWS rules of 2026 without jitter.
const AWS: StandardRetryStrategy = StandardRetryStrategy::aws_2026().jitter(Jitter::None);
/// The standard strategy without jitter and without refill.
const STILL: StandardRetryStrategy = PLAIN.refill_per_second(0.0).empty(WhenEmpty::Fail);

fn policy(standard: StandardRetryStrategy) -> Policy {
    standard.policy().expect("valid")
}
