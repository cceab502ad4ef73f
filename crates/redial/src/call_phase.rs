//! A call that has left the fast path. Call sites share this code: it is compiled for each sleeper and
//! kind of policy.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use redial_core::{Ns, StopReason};

use crate::driver::{CallDriver, CallTraits, Input, PollContext, Step, Timer};
use crate::engine::Engine;
use crate::error::Details;
use crate::plain_call::{PlainCall, PlainStep, SleepUntil};
use crate::policy::Origin;
use crate::sleeper::Sleeper;

/// The phase of a call.
pub(crate) enum CallPhase<'p, S: Sleeper> {
    /// Without the state machine.
    Plain(PlainCall<'p, S>),
    /// With the state machine.
    Machine(Pin<Box<Machine<'p, S>>>),
    /// The call has ended, or user code panicked: the future can only be dropped.
    Done,
}

/// The phase in the future of a call. For a call that has ended, its destructor is one comparison in the
/// caller; the destructor of a [`CallPhase`] is too large to be inlined.
pub(crate) struct PhaseCell<'p, S: Sleeper>(ManuallyDrop<CallPhase<'p, S>>);

impl<'p, S: Sleeper> PhaseCell<'p, S> {
    pub(crate) const fn new(phase: PlainCall<'p, S>) -> Self {
        PhaseCell(ManuallyDrop::new(CallPhase::Plain(phase)))
    }
}

impl<'p, S: Sleeper> Deref for PhaseCell<'p, S> {
    type Target = CallPhase<'p, S>;

    fn deref(&self) -> &CallPhase<'p, S> {
        &self.0
    }
}

impl<S: Sleeper> DerefMut for PhaseCell<'_, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<S: Sleeper> Drop for PhaseCell<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(**self, CallPhase::Done) {
            drop_phase(self);
        }
    }
}

#[cold]
#[inline(never)]
fn drop_phase<S: Sleeper>(phase: &mut CallPhase<'_, S>) {
    *phase = CallPhase::Done;
}

pin_project! {
    /// The state machine of a call and its timer.
    #[project = MachineParts]
    pub(crate) struct Machine<'p, S>
    where
        S: Sleeper,
    {
        engine: Engine<'p>,
        #[pin]
        timer: SleepUntil<S>,
    }
}

impl<'p, S: Sleeper> Machine<'p, S> {
    pub(crate) fn new(engine: Engine<'p>) -> Pin<Box<Self>> {
        Box::pin(Machine { engine, timer: SleepUntil::unarmed() })
    }
}

impl<'p, S: Sleeper> CallPhase<'p, S> {
    /// Whether the call has not been polled, and has no options.
    pub(crate) const fn is_not_started(&self) -> bool {
        matches!(self, CallPhase::Plain(PlainCall::NotStarted(None)))
    }

    /// Whether the call has no state machine, and an attempt runs.
    pub(crate) fn is_attempt_running(&self) -> bool {
        matches!(self, CallPhase::Plain(plain) if plain.is_attempt_running())
    }

    /// Whether the call has no state machine.
    pub(crate) const fn is_plain(&self) -> bool {
        matches!(self, CallPhase::Plain(_))
    }

    /// The next step of the call; pending if everything that it waits for is pending.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_step(
        &mut self,
        origin: &impl Origin<'p>,
        input: &Input,
        poll: &mut PollContext<'_, '_>,
        sleeper: &S,
    ) -> Poll<Step> {
        let mut input = input;
        if let CallPhase::Plain(plain) = self {
            match ready!(plain.next_step(origin, input, poll, sleeper)) {
                PlainStep::Step(step) => return Poll::Ready(step),
                PlainStep::NeedsMachine(machine) => {
                    let yields = machine.engine.yielded;
                    *self = CallPhase::Machine(machine);
                    if yields {
                        // An outcome of the moment at which the timer fired comes first (P4), so other
                        // tasks get a turn.
                        poll.cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    input = &Input::Polled;
                }
            }
        }
        match self {
            CallPhase::Machine(machine) => {
                let MachineParts { engine, timer } = machine.as_mut().project();
                let timer = &mut AsyncTimer { sleeper, timer };
                CallDriver { engine, timer }.next_step(input, poll)
            }
            CallPhase::Plain(_) | CallPhase::Done => panic!("polled after completion"),
        }
    }

    /// Records the error of the next outcome. A call without its state machine has no events.
    pub(crate) fn record_error(&mut self, error: &dyn fmt::Display) {
        if let CallPhase::Machine(machine) = self {
            machine.as_mut().project().engine.record_error(error);
        }
    }

    /// The details of the call, after its end.
    #[cold]
    #[inline(never)]
    pub(crate) fn details(
        &mut self,
        origin: &impl Origin<'p>,
        traits: CallTraits,
        sleeper: &S,
        stop_reason: StopReason,
        error: Option<&dyn fmt::Display>,
    ) -> Box<Details> {
        match self {
            CallPhase::Plain(plain) => plain.details(origin, traits, sleeper, stop_reason, error),
            CallPhase::Machine(machine) => {
                machine.as_mut().project().engine.details(stop_reason, error)
            }
            CallPhase::Done => panic!("polled after completion"),
        }
    }
}

/// The clock and the timer of the async and the borrowing driver.
pub(crate) struct AsyncTimer<'a, S: Sleeper> {
    pub(crate) sleeper: &'a S,
    pub(crate) timer: Pin<&'a mut SleepUntil<S>>,
}

impl<S: Sleeper> Timer for AsyncTimer<'_, S> {
    fn now(&self) -> Ns {
        self.sleeper.now()
    }
    fn poll_until(&mut self, at: Ns, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(self.sleeper, at, cx)
    }
}
