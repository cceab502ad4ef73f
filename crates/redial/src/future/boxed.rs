//! Calls that need a timer or the state machine; both are in a box.
//!
//! Invariant: a state machine that starts after its call has missed no input. As long as the first
//! attempt runs and the timer has not fired, there was no input, and the call is just the attempt and a
//! timer. A call with options has its state machine from the first poll, because a hook or a call log
//! receives the events from the start.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redial_core::{CallCounters, Command, NEVER, Ns};

use super::{CellOf, Driver, ErrorOf, IMMEDIATE_MAX, KeptOf, Output, ResultOf, TIMED, ValueOf};
use crate::attempt::{Answer, Async, Operation};
use crate::cell::{Cell, Drive, HAS_BOX, Retrying};
use crate::classify::Classify;
use crate::engine::Engine;
use crate::options::Options;
use crate::policy::{Origin, Policy};
use crate::sleeper::{Moment, Sleeper};
use crate::throttle::Handle;

type StartedOf<'p, O, C, const LIVE: usize> =
    Started<'p, <O as Operation>::Answer, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE>;

type BoxedStateOf<'p, O, C, S, const LIVE: usize> = Retrying<
    BoxedState<'p, <O as Operation>::Answer, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE>,
    Infallible,
    <S as Sleeper>::Sleep,
>;

pub(super) type BoxOf<'p, O, C, S, const LIVE: usize> = Pin<Box<BoxedStateOf<'p, O, C, S, LIVE>>>;

/// The state that a plain call does not need. The timer is in the cell beside it.
pub(super) struct BoxedState<'p, F, T, E, V, const LIVE: usize> {
    /// `None` while the first attempt runs and the timer has not fired. In a box of its own: most calls
    /// with a timer never need it, and it is far larger.
    machine: Option<Box<Machine<'p, F, T, E, V, LIVE>>>,
    /// When the timer of a call without the state machine was made.
    pub(super) start: Option<Moment>,
}

/// The state machine of a call.
#[expect(
    clippy::large_enum_variant,
    reason = "it is boxed, and the small variant lives only until the first poll"
)]
enum Machine<'p, F, T, E, V, const LIVE: usize> {
    /// Starts at the first poll, with these options.
    NotStarted(Box<Options<'p>>),
    Started(Started<'p, F, T, E, V, LIVE>),
}

pub(super) struct Started<'p, F, T, E, V, const LIVE: usize> {
    pub(super) engine: Engine<'p, T, E, V, LIVE>,
    /// The attempts in the slots after the first. The first is in the cell.
    hedges: Vec<Option<Pin<Box<F>>>>,
    timer_at: Ns,
    /// Whether other tasks had a turn since the timer fired.
    yielded: bool,
}

impl<'p, F, T, E, V, const LIVE: usize> BoxedState<'p, F, T, E, V, LIVE> {
    /// The state of a call with options.
    pub(super) fn with_options<S>(
        options: Box<Options<'p>>,
    ) -> Pin<Box<Retrying<Self, Infallible, S>>> {
        let machine = Some(Box::new(Machine::NotStarted(options)));
        Box::pin(Retrying::new(BoxedState { machine, start: None }, 0))
    }

    /// The state of a call whose first attempt runs: only a timer.
    fn timer_only<S>() -> Pin<Box<Retrying<Self, Infallible, S>>> {
        Box::pin(Retrying::new(BoxedState { machine: None, start: None }, 0))
    }
}

impl<'p, F, T, E, V, const LIVE: usize> Started<'p, F, T, E, V, LIVE> {
    /// The state machine of a call that began at `start`, with a timer that is set to `timer_at`.
    fn new(
        policy: &'p Policy,
        handle: Handle,
        options: Options<'p>,
        start: Ns,
        timer_at: Ns,
    ) -> Self {
        let engine = Engine::begin(policy, handle, options, start);
        Started { engine, hedges: Vec::new(), timer_at, yielded: false }
    }
}

