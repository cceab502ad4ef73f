//! What all drivers share: the state machine of a call, driven by one loop ([`PollLoop`]) with the timer
//! of the async, the blocking or the borrowing driver.
//!
//! The loop is compiled once. What is compiled for each call site carries out a [`Step`]: it starts the
//! operation, polls it, classifies its result, or drops it; and of this module the functions that take
//! a result or a classifier (`error_text`, `release`, `notify`).

use std::fmt;
use std::task::{Context, Poll, ready};

use redial_core::{
    CallStep, Command, Cost, Directive, Driver, Failure, Ns, PollLoop, PollStep, RunCommands,
    StopReason, duration,
};

use crate::attempt::{Attempt, Operation};
use crate::classify::Classify;
use crate::engine::Engine;
use crate::options::Options;
use crate::policy::Policy;

/// The number of attempts that one poll starts before the future yields to other tasks.
const STARTS_PER_POLL_MAX: u32 = 32;

/// What the owner of the attempts does next.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// Polls the attempt in this slot.
    Poll(usize),
    /// Drops the attempt in this slot.
    Cancel(usize),
    /// Starts [`PollContext::attempt`] in this slot.
    Start(usize),
    /// The same, and polls it: it is the only attempt.
    StartAndPoll(usize),
    /// Returns the result of the call.
    End(StopReason),
}

/// How the owner of the attempts carried out the last step.
pub(crate) enum Input {
    /// There was none: the call is polled.
    Polled,
    /// The attempt has started.
    Started,
    /// The attempt has been dropped.
    Cancelled,
    /// The attempt is pending.
    Pending,
    /// The attempt in this slot has a result, and has been dropped.
    Outcome(usize, Directive),
}

/// The text of the error in `last`, if it is recorded and `input` is its outcome.
pub(crate) fn error_text<'e, T, E, C: Classify<T, E>>(
    input: &Input,
    last: Option<&'e Result<T, E>>,
) -> Option<&'e dyn fmt::Display> {
    match (input, last) {
        (Input::Outcome(..), Some(Err(error))) if C::RECORDS_ERRORS => C::error_text(error),
        _ => None,
    }
}

/// What the operation and the types of a call require of its driver.
#[derive(Clone, Copy)]
pub(crate) struct CallTraits {
    /// The operation takes its attempt, with the remaining time.
    pub(crate) reads_attempt: bool,
    /// The output of a success has the elapsed time.
    pub(crate) reports_elapsed: bool,
    /// The operation can start another attempt.
    pub(crate) replayable: bool,
    /// The operation may run twice.
    pub(crate) idempotent: bool,
    /// A call that is retried keeps its attempts for the report.
    pub(crate) records_history: bool,
}

impl CallTraits {
    /// A closure with a context: the clock is read before each attempt.
    pub(crate) const OF_CLOSURE: CallTraits = CallTraits {
        reads_attempt: true,
        reports_elapsed: true,
        replayable: true,
        idempotent: true,
        records_history: false,
    };

    /// Whether counters are not enough for a call whose first attempt has failed.
    pub(crate) const fn needs_machine_after_failure(self) -> bool {
        self.reads_attempt || self.records_history || !self.idempotent
    }

    /// What a blocking operation requires. It cannot be committed: an attempt returns before the next step.
    pub(crate) fn of_blocking<O: Operation>(operation: &O) -> Self {
        CallTraits {
            idempotent: operation.is_idempotent(),
            records_history: O::RECORDS_HISTORY,
            ..CallTraits::OF_CLOSURE
        }
    }

    /// Adds to the options of a call what its operation requires.
    pub(crate) fn complete(self, options: &mut Options<'_>) {
        options.not_idempotent |= !self.idempotent;
        options.history |= self.records_history;
    }

    /// Whether the elapsed time counts from the first poll: the clock is read then.
    pub(crate) fn is_elapsed_exact(self, policy: &Policy) -> bool {
        self.reads_attempt || self.reports_elapsed || policy.needs_clock()
    }
}

