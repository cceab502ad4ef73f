//! The loop that drives a call: one for all drivers.
//!
//! The loop never touches an attempt. It returns what to do with one, and the owner of the attempts
//! does it and calls the loop again. So the loop is compiled once for each type of [`Driver`], and a
//! driver need not know the type of the attempts: that of `redial` does not, and all of its call sites
//! share one loop.

use core::task::{Context, Poll, ready};

use super::{Command, End, Start};
use crate::{Cost, Failure};

/// Carries out the commands of a [`Call`](super::Call) that concern no attempt, for
/// [`run_commands`].
pub trait RunCommands {
    /// The next command: [`Call::command`](super::Call::command) with the driver's environment.
    fn command(&mut self) -> Option<Command>;

    /// Asks the strategy, and passes its answer to [`Call::answered`](super::Call::answered), now or
    /// later.
    fn ask(&mut self, failure: Failure);

    /// Requests the deferred answer of the throttle, and passes it to
    /// [`Call::granted`](super::Call::granted), now or later.
    fn await_grant(&mut self, cost: Cost);
}

/// Polls what a [`Call`](super::Call) waits for besides its attempts, for [`PollLoop::next_step`].
pub trait Driver: RunCommands {
    /// The running attempt that started next after this one, and its slot
    /// ([`Call::running_after`](super::Call::running_after)).
    fn running_after(&self, attempt: u32) -> Option<(u32, usize)>;

    /// Polls everything else that is an input except for timers, such as a deferred answer; ready if
    /// an input was reported.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Waits until [`Call::wake_at`](super::Call::wake_at), then calls
    /// [`Call::wake_once`](super::Call::wake_once) and is ready.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// What the owner of the attempts does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// Drop the attempt in this slot.
    Cancel(usize),
    /// Start an attempt.
    Start(Start),
    /// Return the result of the call.
    End(End),
}

/// Carries out commands until one concerns an attempt or ends the call; `None` if no command is left.
///
/// After a start, the running attempts are polled before the next command: an outcome of the same
/// moment comes before the next start (decision P4).
pub fn run_commands(driver: &mut (impl RunCommands + ?Sized)) -> Option<CallStep> {
    while let Some(command) = driver.command() {
        match command {
            Command::Ask(failure) => driver.ask(failure),
            Command::Await(cost) => driver.await_grant(cost),
            Command::Cancel(slot) => return Some(CallStep::Cancel(slot)),
            Command::Start(start) => return Some(CallStep::Start(start)),
            Command::End(end) => return Some(CallStep::End(end)),
        }
    }
    None
}

/// What the owner of the attempts does next in a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStep {
    /// Poll the attempt in this slot. If it is ready, report its outcome to the call and to
    /// [`PollLoop::outcome`]. Then continue.
    Poll(usize),
    /// Carry out a command, and continue unless it is the end.
    Command(CallStep),
}

/// The position in the loop of a call that is polled. Inputs of one moment are reported in the order
/// of decision P4: outcomes in the order in which the attempts started, then answers, then timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollLoop {
    /// The attempts up to this one have been polled.
    Polled(u32),
    /// An outcome was reported: after its commands, the attempts are polled again.
    Outcome,
    /// No attempt has an outcome.
    AllPending,
}

impl PollLoop {
    /// The start of a poll: every running attempt is polled.
    pub const START: Self = PollLoop::Polled(0);

    /// An attempt had an outcome.
    pub const fn outcome(&mut self) {
        *self = PollLoop::Outcome;
    }

    /// The next step of the poll; pending if everything that the call waits for is pending.
    pub fn next_step(
        &mut self,
        driver: &mut (impl Driver + ?Sized),
        cx: &mut Context<'_>,
    ) -> Poll<PollStep> {
        loop {
            if let PollLoop::Polled(attempt) = *self {
                if let Some((attempt, slot)) = driver.running_after(attempt) {
                    *self = PollLoop::Polled(attempt);
                    return Poll::Ready(PollStep::Poll(slot));
                }
                *self = PollLoop::AllPending;
            }
            if let Some(step) = run_commands(driver) {
                if let CallStep::Start(_) = step {
                    *self = PollLoop::START;
                }
                return Poll::Ready(PollStep::Command(step));
            }
            if *self == PollLoop::AllPending && driver.poll_answer(cx).is_pending() {
                ready!(driver.poll_timer(cx));
            }
            *self = PollLoop::START;
        }
    }
}
