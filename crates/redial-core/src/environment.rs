//! What the outside grants a call: draws, throttle tokens, and somebody who reads the notes.

use crate::time::Ns;
use crate::{Bucket, Event, Kind, Permit, Random};

/// What a retry or hedge is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The kind of the failure that it answers; a hedge that its delay sends counts as a timeout.
    pub kind: Kind,
}

/// What was taken from a throttle; the throttle that gave it knows its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withdrawal(pub u64);

/// A throttle's answer to a retry or hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It may start.
    Now(Withdrawal),
    /// It is paid for, and may start after this long.
    After(Ns, Withdrawal),
    /// The answer will come later, as [`Call::granted`](crate::Call::granted).
    Later,
    /// It may not start.
    Refused,
}

/// The outside, as a call sees it.
///
/// A world keeps what was taken for the call's last retry or hedge and settles it exactly once. A
/// world that is dropped gives back what was taken for a retry that never started (decision P6).
/// [`CallEnvironment`] do that for any throttle.
pub trait Environment {
    /// The next draw in `[0, 1)`.
    fn draw(&mut self) -> f64;

    /// The call is about to start its first attempt.
    fn call_started(&mut self) {}

    /// Counts a failure that drains throttles (decision G11); before the first `take` for it.
    fn failed(&mut self) {}

    /// Asks the throttle for a retry or hedge. What was taken before is then settled.
    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant;

    /// The answer that was announced as [`Grant::Later`] is here; what it grants after the end of the
    /// call is given back.
    fn granted(&mut self, _grant: Grant) {}

    /// What was taken is being used: its retry or hedge starts.
    fn started(&mut self) {}

    /// The call succeeded.
    fn succeeded(&mut self) {}

    /// The call failed for good.
    fn call_failed(&mut self) {}

    /// The application dropped the call.
    fn call_cancelled(&mut self) {}

    /// The delay before this one, if the backoff made one: for decorrelated jitter and functions.
    fn previous(&self) -> Option<Ns> {
        None
    }

    /// Remembers a delay that the backoff made.
    fn remember(&mut self, _delay: Ns) {}

    /// Takes a note. Nobody listens by default, and then a note costs nothing.
    fn record(&mut self, _at: Ns, _event: Event) {}
}

/// What differs from one driver to the next: where draws come from, and who reads the notes.
pub trait DriverContext {
    /// The next draw in `[0, 1)`.
    fn draw(&mut self) -> f64;

    /// Takes a note. Nobody listens by default, and then a note costs nothing.
    fn record(&mut self, _at: Ns, _event: Event) {}
}

/// Draws, and nobody who reads.
impl DriverContext for Random {
    fn draw(&mut self) -> f64 {
        Random::draw(self)
    }
}

/// A call's dealings with the outside: the world that a driver makes of a throttle and whatever
/// draws and reads notes.
#[derive(Debug)]
pub struct CallEnvironment<T: Bucket, O> {
    permit: Permit<T>,
    previous: Option<Ns>,
    /// What draws and reads the notes.
    pub context: O,
}

impl<T: Bucket, O> CallEnvironment<T, O> {
    /// Those of a call that begins: nothing is taken yet.
    #[must_use]
    pub const fn new(throttle: T, context: O) -> Self {
        CallEnvironment { permit: Permit::new(throttle), previous: None, context }
    }

    /// The throttle.
    #[must_use]
    pub const fn throttle(&self) -> &T {
        self.permit.throttle()
    }
}

impl<T: Bucket, O: DriverContext> Environment for CallEnvironment<T, O> {
    fn draw(&mut self) -> f64 {
        self.context.draw()
    }
    fn call_started(&mut self) {
        self.permit.call_started();
    }
    fn failed(&mut self) {
        self.permit.failed();
    }
    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant {
        self.permit.withdraw(cost, now)
    }
    fn granted(&mut self, grant: Grant) {
        self.permit.hold(grant);
    }
    fn started(&mut self) {
        self.permit.started();
    }
    fn succeeded(&mut self) {
        self.permit.succeeded();
    }
    fn call_failed(&mut self) {
        self.permit.call_failed();
    }
    fn call_cancelled(&mut self) {
        self.permit.call_cancelled();
    }
    fn previous(&self) -> Option<Ns> {
        self.previous
    }
    fn remember(&mut self, delay: Ns) {
        self.previous = Some(delay);
    }
    #[inline]
    fn record(&mut self, at: Ns, event: Event) {
        self.context.record(at, event);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::throttle::RetryBudget;

    /// A world that says as little as it can.
    struct Bare;

    impl Environment for Bare {
        fn draw(&mut self) -> f64 {
            0.5
        }
        fn withdraw(&mut self, _cost: Cost, _now: Ns) -> Grant {
            Grant::Refused
        }
    }

    #[test]
    fn environment_default_remembers_no_delay() {
        Bare.remember(7);
        assert_eq!(Bare.previous(), None);
    }

    #[test]
    fn call_environment_remembers_delays_draws_and_refunds() {
        let budget = RetryBudget::standard();
        let mut env = CallEnvironment::new(&budget, Random::new(1));
        assert_eq!(env.previous(), None);
        env.remember(7);
        assert_eq!(env.previous(), Some(7));
        let draws = [(); 2].map(|()| Environment::draw(&mut env));
        let mut random = Random::new(1);
        assert_eq!(draws, [(); 2].map(|()| random.draw()));
        assert_eq!(env.withdraw(Cost { kind: Kind::Server }, 0), Grant::Now(Withdrawal(1000)));
        assert_eq!(env.throttle().tokens(0), Some(9.0));
        drop(env);
        assert_eq!(budget.tokens(0), Some(10.0), "what never started is back (P6)");
    }

    #[test]
    fn call_environment_forwards_every_event() {
        struct Count(u32);
        impl DriverContext for Count {
            fn draw(&mut self) -> f64 {
                0.5
            }
            fn record(&mut self, at: Ns, event: Event) {
                assert_eq!((at, event), (5, Event::NotReplayable));
                self.0 += 1;
            }
        }
        let mut env = CallEnvironment::new(RetryBudget::standard(), Count(0));
        Environment::record(&mut env, 5, Event::NotReplayable);
        assert_eq!(env.context.0, 1);
    }
}
