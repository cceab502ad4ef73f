//! Throttles: limits on the number of retries across calls.
//!
//! # Why a retry budget
//!
//! A maximum number of attempts bounds one call, not the load. If every call fails, three attempts per
//! call triple the load on a server that is already overloaded. A retry budget bounds the ratio: each
//! retry costs a token, each success adds a fraction of one. While the server is healthy there are always
//! tokens. During an outage the reserve is spent once; after that, only as many retries are sent as
//! successes allow, and calls fail with [`StopReason::Throttled`](crate::StopReason::Throttled).
//!
//! | throttle | behaviour | use |
//! | --- | --- | --- |
//! | [`RetryBudget`] | a reserve of retries, refilled by successes and by time | the default |
//! | [`KeyedBudgets`] | a retry budget per key | for many hosts, tenants or shards behind one policy |
//! | [`TokenBucket`] | gRPC's retry throttling: failures drain it, retries need it half full | for gRPC semantics |
//! | [`CostBucket`] | the AWS SDK's: the cost depends on the kind of failure | for AWS semantics |
//! | [`WithBudget`] | a budget beside another throttle | to bound another throttle |
//! | [`Throttle::none`] | no limit | only if another component limits the load |
//!
//! Without a named throttle, a policy from `build` has the budget of the line that builds it, and a policy
//! from `try_build` or from a file owns one. So build a policy once and keep it: one that is built for each
//! call with `try_build` has a full budget each time. A policy that retries
//! [`forever`](crate::Builder::forever) has no budget unless one is named.
//!
//! To share a budget between policies, clients and layers that call the same server, use
//! [`Throttle::budget`]. To give each host or tenant a budget of its own, use [`KeyedBudgets`].
//!
//! The default budget also refills with time, one retry per second up to the reserve of 10, so that a
//! nightly job or a reconnecting client has retries again after a while. The refill is added when a retry
//! asks; a success reads no clock.
//!
//! To size a budget: the reserve is the number of retries that the server can bear at once from this
//! process; the ratio is the share of additional load that it can bear for long (0.1 is 10 %);
//! [`RetryBudget::per_second`] is the rate of retries that it can bear even if no call succeeds.
//!
//! A program has 511 default budgets. The call sites beyond that share one, which the `tracing` event
//! `call sites share a retry budget` and [`call_sites_share_a_budget`] report; name budgets where a program
//! has so many ([`Throttle::budget`]).
//!
//! Implement [`Bucket`] for a throttle of your own.

pub use crate::cost_bucket_options::{BucketOptions, CostOptions};
pub use crate::keyed_budgets::KeyedBudgets;
pub use crate::with_budget::WithBudget;
pub use redial_core::throttle::{
    Bucket, CallSite, CostBucket, CostBucketConfig, RetryBudget, TokenBucket, Unthrottled,
    WhenEmpty, call_sites_share_a_budget, refill_call_sites,
};
pub use redial_core::{Cost, Grant, Withdrawal};

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use redial_core::Ns;

/// A throttle for a `static` policy: none, the budget of a call site, or a shared one.
#[derive(Clone, Copy)]
pub struct Throttle(pub(crate) StaticThrottle);

