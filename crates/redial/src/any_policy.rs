//! A policy whose kind, retrying or hedged, is known only at run time.
//!
//! Invariant: a [`Policy`] never hedges, and a [`Hedged`] policy always does.

use std::sync::Arc;

use redial_core::throttle::{Bucket, RetryBudget};

use crate::policy::{Hedged, Policy};
use crate::policy_name::PolicyName;
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
        let policy = Policy { core, handle: Handle::None, strategy: None, name };
        if hedges { AnyPolicy::Hedged(Hedged(policy)) } else { AnyPolicy::Policy(policy) }
    }

    /// Replaces the throttle with one that is shared at run time.
    #[must_use]
    pub fn sharing(self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
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

impl AsRef<redial_core::Policy> for AnyPolicy {
    fn as_ref(&self) -> &redial_core::Policy {
        match self {
            AnyPolicy::Policy(policy) => policy.core(),
            AnyPolicy::Hedged(policy) => policy.core(),
        }
    }
}
