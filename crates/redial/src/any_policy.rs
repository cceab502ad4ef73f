//! A policy whose kind, retrying or hedged, is known only at run time.
//!
//! Invariant: the rules of a [`Policy`] have no hedging delay, and those of a [`Hedged`] policy have one.

use std::sync::Arc;

use redial_core::throttle::{Bucket, RetryBudget};
use redial_core::{Cost, Ns, PolicyError, Rules, Withdrawal};

use crate::attempt::{Answer, Async, Attempt, Operation, WithAttempt};
use crate::classify::NeedsWhen;
use crate::future::HedgeList;
use crate::policy::sealed::Sealed;
use crate::policy::{Hedged, MayBeSequential, Origin, OriginKind, Policy};
use crate::policy_name::PolicyName;
use crate::policy_ref::PolicyRef;
use crate::retry::Retry;
use crate::throttle::Handle;

/// A policy of either kind, as `PolicyConfig::load` returns it (feature `serde`).
#[derive(Clone, Debug)]
pub enum AnyPolicy {
    /// A policy that retries.
    Policy(Policy),
    /// A policy that hedges.
    Hedged(Hedged),
}

impl AnyPolicy {
    /// A policy of rules that the core has validated. It has no throttle; add one with
    /// [`AnyPolicy::sharing`].
    #[track_caller]
    #[must_use]
    pub const fn from_core(core: redial_core::Policy) -> Self {
        let hedges = core.rules().hedge.is_some();
        let name = PolicyName::here();
        let handle = Handle::None;
        let policy = Policy {
            core,
            handle,
            has_default_throttle: false,
            strategy: None,
            name,
            shares_name: false,
        };
        if hedges { AnyPolicy::Hedged(Hedged(policy)) } else { AnyPolicy::Policy(policy) }
    }

    /// Replaces the throttle with one that is shared at run time.
    #[must_use]
    pub fn sharing(&self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        match self {
            AnyPolicy::Policy(policy) => AnyPolicy::Policy(policy.sharing(bucket)),
            AnyPolicy::Hedged(policy) => AnyPolicy::Hedged(policy.sharing(bucket)),
        }
    }

    /// Replaces the throttle with a retry budget that is shared at run time; see
    /// [`Policy::with_budget`].
    ///
    /// ```
    /// use redial::throttle::RetryBudget;
    /// use redial::{AnyPolicy, Policy, ms};
    /// use std::sync::Arc;
    ///
    /// let policy = AnyPolicy::Hedged(Policy::hedged(ms(20)).build());
    /// let policy = policy.with_budget(Arc::new(RetryBudget::new(50.0, 0.1)));
    /// # assert!(matches!(policy, AnyPolicy::Hedged(policy) if policy.tokens(0) == Some(50.0)));
    /// ```
    #[must_use]
    pub fn with_budget(&self, budget: Arc<RetryBudget>) -> Self {
        match self {
            AnyPolicy::Policy(policy) => AnyPolicy::Policy(policy.with_budget(budget)),
            AnyPolicy::Hedged(policy) => AnyPolicy::Hedged(policy.with_budget(budget)),
        }
    }

    /// Replaces the name, for names that are known at run time; see [`Policy::with_name`].
    ///
    /// ```
    /// use redial::{AnyPolicy, Policy, ms};
    ///
    /// let policy = AnyPolicy::Hedged(Policy::hedged(ms(20)).build()).with_name("read");
    /// assert_eq!(policy.name().to_string(), "read");
    /// ```
    #[must_use]
    pub fn with_name(&self, name: impl Into<Arc<str>>) -> Self {
        match self {
            AnyPolicy::Policy(policy) => AnyPolicy::Policy(policy.with_name(name)),
            AnyPolicy::Hedged(policy) => AnyPolicy::Hedged(policy.with_name(name)),
        }
    }

    /// Changes the rules; see [`Policy::with_rules`]. The kind stays: rules that retry do not become rules that
    /// hedge.
    ///
    /// ```
    /// use redial::{AnyPolicy, Policy, ms, s};
    ///
    /// let policy = AnyPolicy::from(Policy::hedged(ms(20)).build());
    /// let bounded = policy.with_rules(|rules| rules.deadline = Some(s(1)))?;
    /// assert_eq!(bounded.rules().deadline, Some(s(1)));
    /// # Ok::<(), redial::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// The rules contradict each other, or are of the other kind.
    pub fn with_rules(&self, change: impl FnOnce(&mut Rules)) -> Result<Self, PolicyError> {
        match self {
            AnyPolicy::Policy(policy) => policy.with_rules(change).map(AnyPolicy::Policy),
            AnyPolicy::Hedged(policy) => policy.with_rules(change).map(AnyPolicy::Hedged),
        }
    }

