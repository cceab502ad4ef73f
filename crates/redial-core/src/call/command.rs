//! The commands that the state machine gives to its driver.

use core::ops::Deref;

use super::{Call, Phase, Question, slot_indices};
use crate::{Cost, Environment, Failure, FailureKind, Policy, StopReason};

/// An action for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Cancel the attempt in this slot.
    Cancel(usize),
    /// Start an attempt. It counts from now on.
    Start(Start),
    /// Ask the strategy about this failure, and pass its answer to [`Call::answered`].
    Ask(Failure),
    /// Wait for the deferred answer of the throttle ([`Bucket::later`](crate::Bucket::later)), and
    /// pass it to [`Call::granted`].
    Await(Cost),
    /// Return the result of the call. No command follows.
    End(End),
}

/// An attempt to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The slot of the attempt, reused after its outcome or cancellation.
    pub slot: usize,
    /// The position in the order of starts, from 1.
    pub attempt: u32,
    /// The attempt number that the policy counts; a transparent retry keeps the number of the
    /// attempt that it repeats.
    pub number: u32,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why the call ended.
    pub stop_reason: StopReason,
    /// The attempt whose outcome is the result, by its position in the order of starts.
    pub attempt: Option<u32>,
    /// The slot of that attempt.
    pub slot: usize,
}

impl<P: Deref<Target = Policy>> Call<P> {
    /// The next command; `None` when there is none left.
    ///
    /// An attempt starts when its command is taken: a start that has not been taken when the call
    /// ends never happened. If hedges have no delay (decision G16), each requests its grant after
    /// the command before it was taken.
    pub fn command(&mut self, env: &mut impl Environment) -> Option<Command> {
        let command = self.next_command(env);
        self.check_invariants();
        command
    }

    fn next_command(&mut self, env: &mut impl Environment) -> Option<Command> {
        if self.pending_cancels != 0 {
            let slot = self.pending_cancels.trailing_zeros() as usize;
            self.pending_cancels &= self.pending_cancels - 1;
            return Some(Command::Cancel(slot));
        }
        if let Some(slot) = slot_indices(self.pending_starts).next() {
            let number = self.slots[slot].number;
            return Some(Command::Start(self.start(slot, number, env)));
        }
        if self.phase == Phase::HedgeNow {
            self.request_hedge(FailureKind::Timeout, self.last_input_at, env);
        }
        if self.phase == Phase::StartNow {
            return self.start_next(env).map(Command::Start);
        }
        match core::mem::replace(&mut self.question, Question::None) {
            Question::None => {}
            Question::Strategy => return Some(Command::Ask(self.failure)),
            Question::Throttle(cost) => return Some(Command::Await(cost)),
        }
        match self.end {
            Some(end) if !self.end_taken => {
                self.end_taken = true;
                Some(Command::End(end))
            }
            _ => None,
        }
    }
}
