//! The policy of a layer: a `static`, or one that was built at run time.

use std::sync::Arc;

use redial_core::throttle::Bucket;
use redial_core::{Cost, Ns, Withdrawal};

use crate::any_policy::AnyPolicy;
use crate::future::{HedgeList, NoHedges};
use crate::policy::sealed::Sealed;
use crate::policy::{Hedged, MayBeSequential, Origin, OriginKind, Policy, Sequential, Site};
use crate::policy_name::PolicyName;
use crate::policy_ref::PolicyRef;
use crate::throttle::Handle;

/// The policies that a layer accepts: a [`Policy`], a [`Hedged`] policy or an [`AnyPolicy`], as a `static`, by
/// value or in an [`Arc`].
///
/// ```
/// use redial::tower::RetryLayer;
/// use redial::{Hedged, Policy, ms};
/// use std::sync::Arc;
///
/// static FETCH: Policy = Policy::exponential(ms(100)).build();
/// static READ: Hedged = Policy::hedged(ms(20)).build();
///
/// let retries = RetryLayer::new(&FETCH);
/// let hedges = RetryLayer::new(&READ);
/// // Built at run time, for example from a configuration file; its clones share its retry budget.
/// let loaded = Policy::exponential(ms(100)).attempts(5).build();
/// let owned = RetryLayer::new(loaded.clone());
/// let shared = RetryLayer::new(Arc::new(loaded));
/// # let _ = (retries, hedges, owned, shared);
/// ```
pub trait IntoPolicy {
    /// What a call of the layer holds.
    type Policy: Origin<'static>;

    /// Converts the policy.
    fn into_policy(self) -> Self::Policy;
}

impl IntoPolicy for &'static Policy {
    type Policy = StaticPolicy;
    fn into_policy(self) -> Self::Policy {
        StaticPolicy(self)
    }
}

impl IntoPolicy for Policy {
    type Policy = SharedPolicy;
    fn into_policy(self) -> Self::Policy {
        SharedPolicy(Arc::new(self))
    }
}

impl IntoPolicy for Arc<Policy> {
    type Policy = SharedPolicy;
    fn into_policy(self) -> Self::Policy {
        SharedPolicy(self)
    }
}

impl IntoPolicy for &'static Hedged {
    type Policy = StaticHedged;
    fn into_policy(self) -> Self::Policy {
        StaticHedged(self)
    }
}

impl IntoPolicy for Hedged {
    type Policy = SharedHedged;
    fn into_policy(self) -> Self::Policy {
        SharedHedged(Arc::new(self.0))
    }
}

impl IntoPolicy for Arc<Hedged> {
    type Policy = SharedHedged;
    fn into_policy(self) -> Self::Policy {
        Arc::unwrap_or_clone(self).into_policy()
    }
}

impl IntoPolicy for AnyPolicy {
    type Policy = SharedAnyPolicy;
    fn into_policy(self) -> SharedAnyPolicy {
        let (AnyPolicy::Policy(policy) | AnyPolicy::Hedged(Hedged(policy))) = self;
        SharedAnyPolicy(Arc::new(policy))
    }
}

impl IntoPolicy for &'static AnyPolicy {
    type Policy = SharedAnyPolicy;
    fn into_policy(self) -> SharedAnyPolicy {
        self.clone().into_policy()
    }
}

impl IntoPolicy for Arc<AnyPolicy> {
    type Policy = SharedAnyPolicy;
    fn into_policy(self) -> SharedAnyPolicy {
        Arc::unwrap_or_clone(self).into_policy()
    }
}

impl IntoPolicy for Site {
    type Policy = Site;
    fn into_policy(self) -> Self::Policy {
        self
    }
}

