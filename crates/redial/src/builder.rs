//! The builder of policies, for a `static` or at run time.
//!
//! The defaults of the settings are `redial_core::Rules::DEFAULT`.
//!
//! Invariant: a setting that does not apply to the policy is an error. It is never ignored.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::{CallSite, RetryBudget};
use redial_core::{
    AttemptTimeoutAction, Backoff, DeadlineAction, HintRule, Jitter, Limits, PolicyError, Rules,
    Step,
};

use crate::mistakes::Mistakes;
use crate::policy::{Hedged, Policy};
use crate::policy_name::PolicyName;
use crate::throttle::{Handle, StaticThrottle, Throttle};

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
    /// The name, and the line of the builder, which is the default name.
    name: Option<&'static str>,
    call_site: CallSite,
    /// Whether a first delay above the cap and an attempt timeout of zero are errors. The rules of other designs
    /// cut the delay, and end such an attempt.
    checks_durations: bool,
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
            name: None,
            call_site: CallSite::here(),
            checks_durations: true,
            error: None,
            output: PhantomData,
        }
    }

    /// The maximum number of attempts, including the first.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).attempts(5).build();
    /// assert_eq!(FETCH.rules().attempts, Some(5));
    /// ```
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

    /// The name of the policy, for logs and metrics. The default is the place in the source,
    /// `file:line`. See [`Policy::name`].
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).name("fetch").build();
    /// assert_eq!(FETCH.name().to_string(), "fetch");
    /// ```
    pub const fn name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// The timeout of each attempt. An attempt that exceeds it is cancelled, and the call ends with
    /// [`StopReason::AttemptTimeout`](crate::StopReason::AttemptTimeout): the attempt may have run, and
    /// no classifier has seen an error. If attempts may be repeated after a timeout, say so with
    /// [`Builder::retry_timeouts`]. In a hedged policy, a timeout is a failure like any other, because a
    /// hedged operation may be repeated anyway.
    ///
    /// A blocking attempt cannot be cancelled: the timeout shortens
    /// [`Attempt::remaining`](crate::Attempt::remaining) and does nothing else. The result of an attempt that
    /// takes longer counts as usual.
    ///
    /// A timeout of zero is an error. (A [`deadline`](Builder::deadline) of zero is not: it starts one attempt,
    /// which counts if it is ready at once.)
    ///
    /// ```
    /// use redial::{Policy, StopReason, ms, testing};
    ///
    /// static PAY: Policy = Policy::exponential(ms(100)).attempt_timeout(ms(500)).build();
    ///
    /// let played = testing::play(&PAY, [testing::hangs()]);
    /// assert_eq!(played.stop_reason(), Some(StopReason::AttemptTimeout));
    /// ```
    #[doc(alias("try_timeout", "per_try_timeout"))]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.rules.attempt_timeout = Some(timeout);
        self
    }

    /// The longest delay that is accepted from the server (`Retry-After`, pushback); the default is 60 s.
    /// A longer one ends the call with the last outcome
    /// ([`StopReason::HintTooLong`](crate::StopReason::HintTooLong)), as does one that reaches the deadline
    /// ([`StopReason::Deadline`](crate::StopReason::Deadline)).
    ///
    /// A hint replaces the backoff delay, without jitter. It does not advance the backoff: the delay
    /// after it is the one that would have been next. A hint of zero (`Retry-After: 0`) is no hint: a server
    /// that sends it would otherwise switch the backoff off.
    ///
    /// ```
    /// use redial::testing::{fails_with, play, succeeds};
    /// use redial::{Failure, Policy, StopReason, ms, s};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).hint_max(s(5)).build();
    ///
    /// let busy = |seconds| fails_with(Failure::throttling().retry_after(s(seconds)));
    /// assert_eq!(play(&FETCH, [busy(5), succeeds()]).starts(), [s(0), s(5)]);
    /// assert_eq!(play(&FETCH, [busy(6)]).stop_reason(), Some(StopReason::HintTooLong));
    /// ```
    pub const fn hint_max(mut self, max: Duration) -> Self {
        self.rules.hint = HintRule::UpTo(max);
        self
    }

    /// Waits at most this long, [`hint_jitter`](Builder::hint_jitter) included, when the server asks for a
    /// longer delay, instead of ending the call. A hint of zero starts the next attempt at once, except in a
    /// policy that retries [`forever`](Builder::forever).
    ///
    /// ```
    /// use redial::testing::{fails_with, play, succeeds};
    /// use redial::{Failure, Policy, ms, s};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).hint_clamp(s(5)).build();
    ///
    /// let busy = fails_with(Failure::throttling().retry_after(s(3600)));
    /// assert_eq!(play(&FETCH, [busy, succeeds()]).starts(), [s(0), s(5)]);
    /// ```
    pub const fn hint_clamp(mut self, max: Duration) -> Self {
        self.rules.hint = HintRule::Exact(Some(max));
        self
    }

    /// Waits as long as the server asks for, without a bound. Only the deadline ends the call then. A hint of
    /// zero starts the next attempt at once, except in a policy that retries [`forever`](Builder::forever).
    ///
    /// ```
    /// use redial::testing::{fails_with, play, succeeds};
    /// use redial::{Failure, Policy, ms, s};
    ///
    /// static BATCH: Policy = Policy::exponential(ms(100)).hint_unlimited().build();
    ///
    /// let busy = fails_with(Failure::throttling().retry_after(s(3600)));
    /// assert_eq!(play(&BATCH, [busy, succeeds()]).starts(), [s(0), s(3600)]);
    /// ```
    pub const fn hint_unlimited(mut self) -> Self {
        self.rules.hint = HintRule::Exact(None);
        self
    }

    /// Adds up to this share of the delay that the server asks for, at random: 0.1 adds up to a tenth. It
    /// spreads out clients that got the same hint (thundering herd). It never shortens a hint, and the sum is
    /// cut at [`hint_clamp`](Builder::hint_clamp). Hedges take no jitter, so a hedged policy refuses it.
    ///
    /// ```
    /// use redial::testing::{Play, Script, fails_with, succeeds};
    /// use redial::{Failure, Policy, ms, s};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).hint_jitter(0.1).build();
    ///
    /// let busy = fails_with(Failure::throttling().retry_after(s(10)));
    /// let calls = Play::new().draws([0.5]).call(Script::new(&FETCH, [busy, succeeds()])).run();
    /// assert_eq!(calls[0].starts(), [s(0), ms(10_500)]);
    /// ```
    pub const fn hint_jitter(mut self, share: f64) -> Self {
        self.rules.hint_jitter = share;
        self
    }

    /// Replaces the default retry budget. A budget without a refill must be able to pay for all retries of
    /// one call.
    ///
    /// ```
    /// use redial::throttle::RetryBudget;
    /// use redial::{Policy, PolicyError, Throttle, ms};
    ///
    /// static SMALL: RetryBudget = RetryBudget::new(5.0, 0.1);
    ///
    /// let budget = Throttle::budget(&SMALL);
    /// let policy = Policy::constant(ms(50)).attempts(7).throttle(budget).try_build();
    /// assert_eq!(policy.unwrap_err(), PolicyError::AttemptsAboveReserve);
    /// ```
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
        if let Some(problem) = self.mistakes(&core).error() {
            panic!("{}", problem.text());
        }
        let handle = if self.has_no_budget() { Handle::None } else { self.throttle.handle() };
        self.policy(core, handle)
    }

    /// Builds the policy at run time; `core` validates the rules.
    fn try_build_policy(
        self,
        core: impl FnOnce(Rules) -> Result<redial_core::Policy, PolicyError>,
    ) -> Result<Policy, PolicyError> {
        if let Some(problem) = self.error {
            return Err(problem);
        }
        let core = core(self.rules)?;
        if let Some(problem) = self.mistakes(&core).error() {
            return Err(problem);
        }
        Ok(self.policy(core, self.handle()))
    }

    const fn policy(&self, core: redial_core::Policy, handle: Handle) -> Policy {
        Policy {
            core,
            handle,
            has_default_throttle: self.is_default_throttle,
            strategy: None,
            name: self.policy_name(),
            shares_name: false,
        }
    }

    const fn policy_name(&self) -> PolicyName {
        match self.name {
            Some(name) => PolicyName::new(name),
            None => PolicyName::of_call_site(self.call_site.location()),
        }
    }

    /// The likely mistakes in the policy of these rules.
    const fn mistakes(&self, core: &redial_core::Policy) -> Mistakes {
        let budget = match self.throttle.0 {
            StaticThrottle::Budget(budget) => Some(budget),
            _ => None,
        };
        let mut mistakes = Mistakes::of(core, budget, self.is_default_throttle);
        mistakes.first_above_cap &= self.checks_durations;
        mistakes.attempt_timeout_zero &= self.checks_durations;
        mistakes
    }

    /// Whether the call never gives up and no throttle was named: an empty budget would end it.
    const fn has_no_budget(&self) -> bool {
        self.is_default_throttle && self.rules.never_gives_up()
    }

    /// The throttle of a policy that is made at run time: its own budget, unless one was named.
    fn handle(&self) -> Handle {
        if self.has_no_budget() {
            Handle::None
        } else if self.is_default_throttle {
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
        builder.checks_durations = false;
        if rules.hedge.is_some() {
            builder.error = Some(PolicyError::HedgeAsRetry);
        }
        builder
    }

    /// Removes the maximum number of attempts. A deadline or a limit must end the call; for a call that
    /// never gives up, use [`Builder::forever`].
    ///
    /// ```
    /// use redial::{Policy, PolicyError, ms, s};
    ///
    /// static UNTIL_DEADLINE: Policy = Policy::exponential(ms(100)).unlimited().deadline(s(30)).build();
    /// assert_eq!(UNTIL_DEADLINE.rules().attempts, None);
    ///
    /// let endless = Policy::exponential(ms(100)).unlimited().try_build();
    /// assert_eq!(endless.unwrap_err(), PolicyError::Unlimited);
    /// ```
    pub const fn unlimited(mut self) -> Self {
        self.rules.attempts = None;
        self.rules.forever = false;
        self
    }

    /// Retries without end: no maximum number of attempts, and no deadline or limit is needed. Such a call
    /// has no retry budget unless you name one ([`Builder::throttle`]), because an empty budget would end it.
    /// What limits the load is its backoff, so delays that are zero or shrink to zero are an error, and a hint
    /// of zero is no hint. It replaces [`attempts`](Builder::attempts) and [`unlimited`](Builder::unlimited),
    /// and a later one of those replaces it.
    ///
    /// A budget that you name needs [`per_second`](crate::throttle::RetryBudget::per_second): during an outage
    /// no call succeeds, so nothing else refills it, and the call ends as throttled.
    ///
    /// For a loop that reconnects, add [`Builder::reset_after`].
    ///
    /// ```
    /// use redial::{Policy, ms, s};
    ///
    /// static RECONNECT: Policy =
    ///     Policy::exponential(s(1)).cap(s(60)).forever().reset_after(s(300)).build();
    /// assert_eq!(RECONNECT.delays().take(1000).count(), 1000);
    /// ```
    #[doc(alias("infinite", "endless", "without_max_times"))]
    pub const fn forever(mut self) -> Self {
        self.rules.attempts = None;
        self.rules.forever = true;
        self
    }

    /// Starts the delays and the count of attempts anew when an attempt fails that has run for this long,
    /// because it was healthy until then. For operations that run until they fail: a connection, a
    /// subscription, a worker.
    ///
    /// An attempt that its [timeout](Builder::attempt_timeout) cuts off counts as well. So keep `healthy` above that
    /// timeout if timed-out attempts are retried, or a server that hangs is retried without end. An attempt whose
    /// value [`until`](crate::Retry::until) rejects counts too, such as a long poll without news.
    ///
    /// ```
    /// use redial::testing::{fails, play, succeeds};
    /// use redial::{Jitter, Policy, ms, s};
    ///
    /// static CONSUME: Policy = Policy::exponential(s(1))
    ///     .jitter(Jitter::None)
    ///     .attempts(3)
    ///     .reset_after(s(60))
    ///     .build();
    ///
    /// // The third attempt runs for an hour; the delays then start at 1 s again.
    /// let hour = fails().after(s(3600));
    /// let played = play(&CONSUME, [fails(), fails(), hour, fails(), succeeds()]);
    /// assert_eq!(played.starts(), [s(0), s(1), s(3), s(3604), s(3606)]);
    /// ```
    #[doc(alias("reset_interval", "healthy_after"))]
    pub const fn reset_after(mut self, healthy: Duration) -> Self {
        self.rules.reset_after = Some(healthy);
        self
    }

    /// Retries attempts that exceeded the [attempt timeout](Builder::attempt_timeout), although they may
    /// have run: the operation is idempotent. A call that is marked as
    /// [not idempotent](crate::Retry::not_idempotent) is still not retried.
    ///
    /// ```
    /// use redial::testing::{hangs, play, succeeds};
    /// use redial::{Policy, ms};
    ///
    /// static READ: Policy =
    ///     Policy::constant(ms(100)).attempt_timeout(ms(500)).retry_timeouts().build();
    ///
    /// assert_eq!(play(&READ, [hangs(), succeeds()]).starts(), [ms(0), ms(600)]);
    /// ```
    pub const fn retry_timeouts(mut self) -> Self {
        self.rules.attempt_timeout_action = AttemptTimeoutAction::Retry;
        self
    }

    /// The longest delay, jitter included. A first delay above it is an error.
    ///
    /// ```
    /// use redial::{Policy, PolicyError, s};
    ///
    /// static SLOW: Policy = Policy::exponential(s(60)).cap(s(600)).build();
    ///
    /// // Without a cap it is 20 s.
    /// let cut = Policy::exponential(s(60)).try_build();
    /// assert_eq!(cut.unwrap_err(), PolicyError::FirstAboveCap);
    /// ```
    #[doc(alias("max_delay", "max_backoff", "max_interval"))]
    pub const fn cap(mut self, max: Duration) -> Self {
        self.rules.backoff = match self.rules.backoff {
            Backoff::Arithmetic { first, step, .. } => {
                Backoff::Arithmetic { first, step, cap: Some(max) }
            }
            Backoff::Exponential { first, factor, .. } => {
                Backoff::Exponential { first, factor, cap: Some(max) }
            }
            Backoff::Fibonacci { first, .. } => Backoff::Fibonacci { first, cap: Some(max) },
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
    /// Unless a throttle was named, all policies that this line builds share one retry budget: that of the line.
    /// That is right for a `static`, and wrong for a line that runs once per client or host, because the failures
    /// of one then spend the retries of all. Use `try_build` there, whose policies own their budgets, or give each
    /// policy a budget with [`Policy::with_budget`]; [`KeyedBudgets`](crate::throttle::KeyedBudgets) keeps one per
    /// key.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// let shared = || Policy::immediate().attempts(3).build();
    /// let (one, other) = (shared(), shared());
    /// let _ = one.retry(|| Err::<(), _>("busy")).when(|_| true).call();
    /// assert!(other.tokens(0) < Some(10.0), "the same budget");
    ///
    /// let own = || Policy::immediate().attempts(3).try_build();
    /// let (one, other) = (own()?, own()?);
    /// let _ = one.retry(|| Err::<(), _>("busy")).when(|_| true).call();
    /// assert_eq!(other.tokens(0), Some(10.0), "its own budget");
    /// # Ok::<(), redial::PolicyError>(())
    /// ```
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
        self.try_build_policy(redial_core::Policy::try_new)
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
        self.try_build_policy(|rules| redial_core::Policy::with_table(rules, table))
    }

    /// Builds the policy with a function that returns each delay, before jitter and limits.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn try_build_with(
        self,
        function: impl Fn(Step<'_>) -> Duration + Send + Sync + 'static,
    ) -> Result<Policy, PolicyError> {
        self.try_build_policy(|rules| redial_core::Policy::with_function(rules, function))
    }
}

impl Builder<Hedged> {
    /// Builds the policy. In a `static`, a contradiction is a compile error. Unless a throttle was named, all
    /// policies that this line builds share one retry budget; those of `try_build` own theirs.
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
        self.try_build_policy(redial_core::Policy::try_new).map(Hedged)
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
