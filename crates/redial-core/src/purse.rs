//! What a call holds of a throttle: taken, used, and settled exactly once (rulings P6, S3, S4).
//!
//! Invariant: a purse holds at most one payment that its retry or hedge has used, the last, and at
//! most one that waits for its start. Every way out resolves both: a start uses what waits and
//! consumes what was used before, a success hands what was used back to the throttle, the end of
//! the call in any other way consumes it, and what never started is refunded, dropped or not.

use crate::time::Ns;
use crate::{Bucket, Cost, Grant, Taken};

/// A call's dealings with one throttle.
#[derive(Debug)]
pub struct Purse<T: Bucket> {
    throttle: T,
    /// What the last retry or hedge that started took.
    used: Option<Taken>,
    /// What was taken for the next one.
    waiting: Option<Taken>,
}

impl<T: Bucket> Purse<T> {
    /// An empty purse.
    #[must_use]
    pub const fn new(throttle: T) -> Self {
        Purse { throttle, used: None, waiting: None }
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

    /// Asks for a retry or hedge.
    pub fn take(&mut self, cost: Cost, now: Ns) -> Grant {
        let grant = self.throttle.take(cost, now);
        self.hold(grant);
        grant
    }

    /// Holds what a later answer granted.
    pub fn hold(&mut self, grant: Grant) {
        if let Grant::Now(taken) | Grant::After(_, taken) = grant {
            debug_assert!(self.waiting.is_none(), "paid twice for one retry");
            self.waiting = Some(taken);
        }
    }

    /// The retry or hedge that was paid for starts; what the one before it took is consumed.
    pub fn started(&mut self) {
        if let Some(taken) = self.waiting.take() {
            self.used = Some(taken);
        }
    }

    /// The call succeeded: what its last retry took goes back by the throttle's own rule.
    pub fn succeeded(&mut self) {
        self.refund();
        self.throttle.succeeded(self.used.take());
    }

    /// The call ended in any other way: what was taken for a retry that never started goes back.
    pub fn ended(&mut self) {
        self.refund();
        self.used = None;
    }

    fn refund(&mut self) {
        if let Some(taken) = self.waiting.take() {
            self.throttle.give_back(taken);
        }
    }
}

impl<T: Bucket> Drop for Purse<T> {
    fn drop(&mut self) {
        self.ended();
    }
}
