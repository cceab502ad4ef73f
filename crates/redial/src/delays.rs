//! The delays of a policy as an iterator, for loops that are written by hand.

use std::fmt;
use std::time::Duration;

use redial_core::{DriverContext, Failure, Random};

use crate::draws::draw;

/// The delays of one call; see [`Policy::delays`](crate::Policy::delays).
pub struct Delays<'p> {
    policy: &'p redial_core::Policy,
    delays: redial_core::Delays<&'p redial_core::Policy, Draws>,
}

/// The source of random draws.
enum Draws {
    Thread,
    Seeded(Random),
}

impl DriverContext for Draws {
    fn draw(&mut self) -> f64 {
        match self {
            Draws::Thread => draw(),
            Draws::Seeded(random) => random.draw(),
        }
    }
}

impl<'p> Delays<'p> {
    pub(crate) const fn new(policy: &'p redial_core::Policy) -> Self {
        Delays { policy, delays: redial_core::Delays::new(policy, Draws::Thread) }
    }

    /// The same delays from the start, with random numbers of this seed.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).attempts(5).build();
    /// assert!(FETCH.delays().seed(7).eq(FETCH.delays().seed(7)));
    /// ```
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        let draws = Draws::Seeded(Random::new(seed));
        Delays { delays: redial_core::Delays::new(self.policy, draws), ..self }
    }

    /// The delay after an attempt that failed like this, with the hint of the server; `None` if the call
    /// ends.
    ///
    /// ```
    /// use redial::{Failure, Policy, ms, s};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let mut delays = FETCH.delays();
    /// assert_eq!(delays.after(&Failure::throttling().retry_after(s(2))), Some(s(2)));
    /// // The server asked for an hour, and the policy allows a minute.
    /// assert_eq!(delays.after(&Failure::throttling().retry_after(s(3600))), None);
    /// ```
    pub fn after(&mut self, failure: &Failure) -> Option<Duration> {
        self.delays.after(failure)
    }
}

impl Iterator for Delays<'_> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.delays.next()
    }
}

impl std::iter::FusedIterator for Delays<'_> {}

impl fmt::Debug for Delays<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delays").field("policy", self.policy).finish_non_exhaustive()
    }
}
