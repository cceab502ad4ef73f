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
        let started = call.command(world);
        debug_assert!(matches!(started, Some(Command::Start(_))), "a call that starts nothing");
        if self.committed {
            call.committed(0, now, world);
        }
        call
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Dealings, Random, Rules, s, throttle::Budget};

    #[test]
    fn only_a_call_to_which_nothing_but_an_outcome_can_happen_may_begin_late() {
        let of = |rules: Rules, terms: Terms| First::of(&Policy::checked(rules), terms);
        let (rules, terms) = (Rules::DEFAULT, Terms::default());
        assert!(of(rules, terms).is_some());
        assert!(of(Rules { replaces: true, asks: true, ..rules }, terms).is_some());
        assert!(of(Rules { deadline: Some(s(1)), ..rules }, terms).is_none());
        assert!(of(Rules { attempt_timeout: Some(s(1)), ..rules }, terms).is_none());
        assert!(of(Rules { hedge: Some(s(1)), ..rules }, terms).is_none());
        assert!(of(rules, Terms { deadline: Some(s(1)), ..terms }).is_none());
        assert!(of(rules, Terms { sealed: true, ..terms }).is_none());
    }

    #[test]
    fn a_success_is_told_to_the_throttle_and_a_commit_to_the_machine() {
        let (policy, budget) = (Policy::checked(Rules::DEFAULT), Budget::standard());
        let mut world = Dealings::new(&budget, Random::new(1));
        assert!(matches!(crate::throttle::Bucket::take(&&budget, COST, 0), crate::Grant::Now(_)));
        let mut first = First::of(&policy, Terms::default()).unwrap();
        first.succeeded(&budget);
        assert_eq!(budget.tokens(0), Some(9.1), "one was taken, and a success gives a tenth");
        let call: Call<_, 1> = first.begin(&policy, 0, &mut world);
        assert!(!call.is_committed());
        first.committed();
        let mut world = Dealings::new(&budget, Random::new(1));
        let mut call: Call<_, 1> = first.begin(&policy, 0, &mut world);
        assert!(call.is_committed());
        assert_eq!(call.running_after(0), Some((1, 0)));
        assert_eq!(call.command(&mut world), None, "the first attempt runs already");
    }

    const COST: crate::Cost = crate::Cost { kind: crate::Kind::Server };
}
