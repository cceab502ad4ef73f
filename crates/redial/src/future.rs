//! The async driver: one future for retrying and for hedging.
//!
//! Implementation details: a plain policy is played by the ledger beside the operation, with the
//! way of a success inlined and everything else in cold functions. What needs the machine (a
//! deadline, an attempt timeout, hedges, a strategy, a diary) gets it in a box, which is made when
//! the first poll does not end the call. Nothing is spawned; dropping the future drops every
//! attempt, and what was taken for a retry that never started goes back.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, Command, Cost, Grant, Ledger, Measure, NEVER, Ns, Taken, Verdict, Why, World, decide,
    duration, ns,
};

use crate::attempt::{Answer, Async, Attempt, Operation};
use crate::cell::{self, BOXED, Cell, Drive, Retrying};
use crate::classify::{Classified, Classify, Last};
use crate::engine::{Engine, draw};
use crate::error::Error;
use crate::options::Options;
use crate::policy::Origin;
use crate::report::Report;
use crate::sleeper::Sleeper;

/// The clock has been read: the ledger's start is true.
const TIMED: u16 = cell::FREE;
/// A retry is paid for and has not started.
const HOLDS: u16 = cell::FREE << 1;

/// How many retries without a delay run before others get their turn.
pub(crate) const IMMEDIATE_MAX: u32 = 32;

/// What a call hands on when it succeeds.
pub trait Output<T> {
    /// What the caller gets.
    type Output;
    /// Whether it tells the time, so that the clock is read at the start.
    const TIMED: bool;

    /// The value as the caller gets it.
    fn output(value: T, report: impl FnOnce() -> Report) -> Self::Output;
}

/// The value alone.
#[derive(Debug)]
pub enum Value {}

/// The value and the [`Report`].
#[derive(Debug)]
pub enum WithReport {}

impl<T> Output<T> for Value {
    type Output = T;
    const TIMED: bool = false;
    #[inline]
    fn output(value: T, _report: impl FnOnce() -> Report) -> T {
        value
    }
}

impl<T> Output<T> for WithReport {
    type Output = (T, Report);
    const TIMED: bool = true;
    fn output(value: T, report: impl FnOnce() -> Report) -> (T, Report) {
        (value, report())
    }
}

type ValueOf<O> = <<O as Operation>::Answer as Answer<Async>>::Value;
type ErrorOf<O> = <<O as Operation>::Answer as Answer<Async>>::Error;
type KeptOf<O, C> = <C as Classify<ValueOf<O>, ErrorOf<O>>>::Kept;
type OutcomeOf<O, C> = Classified<ValueOf<O>, ErrorOf<O>, KeptOf<O, C>>;
type ResultOf<O, C, R> = Result<<R as Output<ValueOf<O>>>::Output, Error<ErrorOf<O>, KeptOf<O, C>>>;

/// The state of a call under way: what it repeats and how it judges. See [`Retrying`].
#[repr(C)]
pub struct Driver<'p, G, O, C, S, R, const LIVE: usize>
where
    O: Operation,
    O::Answer: Answer<Async>,
    C: Classify<ValueOf<O>, ErrorOf<O>>,
    S: Sleeper,
{
    origin: G,
    operation: O,
    classify: C,
    sleeper: S,
    /// Not dropped by itself: the cell's `BOXED` bit says that it is there, and whoever drops the
    /// call looks at that alone.
    rare: ManuallyDrop<Option<RareOf<'p, O, C, S, LIVE>>>,
    output: PhantomData<fn() -> R>,
}

type EngineOf<'p, O, C, const LIVE: usize> = Engine<'p, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE>;

type RareOf<'p, O, C, S, const LIVE: usize> = Pin<
    Box<
        Retrying<
            Rare<'p, <O as Operation>::Answer, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE>,
            Infallible,
            <S as Sleeper>::Sleep,
        >,
    >,
>;

/// What a plain call does not need; the machine's timer is in the cell beside it.
struct Rare<'p, F, T, E, V, const LIVE: usize> {
    options: Options<'p>,
    engine: Option<Engine<'p, T, E, V, LIVE>>,
    /// The attempts in the slots after the first, which lives beside the ledger.
    others: Vec<Option<Pin<Box<F>>>>,
    timer_at: Ns,
    /// Whether others had a turn since the timer fired.
    looked: bool,
}