/// A [`Policy`] in a `static`.
///
/// ```
/// use redial::tower::{RetryLayer, StaticPolicy};
/// use redial::{Policy, ms};
///
/// static FETCH: Policy = Policy::exponential(ms(100)).build();
/// let layer: RetryLayer<StaticPolicy, _> = RetryLayer::new(&FETCH);
/// # let _ = layer;
/// ```
// A reference in a type of its own: where the compiler forgets lifetimes (a task), `&'static Policy`
// would be a reference of any lifetime.
#[derive(Clone, Copy, Debug)]
pub struct StaticPolicy(&'static Policy);

/// A [`Hedged`] policy in a `static`.
///
/// ```
/// use redial::tower::{RetryLayer, StaticHedged};
/// use redial::{Hedged, Policy, ms};
///
/// static READ: Hedged = Policy::hedged(ms(20)).build();
/// let layer: RetryLayer<StaticHedged, _> = RetryLayer::new(&READ);
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StaticHedged(&'static Hedged);

/// A [`Policy`] that was built at run time, shared by the requests of a layer.
///
/// ```
/// use redial::tower::{RetryLayer, SharedPolicy};
/// use redial::{Policy, ms};
///
/// let layer: RetryLayer<SharedPolicy, _> = RetryLayer::new(Policy::exponential(ms(100)).build());
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
pub struct SharedPolicy(Arc<Policy>);

/// A [`Hedged`] policy that was built at run time, shared by the requests of a layer.
///
/// ```
/// use redial::tower::{RetryLayer, SharedHedged};
/// use redial::{Policy, ms};
///
/// let layer: RetryLayer<SharedHedged, _> = RetryLayer::new(Policy::hedged(ms(20)).build());
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
pub struct SharedHedged(Arc<Policy>);

/// An [`AnyPolicy`], shared by the requests of a layer. As with [`AnyPolicy::retry`], a request has no options
/// of retries alone; one that must not run twice can have a single attempt ([`CallOptions::attempts`]).
///
/// ```
/// use redial::tower::{RetryLayer, SharedAnyPolicy};
/// use redial::{AnyPolicy, Policy, ms};
///
/// // As `PolicyConfig::load` returns it.
/// let loaded = AnyPolicy::Policy(Policy::exponential(ms(100)).build());
/// let layer: RetryLayer<SharedAnyPolicy, _> = RetryLayer::new(loaded);
/// # let _ = layer;
/// ```
///
/// [`CallOptions::attempts`]: crate::tower::CallOptions::attempts
#[derive(Clone, Debug)]
pub struct SharedAnyPolicy(Arc<Policy>);

/// The origin of a call: `$policy` borrows the policy of `$this`, and `$policy_ref` lets a call keep it.
macro_rules! origin {
    ($name:ident, $hedges:ident, $this:ident, $policy:expr, $policy_ref:expr) => {
        impl Sealed for $name {}

        impl OriginKind for $name {
            type Hedges<A> = $hedges!(A);
        }

        impl<'p> Origin<'p> for $name {
            #[inline(always)]
            fn policy(&self) -> &Policy {
                let $this = self;
                $policy
            }
            fn policy_ref(&self) -> PolicyRef<'p> {
                let $this = self;
                $policy_ref
            }
            fn handle(&self) -> Handle {
                self.policy().handle.clone()
            }
            fn withdraw(&self, cost: Cost, now: impl FnOnce() -> Ns) -> Option<Withdrawal> {
                self.policy().handle.withdraw_from_budget(cost, now)
            }
            #[inline(always)]
            fn succeeded(&self) {
                self.policy().handle.succeeded(None);
            }
            fn name(&self) -> PolicyName {
                self.policy().name.clone()
            }
        }
    };
}

macro_rules! hedges {
    ($a:ident) => { HedgeList<$a> };
}

macro_rules! no_hedges {
    ($a:ident) => {
        NoHedges
    };
}

origin!(StaticPolicy, no_hedges, this, this.0, PolicyRef::Borrowed(this.0));
origin!(StaticHedged, hedges, this, &this.0.0, PolicyRef::Borrowed(&this.0.0));
origin!(SharedPolicy, no_hedges, this, &this.0, PolicyRef::Shared(this.0.clone()));
origin!(SharedAnyPolicy, hedges, this, &this.0, PolicyRef::Shared(this.0.clone()));
origin!(SharedHedged, hedges, this, &this.0, PolicyRef::Shared(this.0.clone()));

impl MayBeSequential<'_> for SharedAnyPolicy {}
impl Sequential<'_> for StaticPolicy {}
impl Sequential<'_> for SharedPolicy {}
