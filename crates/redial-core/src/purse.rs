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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::throttle::{Costs, CostsSpec, Empty};

    const COST: Cost = Cost { kind: Kind::Server };

    /// Twenty tokens that nothing refills; a retry takes 5, a first try adds 1.
    fn bucket() -> Costs {
        let fixed = CostsSpec { refill_per_second: 0.0, empty: Empty::Fail, ..CostsSpec::STANDARD };
        Costs::new(CostsSpec { capacity: 20.0, ..fixed }).unwrap()
    }

    /// What is left after a story about one call.
    fn left(story: impl FnOnce(&mut Purse<&Costs>)) -> f64 {
        let bucket = bucket();
        bucket.take(COST, 0);
        let mut purse = Purse::new(&bucket);
        story(&mut purse);
        drop(purse);
        bucket.tokens(0).unwrap()
    }

    #[test]
    fn what_never_started_is_refunded_on_every_way_out_and_once() {
        let dropped = left(|purse| assert_ne!(purse.take(COST, 0), Grant::Refused));
        assert_eq!(dropped, 15.0);
        let ended = left(|purse| {
            purse.take(COST, 0);
            purse.ended();
            purse.ended();
        });
        assert_eq!(ended, 15.0);
        let won = left(|purse| {
            purse.take(COST, 0);
            purse.succeeded();
        });
        assert_eq!(won, 16.0, "and the first try added one");
    }

    #[test]
    fn what_started_is_consumed_unless_the_call_succeeds() {
        let used = |end: fn(&mut Purse<&Costs>)| {
            left(|purse| {
                purse.take(COST, 0);
                purse.started();
                end(purse);
            })
        };
        assert_eq!(used(|_dropped| {}), 10.0);
        let ended_twice = used(|purse| {
            purse.ended();
            purse.ended();
        });
        assert_eq!(ended_twice, 10.0);
        let won_and_ended = used(|purse| {
            purse.succeeded();
            purse.ended();
        });
        assert_eq!(won_and_ended, 15.0, "the retry's 5 are back, and no more");
    }

    #[test]
    fn only_the_last_that_started_is_given_back() {
        let twice = left(|purse| {
            for _ in 0..2 {
                purse.take(COST, 0);
                purse.started();
            }
            purse.succeeded();
        });
        assert_eq!(twice, 10.0);
        // One more that is paid for and never starts does not stand in for it.
        let waiting = left(|purse| {
            purse.take(COST, 0);
            purse.started();
            purse.take(COST, 0);
            purse.succeeded();
        });
        assert_eq!(waiting, 15.0);
    }

    #[test]
    fn a_refusal_holds_nothing_and_forgets_nothing() {
        let refused = left(|purse| {
            for _ in 0..3 {
                purse.take(COST, 0);
                purse.started();
            }
            assert_eq!(purse.take(COST, 0), Grant::Refused);
            purse.hold(Grant::Refused);
            purse.hold(Grant::Later);
            purse.succeeded();
        });
        assert_eq!(refused, 5.0);
    }

    #[test]
    fn a_later_answer_is_held_like_any_other() {
        let later = left(|purse| {
            let grant = purse.throttle().take(COST, 0);
            purse.hold(grant);
        });
        assert_eq!(later, 15.0);
    }
}