impl<'p, F, T, E, V, const LIVE: usize> Rare<'p, F, T, E, V, LIVE> {
    fn boxed<S>(options: Options<'p>) -> Pin<Box<Retrying<Self, Infallible, S>>> {
        let rare =
            Rare { options, engine: None, others: Vec::new(), timer_at: NEVER, looked: false };
        Box::pin(Retrying::new(rare, 0))
    }
}

/// It is never polled itself: the driver that owns it uses its cell for the timer.
impl<F, T, E, V, const LIVE: usize, S> Drive<Infallible, S> for Rare<'_, F, T, E, V, LIVE> {
    type Output = Infallible;
    fn poll(&mut self, _: Pin<&mut Cell<Infallible, S>>, _: &mut Context<'_>) -> Poll<Infallible> {
        Poll::Pending
    }
}

/// What a plain call sees of the process.
struct Plain<G>(G);

impl<'p, G: Origin<'p>> World for Plain<G> {
    fn draw(&mut self) -> f64 {
        draw()
    }
    #[inline(always)]
    fn take(&mut self, cost: Cost, now: Ns) -> Grant {
        self.0.take(cost, now)
    }
}

/// The cell of a call.
type CellOf<'a, O, S> = Pin<&'a mut Cell<<O as Operation>::Answer, <S as Sleeper>::Sleep>>;