    /// The rules of the policy.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        self.either().rules()
    }

    /// The tokens left in the throttle; `None` without a throttle. See [`Policy::tokens`].
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.either().tokens(now)
    }

    /// The tokens left in the throttle, with the refill of a retry budget until `now`; see [`Policy::tokens_at`].
    #[must_use]
    pub fn tokens_at(&self, now: Ns) -> Option<f64> {
        self.either().tokens_at(now)
    }

    /// The name of the policy; see [`Policy::name`].
    ///
    /// ```
    /// use redial::{AnyPolicy, Policy, ms};
    ///
    /// let policy = AnyPolicy::Policy(Policy::constant(ms(20)).name("poll").build());
    /// assert_eq!(policy.name().to_string(), "poll");
    /// ```
    #[must_use]
    pub fn name(&self) -> PolicyName {
        match self {
            AnyPolicy::Policy(policy) => policy.name(),
            AnyPolicy::Hedged(policy) => policy.name(),
        }
    }
}

impl AnyPolicy {
    /// Retries or hedges the operation: a closure that returns a future of a `Result`. The kind of the
    /// policy is known only at run time, so what only retries can do is missing: blocking calls, strategies,
    /// [`Policy::retry_on`] and [`Policy::retry_with_context`]. Match the [`AnyPolicy::Policy`] for them:
    ///
    /// ```
    /// use redial::{AnyPolicy, Policy, ms};
    ///
    /// let loaded = AnyPolicy::from(Policy::constant(ms(20)).build());
    /// // Once, when the configuration is loaded.
    /// let AnyPolicy::Policy(policy) = loaded else { panic!("this policy must not hedge") };
    /// let value = policy.retry(|| Ok::<_, std::io::Error>(7)).when(|_| true).call();
    /// assert_eq!(value.ok(), Some(7));
    /// ```
    ///
    /// A call that is [not idempotent](Retry::not_idempotent) has one attempt if the policy hedges.
    ///
    /// An async operation:
    ///
    /// ```
    /// use redial::{AnyPolicy, Policy, ms};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::io::Error> {
    /// let policy = AnyPolicy::Policy(Policy::constant(ms(20)).build());
    /// let value = policy.retry(|| async { Ok::<_, std::io::Error>(7) }).when(|_| true).await?;
    /// assert_eq!(value, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn retry<O>(&self, operation: O) -> Retry<'_, NeedsWhen, &AnyPolicy, O, Async>
    where
        O: Operation,
        O::Answer: Answer<Async>,
    {
        Retry::new(self, operation)
    }

    /// The same, with the [`Attempt`] as an argument of the closure.
    ///
    /// ```
    /// use redial::{AnyPolicy, Policy, ms};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::io::Error> {
    /// let policy = AnyPolicy::Hedged(Policy::hedged(ms(20)).build());
    /// let number = policy
    ///     .retry_with(|attempt| async move { Ok::<_, std::io::Error>(attempt.number()) })
    ///     .when(|_| true)
    ///     .await?;
    /// assert_eq!(number, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn retry_with<F, R>(
        &self,
        operation: F,
    ) -> Retry<'_, NeedsWhen, &AnyPolicy, WithAttempt<F>, Async>
    where
        F: FnMut(Attempt) -> R,
        R: Answer<Async>,
    {
        Retry::new(self, WithAttempt(operation))
    }

    /// The policy, whatever its kind.
    pub(crate) const fn either(&self) -> &Policy {
        match self {
            AnyPolicy::Policy(policy) => policy,
            AnyPolicy::Hedged(hedged) => &hedged.0,
        }
    }
}

impl From<Policy> for AnyPolicy {
    fn from(policy: Policy) -> Self {
        AnyPolicy::Policy(policy)
    }
}

impl From<Hedged> for AnyPolicy {
    fn from(policy: Hedged) -> Self {
        AnyPolicy::Hedged(policy)
    }
}

impl Sealed for &AnyPolicy {}

impl OriginKind for &AnyPolicy {
    type Hedges<A> = HedgeList<A>;
}

impl<'p> Origin<'p> for &'p AnyPolicy {
    fn policy(&self) -> &Policy {
        self.either()
    }
    fn policy_ref(&self) -> PolicyRef<'p> {
        PolicyRef::Borrowed(self.either())
    }
    fn handle(&self) -> Handle {
        self.either().handle.clone()
    }
    fn withdraw(&self, cost: Cost, now: impl FnOnce() -> Ns) -> Option<Withdrawal> {
        self.either().handle.withdraw_from_budget(cost, now)
    }
    fn succeeded(&self) {
        self.either().handle.succeeded(None);
    }
    fn name(&self) -> PolicyName {
        self.either().name()
    }
}

impl<'p> MayBeSequential<'p> for &'p AnyPolicy {}

impl AsRef<redial_core::Policy> for AnyPolicy {
    fn as_ref(&self) -> &redial_core::Policy {
        match self {
            AnyPolicy::Policy(policy) => policy.core(),
            AnyPolicy::Hedged(policy) => policy.core(),
        }
    }
}
