//! The delays of a policy as an iterator, for loops that are written by hand.
//!
//! Invariant: every delay comes from [`decide`], as in a call.

use core::iter::FusedIterator;
use core::ops::Deref;
use core::time::Duration;

use crate::throttle::Unthrottled;
use crate::time::duration;
use crate::{
    Advice, CallCounters, CallEnvironment, DriverContext, Environment, Failure, Policy, Verdict,
    decide,
};

/// The delays before the retries of one call: one for each retry, with jitter, until the attempts, a
/// limit or the deadline end the call.
///
/// The iterator counts the delays as the time that has passed, charges no throttle and asks no
/// strategy. `P` dereferences to the policy; `D` draws the random numbers.
///
/// ```
/// use redial_core::{Backoff, Delays, Failure, Policy, Random, Rules, ms};
///
/// let first = ms(100);
/// let backoff = Backoff::Exponential { first, factor: 2.0, cap: None };
/// let policy = Policy::new(Rules { attempts: Some(4), backoff, ..Rules::DEFAULT });
///
/// let delays: Vec<_> = Delays::new(&policy, Random::new(7)).collect();
/// assert_eq!(delays.len(), 3);
/// assert!(delays[0] < ms(100) && delays[1] < ms(200) && delays[2] < ms(400));
/// // The same seed gives the same delays.
/// assert!(Delays::new(&policy, Random::new(7)).eq(delays));
///
/// // A loop that knows the failure passes it on, with the server's hint.
/// let mut delays = Delays::new(&policy, Random::new(7));
/// assert_eq!(delays.after(&Failure::throttling().retry_after(ms(30))), Some(ms(30)));
/// ```
#[derive(Debug)]
pub struct Delays<P, D> {
    policy: P,
    counters: CallCounters,
    env: CallEnvironment<Unthrottled, D>,
    ended: bool,
}

impl<P: Deref<Target = Policy>, D: DriverContext> Delays<P, D> {
    /// The delays of one call with this policy.
    ///
    /// ```
    /// use redial_core::{Delays, Policy, Random, Rules};
    ///
    /// let policy = Policy::new(Rules::DEFAULT);
    /// assert_eq!(Delays::new(&policy, Random::new(7)).count(), 2);
    /// ```
    #[must_use]
    pub const fn new(policy: P, context: D) -> Self {
        let env = CallEnvironment::new(Unthrottled, context);
        Delays { policy, counters: CallCounters::new(0), env, ended: false }
    }

    /// The delay after an attempt that failed like this; `None` if the call ends.
    ///
    /// ```
    /// use redial_core::{Delays, Failure, Policy, Random, Rules};
    ///
    /// let policy = Policy::new(Rules::DEFAULT);
    /// let mut delays = Delays::new(&policy, Random::new(7));
    /// assert_eq!(delays.after(&Failure::server().stop()), None);
    /// ```
    pub fn after(&mut self, failure: &Failure) -> Option<Duration> {
        if self.ended {
            return None;
        }
        self.counters.count();
        let (now, deadline) = (self.counters.waited, self.policy.deadline(0, None));
        let Delays { policy, counters, env, .. } = self;
        match decide(policy, counters, failure, Advice::None, now, deadline, env) {
            Verdict::Retry { after, .. } => {
                env.started();
                Some(duration(after))
            }
            Verdict::Later { .. } | Verdict::Ask | Verdict::End(_) => {
                self.ended = true;
                None
            }
        }
    }
}

impl<P: Deref<Target = Policy>, D: DriverContext> Iterator for Delays<P, D> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.after(&Failure::server())
    }
}

impl<P: Deref<Target = Policy>, D: DriverContext> FusedIterator for Delays<P, D> {}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Backoff, Hint, Jitter, Limits, Random, Rules, ms};
    use alloc::vec::Vec;

    const DOUBLED: Rules = Rules {
        backoff: Backoff::Exponential { first: ms(10), factor: 2.0, cap: Some(ms(50)) },
        jitter: Jitter::None,
        ..Rules::DEFAULT
    };

    fn delays(rules: Rules) -> Vec<Duration> {
        let policy = Policy::new(rules);
        Delays::new(&policy, Random::new(1)).take(10).collect()
    }

    #[test]
    fn delays_end_with_attempts_limits_or_the_deadline() {
        assert_eq!(delays(Rules { attempts: Some(5), ..DOUBLED }), [10, 20, 40, 50].map(ms));
        assert_eq!(delays(Rules { attempts: Some(1), ..DOUBLED }), []);
        let deadline = Some(ms(70));
        assert_eq!(delays(Rules { attempts: None, deadline, ..DOUBLED }), [ms(10), ms(20)]);
        let limits = Limits { hard: Some(ms(70)), ..Limits::NONE };
        assert_eq!(delays(Rules { attempts: None, limits, ..DOUBLED }), [10, 20, 40].map(ms));
        let forever = Rules { attempts: None, forever: true, ..DOUBLED };
        assert_eq!(delays(forever).len(), 10);
    }

    #[test]
    fn delays_ask_no_strategy_and_stay_ended() {
        assert_eq!(delays(Rules { uses_strategy: true, ..DOUBLED }), [ms(10), ms(20)]);
        let policy = Policy::new(DOUBLED);
        let mut delays = Delays::new(&policy, Random::new(1));
        assert_eq!(delays.after(&Failure::server().hint(Hint::Stop)), None);
        assert_eq!(delays.next(), None);
    }
}
