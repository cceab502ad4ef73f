//! The environment of a call: random draws, throttle tokens and the recording of events.

use crate::time::Ns;
use crate::{Bucket, Event, FailureKind, Permit, Random};

/// The price of a retry or hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The kind of failure that it follows; a hedge started by its delay is charged as a timeout.
    pub kind: FailureKind,
}

/// Tokens withdrawn from a throttle, in the unit of that throttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withdrawal(pub u64);

/// The answer of a throttle to a request for a retry or hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It may start now.
    Now(Withdrawal),
    /// It is granted, and may start after this delay.
    After(Ns, Withdrawal),
    /// The answer is deferred, and arrives through [`Call::granted`](crate::Call::granted).
    Later,
    /// It may not start.
    Refused,
}

/// Everything that a call needs from outside: random draws, a throttle, and a recorder of events.
///
/// An environment keeps the tokens withdrawn for the last retry or hedge and settles them exactly
/// once. Dropping it refunds the tokens of a retry that never started (decision P6).
/// [`CallEnvironment`] implements this for any throttle.
pub trait Environment {
    /// The next uniform draw in `[0, 1)`.
    fn draw(&mut self) -> f64;

    /// Reports that the call is about to start its first attempt.
    fn call_started(&mut self) {}

    /// Counts a failure that drains throttles (decision G11); called before `withdraw`.
    fn failed(&mut self) {}

    /// Requests a retry or hedge from the throttle. Tokens of the previous one are then settled.
    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant;

    /// Receives the answer that [`Grant::Later`] deferred; a grant after the end of the call is
    /// refunded.
    fn granted(&mut self, _grant: Grant) {}

    /// Reports that the granted retry or hedge starts, which spends its tokens.
    fn started(&mut self) {}

    /// Reports that the call succeeded.
    fn succeeded(&mut self) {}

    /// Reports that the call failed.
    fn call_failed(&mut self) {}

    /// Reports that the application cancelled the call.
    fn call_cancelled(&mut self) {}

    /// The previous delay of the backoff, for decorrelated jitter and backoff functions.
    fn previous(&self) -> Option<Ns> {
        None
    }

    /// Stores a delay of the backoff for [`previous`](Environment::previous).
    fn remember(&mut self, _delay: Ns) {}

    /// Forgets the stored delay, because the series of delays starts anew.
    fn forget(&mut self) {}

    /// Records an event. The default does nothing and costs nothing.
    fn record(&mut self, _at: Ns, _event: Event) {}
}

/// The parts of an environment that differ between drivers: the source of randomness and the
/// recorder of events.
pub trait DriverContext {
    /// The next uniform draw in `[0, 1)`.
    fn draw(&mut self) -> f64;

    /// Records an event. The default does nothing and costs nothing.
    fn record(&mut self, _at: Ns, _event: Event) {}
}

/// Draws without recording.
impl DriverContext for Random {
    fn draw(&mut self) -> f64 {
        Random::draw(self)
    }
}

/// The environment of one call, made of a throttle and a driver's context.
#[derive(Debug)]
pub struct CallEnvironment<T: Bucket, O> {
    permit: Permit<T>,
    previous: Option<Ns>,
    /// Draws random numbers and records events.
    pub context: O,
}

impl<T: Bucket, O> CallEnvironment<T, O> {
    /// The environment of a call that has withdrawn nothing yet.
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
    fn forget(&mut self) {
        self.previous = None;
    }
    fn record(&mut self, at: Ns, event: Event) {
        self.context.record(at, event);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::throttle::RetryBudget;

    /// The smallest possible implementation.
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
        env.forget();
        assert_eq!(env.previous(), None);
        let draws = [(); 2].map(|()| Environment::draw(&mut env));
        let mut random = Random::new(1);
        assert_eq!(draws, [(); 2].map(|()| random.draw()));
        assert_eq!(
            env.withdraw(Cost { kind: FailureKind::Server }, 0),
            Grant::Now(Withdrawal(1000))
        );
        assert_eq!(env.throttle().tokens(0), Some(9.0));
        drop(env);
        assert_eq!(budget.tokens(0), Some(10.0), "a retry that never started is refunded (P6)");
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
