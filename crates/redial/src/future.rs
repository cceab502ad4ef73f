//! The async driver: one future for retrying and for hedging.
//!
//! Implementation details: a plain policy is played by the ledger beside the operation, with the
//! way of a success inlined and everything else in cold functions. What needs the machine (a
//! deadline, an attempt timeout, hedges, a strategy, a diary) gets it in a box, which is made when
//! the first poll does not end the call. Nothing is spawned; dropping the future drops every
//! attempt, and what was taken for a retry that never started goes back.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, Backoff, Command, Cost, Grant, Jitter, Ledger, NEVER, Ns, Taken, Verdict, Why, World,
    decide, duration, ns,
};

use crate::attempt::{Answer, Async, Attempt, Operation};
use crate::cell::{self, Cell, Drive, Retrying};
use crate::classify::{Classified, Classify, Last};
use crate::engine::{Engine, Options, draw};
use crate::error::Error;
use crate::policy::Policy;
use crate::report::Report;
use crate::sleeper::Sleeper;
use crate::throttle::Handle;

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
pub struct Driver<'p, O, C, S, R, const LIVE: usize>
where
    O: Operation,
    O::Answer: Answer<Async>,
    C: Classify<ValueOf<O>, ErrorOf<O>>,
    S: Sleeper,
{
    policy: &'p Policy,
    operation: O,
    classify: C,
    sleeper: S,
    rare: Option<RareOf<'p, O, C, S, LIVE>>,
    output: PhantomData<fn() -> R>,
}

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
        Box::pin(Retrying::new(rare))
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
struct Plain<'a>(&'a Handle);

impl World for Plain<'_> {
    fn draw(&mut self) -> f64 {
        draw()
    }
    fn take(&mut self, cost: Cost, now: Ns) -> Grant {
        self.0.take(cost, now)
    }
}

/// The cell of a call.
type CellOf<'a, O, S> = Pin<&'a mut Cell<<O as Operation>::Answer, <S as Sleeper>::Sleep>>;

