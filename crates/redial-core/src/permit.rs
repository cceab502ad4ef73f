//! The throttle tokens of one call: withdrawn, spent and settled exactly once (decisions P6, S3 and
//! S4).
//!
//! Invariant: a permit holds at most one withdrawal whose retry or hedge has started (the last
//! one), and at most one that is reserved for the next. Starting spends the reserved withdrawal;
//! success returns the spent one to the throttle, which decides how much of it to refund; failure
//! and cancellation consume it. A withdrawal whose retry never starts is refunded, also on drop.
//!
//! Invariant: a call that started is reported as succeeded, failed or cancelled exactly once.

use crate::time::Ns;
use crate::{Bucket, Cost, Grant, Withdrawal};

/// The tokens that one call holds from a throttle.
#[derive(Debug)]
pub struct Permit<T: Bucket> {
    throttle: T,
    /// The withdrawal of the last retry or hedge that started.
    used: Option<Withdrawal>,
    /// The withdrawal for the next one.
    reserved: Option<Withdrawal>,
    call: Reported,
}

/// The last report of the call to the throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    Nothing,
    Started,
    Ended,
}

impl<T: Bucket> Permit<T> {
    /// A permit without tokens.
    #[must_use]
    pub const fn new(throttle: T) -> Self {
        Permit { throttle, used: None, reserved: None, call: Reported::Nothing }
    }

    /// The throttle.
    #[must_use]
    pub const fn throttle(&self) -> &T {
        &self.throttle
    }

    /// Reports that the first attempt is about to start.
    pub fn call_started(&mut self) {
        debug_assert!(self.call == Reported::Nothing, "a call starts once");
        self.call = Reported::Started;
        self.throttle.call_started();
    }

    /// Counts a failure.
    pub fn failed(&self) {
        self.throttle.failed();
    }

    /// Requests a retry or hedge.
    pub fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant {
        let grant = self.throttle.withdraw(cost, now);
        self.hold(grant);
        grant
    }

    /// Keeps the tokens of a deferred grant. After the end of the call they are refunded at once.
    pub fn hold(&mut self, grant: Grant) {
        if let Grant::Now(withdrawal) | Grant::After(_, withdrawal) = grant {
            debug_assert!(self.reserved.is_none(), "two withdrawals for one retry");
            self.reserved = Some(withdrawal);
            if self.call == Reported::Ended {
                self.refund_unstarted();
            }
        }
    }

    /// Spends the reserved tokens: the retry or hedge starts.
    pub fn started(&mut self) {
        if let Some(withdrawal) = self.reserved.take() {
            self.used = Some(withdrawal);
        }
    }

    /// Reports success; the throttle decides what to refund for the last retry.
    pub fn succeeded(&mut self) {
        self.refund_unstarted();
        if self.call != Reported::Ended {
            self.call = Reported::Ended;
            self.throttle.succeeded(self.used.take());
        }
    }

    /// Reports failure, and refunds a retry that never started.
    pub fn call_failed(&mut self) {
        self.end(T::call_failed);
    }

    /// Reports cancellation, and refunds a retry that never started.
    pub fn call_cancelled(&mut self) {
        self.end(T::call_cancelled);
    }

    fn end(&mut self, report: fn(&T, Option<Withdrawal>)) {
        self.refund_unstarted();
        let used = self.used.take();
        if core::mem::replace(&mut self.call, Reported::Ended) == Reported::Started {
            report(&self.throttle, used);
        }
    }

    fn refund_unstarted(&mut self) {
        if let Some(withdrawal) = self.reserved.take() {
            self.throttle.refund(withdrawal);
        }
    }
}

