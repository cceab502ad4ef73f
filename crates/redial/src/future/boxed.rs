//! Calls to which more can happen than failures: a timer, and if need be the machine, in a box.
//!
//! Invariant: a machine that is begun after its call has missed nothing. Until something happens
//! besides that the first attempt succeeds, which the timer or an outcome tells, there is none, and
//! the call is the attempt with a timer beside it. Calls that were told something have theirs from
//! the first poll, for somebody may read its notes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redial_core::{Command, Ledger, NEVER, Ns};

use super::{CellOf, Driver, ErrorOf, IMMEDIATE_MAX, KeptOf, Output, ResultOf, TIMED, ValueOf};
use crate::attempt::{Answer, Async, Operation};
use crate::cell::{BOXED, Cell, Drive, Retrying};
use crate::classify::Classify;
use crate::engine::Engine;
use crate::options::Options;
use crate::policy::{Origin, Policy};
use crate::sleeper::Sleeper;
use crate::throttle::Handle;

type EngineOf<'p, O, C, const LIVE: usize> = Engine<'p, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE>;

type RareOf<'p, O, C, S, const LIVE: usize> = Retrying<
    Rare<'p, <O as Operation>::Answer, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE>,
    Infallible,
    <S as Sleeper>::Sleep,
>;

pub(super) type BoxOf<'p, O, C, S, const LIVE: usize> = Pin<Box<RareOf<'p, O, C, S, LIVE>>>;

/// What a plain call does not need; the timer is in the cell beside it.
pub(super) struct Rare<'p, F, T, E, V, const LIVE: usize> {
    machine: Machine<'p, T, E, V, LIVE>,
    /// The attempts in the slots after the first, which lives beside the ledger.
    others: Vec<Option<Pin<Box<F>>>>,
    timer_at: Ns,
    /// Whether others had a turn since the timer fired.
    looked: bool,
}

/// The machine of a call with a box.
pub(super) enum Machine<'p, T, E, V, const LIVE: usize> {
    /// It is begun when something happens besides that the first attempt, which runs, succeeds.
    NotYet,
    /// It is begun at the first poll, with what the call was told.
    Told(Box<Options<'p>>),
    /// In a box of its own: most calls that have a timer never get here, and it is far larger.
    Begun(Box<Engine<'p, T, E, V, LIVE>>),
}

impl<'p, F, T, E, V, const LIVE: usize> Rare<'p, F, T, E, V, LIVE> {
    pub(super) fn boxed<S>(
        machine: Machine<'p, T, E, V, LIVE>,
    ) -> Pin<Box<Retrying<Self, Infallible, S>>> {
        let rare = Rare { machine, others: Vec::new(), timer_at: NEVER, looked: false };
        Box::pin(Retrying::new(rare, 0))
    }
}

impl<'p, T, E, V, const LIVE: usize> Machine<'p, T, E, V, LIVE> {
    fn begin(
        &mut self,
        policy: &'p Policy,
        handle: Handle,
        options: Options<'p>,
        start: Ns,
    ) -> &mut Engine<'p, T, E, V, LIVE> {
        *self = Machine::Begun(Box::new(Engine::begin(policy, handle, options, start)));
        let Machine::Begun(engine) = self else { unreachable!("it has just begun") };
        engine
    }
}

