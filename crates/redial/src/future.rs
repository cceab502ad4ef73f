//! The async driver: one future for retrying and for hedging.
//!
//! Implementation details: a plain policy is played by the ledger beside the operation, with the
//! way of a success inlined and everything else in cold functions. What can meet more than failures
//! (a deadline, an attempt timeout, hedges, a strategy, a diary) needs the machine, but not before
//! something happens: until then the first attempt runs beside a timer, in a box that is made when
//! the first poll does not end the call. Nothing is spawned; dropping the future drops every
//! attempt, and what was taken for a retry that never started goes back.

mod boxed;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redial_core::throttle::Bucket;
use redial_core::{
    Advice, CallCounters, Cost, Environment, Failure, Grant, NEVER, Ns, StopReason, Verdict,
    Withdrawal, decide, duration, ns,
};

use crate::attempt::{Answer, Async, Attempt, Operation};
use crate::cell::{self, BOXED, Cell, Drive, HOLDS};
use crate::classify::{Classified, Classify, Last};
use crate::engine::draw;
use crate::error::Error;
use crate::options::Options;
use crate::policy::Origin;
use crate::report::Report;
use crate::sleeper::{Moment, Sleeper};
use boxed::{BoxOf, Rare};

/// The clock has been read: the ledger's start is true.
const TIMED: u16 = cell::FREE;

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
type RejectedOf<O, C> = <C as Classify<ValueOf<O>, ErrorOf<O>>>::Rejected;
type ResultOf<O, C, R> = Result<<R as Output<ValueOf<O>>>::Output, Error<ErrorOf<O>, KeptOf<O, C>>>;

/// The state of a call under way: what it repeats and how it judges. See [`Retrying`](crate::parts::Retrying).
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
    rare: ManuallyDrop<Option<BoxOf<'p, O, C, S, LIVE>>>,
    output: PhantomData<fn() -> R>,
}

/// What a plain call sees of the process.
struct Plain<G>(G);

impl<'p, G: Origin<'p>> Environment for Plain<G> {
    fn draw(&mut self) -> f64 {
        draw()
    }
    #[inline(always)]
    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant {
        self.0.withdraw(cost, now)
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
        let rare = options.map(Rare::told);
        let rare = ManuallyDrop::new(rare);
        Driver { origin, operation, classify, sleeper, rare, output: PhantomData }
    }

