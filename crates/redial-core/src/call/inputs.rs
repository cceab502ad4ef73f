//! The inputs of the state machine: outcomes, commit, timers, answers and cancellation.
//!
//! An input that arrives too late is not an error: if the call has ended or no longer waits for the
//! input, nothing changes.

use core::ops::Deref;

use super::{Call, Phase, Slot, slot_indices};
use crate::decide::Advice;
use crate::time::{NEVER, Ns};
use crate::{Classification, Directive, Environment, Event, Grant, Policy, StopReason};

impl<P: Deref<Target = Policy>> Call<P> {
    /// Reports the outcome of the attempt in this slot.
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
                self.finish(StopReason::Succeeded, Some((attempt, slot)), now, env);
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

    /// Reports that the response of the attempt in this slot has started. The call is committed to
    /// that attempt (decision G6), and its attempt timeout no longer applies (decision G42).
    pub fn committed(&mut self, slot: usize, now: Ns, env: &mut impl Environment) {
        if !self.is_running(slot) {
            return;
        }
        self.slots[slot].at = NEVER;
        self.last_input_at = now;
        self.commit(slot, now, env);
        self.check_invariants();
    }

    /// Reports that the request can no longer be replayed. The call is committed to the attempt in
    /// `slot`; without a running attempt, the next one to start is the last (decision G24).
    pub fn not_replayable(&mut self, slot: Option<usize>, now: Ns, env: &mut impl Environment) {
        if self.end.is_some() || self.is_committed() || self.not_replayable {
            return;
        }
        self.last_input_at = now;
        env.record(now, Event::NotReplayable);
        match slot {
            Some(slot) if self.is_running(slot) => self.commit(slot, now, env),
            // The pending attempt that is due first starts, and its commit drops the others. Until
            // then the others stay pending: the throttle may refuse a hedge (G14).
            _ => self.not_replayable = true,
        }
        self.check_invariants();
    }

    /// Reports that another library ended the attempt in this slot at an attempt timeout, which may be
    /// shorter than the policy's. What the policy says about attempt timeouts applies (decision P13). A
    /// driver with timers has [`Call::wake_once`] for that.
    pub fn attempt_timed_out(&mut self, slot: usize, now: Ns, env: &mut impl Environment) {
        if !self.is_running(slot) {
            return;
        }
        self.last_input_at = now;
        if now >= self.deadline {
            self.finish(StopReason::Deadline, None, now, env);
        } else {
            self.handle_slot_timer(slot, now, env);
        }
        self.check_invariants();
    }

    /// Fires the first timer that is due: the deadline, an attempt timeout, a transparent retry, a
    /// retry or a hedge. Returns whether one was due.
    ///
    /// If an attempt that this starts may have an outcome immediately, the driver reports that
    /// outcome before it calls this method again: outcomes come before timers (decision P4).
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
        // In order of time; at the same time by attempt number, and the next retry or hedge last. A
        // transparent retry that is ready to start is a command and no longer a timer.
        let due = slot_indices((self.running | self.waiting) & !self.pending_starts)
            .filter(|&slot| self.slots[slot].at <= now)
            .min_by_key(|&slot| (self.slots[slot].at, self.slots[slot].number));
        match due {
            Some(slot) if self.slots[slot].at <= self.timer_at => {
                self.handle_slot_timer(slot, now, env);
            }
            _ if self.timer_at <= now => self.handle_phase_timer(now, env),
            _ => return false,
        }
        self.check_invariants();
        true
    }

    /// Reports the answer of the strategy.
    pub fn answered(&mut self, advice: Advice, now: Ns, env: &mut impl Environment) {
        // An ended call waits for no answer.
        if self.phase != Phase::AwaitStrategy {
            return;
        }
        self.last_input_at = now;
        env.record(now, Event::StrategyAnswered(advice));
        self.phase = Phase::Idle;
        self.decide_next(advice, now, env);
        self.check_invariants();
    }

    /// Reports the deferred answer of the throttle.
    pub fn granted(&mut self, grant: Grant, now: Ns, env: &mut impl Environment) {
        let Phase::AwaitGrant(request) = self.phase else {
            // The retry is no longer wanted and never starts: the end of the call refunds it (P6).
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

    /// Ends a call whose scheduled retry the driver cannot start, with the last failure as its
    /// result. The tokens of that retry are refunded (decision P6). Without a scheduled retry,
    /// nothing changes.
    pub fn decline_retry(&mut self, reason: StopReason, now: Ns, env: &mut impl Environment) {
        if self.retry_at().is_some() {
            self.last_input_at = now;
            self.finish(reason, self.failed_attempt, now, env);
        }
        self.check_invariants();
    }

    /// Cancels the call on behalf of the application. This is never a failure (decision P6).
    pub fn cancel(&mut self, now: Ns, env: &mut impl Environment) {
        if self.end.is_none() {
            self.last_input_at = now;
            self.finish(StopReason::Cancelled, None, now, env);
        }
        self.check_invariants();
    }
}