#[derive(Clone, Copy)]
pub(crate) enum StaticThrottle {
    None,
    CallSite(CallSite),
    Budget(&'static RetryBudget),
    Shared(&'static (dyn Bucket + Send + Sync)),
}

impl Throttle {
    /// No throttle. Use it only where another component limits the load of retries.
    #[must_use]
    pub const fn none() -> Self {
        Throttle(StaticThrottle::None)
    }

    /// The default retry budget of the line that calls this function.
    #[track_caller]
    #[must_use]
    pub const fn here() -> Self {
        Throttle(StaticThrottle::CallSite(CallSite::here()))
    }

    /// A retry budget that several policies, clients and layers share.
    ///
    /// ```
    /// use redial::throttle::RetryBudget;
    /// use redial::{Policy, Throttle, ms};
    ///
    /// static DATABASE: RetryBudget = RetryBudget::standard();
    /// static READ: Policy = Policy::exponential(ms(10)).throttle(Throttle::budget(&DATABASE)).build();
    /// static WRITE: Policy = Policy::constant(ms(50)).throttle(Throttle::budget(&DATABASE)).build();
    ///
    /// // A reserve of 50 retries, then one retry per five successes and two per second.
    /// static JOBS: RetryBudget = RetryBudget::new(50.0, 0.2).per_second(2.0);
    /// static POLL: Policy =
    ///     Policy::constant(ms(50)).attempts(30).throttle(Throttle::budget(&JOBS)).build();
    /// ```
    #[must_use]
    pub const fn budget(budget: &'static RetryBudget) -> Self {
        Throttle(StaticThrottle::Budget(budget))
    }

    /// Any other shared throttle, including your own.
    #[must_use]
    pub const fn shared(bucket: &'static (dyn Bucket + Send + Sync)) -> Self {
        Throttle(StaticThrottle::Shared(bucket))
    }

    pub(crate) const fn handle(self) -> Handle {
        match self.0 {
            StaticThrottle::None => Handle::None,
            StaticThrottle::CallSite(site) => Handle::CallSite(site),
            StaticThrottle::Budget(budget) => Handle::Budget(budget),
            StaticThrottle::Shared(bucket) => Handle::Static(bucket),
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle().fmt(f)
    }
}

/// A policy's reference to its throttle.
#[derive(Clone)]
#[doc(hidden)]
pub enum Handle {
    None,
    /// The default budget of a call site, looked up at each use.
    CallSite(CallSite),
    Budget(&'static RetryBudget),
    /// The budget of a policy made at run time, shared with its clones.
    Own(Arc<RetryBudget>),
    Static(&'static (dyn Bucket + Send + Sync)),
    Shared(Arc<dyn Bucket + Send + Sync>),
}

impl Handle {
    /// Whether it is a budget or none: it answers at once, and needs no notice of a failure.
    pub(crate) const fn is_budget_or_none(&self) -> bool {
        matches!(self, Handle::None | Handle::CallSite(_) | Handle::Budget(_) | Handle::Own(_))
    }

    /// The retry budget, if it is one other than that of a call site, which always refills.
    pub(crate) fn retry_budget(&self) -> Option<&RetryBudget> {
        match self {
            Handle::Budget(budget) => Some(budget),
            Handle::Own(budget) => Some(budget),
            Handle::None | Handle::CallSite(_) | Handle::Static(_) | Handle::Shared(_) => None,
        }
    }

    /// Withdraws the cost of a retry from a budget, which grants or refuses at once. A throttle that is
    /// no budget is never asked here: its calls have a state machine ([`Handle::is_budget_or_none`]).
    pub(crate) fn withdraw_from_budget(
        &self,
        cost: Cost,
        now: impl FnOnce() -> Ns,
    ) -> Option<Withdrawal> {
        let now = match self {
            Handle::None => return Some(Withdrawal(0)),
            Handle::Budget(budget) if !budget.refills() => 0,
            Handle::Own(budget) if !budget.refills() => 0,
            _ => now(),
        };
        match self.withdraw(cost, now) {
            Grant::Now(withdrawal) => Some(withdrawal),
            Grant::After(..) | Grant::Later | Grant::Refused => None,
        }
    }

    /// The tokens, with the refill of a retry budget until now. [`Bucket::tokens`] of a budget is without it.
    pub(crate) fn tokens_at(&self, now: Ns) -> Option<f64> {
        match self {
            Handle::CallSite(site) => Some(site.budget().tokens_at(now)),
            Handle::Budget(budget) => Some(budget.tokens_at(now)),
            Handle::Own(budget) => Some(budget.tokens_at(now)),
            Handle::None | Handle::Static(_) | Handle::Shared(_) => self.tokens(now),
        }
    }

    /// Whether this is the throttle of a policy, and not one that a call or a service has in its place.
    #[cfg(feature = "metrics")]
    pub(crate) fn is_of(&self, policy: &Handle) -> bool {
        match (self, policy) {
            // The default budget of a call, or of a policy.
            (Handle::CallSite(_), _) => true,
            (Handle::Budget(budget), Handle::Budget(own)) => std::ptr::eq(*budget, *own),
            (Handle::Own(budget), Handle::Own(own)) => Arc::ptr_eq(budget, own),
            (Handle::Static(bucket), Handle::Static(own)) => std::ptr::addr_eq(*bucket, *own),
            (Handle::Shared(bucket), Handle::Shared(own)) => {
                std::ptr::addr_eq(Arc::as_ptr(bucket), Arc::as_ptr(own))
            }
            _ => false,
        }
    }

    /// Fills a retry budget. Another throttle stays as it is.
    pub(crate) fn refill(&self) {
        match self {
            Handle::CallSite(site) => site.budget().refill(),
            Handle::Budget(budget) => budget.refill(),
            Handle::Own(budget) => budget.refill(),
            Handle::None | Handle::Static(_) | Handle::Shared(_) => {}
        }
    }

    #[inline(never)]
    fn succeeded_slow(&self, withdrawal: Option<Withdrawal>) {
        if let Some(bucket) = self.bucket() {
            bucket.succeeded(withdrawal);
        }
    }

    /// The throttle, if it observes the start and the end of calls.
    #[inline]
    fn call_watcher(&self) -> Option<&dyn Bucket> {
        let bucket: &dyn Bucket = match self {
            Handle::Static(bucket) => *bucket,
            Handle::Shared(bucket) => &**bucket,
            // Budgets do not observe calls.
            Handle::None | Handle::CallSite(_) | Handle::Budget(_) | Handle::Own(_) => return None,
        };
        bucket.watches_calls().then_some(bucket)
    }

    fn bucket(&self) -> Option<&dyn Bucket> {
        match self {
            Handle::None => None,
            Handle::CallSite(site) => Some(site.budget()),
            Handle::Budget(budget) => Some(*budget),
            Handle::Own(budget) => Some(&**budget),
            Handle::Static(bucket) => Some(*bucket),
            Handle::Shared(bucket) => Some(&**bucket),
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Handle::None => f.write_str("none"),
            Handle::CallSite(site) => write!(f, "budget of {}", site.location()),
            Handle::Own(_) => f.write_str("own budget"),
            Handle::Budget(_) => f.write_str("shared budget"),
            Handle::Static(_) | Handle::Shared(_) => f.write_str("shared"),
        }
    }
}

impl Bucket for Handle {
    fn call_started(&self) {
        if let Some(bucket) = self.call_watcher() {
            bucket.call_started();
        }
    }

    #[inline]
    fn watches_calls(&self) -> bool {
        self.call_watcher().is_some()
    }

    fn call_failed(&self, withdrawal: Option<Withdrawal>) {
        if let Some(bucket) = self.call_watcher() {
            bucket.call_failed(withdrawal);
        }
    }

    fn call_cancelled(&self, withdrawal: Option<Withdrawal>) {
        if let Some(bucket) = self.call_watcher() {
            bucket.call_cancelled(withdrawal);
        }
    }

    fn failed(&self) {
        if let Handle::Static(_) | Handle::Shared(_) = self
            && let Some(bucket) = self.bucket()
        {
            bucket.failed();
        }
    }

    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        match self {
            Handle::None => Grant::Now(Withdrawal(0)),
            Handle::CallSite(site) => {
                let grant = site.withdraw(cost, now);
                crate::trace::budget_is_shared(*site);
                grant
            }
            Handle::Budget(budget) => budget.withdraw(cost, now),
            Handle::Own(budget) => budget.withdraw(cost, now),
            Handle::Static(bucket) => bucket.withdraw(cost, now),
            Handle::Shared(bucket) => bucket.withdraw(cost, now),
        }
    }

    fn later(&self, cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        match self.bucket() {
            Some(bucket) => bucket.later(cost),
            None => Box::pin(std::future::ready(Grant::Now(Withdrawal(0)))),
        }
    }

    fn refund(&self, withdrawal: Withdrawal) {
        if let Some(bucket) = self.bucket() {
            bucket.refund(withdrawal);
        }
    }

    #[inline(always)]
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        // Comparisons, the most frequent throttle first, and no jump table.
        if let Handle::CallSite(site) = self {
            site.succeeded(withdrawal);
        } else if let Handle::Budget(budget) = self {
            budget.succeeded(withdrawal);
        } else if !matches!(self, Handle::None) {
            self.succeeded_slow(withdrawal);
        }
    }

    fn tokens(&self, now: Ns) -> Option<f64> {
        self.bucket().and_then(|bucket| bucket.tokens(now))
    }
}
