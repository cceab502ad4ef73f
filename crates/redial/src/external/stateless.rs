//! Decisions for a library that keeps the state of its calls itself, and reports failures only.

use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, CallCounters, Cost, Environment, Failure, Grant, Jitter, NEVER, Ns, Reason, StopReason,
    Verdict, decide, duration, ns,
};

use super::QUESTIONS_MAX;
use crate::draws::draw;
use crate::policy::Policy;
use crate::rules::ChargeAt;
use crate::strategy::{Decision, Request};
use crate::throttle::Handle;

/// A policy that decides about each failure on its own, for a library whose retry hook gets the number of
/// the attempt and the failure, but cannot say which call they belong to. With a library that can, use an
/// [`ExternalCall`](super::ExternalCall).
///
/// ```
/// use redial::external::{FailedAttempt, StatelessPolicy};
/// use redial::time::{Sleeper, Tokio};
/// use redial::{Failure, Policy, StopReason, ms};
///
/// let policy = StatelessPolicy::new(Policy::constant(ms(20)).attempts(3).build())?;
/// let failed = |number| FailedAttempt::new(number, Failure::server());
/// assert_eq!(policy.decide(&failed(2), Tokio.now()), Ok(ms(20)));
/// assert_eq!(policy.decide(&failed(3), Tokio.now()), Err(StopReason::AttemptsExhausted));
/// # Ok::<(), redial::external::NeedsCallState>(())
/// ```
///
/// Nothing here sees how a call ends:
///
/// - The tokens of a retry are spent when it is decided. They are not refunded if the retry never starts, and
///   successes fund no retries: a throttle that only successes refill runs empty, unless other calls share it.
/// - A strategy is asked with an elapsed time of zero, without a deadline and without data.
#[derive(Clone, Debug)]
pub struct StatelessPolicy(Policy);

/// An attempt that has failed, as the other library reports it.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    number: u32,
    failure: Failure,
    idempotent: bool,
    reasons: &'a [Reason],
}

impl<'a> FailedAttempt<'a> {
    /// The attempt with this number, from 1, of an idempotent call.
    #[must_use]
    pub const fn new(number: u32, failure: Failure) -> Self {
        FailedAttempt { number, failure, idempotent: true, reasons: &[] }
    }

    /// Marks the call as not idempotent: only attempts that provably did not run are repeated.
    #[must_use]
    pub const fn not_idempotent(mut self) -> Self {
        self.idempotent = false;
        self
    }

    /// The distinct reasons of the earlier retries, for a strategy.
    #[must_use]
    pub const fn reasons(mut self, reasons: &'a [Reason]) -> Self {
        self.reasons = reasons;
        self
    }
}

impl StatelessPolicy {
    /// Decides by this policy. Clones of the policy share its throttle.
    ///
    /// # Errors
    /// The policy needs the state of a whole call.
    pub fn new(policy: Policy) -> Result<Self, NeedsCallState> {
        let rules = policy.rules();
        let needs = [
            (rules.deadline.is_some(), "a deadline"),
            (rules.attempt_timeout.is_some(), "an attempt timeout"),
            (rules.limits.soft.or(rules.limits.hard).is_some(), "limits on the time of retries"),
            (rules.jitter == Jitter::Decorrelated, "decorrelated jitter"),
            (rules.reset_after.is_some(), "a reset of its delays"),
            (rules.charge_at == ChargeAt::AfterBackoff, "a charge after the backoff"),
            (policy.handle.watches_calls(), "a throttle that watches calls"),
        ];
        let needs: Vec<_> = needs.iter().filter(|need| need.0).map(|need| need.1).collect();
        if needs.is_empty() { Ok(StatelessPolicy(policy)) } else { Err(NeedsCallState(needs)) }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.0
    }

    /// The delay before the next attempt. `now` is the time of the clock that the policy's other calls use.
    ///
    /// # Errors
    /// Why there is no other attempt. A strategy or a throttle that does not answer at once refuses.
    pub fn decide(&self, failed: &FailedAttempt<'_>, now: Ns) -> Result<Duration, StopReason> {
        let StatelessPolicy(policy) = self;
        let mut counters = CallCounters {
            attempts: failed.number,
            idempotent: failed.idempotent,
            uses_strategy: policy.rules().uses_strategy,
            ..CallCounters::new(now)
        };
        let mut env = SingleDecision(&policy.handle);
        let mut decide = |advice| {
            decide(&policy.core, &mut counters, &failed.failure, advice, now, NEVER, &mut env)
        };
        let mut verdict = decide(Advice::None);
        if verdict == Verdict::Ask {
            verdict = decide(self.ask_strategy(failed));
        }
        match verdict {
            Verdict::Retry { after, .. } => Ok(duration(after)),
            Verdict::End(stop_reason) => Err(stop_reason),
            Verdict::Later { .. } => Err(StopReason::Throttled),
            Verdict::Ask => Err(StopReason::StrategyDeclined),
        }
    }

    fn ask_strategy(&self, failed: &FailedAttempt<'_>) -> Advice {
        let request = Request {
            idempotent: failed.idempotent,
            attempts: failed.number,
            reasons: failed.reasons,
            failure: failed.failure,
            elapsed: Duration::ZERO,
            remaining: None,
            data: &[],
        };
        // Rules may ask for a strategy that is not set (`Policy::from_rules`): decline.
        let strategy = self.0.strategy.as_ref();
        let mut decision = strategy.map_or(Decision::Decline, |it| it.retry_after(&request));
        for _ in 0..QUESTIONS_MAX {
            match decision {
                Decision::Retry(delay) => return Advice::After(ns(delay)),
                Decision::Decline | Decision::Fail(_) => break,
                Decision::Later(mut later) => {
                    let Poll::Ready(now) = poll_once(later.as_mut()) else { break };
                    decision = now;
                }
            }
        }
        Advice::Decline
    }
}

/// The output of a future that is ready.
fn poll_once<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The environment of one decision: tokens are spent at once, since nothing reports what becomes of them.
struct SingleDecision<'a>(&'a Handle);

impl Environment for SingleDecision<'_> {
    fn draw(&mut self) -> f64 {
        draw()
    }
    fn failed(&mut self) {
        self.0.failed();
    }
    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant {
        let grant = match self.0.withdraw(cost, now) {
            Grant::Later => poll_once(self.0.later(cost)),
            grant => Poll::Ready(grant),
        };
        match grant {
            Poll::Pending | Poll::Ready(Grant::Later) => Grant::Refused,
            Poll::Ready(grant) => grant,
        }
    }
}

/// Why a policy cannot decide about single failures: it has rules that need the state of a whole call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsCallState(Vec<&'static str>);

impl NeedsCallState {
    /// What the policy has that needs the state of a call, for example "a deadline".
    #[must_use]
    pub fn rules(&self) -> &[&'static str] {
        &self.0
    }
}

impl fmt::Display for NeedsCallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.0.join(" and ");
        write!(
            f,
            "the policy has {rules}, which needs the state of a whole call, and the other library reports \
             single failures: leave that out, or retry around the operation"
        )
    }
}

impl std::error::Error for NeedsCallState {}
