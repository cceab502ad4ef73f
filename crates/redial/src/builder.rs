//! The builder of policies, for a `static` or at run time.
//!
//! Invariant: a setting that does not apply to the policy is an error. It is never ignored.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::RetryBudget;
use redial_core::{Backoff, DeadlineAction, HintRule, Jitter, Limits, PolicyError, Rules, Step};

use crate::policy::{Hedged, Policy};
use crate::throttle::{Handle, Throttle};

/// Builds a policy. `P` is the result: [`Policy`] or [`Hedged`].
///
/// End it with `build` in a `static` or for constants, and with `try_build` for values that are known at
/// run time.
#[must_use = "a builder does nothing until it is built"]
pub struct Builder<P> {
    rules: Rules,
    throttle: Throttle,
    /// Whether the throttle is the default one. A policy made at run time then owns its budget.
    is_default_throttle: bool,
    /// A setting that does not apply to the backoff or to the kind of policy.
    error: Option<PolicyError>,
    output: PhantomData<fn() -> P>,
}

impl<P> Builder<P> {
    #[track_caller]
    pub(crate) const fn new(rules: Rules) -> Self {
        Builder {
            rules,
            throttle: Throttle::here(),
            is_default_throttle: true,
            error: None,
            output: PhantomData,
        }
    }

    /// The maximum number of attempts, including the first. The default retry budget allows at most ten
    /// retries; see [`Policy`].
    #[doc(alias("max_attempts", "retries", "max_retries", "max_times"))]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.rules.attempts = Some(attempts);
        self
    }

    /// The deadline of the whole call, from its start. A running attempt is cancelled.
    #[doc(alias("timeout", "max_elapsed_time"))]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.rules.deadline = Some(deadline);
        self
    }

    /// The timeout of each attempt. The attempt is cancelled and counts as a failure of kind timeout.
    #[doc(alias("try_timeout", "per_try_timeout"))]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.rules.attempt_timeout = Some(timeout);
        self
    }

    /// The longest delay that is accepted from the server (`Retry-After`, pushback); a longer one is cut
    /// to this. Without it, every hint up to the deadline is followed.
    ///
    /// A hint replaces the backoff delay, without jitter. It does not advance the backoff: the delay
    /// after it is the one that would have been next.
    pub const fn hint_max(mut self, max: Duration) -> Self {
        self.rules.hint = HintRule::Exact(Some(max));
        self
    }

    /// Replaces the default retry budget.
    #[doc(alias("budget", "circuit_breaker"))]
    pub const fn throttle(mut self, throttle: Throttle) -> Self {
        self.throttle = throttle;
        self.is_default_throttle = false;
        self
    }

    #[track_caller]
    const fn build_policy(self) -> Policy {
        if let Some(problem) = self.error {
            panic!("{}", problem.text());
        }
        let core = redial_core::Policy::new(self.rules);
        Policy { core, handle: self.throttle.handle(), strategy: None }
    }

    fn try_build_policy(self) -> Result<Policy, PolicyError> {
        self.check()?;
        let core = redial_core::Policy::try_new(self.rules)?;
        Ok(Policy { core, handle: self.handle(), strategy: None })
    }

    fn check(&self) -> Result<(), PolicyError> {
        self.error.map_or(Ok(()), Err)
    }

    /// The throttle of a policy that is made at run time: its own budget, unless one was named.
    fn handle(&self) -> Handle {
        if self.is_default_throttle {
            Handle::Own(Arc::new(RetryBudget::standard()))
        } else {
            self.throttle.handle()
        }
    }
}

impl Builder<Policy> {
    /// The builder of [`Policy::from_rules`]; rules that hedge are an error.
    #[track_caller]
    pub(crate) const fn from_rules(rules: Rules) -> Self {
        let mut builder = Builder::new(rules);
        if rules.hedge.is_some() {
            builder.error = Some(PolicyError::HedgeAsRetry);
        }
        builder
    }

    /// Removes the maximum number of attempts. A deadline or a limit must end the call.
    #[doc(alias("forever", "infinite"))]
    pub const fn unlimited(mut self) -> Self {
        self.rules.attempts = None;
        self
    }

