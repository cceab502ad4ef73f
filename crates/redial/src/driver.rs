//! What all drivers share: the state machine of a call, driven by one loop ([`redial_core::poll_step`])
//! over the attempts and the timer of the async, the blocking or the borrowing driver.
//!
//! This module is compiled once. What is compiled for each call site is in [`Attempts`]: polling an
//! attempt and classifying its result.

use std::task::{Context, Poll, ready};

use redial_core::{
    CallStep, Command, Cost, Directive, Driver, Failure, Ns, RunCommands, poll_step,
};

use crate::engine::Engine;

/// The number of attempts that one poll starts before the future yields to other tasks.
pub(crate) const STARTS_PER_POLL_MAX: u32 = 32;

/// The running attempts of a call.
pub(crate) trait Attempts {
    /// Polls the attempt in this slot; classifies and keeps its result, and drops the attempt.
    fn poll(&mut self, slot: usize, cx: &mut Context<'_>) -> Poll<Directive>;

    /// Drops the attempt in this slot.
    fn cancel(&mut self, slot: usize);
}

/// The clock of a call, and its only timer.
pub(crate) trait Timer {
    /// The time.
    fn now(&self) -> Ns;

    /// Ready at this time. A timer for another time is replaced.
    fn poll_until(&mut self, at: Ns, cx: &mut Context<'_>) -> Poll<()>;
}

/// Drives a call that has its state machine.
pub(crate) struct CallDriver<'a, 'p> {
    pub(crate) engine: &'a mut Engine<'p>,
    pub(crate) attempts: &'a mut dyn Attempts,
    pub(crate) timer: &'a mut dyn Timer,
}

impl CallDriver<'_, '_> {
    /// Advances the call until an attempt starts or the call ends.
    #[inline(never)]
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<CallStep> {
        poll_step(self, cx)
    }
}

impl RunCommands for CallDriver<'_, '_> {
    fn command(&mut self) -> Option<Command> {
        self.engine.command()
    }
    fn cancel(&mut self, slot: usize) {
        self.attempts.cancel(slot);
    }
    fn ask(&mut self, failure: Failure) {
        self.engine.ask_strategy(failure, self.timer.now());
    }
    fn await_grant(&mut self, cost: Cost) {
        self.engine.await_grant(cost);
    }
}

impl Driver for CallDriver<'_, '_> {
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut earlier = 0;
        while let Some((attempt, slot)) = self.engine.call.running_after(earlier) {
            earlier = attempt;
            if let Poll::Ready(directive) = self.attempts.poll(slot, cx) {
                self.engine.handle_outcome(slot, directive, self.timer.now());
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = &*self.timer;
        self.engine.poll_pending_answer(cx, || timer.now())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.engine.call.wake_at() else { return Poll::Pending };
        if !self.engine.yielded {
            ready!(self.timer.poll_until(at, cx));
            if self.engine.call.running_after(0).is_some() {
                self.engine.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.engine.yielded = false;
        self.engine.wake(self.timer.now().max(at));
        Poll::Ready(())
    }
}