impl<'p, G, O, C, S, R, const LIVE: usize> Driver<'p, G, O, C, S, R, LIVE>
where
    G: Origin<'p>,
    O: Operation,
    O::Answer: Future<Output = Result<ValueOf<O>, ErrorOf<O>>> + Answer<Async>,
    C: Classify<ValueOf<O>, ErrorOf<O>>,
    S: Sleeper,
    R: Output<ValueOf<O>>,
{
    #[inline]
    pub(crate) fn new(
        origin: G,
        operation: O,
        classify: C,
        sleeper: S,
        options: Option<Box<Options<'p>>>,
    ) -> Self {
        let rare = ManuallyDrop::new(options.map(|options| Rare::boxed(*options)));
        Driver { origin, operation, classify, sleeper, rare, output: PhantomData }
    }

    /// The bits of the cell that goes with it.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u16 {
        if self.rare.is_some() { BOXED } else { 0 }
    }

    /// Whether the ledger alone plays this call.
    fn is_plain(&self) -> bool {
        let core = &self.origin.policy().core;
        // An operation that sees its attempt is told what the one before failed with, and a plain
        // call that sleeps does not keep that.
        !O::SEES && core.is_plain() && core.remembers_nothing() && self.origin.is_flat()
    }

    /// Whether the clock is read before the first attempt.
    #[inline(always)]
    fn is_timed(&self) -> bool {
        O::SEES || R::TIMED || self.origin.policy().rules().deadline.is_some()
    }

    /// The first poll of a call without options: the operation starts.
    #[inline(always)]
    fn first(&mut self, cell: CellOf<'_, O, S>, remaining: Option<Duration>) {
        let operation = &mut self.operation;
        cell.run(|| operation.start(Attempt { number: 1, remaining, last: None }));
    }

    /// The same for a call that needs the time, and its first poll.
    #[cold]
    #[inline(never)]
    fn first_timed(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        if crate::trace::is_wanted() {
            self.make_box(cell.as_mut());
            return self.drive(cell, cx);
        }
        self.read_clock(cell.as_mut());
        let rules = self.origin.policy().rules();
        let remaining = shorter(rules.deadline, rules.attempt_timeout);
        self.first(cell.as_mut(), remaining);
        self.poll_attempt(true, cell, cx)
    }

    /// Polls the attempt of a call without a machine.
    #[inline(always)]
    fn poll_attempt(
        &mut self,
        first: bool,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        match cell.as_mut().poll_run(cx) {
            Poll::Ready(result) => match self.classify.classify(result) {
                Classified::Succeed(value) => self.succeeded(value, &cell),
                outcome => self.failed(outcome, cell, cx),
            },
            Poll::Pending if first => self.pended(cell, cx),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The moment, and with it the call's start if it was not known yet.
    #[cold]
    fn read_clock(&self, cell: CellOf<'_, O, S>) -> Ns {
        let now = self.sleeper.now();
        cell.with_ledger(|ledger| {
            if !ledger.has(TIMED) {
                ledger.start = now;
                ledger.set(TIMED);
            }
        });
        now
    }

    /// The first poll did not end the call: the machine takes over if it is needed.
    #[cold]
    #[inline(never)]
    fn pended(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        self.read_clock(cell.as_mut());
        if self.is_plain() {
            return Poll::Pending;
        }
        self.engage(cell.as_mut());
        self.drive(cell, cx)
    }

    fn make_box(&mut self, cell: CellOf<'_, O, S>) -> &mut Option<EngineOf<'p, O, C, LIVE>> {
        let rare = self.rare.insert(Rare::boxed(Options::default()));
        cell.with_ledger(|ledger| ledger.set(BOXED));
        &mut rare.as_mut().parts().0.engine
    }

    /// Makes the machine for a call whose first attempt already runs, or has just ended.
    fn engage(&mut self, mut cell: CellOf<'_, O, S>) -> &mut EngineOf<'p, O, C, LIVE> {
        let (policy, handle) = (self.origin.policy(), self.origin.handle());
        let place = self.make_box(cell.as_mut());
        let start = cell.ledger().start;
        let engine = place.insert(Engine::begin(policy, handle, Options::default(), start));
        let first = engine.call.command();
        debug_assert!(matches!(first, Some(Command::Start(_))), "the first attempt runs already");
        engine
    }

    /// An attempt of a plain call did not succeed; the next one starts, now or later.
    #[cold]
    #[inline(never)]
    fn failed(
        &mut self,
        mut outcome: OutcomeOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        if !self.is_plain() {
            let now = self.read_clock(cell.as_mut());
            self.engage(cell.as_mut()).outcome(0, outcome, now);
            return self.drive(cell, cx);
        }
        let (origin, policy) = (self.origin, self.origin.policy());
        // Only a limit on the elapsed time needs the clock before it is known that one must wait.
        let timed = policy.rules().limits.measure == Measure::Elapsed;
        loop {
            let (failure, last) = match outcome {
                Classified::Succeed(value) => return self.succeeded(value, &cell),
                Classified::Retry(failure, last) => (failure, last),
                Classified::SucceedWith(error) => {
                    origin.succeeded();
                    return self.gave_up(Why::Succeeded, Last::Error(error), cell);
                }
                Classified::Fail(last) => return self.gave_up(Why::Fatal, last, cell),
            };
            let now = if timed { self.read_clock(cell.as_mut()) } else { 0 };
            let verdict = cell.as_mut().with_ledger(|ledger| {
                let world = &mut Plain(origin);
                decide(&policy.core, ledger, &failure, Advice::None, now, NEVER, world)
            });
            match verdict {
                Verdict::Retry { after: 0, .. } => {}
                Verdict::Retry { after, .. } => ready!(self.sleep(after, cell.as_mut(), cx)),
                // A plain policy asks nobody, and its throttle answers at once.
                Verdict::Later { .. } | Verdict::Ask => {
                    return self.gave_up(Why::Throttled, last, cell);
                }
                Verdict::End(why) => return self.gave_up(why, last, cell),
            }
            outcome = ready!(self.again(cell.as_mut(), cx));
        }
    }

    /// Puts a plain call to sleep before its next attempt.
    #[inline(never)]
    fn sleep(&mut self, after: Ns, mut cell: CellOf<'_, O, S>, cx: &mut Context<'_>) -> Poll<()> {
        cell.as_mut().with_ledger(|ledger| ledger.set(HOLDS));
        let at = self.read_clock(cell.as_mut()).saturating_add(after);
        cell.as_mut().sleep(self.sleeper.sleep_until(at));
        cell.poll_sleep(cx)
    }

    /// The end of a plain call that did not get what it asked for.
    #[inline(never)]
    fn gave_up(
        &self,
        why: Why,
        last: Last<ErrorOf<O>, KeptOf<O, C>>,
        mut cell: CellOf<'_, O, S>,
    ) -> Poll<ResultOf<O, C, R>> {
        let now = self.read_clock(cell.as_mut());
        let report = report(cell.ledger(), self.origin, now, why);
        crate::trace::gave_up(report.why, report.attempts, Some(report.elapsed));
        Poll::Ready(Err(Error::new(Some(last), None, report)))
    }

    /// Starts the next attempt of a plain call and polls it once.
    #[inline(always)]
    fn again(&mut self, mut cell: CellOf<'_, O, S>, cx: &mut Context<'_>) -> Poll<OutcomeOf<O, C>> {
        let number = cell.as_mut().with_ledger(|ledger| {
            ledger.clear(HOLDS);
            ledger.attempts = ledger.attempts.saturating_add(1);
            ledger.attempts
        });
        let operation = &mut self.operation;
        cell.as_mut().run(|| operation.start(Attempt { number, remaining: None, last: None }));
        if number.is_multiple_of(IMMEDIATE_MAX) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let result = ready!(cell.poll_run(cx));
        Poll::Ready(self.classify.classify(result))
    }

    /// A plain call that sleeps.
    #[cold]
    #[inline(never)]
    fn asleep(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        assert!(cell.sleeps(), "polled after its end");
        ready!(cell.as_mut().poll_sleep(cx));
        let outcome = ready!(self.again(cell.as_mut(), cx));
        self.failed(outcome, cell, cx)
    }

    #[inline(always)]
    fn succeeded(&self, value: ValueOf<O>, cell: &CellOf<'_, O, S>) -> Poll<ResultOf<O, C, R>> {
        self.origin.succeeded();
        Poll::Ready(Ok(R::output(value, || {
            report(cell.ledger(), self.origin, self.sleeper.now(), Why::Succeeded)
        })))
    }

    /// A call with a machine, or one that is about to get it.
    #[cold]
    #[inline(never)]
    fn drive(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let Driver { origin, operation, classify, sleeper, rare: boxed, .. } = self;
        let Some(rare) = boxed.as_mut() else { unreachable!("only a call with a box is driven") };
        let (Rare { options, engine, others, timer_at, looked }, mut timer) = rare.as_mut().parts();
        let engine = engine.get_or_insert_with(|| {
            Engine::begin(origin.policy(), origin.handle(), std::mem::take(options), sleeper.now())
        });
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
                        **boxed = None;
                        cell.with_ledger(|ledger| {
                            ledger.clear(BOXED);
                            ledger.set(Ledger::ENDED);
                        });
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

/// The report of a plain call.
fn report<'p>(ledger: &Ledger, origin: impl Origin<'p>, now: Ns, why: Why) -> Report {
    let throttled = why == Why::Throttled;
    Report {
        attempts: ledger.attempts,
        attempts_max: origin.policy().rules().attempts,
        elapsed: duration(now.saturating_sub(ledger.start)),
        why,
        tokens: if throttled { origin.handle().tokens(now) } else { None },
        history: Vec::new(),
    }
}

/// The shorter of two spans, of which either may be missing.
pub(crate) fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if ns(a) <= ns(b) { a } else { b }),
        (a, b) => a.or(b),
    }
}

impl<'p, G, O, C, S, R, const LIVE: usize> Drive<O::Answer, S::Sleep>
    for Driver<'p, G, O, C, S, R, LIVE>
where
    G: Origin<'p>,
    O: Operation,
    O::Answer: Future<Output = Result<ValueOf<O>, ErrorOf<O>>> + Answer<Async>,
    C: Classify<ValueOf<O>, ErrorOf<O>>,
    S: Sleeper,
    R: Output<ValueOf<O>>,
{
    type Output = ResultOf<O, C, R>;

    #[inline(always)]
    fn poll(&mut self, mut cell: CellOf<'_, O, S>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let first = cell.is_new();
        if first {
            if self.is_timed() || crate::trace::is_wanted() {
                return self.first_timed(cell, cx);
            }
            self.first(cell.as_mut(), None);
        } else if cell.ledger().has(BOXED) {
            return self.drive(cell, cx);
        } else if !cell.runs() {
            return self.asleep(cell, cx);
        }
        self.poll_attempt(first, cell, cx)
    }

    #[inline(always)]
    fn dropped(&mut self, ledger: &Ledger) {
        *self.rare = None;
        if ledger.has(HOLDS) {
            self.origin.handle().give_back(Taken(0));
        }
    }
}
