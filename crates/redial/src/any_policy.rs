//! A policy whose kind, retrying or hedged, is known only at run time.
//!
//! Invariant: a [`Policy`] never hedges, and a [`Hedged`] policy always does.

use std::sync::Arc;

use redial_core::throttle::Bucket;

use crate::policy::{Hedged, Policy};
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
    #[must_use]
    pub const fn from_core(core: redial_core::Policy) -> Self {
        let hedges = core.rules().hedge.is_some();
        let policy = Policy { core, handle: Handle::None, strategy: None };
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
}

impl AsRef<redial_core::Policy> for AnyPolicy {
    fn as_ref(&self) -> &redial_core::Policy {
        match self {
            AnyPolicy::Policy(policy) => policy.core(),
            AnyPolicy::Hedged(policy) => policy.core(),
        }
    }
}
