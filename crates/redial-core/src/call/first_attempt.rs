//! A call whose first attempt runs and which has not needed its state machine yet: most calls
//! succeed at the first attempt, and the state machine would cost them more than the decisions.
//!
//! Invariant: a state machine created later by [`FirstAttempt::begin`] is in the same state as one
//! created at the start. That holds until the first outcome other than a success, until
//! [`FirstAttempt::wake_at`], and as long as nothing records the events of the call. A request that
//! cannot be replayed, a deadline that has already passed and a hedging delay of the call's own need
//! the state machine from the start.

use core::ops::Deref;
use core::time::Duration;

use super::{Call, CallParams, Command};
use crate::throttle::Bucket;
use crate::time::Ns;
use crate::{Environment, Policy};

/// A call whose first attempt (slot 0, attempt 1, number 1) has started, and may be committed.
///
/// ```
/// use redial_core::{Call, CallEnvironment, CallParams, FirstAttempt, Policy, Random, Rules};
/// use redial_core::throttle::RetryBudget;
///
/// let (policy, budget) = (Policy::new(Rules::DEFAULT), RetryBudget::standard());
/// let mut first = FirstAttempt::of(&policy, CallParams::default(), 0).expect("it can start");
/// // Success needs no state machine:
/// first.succeeded(&budget);
/// // Any other event does:
/// first.committed();
/// let mut env = CallEnvironment::new(&budget, Random::new(1));
/// let call = first.begin(&policy, &mut env);
/// assert_eq!(call.running_after(0), Some((1, 0)));
/// assert!(call.is_committed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstAttempt {
    deadline: Option<Duration>,
    start: Ns,
    idempotent: bool,
    uses_strategy: bool,
    committed: bool,
}

impl FirstAttempt {
    /// Starts a call at `start`; `None` if the state machine is needed from the start.
    ///
    /// A call without timers ([`wake_at`](FirstAttempt::wake_at) is [`NEVER`](crate::NEVER)) may
    /// pass any time if it does not report how long it took.
    #[must_use]
    pub fn of(policy: &Policy, params: CallParams, start: Ns) -> Option<FirstAttempt> {
        let CallParams {
            deadline,
            idempotent,
            not_replayable,
            ends_at_attempt_timeout,
            uses_strategy,
            hedge,
        } = params;
        let expired = policy.deadline(start, deadline) <= start;
        let lazy = !expired && !not_replayable && !ends_at_attempt_timeout && hedge.is_none();
        let committed = false;
        lazy.then_some(FirstAttempt { deadline, start, idempotent, uses_strategy, committed })
    }

    /// The same attempt with another start time, for a driver that has its start time in another form and
    /// converts it only if the state machine is needed. The call must have no timer.
    #[must_use]
    pub const fn started_at(self, start: Ns) -> FirstAttempt {
        FirstAttempt { start, ..self }
    }

    /// When the first timer of the call fires (a hedge, the attempt timeout or the deadline);
    /// [`NEVER`](crate::NEVER) without one. The state machine is needed from then on.
    #[must_use]
    pub fn wake_at(&self, policy: &Policy) -> Ns {
        policy.first_wake_at(self.start).min(policy.deadline(self.start, self.deadline))
    }

    /// Commits the call to this attempt because its response has started (decision G6).
    pub const fn committed(&mut self) {
        self.committed = true;
    }

    /// Ends the call with a success.
    pub fn succeeded(self, throttle: &impl Bucket) {
        throttle.succeeded(None);
    }

