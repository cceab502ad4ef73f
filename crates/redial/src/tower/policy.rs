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
use crate::sleeper::{DEFAULT_SLEEPER, DefaultSleeper};
use crate::sleeping_on::SleepingOn;
use crate::throttle::Handle;

/// The policies that a layer accepts: a [`Policy`], a [`Hedged`] policy or an [`AnyPolicy`], as a `static`, by
/// value or in an [`Arc`], and each with a sleeper ([`SleepingOn`]), as a `static` or by value.
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
    /// The clock and timer of the layer, unless [`RetryLayer::sleeping_on`] names another.
    ///
    /// [`RetryLayer::sleeping_on`]: crate::tower::RetryLayer::sleeping_on
    type Sleeper;

    /// Converts the policy.
    fn into_policy(self) -> (Self::Policy, Self::Sleeper);
}

/// A policy without a sleeper of its own.
macro_rules! into_policy {
    ($policy:ty, $into:ty, $this:ident => $value:expr) => {
        impl IntoPolicy for $policy {
            type Policy = $into;
            type Sleeper = DefaultSleeper;
            fn into_policy(self) -> ($into, DefaultSleeper) {
                let $this = self;
                ($value, DEFAULT_SLEEPER)
            }
        }
    };
}

into_policy!(&'static Policy, StaticPolicy, policy => StaticPolicy(policy));
into_policy!(Policy, SharedPolicy, policy => SharedPolicy(Arc::new(policy)));
into_policy!(Arc<Policy>, SharedPolicy, policy => SharedPolicy(policy));
into_policy!(&'static Hedged, StaticHedged, policy => StaticHedged(policy));
into_policy!(Hedged, SharedHedged, policy => SharedHedged(Arc::new(policy.0)));
into_policy!(Arc<Hedged>, SharedHedged, policy => SharedHedged(Arc::new(policy.0.clone())));
into_policy!(AnyPolicy, SharedAnyPolicy, policy => SharedAnyPolicy::of(&policy));
into_policy!(&'static AnyPolicy, SharedAnyPolicy, policy => SharedAnyPolicy::of(policy));
into_policy!(Arc<AnyPolicy>, SharedAnyPolicy, policy => SharedAnyPolicy::of(&policy));
into_policy!(Site, Site, site => site);

impl<P: IntoPolicy, S> IntoPolicy for SleepingOn<P, S> {
    type Policy = P::Policy;
    type Sleeper = S;
    fn into_policy(self) -> (P::Policy, S) {
        let (policy, sleeper) = self.into_parts();
        (policy.into_policy().0, sleeper)
    }
}

impl<P, S: Clone> IntoPolicy for &'static SleepingOn<P, S>
where
    &'static P: IntoPolicy,
{
    type Policy = <&'static P as IntoPolicy>::Policy;
    type Sleeper = S;
    fn into_policy(self) -> (Self::Policy, S) {
        (self.policy().into_policy().0, self.sleeper().clone())
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

/// An [`AnyPolicy`], shared by the requests of a layer. A request can be marked as not idempotent
/// ([`CallOptions::not_idempotent`]); if the policy hedges, such a request has one attempt.
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
/// [`CallOptions::not_idempotent`]: crate::tower::CallOptions::not_idempotent
#[derive(Clone, Debug)]
pub struct SharedAnyPolicy(Arc<Policy>);

impl SharedAnyPolicy {
    fn of(policy: &AnyPolicy) -> Self {
        SharedAnyPolicy(Arc::new(policy.either().clone()))
    }
}

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