impl<'p, O, C, S, R, const LIVE: usize> Driver<'p, O, C, S, R, LIVE>
where
    O: Operation,
    O::Answer: Future<Output = Result<ValueOf<O>, ErrorOf<O>>> + Answer<Async>,
    C: Classify<ValueOf<O>, ErrorOf<O>>,
    S: Sleeper,
    R: Output<ValueOf<O>>,
{
    #[inline]
    pub(crate) fn new(
        policy: &'p Policy,
        operation: O,
        classify: C,
        sleeper: S,
        options: Option<Box<Options<'p>>>,
    ) -> Self {
        let rare = match options {
            Some(options) => Some(Rare::boxed(*options)),
            None => None,
        };
        Driver { policy, operation, classify, sleeper, rare, output: PhantomData }
    }

    /// Whether the ledger alone plays this call.
    fn is_plain(&self) -> bool {
        let rules = self.policy.rules();
        // An operation that sees its attempt is told what the one before failed with, and a plain
        // call that sleeps does not keep that.
        !O::SEES
            && self.policy.is_plain()
            && rules.jitter != Jitter::Decorrelated
            && rules.backoff != Backoff::Own
    }

    /// The first poll of a call without options: the operation starts.
    #[inline]
    fn first(&mut self, mut cell: CellOf<'_, O, S>) {
        let rules = self.policy.rules();
        let timed = O::SEES || R::TIMED || rules.deadline.is_some();
        let start = if timed { self.sleeper.now() } else { 0 };
        let remaining = if O::SEES { shorter(rules.deadline, rules.attempt_timeout) } else { None };
        let attempt = self.operation.start(Attempt { number: 1, remaining, last: None });
        cell.as_mut().run(attempt);
        cell.with_ledger(|ledger| {
            ledger.attempts = 1;
            if timed {
                ledger.start = start;
                ledger.set(TIMED);
            }
        });
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
        self.engage(cell.ledger().start);
        self.drive(cell, cx)
    }

    /// Makes the machine for a call whose first attempt already runs, or has just ended.
    fn engage(&mut self, start: Ns) -> &mut Engine<'p, ValueOf<O>, ErrorOf<O>, KeptOf<O, C>, LIVE> {
        let rare = self.rare.get_or_insert_with(|| Rare::boxed(Options::default()));
        let (rare, _) = rare.as_mut().parts();
        let engine = rare.engine.insert(Engine::begin(self.policy, Options::default(), start));
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
        loop {
            let now = self.read_clock(cell.as_mut());
            if !self.is_plain() {
                self.engage(cell.ledger().start).outcome(0, outcome, now);
                return self.drive(cell, cx);
            }
            let policy = self.policy;
            let (why, last) = match outcome {
                Classified::Succeed(value) => return self.succeeded(value, &cell),
                Classified::SucceedWith(error) => {
                    policy.handle.succeeded(None);
                    (Why::Succeeded, Last::Error(error))
                }
                Classified::Fail(last) => (Why::Fatal, last),
                Classified::Retry(failure, last) => {
                    let verdict = cell.as_mut().with_ledger(|ledger| {
                        let world = &mut Plain(&policy.handle);
                        decide(&policy.core, ledger, &failure, Advice::None, now, NEVER, world)
                    });
                    match verdict {
                        Verdict::Retry { after: 0, .. } => {
                            outcome = ready!(self.again(cell.as_mut(), cx));
                            continue;
                        }
                        Verdict::Retry { after, .. } => {
                            let at = now.saturating_add(after);
                            cell.as_mut().sleep(self.sleeper.sleep_until(at));
                            cell.as_mut().with_ledger(|ledger| ledger.set(HOLDS));
                            ready!(cell.as_mut().poll_sleep(cx));
                            outcome = ready!(self.again(cell.as_mut(), cx));
                            continue;
                        }
                        // A plain policy asks nobody, and its throttle answers at once.
                        Verdict::Later { .. } | Verdict::Ask => (Why::Throttled, last),
                        Verdict::End(why) => (why, last),
                    }
                }
            };
            let report = report(cell.ledger(), policy, now, why);
            return Poll::Ready(Err(Error::new(Some(last), None, report)));
        }
    }

    /// Starts the next attempt of a plain call and polls it once.
    fn again(&mut self, mut cell: CellOf<'_, O, S>, cx: &mut Context<'_>) -> Poll<OutcomeOf<O, C>> {
        let number = cell.as_mut().with_ledger(|ledger| {
            ledger.clear(HOLDS);
            ledger.attempts = ledger.attempts.saturating_add(1);
            ledger.attempts
        });
        let attempt = self.operation.start(Attempt { number, remaining: None, last: None });
        cell.as_mut().run(attempt);
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

    #[inline]
    fn succeeded(&self, value: ValueOf<O>, cell: &CellOf<'_, O, S>) -> Poll<ResultOf<O, C, R>> {
        self.policy.handle.succeeded(None);
        Poll::Ready(Ok(R::output(value, || {
            report(cell.ledger(), self.policy, self.sleeper.now(), Why::Succeeded)
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
        let Driver { policy, operation, classify, sleeper, rare: boxed, .. } = self;
        let Some(rare) = boxed.as_mut() else { unreachable!("only a call with a box is driven") };
        let (Rare { options, engine, others, timer_at, looked }, mut timer) = rare.as_mut().parts();
        let engine = engine
            .get_or_insert_with(|| Engine::begin(policy, std::mem::take(options), sleeper.now()));
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
                            cell.as_mut().run(attempt);
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
                        let result = engine.result(end, sleeper.now());
                        *boxed = None;
                        // A later poll finds neither a box nor a first attempt to make.
                        cell.with_ledger(|ledger| ledger.attempts = ledger.attempts.max(1));
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
            for slot in 0..=others.len() {
                if !engine.call.is_running(slot) {
                    continue;
                }
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
fn report(ledger: &Ledger, policy: &Policy, now: Ns, why: Why) -> Report {
    let throttled = why == Why::Throttled;
    Report {
        attempts: ledger.attempts,
        attempts_max: policy.rules().attempts,
        elapsed: duration(now.saturating_sub(ledger.start)),
        why,
        tokens: if throttled { policy.handle.tokens(now) } else { None },
        history: Vec::new(),
    }
}

/// The shorter of two spans, of which either may be missing.
fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if ns(a) <= ns(b) { a } else { b }),
        (a, b) => a.or(b),
    }
}

impl<O, C, S, R, const LIVE: usize> Drive<O::Answer, S::Sleep> for Driver<'_, O, C, S, R, LIVE>
where
    O: Operation,
    O::Answer: Future<Output = Result<ValueOf<O>, ErrorOf<O>>> + Answer<Async>,
    C: Classify<ValueOf<O>, ErrorOf<O>>,
    S: Sleeper,
    R: Output<ValueOf<O>>,
{
    type Output = ResultOf<O, C, R>;

    #[inline]
    fn poll(&mut self, mut cell: CellOf<'_, O, S>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.rare.is_some() {
            return self.drive(cell, cx);
        }
        let first = cell.ledger().attempts == 0;
        if first {
            if crate::trace::is_wanted() {
                self.rare = Some(Rare::boxed(Options::default()));
                return self.drive(cell, cx);
            }
            self.first(cell.as_mut());
        } else if !cell.runs() {
            return self.asleep(cell, cx);
        }
        match cell.as_mut().poll_run(cx) {
            Poll::Ready(result) => match self.classify.classify(result) {
                Classified::Succeed(value) => self.succeeded(value, &cell),
                outcome => self.failed(outcome, cell, cx),
            },
            Poll::Pending if first => self.pended(cell, cx),
            Poll::Pending => Poll::Pending,
        }
    }

    #[inline]
    fn dropped(&mut self, ledger: &Ledger) {
        if ledger.has(HOLDS) {
            self.policy.handle.give_back(Taken(0));
        }
    }
}
