//! What can happen to a call: outcomes, commit, messages, time, answers, cancelling.
//!
//! Rule: an input that comes too late for its call is no error. The call has ended, or does not wait
//! for it any more, and nothing changes.

use core::ops::Deref;

use super::{Call, Phase, Slot, slot_indices};
use crate::decide::Advice;
use crate::time::{NEVER, Ns};
use crate::{Classification, Directive, Environment, Event, Grant, Policy, StopReason};

impl<P: Deref<Target = Policy>, const LIVE: usize> Call<P, LIVE> {
    /// The outcome of the attempt in this slot is there.
    pub fn outcome(
        &mut self,
        slot: usize,
        classification: Classification,
        now: Ns,
        env: &mut impl Environment,
    ) {
        // Nothing runs once the call has ended.
        if !self.is_running(slot) {
            debug_assert!(self.end.is_some(), "an outcome without an attempt");
            return;
        }
        self.last_input_at = now;
        let Slot { attempt, number, .. } = self.slots[slot];
        env.record(now, Event::AttemptOutcome { attempt, classification });
        self.free_slot(slot);
        match classification.directive {
            Directive::Succeed => {
                self.finish(StopReason::Succeeded, Some((attempt, slot)), now, env)
            }
            _ if self.schedule_transparent_retry(
                slot,
                number,
                attempt,
                classification.proof,
                now,
                env,
            ) => {}
            Directive::Fail => {
                if classification.drains {
                    env.failed();
                }
                self.finish(StopReason::NotRetryable, Some((attempt, slot)), now, env);
            }
            Directive::Retry(failure) => self.retry_or_hedge((attempt, slot), failure, now, env),
        }
        self.check_invariants();
    }

    /// The response of the attempt in this slot has begun: the call belongs to it (decision G6), and
    /// the attempt's own timeout is over (decision G42).
    pub fn committed(&mut self, slot: usize, now: Ns, env: &mut impl Environment) {
        if !self.is_running(slot) {
            return;
        }
        self.slots[slot].at = NEVER;
        self.last_input_at = now;
        self.commit(slot, now, env);
        self.check_invariants();
    }

    /// What the application wrote can no longer be kept. The call belongs to the attempt in `slot`;
    /// if none is in flight, the next one to start is the last (decision G24).
    pub fn not_replayable(&mut self, slot: Option<usize>, now: Ns, env: &mut impl Environment) {
        if self.end.is_some() || self.is_committed() || self.not_replayable {
            return;
        }
        self.last_input_at = now;
        env.record(now, Event::NotReplayable);
        match slot {
            Some(slot) if self.is_running(slot) => self.commit(slot, now, env),
            // Of all that waits, what is due first starts first, and its commit drops the rest. Until
            // then the rest stays: if that was a hedge, the throttle may refuse it (G14).
            _ => self.not_replayable = true,
        }
        self.check_invariants();
    }

    /// Time has passed. Of all that is due now (the deadline, attempts' own timeouts, replacements,
    /// retries and hedges), the first thing happens; false if nothing is due.
    ///
    /// A driver that can know the outcome of what this starts at the same moment reports it before
    /// it goes on: outcomes come before timers (P4).
    pub fn wake_once(&mut self, now: Ns, env: &mut impl Environment) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.last_input_at = now;
        if now >= self.deadline {
            self.finish(StopReason::Deadline, None, now, env);
            self.check_invariants();
            return true;
        }
        // The earliest first; among equals the lower number, and the next retry or hedge last.
        // A replacement that is to start is a command, and no timer any more.
        let due = slot_indices((self.running | self.waiting) & !self.pending_starts)
            .filter(|&slot| self.slots[slot].at <= now)
            .min_by_key(|&slot| (self.slots[slot].at, self.slots[slot].number));
        match due {
            Some(slot) if self.slots[slot].at <= self.timer_at => {
                self.handle_slot_timer(slot, now, env)
            }
            _ if self.timer_at <= now => self.handle_phase_timer(now, env),
            _ => return false,
        }
        self.check_invariants();
        true
    }

    /// The strategy answered.
    pub fn answered(&mut self, advice: Advice, now: Ns, env: &mut impl Environment) {
        // An ended call asks nothing.
        if self.phase != Phase::AwaitStrategy {
            return;
        }
        self.last_input_at = now;
        env.record(now, Event::StrategyAnswered(advice));
        self.phase = Phase::Idle;
        self.decide_next(advice, now, env);
        self.check_invariants();
    }

    /// The throttle answered what it had announced.
    pub fn granted(&mut self, grant: Grant, now: Ns, env: &mut impl Environment) {
        let Phase::AwaitGrant(request) = self.phase else {
            // Nothing waits for it any more, so that it never starts: the end gives it back (P6).
            env.granted(grant);
            return;
        };
        self.last_input_at = now;
        env.granted(grant);
        env.record(now, Event::ThrottleAnswered(grant));
        self.phase = Phase::Idle;
        self.apply_grant(grant, request, now, env);
        self.check_invariants();
    }

    /// The application dropped the call: never a failure (decision P6).
    pub fn cancel(&mut self, now: Ns, env: &mut impl Environment) {
        if self.end.is_none() {
            self.last_input_at = now;
            self.finish(StopReason::Cancelled, None, now, env);
        }
        self.check_invariants();
    }
}