/// It is never polled itself: the driver that owns it uses its cell for the timer.
impl<F, T, E, V, const LIVE: usize, S> Drive<Infallible, S> for Rare<'_, F, T, E, V, LIVE> {
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
    /// The first poll did not end the call: what can happen besides its outcome gets a timer.
    #[cold]
    #[inline(never)]
    pub(super) fn pended(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        if !cell.ledger().has(TIMED) {
            self.read_clock(cell.as_mut());
        }
        let start = cell.ledger().start;
        let at = self.origin.policy().core.first_wake_at(start);
        if at == NEVER {
            return Poll::Pending;
        }
        if at == start {
            self.engage(cell.as_mut());
            return self.drive(cell, cx);
        }
        let sleep = self.sleeper.sleep_until(at);
        let (rare, timer) = self.open_box(cell.as_mut(), Machine::NotYet).parts();
        rare.timer_at = at;
        timer.sleep(sleep);
        self.wait(cell, cx)
    }

    /// A call with a box.
    #[cold]
    #[inline(never)]
    pub(super) fn boxed(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let (rare, _) = self.open_box(cell.as_mut(), Machine::NotYet).parts();
        if !matches!(rare.machine, Machine::NotYet) {
            return self.drive(cell, cx);
        }
        match cell.as_mut().poll_run(cx) {
            Poll::Ready(result) => match self.classify.accept(result) {
                Ok(value) => {
                    self.drop_box(cell.as_mut());
                    Poll::Ready(self.result(value, &cell))
                }
                Err(rejected) => self.failed(rejected, cell, cx),
            },
            Poll::Pending => self.wait(cell, cx),
        }
    }

    /// Waits for the first thing that can happen to a call whose first attempt runs; then the
    /// machine takes over.
    #[inline]
    fn wait(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let (rare, timer) = self.open_box(cell.as_mut(), Machine::NotYet).parts();
        ready!(timer.poll_sleep(cx));
        // P4: an outcome of this very moment goes first, so whoever makes it gets a turn.
        rare.looked = true;
        self.engage(cell);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The box of this call; if there is none, one with this machine.
    pub(super) fn open_box(
        &mut self,
        cell: CellOf<'_, O, S>,
        machine: Machine<'p, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE>,
    ) -> Pin<&mut RareOf<'p, O, C, S, LIVE>> {
        cell.with_ledger(|ledger| ledger.set(BOXED));
        self.rare.get_or_insert_with(|| Rare::boxed(machine)).as_mut()
    }

    fn drop_box(&mut self, cell: CellOf<'_, O, S>) {
        *self.rare = None;
        cell.with_ledger(|ledger| ledger.clear(BOXED));
    }

    /// Begins the machine of a call whose first attempt already runs, or has just ended.
    pub(super) fn engage(&mut self, mut cell: CellOf<'_, O, S>) -> &mut EngineOf<'p, O, C, LIVE> {
        let (policy, handle) = (self.origin.policy(), self.origin.handle());
        let start = cell.ledger().start;
        let (rare, _) = self.open_box(cell.as_mut(), Machine::NotYet).parts();
        let engine = rare.machine.begin(policy, handle, Options::default(), start);
        let first = engine.call.command();
        debug_assert!(matches!(first, Some(Command::Start(_))), "the first attempt runs already");
        engine
    }

    /// A call with a machine, or one that is about to get it.
    #[cold]
    #[inline(never)]
    pub(super) fn drive(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let Driver { origin, operation, classify, sleeper, rare, .. } = self;
        let Some(rare) = rare.as_mut() else { unreachable!("only a call with a box is driven") };
        let (Rare { machine, others, timer_at, looked }, mut timer) = rare.as_mut().parts();
        let engine = match machine {
            Machine::Begun(engine) => engine,
            Machine::Told(options) => {
                let options = std::mem::take(&mut **options);
                machine.begin(origin.policy(), origin.handle(), options, sleeper.now())
            }
            Machine::NotYet => unreachable!("a call that is driven has a machine"),
        };
        let mut rounds = 0;
        loop {
            while let Some(command) = engine.call.command() {
                match command {
                    Command::Cancel(0) => cell.as_mut().clear(),
                    Command::Cancel(slot) => others[slot - 1] = None,
                    Command::Start(start) => {
                        let now = if O::SEES { sleeper.now() } else { 0 };
                        let attempt = operation.start(engine.attempt(start, now));
                        if start.slot == 0 {
                            cell.as_mut().run(|| attempt);
                        } else {
                            if others.len() < start.slot {
                                others.resize_with(start.slot, || None);
                            }
                            others[start.slot - 1] = Some(Box::pin(attempt));
                        }
                    }
                    Command::Ask(failure) => engine.ask(failure, sleeper.now()),
                    Command::Await(cost) => engine.await_grant(cost),
                    Command::End(end) => {
                        let result = engine.result(end);
                        self.drop_box(cell.as_mut());
                        cell.with_ledger(|ledger| ledger.set(Ledger::ENDED));
                        return Poll::Ready(
                            result.map(|(value, report)| R::output(value, || report)),
                        );
                    }
                }
            }
            rounds += 1;
            if rounds == IMMEDIATE_MAX {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }

            let mut running = false;
            let mut ready = None;
            let mut earlier = 0;
            while let Some((attempt, slot)) = engine.call.running_after(earlier) {
                earlier = attempt;
                running = true;
                let polled = match slot {
                    0 => cell.as_mut().poll_run(cx),
                    _ => match &mut others[slot - 1] {
                        Some(attempt) => attempt.as_mut().poll(cx),
                        None => Poll::Pending,
                    },
                };
                if let Poll::Ready(result) = polled {
                    ready = Some((slot, result));
                    break;
                }
            }
            if let Some((slot, result)) = ready {
                if slot > 0 {
                    others[slot - 1] = None;
                }
                engine.outcome(slot, classify.classify(result), sleeper.now());
                *looked = false;
                continue;
            }
            if engine.poll_question(cx, || sleeper.now()).is_ready() {
                continue;
            }
            let Some(at) = engine.call.wake_at() else { return Poll::Pending };
            if !*looked {
                if *timer_at != at || !timer.sleeps() {
                    timer.as_mut().sleep(sleeper.sleep_until(at));
                    *timer_at = at;
                }
                ready!(timer.as_mut().poll_sleep(cx));
                // P4: an outcome of this very moment goes first, so whoever makes it gets a turn.
                if running {
                    *looked = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            *looked = false;
            engine.wake(sleeper.now().max(at));
        }
    }
}
