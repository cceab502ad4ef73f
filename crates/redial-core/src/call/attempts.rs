//! Attempts: start, cancellation, commit, and the end of the call.

use core::ops::Deref;

use super::{Call, End, LIVE_MAX, Phase, Question, Slot, Start, slot_indices};
use crate::time::{NEVER, Ns, ns};
use crate::{Environment, Event, Policy, StopReason};

impl<P: Deref<Target = Policy>> Call<P> {
    /// Starts the next attempt that counts against the limit, and schedules the hedge after it.
    pub(super) fn start_next(&mut self, env: &mut impl Environment) -> Option<Start> {
        self.phase = Phase::Idle;
        let slot = (self.running | self.waiting).trailing_ones() as usize;
        if slot >= LIVE_MAX {
            debug_assert!(false, "no slot for another attempt");
            return None;
        }
        let number = self.counters.count();
        match self.started {
            0 => env.call_started(),
            _ => env.started(),
        }
        if self.policy.rules().hedge.is_some() && number >= self.attempts_max {
            self.stopped_by.get_or_insert(StopReason::AttemptsExhausted);
        }
        let start = self.start(slot, number, env);
        self.schedule_hedge();
        Some(start)
    }

    /// Records the start of an attempt in this slot; called when the driver takes the command.
    pub(super) fn start(&mut self, slot: usize, number: u32, env: &mut impl Environment) -> Start {
        debug_assert!(self.end.is_none() && !self.is_committed(), "a start after commit or end");
        let now = self.last_input_at;
        self.started = self.started.saturating_add(1);
        self.started_at = now;
        let timeout = self.policy.rules().attempt_timeout;
        let at = timeout.map_or(NEVER, |timeout| now.saturating_add(ns(timeout)));
        let attempt = self.started;
        self.slots.set(slot, Slot { at, attempt, number });
        self.free_slot(slot);
        self.running |= 1 << slot;
        env.record(now, Event::AttemptStarted { attempt, number });
        if self.not_replayable {
            self.commit(slot, now, env);
        }
        Start { slot, attempt, number }
    }

    pub(super) fn commit(&mut self, slot: usize, now: Ns, env: &mut impl Environment) {
        if self.is_committed() {
            return;
        }
        self.counters.committed = true;
        env.record(now, Event::Committed { attempt: self.slots[slot].attempt });
        self.clear_pending();
        self.cancel_all_except(Some(slot), now, env);
    }

    pub(super) fn clear_pending(&mut self) {
        self.phase = Phase::Idle;
        self.timer_at = NEVER;
        self.question = Question::None;
    }

    pub(super) fn cancel_all_except(
        &mut self,
        keep: Option<usize>,
        now: Ns,
        env: &mut impl Environment,
    ) {
        for slot in slot_indices(self.running | self.waiting) {
            if Some(slot) != keep {
                self.cancel_slot(slot, now, env);
            }
        }
    }

    /// Cancels the attempt in this slot, or drops its pending transparent retry.
    pub(super) fn cancel_slot(&mut self, slot: usize, now: Ns, env: &mut impl Environment) {
        if self.running & 1 << slot != 0 {
            env.record(now, Event::AttemptCancelled { attempt: self.slots[slot].attempt });
            self.pending_cancels |= 1 << slot;
        }
        self.free_slot(slot);
    }

    pub(super) fn free_slot(&mut self, slot: usize) {
        self.running &= !(1 << slot);
        self.waiting &= !(1 << slot);
        self.pending_starts &= !(1 << slot);
    }

    pub(super) fn finish(
        &mut self,
        stop_reason: StopReason,
        outcome_of: Option<(u32, usize)>,
        now: Ns,
        env: &mut impl Environment,
    ) {
        self.clear_pending();
        self.cancel_all_except(None, now, env);
        match stop_reason {
            StopReason::Succeeded => env.succeeded(),
            StopReason::Cancelled => env.call_cancelled(),
            _ => env.call_failed(),
        }
        let attempt = outcome_of.map(|(attempt, _)| attempt);
        self.end = Some(End { stop_reason, attempt, slot: outcome_of.map_or(0, |(_, slot)| slot) });
        env.record(now, Event::CallEnded { stop_reason, attempt });
    }
}