    /// Creates the state machine, with the first attempt running since the start of the call.
    pub fn begin<P>(self, policy: P, env: &mut impl Environment) -> Call<P>
    where
        P: Deref<Target = Policy>,
    {
        let FirstAttempt { deadline, idempotent, uses_strategy, .. } = self;
        let params = CallParams { deadline, idempotent, uses_strategy, ..CallParams::default() };
        let mut call = Call::begin(policy, params, self.start, env);
        let started = call.command(env);
        debug_assert!(matches!(started, Some(Command::Start(_))), "a call without a first attempt");
        if self.committed {
            call.committed(0, self.start, env);
        }
        call
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{CallEnvironment, HedgeDelay, NEVER, Random, Rules, ns, s, throttle::RetryBudget};

    #[test]
    fn first_attempt_needs_a_replayable_request_and_time() {
        let of = |rules: Rules, params: CallParams| {
            let policy = Policy::new(rules);
            FirstAttempt::of(&policy, params, 5).map(|first| first.wake_at(&policy))
        };
        let (rules, params) = (Rules::DEFAULT, CallParams::default());
        assert_eq!(of(rules, params), Some(NEVER));
        let other = Rules { transparent_retries: true, uses_strategy: true, ..rules };
        assert_eq!(of(other, params), Some(NEVER));
        let second = Some(5 + ns(s(1)));
        assert_eq!(of(Rules { deadline: Some(s(1)), ..rules }, params), second);
        assert_eq!(of(Rules { attempt_timeout: Some(s(1)), ..rules }, params), second);
        assert_eq!(of(Rules { hedge: Some(s(1)), ..rules }, params), second);
        assert_eq!(of(rules, CallParams { deadline: Some(s(1)), ..params }), second);
        assert_eq!(of(rules, CallParams { deadline: Some(s(0)), ..params }), None);
        assert_eq!(of(rules, CallParams { not_replayable: true, ..params }), None);
        assert_eq!(of(rules, CallParams { hedge: Some(HedgeDelay::Never), ..params }), None);
    }

    #[test]
    fn first_attempt_reports_success_and_keeps_the_commit() {
        let (policy, budget) = (Policy::new(Rules::DEFAULT), RetryBudget::standard());
        let mut env = CallEnvironment::new(&budget, Random::new(1));
        assert!(matches!(
            crate::throttle::Bucket::withdraw(&&budget, COST, 0),
            crate::Grant::Now(_)
        ));
        let mut first = FirstAttempt::of(&policy, CallParams::default(), 0).unwrap();
        first.succeeded(&budget);
        assert_eq!(
            budget.tokens(0),
            Some(9.1),
            "one token was withdrawn, and success adds a tenth"
        );
        let call: Call<_> = first.begin(&policy, &mut env);
        assert!(!call.is_committed());
        first.committed();
        let mut env = CallEnvironment::new(&budget, Random::new(1));
        let mut call: Call<_> = first.begin(&policy, &mut env);
        assert!(call.is_committed());
        assert_eq!(call.running_after(0), Some((1, 0)));
        assert_eq!(call.command(&mut env), None, "the first attempt has already started");
    }

    #[test]
    fn first_attempt_start_time_can_be_set_later() {
        let (policy, budget) = (Policy::new(Rules::DEFAULT), RetryBudget::standard());
        let first = FirstAttempt::of(&policy, CallParams::default(), 0).unwrap();
        assert_eq!(
            first.started_at(7),
            FirstAttempt::of(&policy, CallParams::default(), 7).unwrap()
        );
        let mut env = CallEnvironment::new(&budget, Random::new(1));
        let call: Call<_> = first.started_at(7).begin(&policy, &mut env);
        assert_eq!(call.seen(), 7);
    }

    #[test]
    fn first_attempt_keeps_the_parameters_of_the_call() {
        let rules = Rules { uses_strategy: false, ..Rules::DEFAULT };
        let (policy, budget) = (Policy::new(rules), RetryBudget::standard());
        let begin = |params| {
            let first = FirstAttempt::of(&policy, params, 5).unwrap();
            let mut env = CallEnvironment::new(&budget, Random::new(1));
            let mut call: Call<_> = first.begin(&policy, &mut env);
            let failed = crate::Directive::Retry(crate::Failure::server());
            call.outcome(0, crate::Classification::from(failed), 5, &mut env);
            (call, env)
        };
        let params = CallParams::default();
        let (call, _) = begin(CallParams { deadline: Some(s(1)), ..params });
        assert_eq!(call.deadline(), 5 + ns(s(1)));
        let (call, _) = begin(CallParams { idempotent: false, ..params });
        assert_eq!(call.end().map(|end| end.stop_reason), Some(crate::StopReason::NotIdempotent));
        let (mut call, mut env) = begin(CallParams { uses_strategy: true, ..params });
        assert!(matches!(call.command(&mut env), Some(Command::Ask(_))));
    }

    const COST: crate::Cost = crate::Cost { kind: crate::FailureKind::Server };
}
