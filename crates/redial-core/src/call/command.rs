//! What the machine tells its driver to do.

use core::ops::Deref;

use super::{Call, Phase, Question, slot_indices};
use crate::{Cost, Environment, Failure, Kind, Policy, StopReason};

/// What the driver must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop the attempt in this slot.
    Cancel(usize),
    /// Start an attempt. It counts from now on.
    Start(Start),
    /// Ask the strategy about this failure, and report what it says to [`Call::answered`].
    Ask(Failure),
    /// The throttle said that it would answer later ([`Bucket::later`](crate::Bucket::later)):
    /// report that to [`Call::granted`].
    Await(Cost),
    /// Hand on the result. Nothing comes after it.
    End(End),
}

/// An attempt that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Where it is filed; free again after its outcome or cancelling.
    pub slot: usize,
    /// Its place in the order of starts, from 1.
    pub attempt: u32,
    /// Its number as the policy counts; a replacement keeps that of what it replaces.
    pub number: u32,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub stop_reason: StopReason,
    /// The attempt whose outcome is handed on, by its place in the order of starts.
    pub attempt: Option<u32>,
    /// Its slot.
    pub slot: usize,
}

impl<P: Deref<Target = Policy>, const LIVE: usize> Call<P, LIVE> {
    /// The next command, until there is none.
    ///
    /// An attempt starts when its command is taken: what has not been taken when the call ends was
    /// never started. Of hedges without a delay (decision G16) each is decided when the one before it
    /// has been taken.
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
            self.request_hedge(Kind::Timeout, self.last_input_at, env);
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
