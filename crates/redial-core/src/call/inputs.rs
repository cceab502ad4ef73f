//! What can happen to a call: outcomes, commit, messages, time, answers, cancelling.
//!
//! Rule: an input that comes too late for its call is no error. The call has ended, or does not wait
//! for it any more, and nothing changes.

use core::ops::Deref;

use super::{Call, Live, Phase, slots};
use crate::decide::Advice;
use crate::time::{NEVER, Ns};
use crate::{Directive, Grant, Judgement, Note, Policy, Why, World};

impl<P: Deref<Target = Policy>, const LIVE: usize> Call<P, LIVE> {
    /// The outcome of the attempt in this slot is there.
    pub fn outcome(&mut self, slot: usize, judgement: Judgement, now: Ns, world: &mut impl World) {
        // Nothing runs once the call has ended.
        if !self.is_running(slot) {
            debug_assert!(self.end.is_some(), "an outcome without an attempt");
            return;
        }
        self.seen = now;
        let Live { attempt, number, .. } = self.live[slot];
        world.note(now, Note::Outcome { attempt, judgement });
        self.free(slot);
        match judgement.directive {
            Directive::Succeed => self.finish(Why::Succeeded, Some((attempt, slot)), now, world),
            _ if self.replace(slot, number, attempt, judgement.proof, now, world) => {}
            Directive::Fail => {
                if judgement.drains {
                    world.failed();
                }
                self.finish(Why::Fatal, Some((attempt, slot)), now, world);
            }
            Directive::Retry(failure) => self.retry_or_hedge((attempt, slot), failure, now, world),
        }
        self.check();
    }

    /// The response of the attempt in this slot has begun: the call belongs to it (ruling G6), and
    /// the attempt's own timeout is over (ruling G42).
    pub fn committed(&mut self, slot: usize, now: Ns, world: &mut impl World) {
        if !self.is_running(slot) {
            return;
        }
        self.live[slot].at = NEVER;
        self.seen = now;
        self.commit(slot, now, world);
        self.check();
    }

    /// What the application wrote can no longer be kept. The call belongs to the attempt in `slot`;
    /// if none is in flight, the next one to start is the last (ruling G24).
    pub fn sealed(&mut self, slot: Option<usize>, now: Ns, world: &mut impl World) {
        if self.end.is_some() || self.is_committed() || self.sealed {
            return;
        }
        self.seen = now;
        world.note(now, Note::Sealed);
        match slot {
            Some(slot) if self.is_running(slot) => self.commit(slot, now, world),
            // Of all that waits, what is due first starts first, and its commit drops the rest. Until
            // then the rest stays: if that was a hedge, the throttle may refuse it (G14).
            _ => self.sealed = true,
        }
        self.check();
    }

    /// Time has passed. Of all that is due now (the deadline, attempts' own timeouts, replacements,
    /// retries and hedges), the first thing happens; false if nothing is due.
    ///
    /// A driver that can know the outcome of what this starts at the same moment reports it before
    /// it goes on: outcomes come before timers (P4).
    pub fn wake_once(&mut self, now: Ns, world: &mut impl World) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.seen = now;
        if now >= self.deadline {
            self.finish(Why::Deadline, None, now, world);
            self.check();
            return true;
        }
        // The earliest first; among equals the lower number, and the next retry or hedge last.
        // A replacement that is to start is a command, and no timer any more.
        let due = slots((self.running | self.waiting) & !self.starts)
            .filter(|&slot| self.live[slot].at <= now)
            .min_by_key(|&slot| (self.live[slot].at, self.live[slot].number));
        match due {
            Some(slot) if self.live[slot].at <= self.at => self.slot_due(slot, now, world),
            _ if self.at <= now => self.phase_due(now, world),
            _ => return false,
        }
        self.check();
        true
    }

    /// The strategy answered.
    pub fn answered(&mut self, advice: Advice, now: Ns, world: &mut impl World) {
        // An ended call asks nothing.
        if self.phase != Phase::Asking {
            return;
        }
        self.seen = now;
        world.note(now, Note::Answered(advice));
        self.phase = Phase::Idle;
        self.judge(advice, now, world);
        self.check();
    }

    /// The throttle answered what it had announced.
    pub fn granted(&mut self, grant: Grant, now: Ns, world: &mut impl World) {
        let Phase::Granting(wanted) = self.phase else {
            // Nothing waits for it any more, so that it never starts: the end gives it back (P6).
            world.granted(grant);
            return;
        };
        self.seen = now;
        world.granted(grant);
        world.note(now, Note::Granted(grant));
        self.phase = Phase::Idle;
        self.use_grant(grant, wanted, now, world);
        self.check();
    }

    /// The application dropped the call: never a failure (ruling P6).
    pub fn cancel(&mut self, now: Ns, world: &mut impl World) {
        if self.end.is_none() {
            self.seen = now;
            self.finish(Why::Cancelled, None, now, world);
        }
        self.check();
    }
}