    /// The bits of the cell that goes with it.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u16 {
        if self.rare.is_some() { BOXED } else { 0 }
    }

    /// Whether the ledger alone plays this call.
    fn is_plain(&self) -> bool {
        // An operation that sees its attempt is told what the one before failed with, and a plain
        // call that sleeps does not keep that.
        !O::SEES && self.origin.policy().core.needs_only_counters() && self.origin.is_flat()
    }

    /// Whether the clock is read before the first attempt, or there is a machine from the start.
    #[inline(always)]
    fn is_timed(&self) -> bool {
        O::SEES
            || R::TIMED
            || self.origin.policy().rules().deadline.is_some()
            || self.origin.watches_calls()
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
        // What a deadline that has passed already leaves of a call is the machine's to say (P10).
        let expired = self.origin.policy().rules().deadline == Some(Duration::ZERO);
        if expired || crate::trace::is_wanted() || self.origin.watches_calls() {
            self.open_box(cell.as_mut(), || Rare::told(Box::default()));
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
            Poll::Ready(result) => match self.classify.accept(result) {
                Ok(value) => Poll::Ready(self.result(value, &cell)),
                Err(rejected) => self.failed(rejected, cell, cx),
            },
            Poll::Pending if first => self.pended(cell, cx),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The moment, and with it the call's start if it was not known yet.
    #[cold]
    fn read_clock(&self, cell: CellOf<'_, O, S>) -> Ns {
        let now = self.sleeper.now();
        self.learn_start(cell, || now);
        now
    }

    /// Enters the call's start if it was not known yet: when its timer was made, or else now.
    fn learn_start(&self, cell: CellOf<'_, O, S>, now: impl FnOnce() -> Ns) {
        if !cell.counters().has(TIMED) {
            let timer_made = self.rare.as_ref().and_then(|rare| rare.driver().start);
            let start = timer_made.map_or_else(now, Moment::ns);
            cell.with_ledger(|counters| {
                counters.start = start;
                counters.set(TIMED);
            });
        }
    }

    /// An attempt of a call without a machine did not succeed. If the call is plain, the next one
    /// starts, now or later.
    #[cold]
    #[inline(never)]
    fn failed(
        &mut self,
        mut rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        if !self.is_plain() {
            let outcome = self.classify.judge(rejected);
            let now = self.read_clock(cell.as_mut());
            self.engage(cell.as_mut()).engine.outcome(0, outcome, now);
            return self.drive(cell, cx);
        }
        let origin = self.origin;
        let policy = &origin.policy().core;
        loop {
            if !policy.is_immediate() {
                return self.deliberate(rejected, cell, cx);
            }
            let verdict = self.judge(rejected, cell.as_mut(), |_, failure, cell| {
                let decide = |counters: &mut CallCounters| {
                    decide(policy, counters, failure, Advice::None, 0, NEVER, &mut Plain(origin))
                };
                if failure.has_no_reason_or_hint() {
                    // Nothing else of the ledger matters, so that it need not be lent out.
                    let binds = CallCounters::USES_STRATEGY | CallCounters::NOT_IDEMPOTENT;
                    debug_assert_eq!(cell.counters().flags & binds, 0, "such a call has a machine");
                    decide(&mut CallCounters {
                        attempts: cell.counters().attempts,
                        ..CallCounters::new(0)
                    })
                } else {
                    cell.with_ledger(decide)
                }
            });
            match verdict {
                ControlFlow::Break(result) => return Poll::Ready(result),
                ControlFlow::Continue(0) => {}
                ControlFlow::Continue(after) => return self.sleep(after, cell, cx),
            }
            match ready!(self.again(cell.as_mut(), cx)) {
                Ok(value) => return Poll::Ready(self.result(value, &cell)),
                Err(another) => rejected = another,
            }
        }
    }

    /// The same for a plain call whose retries do not all follow at once.
    #[inline(never)]
    fn deliberate(
        &mut self,
        rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let origin = self.origin;
        let policy = &origin.policy().core;
        let verdict = self.judge(rejected, cell.as_mut(), |this, failure, mut cell| {
            // Most policies need no clock before it is known that one must wait.
            let now = if policy.uses_elapsed_time() { this.read_clock(cell.as_mut()) } else { 0 };
            let env = &mut Plain(origin);
            cell.with_ledger(|counters| {
                decide(policy, counters, failure, Advice::None, now, NEVER, env)
            })
        });
        match verdict {
            ControlFlow::Break(result) => Poll::Ready(result),
            ControlFlow::Continue(0) => self.proceed(cell, cx),
            ControlFlow::Continue(after) => self.sleep(after, cell, cx),
        }
    }

    /// What follows a result that was not accepted: the end, or another attempt after this long.
    #[inline(always)]
    fn judge(
        &mut self,
        rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        decide: impl FnOnce(&Self, &Failure, CellOf<'_, O, S>) -> Verdict,
    ) -> ControlFlow<ResultOf<O, C, R>, Ns> {
        let (failure, last) = match self.classify.judge(rejected) {
            Classified::Succeed(value) => return ControlFlow::Break(self.result(value, &cell)),
            Classified::Retry(failure, last) => (failure, last),
            Classified::SucceedWith(error) => {
                self.origin.succeeded();
                return ControlFlow::Break(self.gave_up(
                    StopReason::Succeeded,
                    Last::Error(error),
                    cell,
                ));
            }
            Classified::Fail(last) => {
                return ControlFlow::Break(self.gave_up(StopReason::NotRetryable, last, cell));
            }
        };
        let stop_reason = match decide(self, &failure, cell.as_mut()) {
            Verdict::Retry { after, .. } => return ControlFlow::Continue(after),
            // A plain policy asks nobody, and its throttle answers at once.
            Verdict::Later { .. } | Verdict::Ask => StopReason::Throttled,
            Verdict::End(stop_reason) => stop_reason,
        };
        ControlFlow::Break(self.gave_up(stop_reason, last, cell))
    }

    /// Puts a plain call to sleep before its next attempt.
    #[inline(never)]
    fn sleep(
        &mut self,
        after: Ns,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        cell.as_mut().with_ledger(|counters| counters.set(HOLDS));
        let at = self.read_clock(cell.as_mut()).saturating_add(after);
        cell.as_mut().sleep(self.sleeper.sleep_until(at));
        self.asleep(cell, cx)
    }

    /// The end of a plain call that did not get what it asked for.
    #[inline(never)]
    fn gave_up(
        &self,
        stop_reason: StopReason,
        last: Last<ErrorOf<O>, KeptOf<O, C>>,
        mut cell: CellOf<'_, O, S>,
    ) -> ResultOf<O, C, R> {
        let now = self.read_clock(cell.as_mut());
        let report = report(cell.counters(), self.origin, now, stop_reason);
        crate::trace::gave_up(report.stop_reason, report.attempts, Some(report.elapsed), None);
        Err(Error::new(Some(last), None, report))
    }

    /// Starts the next attempt of a plain call and polls it once.
    #[inline(always)]
    fn again(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ValueOf<O>, RejectedOf<O, C>>> {
        let number = cell.as_mut().count();
        let operation = &mut self.operation;
        cell.as_mut().run(|| operation.start(Attempt { number, remaining: None, last: None }));
        if number.is_multiple_of(IMMEDIATE_MAX) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let result = ready!(cell.poll_run(cx));
        Poll::Ready(self.classify.accept(result))
    }

    /// A plain call that sleeps. Where sleeps are over at once it comes back here by way of its next
    /// failure, so often as `again` lets attempts follow each other.
    #[cold]
    #[inline(never)]
    fn asleep(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        assert!(cell.sleeps(), "polled after its end");
        ready!(cell.as_mut().poll_sleep(cx));
        // What its next attempt was paid with is used when that starts.
        cell.as_mut().with_ledger(|counters| counters.clear(HOLDS));
        self.proceed(cell, cx)
    }

    /// The next attempt of a plain call, and what follows it.
    fn proceed(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        match ready!(self.again(cell.as_mut(), cx)) {
            Ok(value) => Poll::Ready(self.result(value, &cell)),
            Err(rejected) => self.failed(rejected, cell, cx),
        }
    }

    #[inline(always)]
    fn result(&self, value: ValueOf<O>, cell: &CellOf<'_, O, S>) -> ResultOf<O, C, R> {
        self.origin.succeeded();
        Ok(R::output(value, || {
            report(cell.counters(), self.origin, self.sleeper.now(), StopReason::Succeeded)
        }))
    }
}

/// The report of a call without a machine.
fn report<'p>(
    counters: &CallCounters,
    origin: impl Origin<'p>,
    now: Ns,
    stop_reason: StopReason,
) -> Report {
    let throttled = stop_reason == StopReason::Throttled;
    Report {
        attempts: counters.attempts,
        attempts_max: origin.policy().rules().attempts,
        elapsed: duration(now.saturating_sub(counters.start)),
        stop_reason,
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
        } else if cell.counters().has(BOXED) {
            return self.boxed(cell, cx);
        } else if !cell.runs() {
            return self.asleep(cell, cx);
        }
        self.poll_attempt(first, cell, cx)
    }

    #[inline(always)]
    fn dropped(&mut self, counters: &CallCounters) {
        *self.rare = None;
        if counters.has(HOLDS) {
            self.origin.handle().refund(Withdrawal(0));
        }
    }
}