impl<T: Bucket> Drop for Permit<T> {
    fn drop(&mut self) {
        self.call_cancelled();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::FailureKind;
    use crate::throttle::{CostBucket, CostBucketConfig, WhenEmpty};

    const COST: Cost = Cost { kind: FailureKind::Server };

    /// Twenty tokens without refill; a retry costs 5, success at the first attempt adds 1.
    fn bucket() -> CostBucket {
        let fixed = CostBucketConfig {
            refill_per_second: 0.0,
            empty: WhenEmpty::Fail,
            ..CostBucketConfig::STANDARD
        };
        CostBucket::new(CostBucketConfig { capacity: 20.0, ..fixed }).unwrap()
    }

    /// The tokens left after these steps of one call.
    fn left(steps: impl FnOnce(&mut Permit<&CostBucket>)) -> f64 {
        let bucket = bucket();
        bucket.withdraw(COST, 0);
        let mut permit = Permit::new(&bucket);
        steps(&mut permit);
        drop(permit);
        bucket.tokens(0).unwrap()
    }

    #[test]
    fn permit_refunds_unstarted_retries_exactly_once() {
        let dropped = left(|permit| assert_ne!(permit.withdraw(COST, 0), Grant::Refused));
        assert_eq!(dropped, 15.0);
        let ended = left(|permit| {
            permit.withdraw(COST, 0);
            permit.call_failed();
            permit.call_failed();
        });
        assert_eq!(ended, 15.0);
        let won = left(|permit| {
            permit.withdraw(COST, 0);
            permit.succeeded();
        });
        assert_eq!(won, 16.0, "and the first attempt added one");
    }

    #[test]
    fn permit_consumes_started_retries_unless_the_call_succeeds() {
        let used = |end: fn(&mut Permit<&CostBucket>)| {
            left(|permit| {
                permit.withdraw(COST, 0);
                permit.started();
                end(permit);
            })
        };
        assert_eq!(used(|_dropped| {}), 10.0);
        let ended_twice = used(|permit| {
            permit.call_failed();
            permit.call_failed();
        });
        assert_eq!(ended_twice, 10.0);
        let won_and_ended = used(|permit| {
            permit.succeeded();
            permit.call_failed();
        });
        assert_eq!(won_and_ended, 15.0, "only the retry's 5 are refunded");
    }

    #[test]
    fn permit_success_returns_only_the_last_started_retry() {
        let twice = left(|permit| {
            for _ in 0..2 {
                permit.withdraw(COST, 0);
                permit.started();
            }
            permit.succeeded();
        });
        assert_eq!(twice, 10.0);
        // A retry that is paid for and never starts does not replace the one that started.
        let waiting = left(|permit| {
            permit.withdraw(COST, 0);
            permit.started();
            permit.withdraw(COST, 0);
            permit.succeeded();
        });
        assert_eq!(waiting, 15.0);
    }

    #[test]
    fn permit_refusal_changes_nothing() {
        let refused = left(|permit| {
            for _ in 0..3 {
                permit.withdraw(COST, 0);
                permit.started();
            }
            assert_eq!(permit.withdraw(COST, 0), Grant::Refused);
            permit.hold(Grant::Refused);
            permit.hold(Grant::Later);
            permit.succeeded();
        });
        assert_eq!(refused, 5.0);
    }

    /// A throttle that records the reports of a call.
    #[derive(Default)]
    struct RecordingBucket(
        core::cell::RefCell<alloc::vec::Vec<(&'static str, Option<Withdrawal>)>>,
    );

    impl Bucket for RecordingBucket {
        fn call_started(&self) {
            self.0.borrow_mut().push(("started", None));
        }
        fn withdraw(&self, _cost: Cost, _now: Ns) -> Grant {
            Grant::Now(Withdrawal(5))
        }
        fn refund(&self, withdrawal: Withdrawal) {
            self.0.borrow_mut().push(("back", Some(withdrawal)));
        }
        fn succeeded(&self, withdrawal: Option<Withdrawal>) {
            self.0.borrow_mut().push(("succeeded", withdrawal));
        }
        fn call_failed(&self, withdrawal: Option<Withdrawal>) {
            self.0.borrow_mut().push(("failed", withdrawal));
        }
        fn call_cancelled(&self, withdrawal: Option<Withdrawal>) {
            self.0.borrow_mut().push(("cancelled", withdrawal));
        }
        fn tokens(&self, _now: Ns) -> Option<f64> {
            None
        }
    }

    #[test]
    fn permit_reports_each_call_once_with_its_last_withdrawal() {
        type End = fn(&mut Permit<&RecordingBucket>);
        let ends: [(&str, End); 3] = [
            ("succeeded", |permit| permit.succeeded()),
            ("failed", |permit| permit.call_failed()),
            ("cancelled", |permit| permit.call_cancelled()),
        ];
        for (name, end) in ends {
            for (retried, used) in [(false, None), (true, Some(Withdrawal(5)))] {
                let calls = RecordingBucket::default();
                let mut permit = Permit::new(&calls);
                permit.call_started();
                if retried {
                    permit.withdraw(COST, 0);
                    permit.started();
                }
                permit.withdraw(COST, 0);
                end(&mut permit);
                permit.call_failed();
                permit.succeeded();
                permit.hold(Grant::Now(Withdrawal(7)));
                drop(permit);
                let reports = calls.0.take();
                let [start, back, ended, late_refund] = reports[..] else { panic!("{reports:?}") };
                assert_eq!((start, back), (("started", None), ("back", Some(Withdrawal(5)))));
                assert_eq!((ended, late_refund), ((name, used), ("back", Some(Withdrawal(7)))));
            }
        }
        // A call that never starts its first attempt is not reported.
        let calls = RecordingBucket::default();
        Permit::new(&calls).call_failed();
        assert_eq!(calls.0.take(), []);
        let calls = RecordingBucket::default();
        Permit::new(&calls).call_started();
        assert_eq!(calls.0.take(), [("started", None), ("cancelled", None)], "dropped");
    }

    #[test]
    fn permit_holds_a_deferred_grant() {
        let later = left(|permit| {
            let grant = permit.throttle().withdraw(COST, 0);
            permit.hold(grant);
        });
        assert_eq!(later, 15.0);
    }
}