    /// The longest delay, jitter included.
    #[doc(alias("max_delay", "max_backoff", "max_interval"))]
    pub const fn cap(mut self, max: Duration) -> Self {
        self.rules.backoff = match self.rules.backoff {
            Backoff::Arithmetic { first, step, .. } => {
                Backoff::Arithmetic { first, step, cap: Some(max) }
            }
            Backoff::Exponential { first, factor, .. } => {
                Backoff::Exponential { first, factor, cap: Some(max) }
            }
            other => {
                self.error = Some(PolicyError::CapWithoutGrowth);
                other
            }
        };
        self
    }

    /// The factor of exponential backoff: any number above 0.
    #[doc(alias = "multiplier")]
    pub const fn factor(mut self, factor: f64) -> Self {
        match self.rules.backoff {
            Backoff::Exponential { first, cap, .. } => {
                self.rules.backoff = Backoff::Exponential { first, factor, cap };
            }
            _ => self.error = Some(PolicyError::FactorWithoutGrowth),
        }
        self
    }

    /// The randomness in a delay. The default is full jitter, and none for [`Policy::constant`] and
    /// [`Policy::table`].
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.rules.jitter = jitter;
        self
    }

    /// Soft and hard limits on the total time of retries.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.rules.limits = limits;
        self
    }

    /// Whether the call fails at once or waits for the deadline when the next retry could not start
    /// before it.
    pub const fn deadline_action(mut self, deadline_action: DeadlineAction) -> Self {
        self.rules.deadline_action = deadline_action;
        self
    }

    /// Builds the policy. In a `static`, a contradiction is a compile error.
    ///
    /// ```compile_fail
    /// # use redial::{Policy, ms};
    /// static NEVER: Policy = Policy::constant(ms(1)).attempts(0).build();
    /// ```
    ///
    /// # Panics
    /// The rules contradict each other; the message names the field and the fix.
    #[track_caller]
    #[must_use]
    pub const fn build(self) -> Policy {
        self.build_policy()
    }

    /// Builds the policy at run time. Unless a throttle was named, it owns a retry budget that its clones
    /// share.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn try_build(self) -> Result<Policy, PolicyError> {
        self.try_build_policy()
    }

    /// Builds the policy with a table of delays that is known at run time, in place of the backoff.
    /// The jitter is the builder's: begin with `Policy::table(&[])` for none.
    ///
    /// # Errors
    /// The table is empty, or the rules contradict each other.
    pub fn try_build_with_table(
        self,
        table: impl Into<Arc<[Duration]>>,
    ) -> Result<Policy, PolicyError> {
        self.check()?;
        let core = redial_core::Policy::with_table(self.rules, table)?;
        Ok(Policy { core, handle: self.handle(), strategy: None })
    }

    /// Builds the policy with a function that returns each delay, before jitter and limits.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn try_build_with(
        self,
        function: impl Fn(Step<'_>) -> Duration + Send + Sync + 'static,
    ) -> Result<Policy, PolicyError> {
        self.check()?;
        let core = redial_core::Policy::with_function(self.rules, function)?;
        Ok(Policy { core, handle: self.handle(), strategy: None })
    }
}

impl Builder<Hedged> {
    /// Builds the policy. In a `static`, a contradiction is a compile error.
    ///
    /// # Panics
    /// The rules contradict each other; the message names the field and the fix.
    #[track_caller]
    #[must_use]
    pub const fn build(self) -> Hedged {
        Hedged(self.build_policy())
    }

    /// Builds the policy at run time. Unless a throttle was named, it owns a retry budget that its clones
    /// share.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn try_build(self) -> Result<Hedged, PolicyError> {
        self.try_build_policy().map(Hedged)
    }
}

// Not derived: the derive would require `P: Copy`.
impl<P> Clone for Builder<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Builder<P> {}

impl<P> fmt::Debug for Builder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("rules", &self.rules)
            .field("throttle", &self.throttle)
            .finish_non_exhaustive()
    }
}
