//! A call before its machine: of most calls nothing ever happens but that their first attempt starts
//! and succeeds, and that needs none.
//!
//! Invariant: the machine that is begun later is the one that would be there had it begun at once.
//! So nothing else may have been due or read meanwhile: there is no [`First`] of a call that runs
//! against a clock, races or starts committed, and a driver whose notes are read begins its machine
//! with the call.

use core::ops::Deref;

use super::{Call, Command, Terms};
use crate::throttle::Bucket;
use crate::time::Ns;
use crate::{Policy, World};

/// A call of which nothing has happened but the start of its first attempt (slot 0, attempt 1,
/// number 1), and perhaps its commit.
///
/// ```
/// use redial_core::{Call, Dealings, First, Policy, Random, Rules, Terms, throttle::Budget};
///
/// let (policy, budget) = (Policy::checked(Rules::DEFAULT), Budget::standard());
/// let mut first = First::of(&policy, Terms::default()).expect("no deadline, no hedges");
/// // The attempt runs. If it succeeds, that is all:
/// first.succeeded(&budget);
/// // If anything else happens, the machine is told of it:
/// first.committed();
/// let mut world = Dealings::new(&budget, Random::new(1));
/// let call: Call<_, 1> = first.begin(&policy, 0, &mut world);
/// assert_eq!(call.running_after(0), Some((1, 0)));
/// assert!(call.is_committed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    terms: Terms,
    committed: bool,
}

impl First {
    /// A call that begins now; `None` if more than an outcome can happen to it, so that it needs its
    /// machine from the start.
    #[inline]
    #[must_use]
    pub const fn of(policy: &Policy, terms: Terms) -> Option<First> {
        if policy.is_calm() && terms.deadline.is_none() && !terms.sealed {
            Some(First { terms, committed: false })
        } else {
            None
        }
    }

    /// The response of the attempt has begun: the call belongs to it (ruling G6).
    #[inline]
    pub const fn committed(&mut self) {
        self.committed = true;
    }

    /// The attempt succeeded, which ends the call.
    #[inline]
    pub fn succeeded(self, throttle: &impl Bucket) {
        throttle.succeeded(None);
    }

    /// The machine of this call, whose first attempt runs; `now` is when it began.
    pub fn begin<P, const LIVE: usize>(
        self,
        policy: P,
        now: Ns,
        world: &mut impl World,
    ) -> Call<P, LIVE>
    where
        P: Deref<Target = Policy>,
    {
        let mut call = Call::begin(policy, self.terms, now, world);
        let started = call.command();
        debug_assert!(matches!(started, Some(Command::Start(_))), "a call that starts nothing");
        if self.committed {
            call.committed(0, now, world);
        }
        call
    }
}
