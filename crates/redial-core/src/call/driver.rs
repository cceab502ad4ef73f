//! The loop that drives a call: one for all drivers.

use core::task::{Context, Poll};

use super::{Command, End, Start};
use crate::{Cost, Failure};

/// Carries out the commands of a [`Call`](super::Call), for [`run_commands`].
pub trait RunCommands {
    /// The next command: [`Call::command`](super::Call::command) with the driver's environment.
    fn command(&mut self) -> Option<Command>;

    /// Cancels the attempt in this slot.
    fn cancel(&mut self, slot: usize);

    /// Asks the strategy, and passes its answer to [`Call::answered`](super::Call::answered), now or
    /// later.
    fn ask(&mut self, failure: Failure);

    /// Requests the deferred answer of the throttle, and passes it to
    /// [`Call::granted`](super::Call::granted), now or later.
    fn await_grant(&mut self, cost: Cost);
}

/// Polls what a [`Call`](super::Call) waits for, for [`poll_step`].
pub trait Driver: RunCommands {
    /// Polls the running attempts in the order of their starts
    /// ([`Call::running_after`](super::Call::running_after)) and reports the first outcome; ready if
    /// there was one.
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Polls everything else that is an input except for timers, such as a deferred answer; ready if
    /// an input was reported.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Waits until [`Call::wake_at`](super::Call::wake_at), then calls
    /// [`Call::wake_once`](super::Call::wake_once) and is ready.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// What the owner of a call does next. Everything else is done by the [`Driver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// Start an attempt, and continue.
    Start(Start),
    /// Return the result of the call.
    End(End),
}

/// Carries out commands until an attempt starts or the call ends; `None` if no command is left.
///
/// A start ends the loop because an outcome of the same moment comes before the next start
/// (decision P4).
pub fn run_commands(driver: &mut (impl RunCommands + ?Sized)) -> Option<CallStep> {
    while let Some(command) = driver.command() {
        match command {
            Command::Cancel(slot) => driver.cancel(slot),
            Command::Ask(failure) => driver.ask(failure),
            Command::Await(cost) => driver.await_grant(cost),
            Command::Start(start) => return Some(CallStep::Start(start)),
            Command::End(end) => return Some(CallStep::End(end)),
        }
    }
    None
}

/// Advances a call until an attempt starts or the call ends. Inputs of the same moment are reported
/// in the order of decision P4: outcomes, then answers, then timers.
pub fn poll_step(driver: &mut (impl Driver + ?Sized), cx: &mut Context<'_>) -> Poll<CallStep> {
    loop {
        let outcome = driver.poll_outcome(cx);
        if let Some(step) = run_commands(driver) {
            return Poll::Ready(step);
        }
        if outcome.is_pending() && driver.poll_answer(cx).is_pending() {
            core::task::ready!(driver.poll_timer(cx));
        }
    }
}
