//! Throttles: token buckets and retry budgets that calls share, so that retries cannot overload a
//! failing server (retry storm).
//!
//! There are four kinds: gRPC's [`TokenBucket`], Smithy's [`CostBucket`], the success-funded
//! [`RetryBudget`], and [`Unthrottled`], which grants everything. Applications can implement
//! [`Bucket`] for their own.
//!
//! Invariant: the state of each of the first three is a single atomic that changes by
//! compare-and-swap. There is no lock; a success reads no clock, and writes nothing if the throttle
//! is full; counts are exact under contention. All accesses are relaxed, because the atomic guards
//! no other data.

mod call_sites;
mod cost_bucket;
mod retry_budget;
mod token_bucket;

#[cfg(loom)]
#[doc(hidden)]
pub use call_sites::call_site_cell;
pub use call_sites::{CallSite, call_sites_share_a_budget, refill_call_sites};
pub use cost_bucket::{CostBucket, CostBucketConfig, WhenEmpty};
pub use retry_budget::RetryBudget;
pub use token_bucket::TokenBucket;

use alloc::boxed::Box;
use core::pin::Pin;

use crate::time::Ns;
use crate::{Cost, Grant, Withdrawal};

/// A throttle that calls share.
///
/// For each call the methods are called in this order: [`call_started`](Bucket::call_started)
/// before the first attempt, [`withdraw`](Bucket::withdraw) for each retry and hedge, and at the
/// end exactly one of [`succeeded`](Bucket::succeeded), [`call_failed`](Bucket::call_failed) and
/// [`call_cancelled`](Bucket::call_cancelled). They correspond to `acquireToken`, `scheduleRetry`,
/// `notifySuccess` and `notifyFailure` of Smithy's `RetryTokenBucket`.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use redial_core::throttle::Bucket;
/// use redial_core::{Cost, Grant, Ns, Withdrawal};
///
/// /// No retries while more than a hundred calls are in flight.
/// #[derive(Default)]
/// struct InFlight(AtomicU32);
///
/// impl Bucket for InFlight {
///     fn call_started(&self) {
///         self.0.fetch_add(1, Relaxed);
///     }
///     fn withdraw(&self, _cost: Cost, _now: Ns) -> Grant {
///         if self.0.load(Relaxed) > 100 { Grant::Refused } else { Grant::Now(Withdrawal(0)) }
///     }
///     fn refund(&self, _withdrawal: Withdrawal) {}
///     fn succeeded(&self, _withdrawal: Option<Withdrawal>) {
///         self.0.fetch_sub(1, Relaxed);
///     }
///     fn call_failed(&self, _withdrawal: Option<Withdrawal>) {
///         self.0.fetch_sub(1, Relaxed);
///     }
///     fn call_cancelled(&self, _withdrawal: Option<Withdrawal>) {
///         self.0.fetch_sub(1, Relaxed);
///     }
///     fn tokens(&self, _now: Ns) -> Option<f64> {
///         None
///     }
/// }
/// ```
pub trait Bucket {
    /// Reports that a call is about to start its first attempt, which no throttle delays or refuses
    /// (decision P10).
    fn call_started(&self) {}

    /// Whether this throttle needs reports about the start, failure and cancellation of calls. If
    /// `false`, [`call_started`](Bucket::call_started), [`call_failed`](Bucket::call_failed) and
    /// [`call_cancelled`](Bucket::call_cancelled) may be skipped, and a call that succeeds at its
    /// first attempt allocates nothing. The throttles of this crate return `false`.
    fn watches_calls(&self) -> bool {
        true
    }

    /// Counts a retryable failure, for throttles that failures drain.
    fn failed(&self) {}

    /// Requests a retry or hedge.
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant;

    /// The answer that `withdraw` deferred with [`Grant::Later`]; needed only by throttles that
    /// return it.
    fn later(&self, _cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        Box::pin(core::future::ready(Grant::Refused))
    }

    /// Returns the tokens of a retry that never started (decision P6).
    fn refund(&self, withdrawal: Withdrawal);

    /// Reports that a call succeeded; `withdrawal` belongs to its last retry or hedge, if one
    /// started.
    fn succeeded(&self, withdrawal: Option<Withdrawal>);

    /// Reports that a call failed: with a final failure, or because no attempt, time or token is
    /// left. `withdrawal` belongs to its last retry or hedge, if one started.
    fn call_failed(&self, _withdrawal: Option<Withdrawal>) {}

    /// Reports that the application cancelled a call, which is not a failure (decision P6).
    /// `withdrawal` belongs to its last retry or hedge, if one started.
    fn call_cancelled(&self, _withdrawal: Option<Withdrawal>) {}

