//! Policies that a call owns a reference to, so that its future is `'static`.

use std::sync::Arc;

use redial_core::throttle::{Bucket, RetryBudget};
use redial_core::{Cost, NEVER, Ns, Withdrawal};

use crate::attempt::{Answer, Async, Attempt, Operation, WithAttempt};
use crate::classify::NeedsWhen;
use crate::future::{HedgeList, NoHedges};
use crate::policy::sealed::Sealed;
use crate::policy::{Hedged, Origin, OriginKind, Policy, Sequential};
use crate::policy_name::PolicyName;
use crate::policy_ref::PolicyRef;
use crate::retry::Retry;
use crate::throttle::Handle;

/// A [`Policy`] for calls whose futures outlive the place that starts them, such as those of a service.
/// Cheap to clone. A call can have another retry budget than the policy, for example that of its host.
///
/// ```
/// use redial::parts::OwnedPolicy;
/// use redial::{Policy, ms};
/// use redial::throttle::KeyedBudgets;
/// # use std::io;
///
/// static HOSTS: KeyedBudgets<String> = KeyedBudgets::new(100);
///
/// fn fetch(policy: &OwnedPolicy, host: &str) -> impl Future<Output = bool> + use<> {
///     let call = policy.with_budget(HOSTS.get(host)).retry(|| async { Ok::<_, io::Error>(7) });
///     async { call.when(|_| true).await.is_ok() }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let policy = OwnedPolicy::new(Policy::exponential(ms(100)).build());
/// assert!(fetch(&policy, "example.com").await);
/// let number = policy.retry_with(|attempt| async move { Ok::<_, io::Error>(attempt.number()) });
/// assert_eq!(number.when(|_| true).await.unwrap(), 1);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OwnedPolicy(Owned);

/// A [`Hedged`] policy for calls whose futures outlive the place that starts them; see [`OwnedPolicy`].
///
/// ```
/// use redial::parts::OwnedHedged;
/// use redial::{Policy, ms};
/// # use std::io;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let policy = OwnedHedged::new(Policy::hedged(ms(20)).build());
/// let call = policy.retry(|| async { Ok::<_, io::Error>(7) }).when(|_| true);
/// assert_eq!(call.await.unwrap(), 7);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OwnedHedged(Owned);

#[derive(Clone, Debug)]
struct Owned {
    policy: Arc<Policy>,
    throttle: Handle,
}

impl Owned {
    fn new(policy: Policy) -> Self {
        Owned { throttle: policy.handle.clone(), policy: Arc::new(policy) }
    }
}

/// The methods and the origin of both types.
macro_rules! owned {
    ($name:ident, $policy:ident, $into:expr, $hedges:ident) => {
        impl $name {
            /// Takes the policy; its throttle is used unless a call has another budget.
            #[must_use]
            pub fn new(policy: $policy) -> Self {
                $name(Owned::new($into(policy)))
            }

            /// The same policy with this retry budget.
            #[must_use]
            pub fn with_budget(&self, budget: Arc<RetryBudget>) -> Self {
                let throttle = Handle::Own(budget);
                $name(Owned { policy: self.0.policy.clone(), throttle })
            }

            /// The name of the policy.
            #[must_use]
            pub fn name(&self) -> PolicyName {
                self.0.policy.name()
            }

            /// The rules of the policy.
            #[must_use]
            pub fn rules(&self) -> &redial_core::Rules {
                self.0.policy.rules()
            }

            /// Retries or hedges the operation, which returns a future of a `Result`.
            pub fn retry<O>(&self, operation: O) -> Retry<'static, NeedsWhen, $name, O, Async>
            where
                O: Operation,
                O::Answer: Answer<Async>,
            {
                Retry::new(self.clone(), operation)
            }

            /// The same, with the [`Attempt`] as an argument of the closure.
            pub fn retry_with<F, R>(
                &self,
                operation: F,
            ) -> Retry<'static, NeedsWhen, $name, WithAttempt<F>, Async>
            where
                F: FnMut(Attempt) -> R,
                R: Answer<Async>,
            {
                Retry::new(self.clone(), WithAttempt(operation))
            }
        }

        impl Sealed for $name {}

        impl OriginKind for $name {
            type Hedges<A> = $hedges!(A);
        }

        impl<'p> Origin<'p> for $name {
            fn policy(&self) -> &Policy {
                &self.0.policy
            }
            fn policy_ref(&self) -> PolicyRef<'p> {
                PolicyRef::Shared(self.0.policy.clone())
            }
            fn handle(&self) -> Handle {
                self.0.throttle.clone()
            }
            fn withdraw(&self, cost: Cost, now: impl FnOnce() -> Ns) -> Option<Withdrawal> {
                self.0.throttle.withdraw_from_budget(cost, now)
            }
            fn succeeded(&self) {
                self.0.throttle.succeeded(None);
            }
            fn name(&self) -> PolicyName {
                self.0.policy.name.clone()
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

owned!(OwnedPolicy, Policy, std::convert::identity, no_hedges);
owned!(OwnedHedged, Hedged, |hedged: Hedged| hedged.0, hedges);

impl Sequential<'_> for OwnedPolicy {}

/// For an adapter that runs the first attempt itself and starts a call only if that fails, with
/// [`Retry::resume`](crate::Retry::resume).
impl OwnedPolicy {
    /// Whether a call of this policy does nothing before its first attempt has ended: it has no timer and
    /// reads no clock, and nothing observes its events.
    #[doc(hidden)]
    #[must_use]
    pub fn starts_after_first_attempt(&self) -> bool {
        let policy = &*self.0.policy;
        policy.core.first_wake_after() == NEVER && !policy.needs_clock() && !crate::is_observed()
    }

    /// Reports a call that succeeded with its first attempt.
    #[doc(hidden)]
    pub fn succeeded(&self) {
        Origin::succeeded(self);
    }
}