/// Never polled: the driver that owns it uses its cell for the timer.
impl<F, T, E, V, const LIVE: usize, S> Drive<Infallible, S> for BoxedState<'_, F, T, E, V, LIVE> {
    type Output = Infallible;
    fn poll(&mut self, _: Pin<&mut Cell<Infallible, S>>, _: &mut Context<'_>) -> Poll<Infallible> {
        Poll::Pending
    }
}

impl<'p, G, O, C, S, R, const LIVE: usize> Driver<'p, G, O, C, S, R, LIVE>
where
    G: Origin<'p>,
    O: Operation,
    O::Answer: Future<Output = Result<ValueOf<O>, ErrorOf<O>>> + Answer<Async>,
    C: Classify<ValueOf<O>, ErrorOf<O>>,
    S: Sleeper,
    R: Output<ValueOf<O>>,
{
    /// Arms the first timer after the first poll was pending.
    #[cold]
    #[inline(never)]
    pub(super) fn arm_first_timer(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let span = self.origin.policy().core.first_wake_after();
        if span == NEVER {
            self.record_start(cell, || self.sleeper.now());
            return Poll::Pending;
        }
        if span == 0 {
            self.start_machine(cell.as_mut());
            return self.poll_machine(cell, cx);
        }
        let start = match cell.counters() {
            counters if counters.has(TIMED) => counters.start.into(),
            _ => self.sleeper.moment(),
        };
        let sleep = self.sleeper.sleep_after(start, span);
        let (boxed_state, mut timer) =
            self.get_or_make_box(cell.as_mut(), BoxedState::timer_only).parts();
        boxed_state.start = Some(start);
        timer.as_mut().put_sleep(sleep);
        ready!(timer.poll_sleep(cx));
        self.start_machine_and_yield(cell, cx)
    }

    /// Polls a call with a box.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_boxed(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let Some(boxed_state) = self.boxed_state.as_mut() else { unreachable!("the bit is set") };
        let (boxed_state, timer) = boxed_state.as_mut().parts();
        if boxed_state.machine.is_some() {
            return self.poll_machine(cell, cx);
        }
        match cell.as_mut().poll_attempt(cx) {
            Poll::Ready(result) => match self.classify.accept(result) {
                Ok(value) => {
                    self.drop_box(cell.as_mut());
                    Poll::Ready(self.succeed(value, &cell))
                }
                Err(rejected) => self.handle_failure(rejected, cell, cx),
            },
            Poll::Pending => {
                ready!(timer.poll_sleep(cx));
                self.start_machine_and_yield(cell, cx)
            }
        }
    }

    /// The first timer fired while the first attempt runs: starts the state machine, and yields.
    #[cold]
    fn start_machine_and_yield(
        &mut self,
        cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        // An outcome of the same moment comes first (P4), so other tasks get a turn.
        self.start_machine(cell).yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The box of this call, made if there is none.
    #[inline]
    pub(super) fn get_or_make_box(
        &mut self,
        cell: CellOf<'_, O, S>,
        make: impl FnOnce() -> BoxOf<'p, O, C, S, LIVE>,
    ) -> Pin<&mut BoxedStateOf<'p, O, C, S, LIVE>> {
        cell.with_counters(|counters| counters.set(HAS_BOX));
        self.boxed_state.get_or_insert_with(make).as_mut()
    }

    fn drop_box(&mut self, cell: CellOf<'_, O, S>) {
        *self.boxed_state = None;
        cell.with_counters(|counters| counters.clear(HAS_BOX));
    }

    /// Starts the state machine of a call whose first attempt runs or has just ended.
    pub(super) fn start_machine(
        &mut self,
        mut cell: CellOf<'_, O, S>,
    ) -> &mut StartedOf<'p, O, C, LIVE> {
        self.record_start(cell.as_mut(), || self.sleeper.now());
        let start = cell.counters().start;
        let (policy, handle) = (self.origin.policy(), self.origin.handle());
        let timer_at = policy.core.first_wake_at(start);
        let mut started = Started::new(policy, handle, Options::default(), start, timer_at);
        let first = started.engine.command();
        debug_assert!(
            matches!(first, Some(Command::Start(_))),
            "the first attempt is already running"
        );
        let (boxed_state, _) = self.get_or_make_box(cell, BoxedState::timer_only).parts();
        match &mut **boxed_state.machine.insert(Box::new(Machine::Started(started))) {
            Machine::Started(started) => started,
            Machine::NotStarted(_) => unreachable!("it was just started"),
        }
    }

    /// Polls a call with a state machine, or with options for one.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_machine(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let Driver { origin, operation, classify, sleeper, boxed_state, .. } = self;
        let Some(boxed_state) = boxed_state.as_mut() else { unreachable!("the call has a box") };
        let (BoxedState { machine, .. }, mut timer) = boxed_state.as_mut().parts();
        let Some(machine) = machine else { unreachable!("the box has a state machine") };
        if let Machine::NotStarted(options) = &mut **machine {
            let options = std::mem::take(&mut **options);
            let (policy, handle) = (origin.policy(), origin.handle());
            **machine =
                Machine::Started(Started::new(policy, handle, options, sleeper.now(), NEVER));
        }
        let Machine::Started(Started { engine, hedges, timer_at, yielded }) = &mut **machine else {
            unreachable!("it was started above")
        };
        let mut rounds = 0;
        // Whether the attempts were polled since the last start, and whether any was running.
        let (mut polled, mut running) = (false, false);
        loop {
            while let Some(command) = engine.command() {
                match command {
                    Command::Cancel(0) => cell.as_mut().clear(),
                    Command::Cancel(slot) => hedges[slot - 1] = None,
                    Command::Start(start) => {
                        let now = if O::READS_ATTEMPT { sleeper.now() } else { 0 };
                        let attempt = operation.start(engine.attempt(start, now));
                        if start.slot == 0 {
                            cell.as_mut().put_attempt(|| attempt);
                        } else {
                            if hedges.len() < start.slot {
                                hedges.resize_with(start.slot, || None);
                            }
                            hedges[start.slot - 1] = Some(Box::pin(attempt));
                        }
                        // An outcome of this moment comes before the next start (P4).
                        polled = false;
                        break;
                    }
                    Command::Ask(failure) => engine.ask_strategy(failure, sleeper.now()),
                    Command::Await(cost) => engine.await_grant(cost),
                    Command::End(end) => {
                        let result = engine.result(end);
                        self.drop_box(cell.as_mut());
                        cell.with_counters(|counters| counters.set(CallCounters::ENDED));
                        return Poll::Ready(
                            result.map(|(value, report)| R::output(value, || report)),
                        );
                    }
                }
            }
            if !polled {
                rounds += 1;
                if rounds == IMMEDIATE_MAX {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                running = false;
                let mut ready = None;
                let mut earlier = 0;
                while let Some((attempt, slot)) = engine.call.running_after(earlier) {
                    earlier = attempt;
                    running = true;
                    let result = match slot {
                        0 => cell.as_mut().poll_attempt(cx),
                        _ => match &mut hedges[slot - 1] {
                            Some(attempt) => attempt.as_mut().poll(cx),
                            None => Poll::Pending,
                        },
                    };
                    if let Poll::Ready(result) = result {
                        ready = Some((slot, result));
                        break;
                    }
                }
                if let Some((slot, result)) = ready {
                    if slot > 0 {
                        hedges[slot - 1] = None;
                    }
                    engine.handle_outcome(slot, classify.classify(result), sleeper.now());
                    *yielded = false;
                } else {
                    polled = true;
                }
                continue;
            }
            if engine.poll_pending_answer(cx, || sleeper.now()).is_ready() {
                polled = false;
                continue;
            }
            let Some(at) = engine.call.wake_at() else { return Poll::Pending };
            if !*yielded {
                if *timer_at != at || !timer.has_sleep() {
                    timer.as_mut().put_sleep(sleeper.sleep_until(at));
                    *timer_at = at;
                }
                ready!(timer.as_mut().poll_sleep(cx));
                // An outcome of the same moment comes first (P4), so other tasks get a turn.
                if running {
                    *yielded = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            *yielded = false;
            engine.wake(sleeper.now().max(at));
            polled = false;
        }
    }
}
