//! A policy whose kind is known only when it is loaded.
//!
//! Invariant: a [`Policy`] never hedges and a [`Hedged`] one does, wherever they come from.

use std::sync::Arc;

use redial_core::throttle::Bucket;

use crate::policy::{Hedged, Policy};
use crate::throttle::Handle;

/// A policy of either kind: what a written policy becomes (`PolicyConfig::load`, feature `serde`).
#[derive(Clone, Debug)]
pub enum AnyPolicy {
    /// One that retries.
    Policy(Policy),
    /// One that hedges.
    Hedged(Hedged),
}

impl AnyPolicy {
    /// A policy of rules that were checked elsewhere, without a throttle: for designs that make
    /// their own and bring their own ([`AnyPolicy::sharing`]).
    #[must_use]
    pub const fn from_core(core: redial_core::Policy) -> Self {
        let hedges = core.rules().hedge.is_some();
        let policy = Policy { core, handle: Handle::None, strategy: None };
        if hedges { AnyPolicy::Hedged(Hedged(policy)) } else { AnyPolicy::Policy(policy) }
    }

    /// The same policy with a throttle that is shared at run time.
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