    /// The tokens left, for display; a debt is negative.
    fn tokens(&self, now: Ns) -> Option<f64>;
}

impl<T: Bucket + ?Sized> Bucket for &T {
    fn call_started(&self) {
        (**self).call_started();
    }
    fn watches_calls(&self) -> bool {
        (**self).watches_calls()
    }
    fn call_failed(&self, withdrawal: Option<Withdrawal>) {
        (**self).call_failed(withdrawal);
    }
    fn call_cancelled(&self, withdrawal: Option<Withdrawal>) {
        (**self).call_cancelled(withdrawal);
    }
    fn failed(&self) {
        (**self).failed();
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        (**self).withdraw(cost, now)
    }
    fn later(&self, cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        (**self).later(cost)
    }
    fn refund(&self, withdrawal: Withdrawal) {
        (**self).refund(withdrawal);
    }
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        (**self).succeeded(withdrawal);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        (**self).tokens(now)
    }
}

/// No throttle: grants every retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unthrottled;

impl Bucket for Unthrottled {
    fn watches_calls(&self) -> bool {
        false
    }
    fn withdraw(&self, _cost: Cost, _now: Ns) -> Grant {
        Grant::Now(Withdrawal(0))
    }
    fn refund(&self, _withdrawal: Withdrawal) {}
    fn succeeded(&self, _withdrawal: Option<Withdrawal>) {}
    fn tokens(&self, _now: Ns) -> Option<f64> {
        None
    }
}

/// Token buckets and budgets count in thousandths of a token.
pub(crate) const MILLI: f64 = 1000.0;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::FailureKind;
    use core::cell::RefCell;
    use core::task::{Context, Poll, Waker};

    const COST: Cost = Cost { kind: FailureKind::Timeout };

    /// A throttle that records which methods are called.
    #[derive(Default)]
    struct RecordingBucket(RefCell<alloc::vec::Vec<&'static str>>);

    impl Bucket for RecordingBucket {
        fn call_started(&self) {
            self.0.borrow_mut().push("call_started");
        }
        fn watches_calls(&self) -> bool {
            false
        }
        fn call_failed(&self, _withdrawal: Option<Withdrawal>) {
            self.0.borrow_mut().push("call_failed");
        }
        fn call_cancelled(&self, _withdrawal: Option<Withdrawal>) {
            self.0.borrow_mut().push("call_cancelled");
        }
        fn failed(&self) {
            self.0.borrow_mut().push("failed");
        }
        fn withdraw(&self, _cost: Cost, now: Ns) -> Grant {
            self.0.borrow_mut().push("take");
            Grant::After(now, Withdrawal(3))
        }
        fn later(&self, _cost: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
            Box::pin(core::future::ready(Grant::Now(Withdrawal(4))))
        }
        fn refund(&self, _withdrawal: Withdrawal) {
            self.0.borrow_mut().push("give_back");
        }
        fn succeeded(&self, _withdrawal: Option<Withdrawal>) {
            self.0.borrow_mut().push("succeeded");
        }
        fn tokens(&self, now: Ns) -> Option<f64> {
            Some(now as f64)
        }
    }

    fn answer(throttle: impl Bucket) -> Poll<Grant> {
        throttle.later(COST).as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn throttle_reference_forwards_every_method() {
        let bucket = RecordingBucket::default();
        let by_reference = |throttle: &dyn Bucket| {
            assert!(!throttle.watches_calls());
            throttle.call_started();
            throttle.failed();
            assert_eq!(throttle.withdraw(COST, 5), Grant::After(5, Withdrawal(3)));
            throttle.refund(Withdrawal(3));
            throttle.succeeded(None);
            throttle.call_failed(None);
            throttle.call_cancelled(None);
            assert_eq!(throttle.tokens(7), Some(7.0));
        };
        by_reference(&&bucket);
        let all = ["call_started", "failed", "take", "give_back", "succeeded"];
        let ends = ["call_failed", "call_cancelled"];
        assert_eq!(*bucket.0.borrow(), [&all[..], &ends].concat());
        assert_eq!(answer(&bucket), Poll::Ready(Grant::Now(Withdrawal(4))));
    }

    #[test]
    fn throttle_unthrottled_grants_everything() {
        Unthrottled.failed();
        assert!(!Unthrottled.watches_calls());
        assert_eq!(Unthrottled.withdraw(COST, 0), Grant::Now(Withdrawal(0)));
        assert_eq!(Unthrottled.tokens(0), None);
    }

    #[test]
    fn throttle_default_deferred_answer_is_refused() {
        assert_eq!(answer(Unthrottled), Poll::Ready(Grant::Refused));
    }
}
