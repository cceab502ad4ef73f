//! The fast path of a call whose first attempt succeeds: most calls do, and need no state machine.
//!
//! Invariant: a state machine created later by [`FirstAttempt::begin`] is in the same state as one
//! created at the start. Therefore a call with a deadline, an attempt timeout, hedging or a request
//! that cannot be replayed has no [`FirstAttempt`], and a driver that records events creates its
//! state machine at once.

use core::ops::Deref;

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
/// let mut first = FirstAttempt::of(&policy, CallParams::default()).expect("no deadline, no hedges");
/// // Success needs no state machine:
/// first.succeeded(&budget);
/// // Any other event does:
/// first.committed();
/// let mut env = CallEnvironment::new(&budget, Random::new(1));
/// let call: Call<_, 1> = first.begin(&policy, 0, &mut env);
/// assert_eq!(call.running_after(0), Some((1, 0)));
/// assert!(call.is_committed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstAttempt {
    params: CallParams,
    committed: bool,
}

impl FirstAttempt {
    /// Starts a call without a state machine; `None` if a timer could fire before the first
    /// outcome, so that the state machine is needed from the start.
    #[inline]
    #[must_use]
    pub const fn of(policy: &Policy, params: CallParams) -> Option<FirstAttempt> {
        if policy.has_no_timers() && params.deadline.is_none() && !params.not_replayable {
            Some(FirstAttempt { params, committed: false })
        } else {
            None
        }
    }

    /// Commits the call to this attempt because its response has started (decision G6).
    #[inline]
    pub const fn committed(&mut self) {
        self.committed = true;
    }

    /// Ends the call with a success.
    #[inline]
    pub fn succeeded(self, throttle: &impl Bucket) {
        throttle.succeeded(None);
    }

    /// Creates the state machine, with the first attempt running since `now`.
    pub fn begin<P, const LIVE: usize>(
        self,
        policy: P,
        now: Ns,
        env: &mut impl Environment,
    ) -> Call<P, LIVE>
    where
        P: Deref<Target = Policy>,
    {
        let mut call = Call::begin(policy, self.params, now, env);
        let started = call.command(env);
        debug_assert!(matches!(started, Some(Command::Start(_))), "a call without a first attempt");
        if self.committed {
            call.committed(0, now, env);
        }
        call
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{CallEnvironment, Random, Rules, s, throttle::RetryBudget};

    #[test]
    fn first_attempt_requires_a_call_without_timers() {
        let of = |rules: Rules, params: CallParams| FirstAttempt::of(&Policy::new(rules), params);
        let (rules, params) = (Rules::DEFAULT, CallParams::default());
        assert!(of(rules, params).is_some());
        assert!(
            of(Rules { transparent_retries: true, uses_strategy: true, ..rules }, params).is_some()
        );
        assert!(of(Rules { deadline: Some(s(1)), ..rules }, params).is_none());
        assert!(of(Rules { attempt_timeout: Some(s(1)), ..rules }, params).is_none());
        assert!(of(Rules { hedge: Some(s(1)), ..rules }, params).is_none());
        assert!(of(rules, CallParams { deadline: Some(s(1)), ..params }).is_none());
        assert!(of(rules, CallParams { not_replayable: true, ..params }).is_none());
    }

    #[test]
    fn first_attempt_reports_success_and_keeps_the_commit() {
        let (policy, budget) = (Policy::new(Rules::DEFAULT), RetryBudget::standard());
        let mut env = CallEnvironment::new(&budget, Random::new(1));
        assert!(matches!(
            crate::throttle::Bucket::withdraw(&&budget, COST, 0),
            crate::Grant::Now(_)
        ));
        let mut first = FirstAttempt::of(&policy, CallParams::default()).unwrap();
        first.succeeded(&budget);
        assert_eq!(
            budget.tokens(0),
            Some(9.1),
            "one token was withdrawn, and success adds a tenth"
        );
        let call: Call<_, 1> = first.begin(&policy, 0, &mut env);
        assert!(!call.is_committed());
        first.committed();
        let mut env = CallEnvironment::new(&budget, Random::new(1));
        let mut call: Call<_, 1> = first.begin(&policy, 0, &mut env);
        assert!(call.is_committed());
        assert_eq!(call.running_after(0), Some((1, 0)));
        assert_eq!(call.command(&mut env), None, "the first attempt has already started");
    }

    const COST: crate::Cost = crate::Cost { kind: crate::FailureKind::Server };
}
