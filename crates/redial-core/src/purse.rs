//! What a call holds of a throttle: taken, used, and settled exactly once (rulings P6, S3, S4).
//!
//! Invariant: a purse holds at most one payment, that of the call's last retry or hedge. Every
//! way out resolves it: the next payment and the end of the call consume it, a success hands it
//! back to the throttle, and dropping the purse refunds it if its retry never started.

use crate::time::Ns;
use crate::{Bucket, Cost, Grant, Taken};

/// A payment: what was taken, and whether its retry has started.
#[derive(Debug)]
struct Payment {
    taken: Taken,
    started: bool,
}

/// A call's dealings with one throttle.
#[derive(Debug)]
pub struct Purse<T: Bucket> {
    throttle: T,
    payment: Option<Payment>,
}

impl<T: Bucket> Purse<T> {
    /// An empty purse.
    #[must_use]
    pub const fn new(throttle: T) -> Self {
        Purse { throttle, payment: None }
    }

    /// The throttle behind it.
    #[must_use]
    pub const fn throttle(&self) -> &T {
        &self.throttle
    }

    /// Counts a failure.
    pub fn failed(&self) {
        self.throttle.failed();
    }

    /// Asks for a retry or hedge; what was held before is consumed by the next try.
    pub fn take(&mut self, cost: Cost, now: Ns) -> Grant {
        let grant = self.throttle.take(cost, now);
        self.hold(grant);
        grant
    }

    /// Holds what a later answer granted.
    pub fn hold(&mut self, grant: Grant) {
        if let Grant::Now(taken) | Grant::After(_, taken) = grant {
            debug_assert!(
                self.payment.as_ref().is_none_or(|payment| payment.started),
                "paid twice for one retry"
            );
            self.payment = Some(Payment { taken, started: false });
        }
    }

    /// The retry or hedge that was paid for starts.
    pub fn started(&mut self) {
        if let Some(payment) = &mut self.payment {
            payment.started = true;
        }
    }

    /// The call succeeded: what its last retry took goes back by the throttle's own rule.
    pub fn succeeded(&mut self) {
        let payment = self.payment.take();
        match payment {
            Some(Payment { taken, started: true }) => self.throttle.succeeded(Some(taken)),
            Some(Payment { taken, started: false }) => {
                self.throttle.give_back(taken);
                self.throttle.succeeded(None);
            }
            None => self.throttle.succeeded(None),
        }
    }

    /// The call ended in any other way: what was taken for a retry that never started goes back.
    pub fn ended(&mut self) {
        if let Some(Payment { taken, started: false }) = self.payment.take() {
            self.throttle.give_back(taken);
        }
    }
}

impl<T: Bucket> Drop for Purse<T> {
    fn drop(&mut self) {
        self.ended();
    }
}