/// One poll of a call.
pub(crate) struct PollContext<'a, 'w> {
    pub(crate) cx: &'a mut Context<'w>,
    pub(crate) traits: CallTraits,
    /// The attempts that this poll has started.
    pub(crate) starts: u32,
    /// The attempt to start.
    pub(crate) attempt: Attempt,
    /// The delay of a retry that was decided after the last result.
    pub(crate) retry_after: Option<Ns>,
}

impl<'a, 'w> PollContext<'a, 'w> {
    pub(crate) fn new(traits: CallTraits, cx: &'a mut Context<'w>) -> Self {
        PollContext { cx, traits, starts: 0, attempt: Attempt::first(None), retry_after: None }
    }

    /// A poll that continues another, which has started this many attempts.
    pub(crate) fn with_starts(starts: u32, traits: CallTraits, cx: &'a mut Context<'w>) -> Self {
        PollContext { starts, ..PollContext::new(traits, cx) }
    }

    /// Whether this poll may start further attempts.
    pub(crate) const fn is_fair(&self) -> bool {
        self.starts < STARTS_PER_POLL_MAX
    }

    /// Calls the `release` hook of the classifier if the result in `last` is retried. `notify` follows.
    pub(crate) fn release<T, E, C: Classify<T, E>>(
        &mut self,
        classify: &mut C,
        last: Option<&mut Result<T, E>>,
    ) {
        let retries = if C::NOTIFIES { self.retry_after } else { self.retry_after.take() };
        if let (Some(_), Some(last)) = (retries, last) {
            classify.release(last);
        }
    }

    /// Calls the `notify` hook of the classifier if the error in `last` is retried.
    pub(crate) fn notify<T, E, C: Classify<T, E>>(
        &mut self,
        classify: &mut C,
        last: Option<&Result<T, E>>,
    ) {
        if C::NOTIFIES
            && let Some(delay) = self.retry_after.take()
            && let Some(Err(error)) = last
        {
            classify.notify(error, duration(delay));
        }
    }

    /// Pending, with a wake-up, if this poll has started as many attempts as it may.
    pub(crate) fn poll_fairness(&mut self) -> Poll<()> {
        if self.is_fair() {
            return Poll::Ready(());
        }
        self.cx.waker().wake_by_ref();
        Poll::Pending
    }
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
    pub(crate) timer: &'a mut dyn Timer,
}

impl CallDriver<'_, '_> {
    /// The next step of the call; pending if everything that it waits for is pending.
    pub(crate) fn next_step(
        &mut self,
        input: &Input,
        poll: &mut PollContext<'_, '_>,
    ) -> Poll<Step> {
        let mut position = self.engine.position;
        if !poll.traits.replayable {
            self.engine.commit_to_running();
        }
        match *input {
            Input::Polled => position = PollLoop::START,
            Input::Started | Input::Cancelled | Input::Pending => {}
            Input::Outcome(slot, directive) => {
                self.engine.handle_outcome(slot, directive, self.timer.now());
                position.outcome();
            }
        }
        let step = position.next_step(self, poll.cx);
        poll.retry_after = self.engine.take_retry_after();
        let step = ready!(step);
        self.engine.position = position;
        Poll::Ready(match step {
            PollStep::Poll(slot) => {
                ready!(poll.poll_fairness());
                Step::Poll(slot)
            }
            PollStep::Command(CallStep::Cancel(slot)) => Step::Cancel(slot),
            PollStep::Command(CallStep::Start(start)) => {
                let now = if poll.traits.reads_attempt { self.timer.now() } else { 0 };
                poll.starts += 1;
                poll.attempt = self.engine.attempt(start, now);
                Step::Start(start.slot)
            }
            PollStep::Command(CallStep::End(end)) => Step::End(end.stop_reason),
        })
    }
}

impl RunCommands for CallDriver<'_, '_> {
    fn command(&mut self) -> Option<Command> {
        self.engine.command()
    }
    fn ask(&mut self, failure: Failure) {
        self.engine.ask_strategy(failure, self.timer.now());
    }
    fn await_grant(&mut self, cost: Cost) {
        self.engine.await_grant(cost);
    }
}

impl Driver for CallDriver<'_, '_> {
    fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        self.engine.call.running_after(attempt)
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
