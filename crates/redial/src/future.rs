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
use crate::cell::{self, Cell, Drive, HAS_BOX, HAS_WITHDRAWAL};
use crate::classify::{Classified, Classify, Last};
use crate::engine::draw;
use crate::error::Error;
use crate::options::Options;
use crate::policy::Origin;
use crate::report::Report;
use crate::sleeper::{Moment, Sleeper};
use boxed::{BoxOf, BoxedState};

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
    /// Not dropped by itself: the cell's `HAS_BOX` bit says that it is there, and whoever drops the
    /// call looks at that alone.
    boxed_state: ManuallyDrop<Option<BoxOf<'p, O, C, S, LIVE>>>,
    output: PhantomData<fn() -> R>,
}

/// What a plain call sees of the process.
struct PlainEnvironment<G>(G);

impl<'p, G: Origin<'p>> Environment for PlainEnvironment<G> {
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
        let boxed_state = options.map(BoxedState::with_options);
        let boxed_state = ManuallyDrop::new(boxed_state);
        Driver { origin, operation, classify, sleeper, boxed_state, output: PhantomData }
    }

    /// The bits of the cell that goes with it.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u16 {
        if self.boxed_state.is_some() { HAS_BOX } else { 0 }
    }

    /// Whether the ledger alone plays this call.
    fn is_plain(&self) -> bool {
        // An operation that sees its attempt is told what the one before failed with, and a plain
        // call that sleeps does not keep that.
        !O::READS_ATTEMPT && self.origin.policy().core.fits_ledger() && self.origin.is_fixed_cost()
    }

    /// Whether the clock is read before the first attempt, or there is a machine from the start.
    #[inline(always)]
    fn is_timed(&self) -> bool {
        O::READS_ATTEMPT
            || R::TIMED
            || self.origin.policy().rules().deadline.is_some()
            || self.origin.watches_calls()
    }

    /// The first poll of a call without options: the operation starts.
    #[inline(always)]
    fn start_first(&mut self, cell: CellOf<'_, O, S>, remaining: Option<Duration>) {
        let operation = &mut self.operation;
        cell.put_attempt(|| operation.start(Attempt { number: 1, remaining, last: None }));
    }

    /// The same for a call that needs the time, and its first poll.
    #[cold]
    #[inline(never)]
    fn start_first_timed(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        // What a deadline that has passed already leaves of a call is the machine's to say (P10).
        let expired = self.origin.policy().rules().deadline == Some(Duration::ZERO);
        if expired || crate::trace::is_wanted() || self.origin.watches_calls() {
            self.get_or_make_box(cell.as_mut(), || BoxedState::with_options(Box::default()));
            return self.poll_machine(cell, cx);
        }
        self.read_clock(cell.as_mut());
        let rules = self.origin.policy().rules();
        let remaining = min_duration(rules.deadline, rules.attempt_timeout);
        self.start_first(cell.as_mut(), remaining);
        self.poll_first_attempt(true, cell, cx)
    }

    /// Polls the attempt of a call without a machine.
    #[inline(always)]
    fn poll_first_attempt(
        &mut self,
        first: bool,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        match cell.as_mut().poll_attempt(cx) {
            Poll::Ready(result) => match self.classify.accept(result) {
                Ok(value) => Poll::Ready(self.succeed(value, &cell)),
                Err(rejected) => self.handle_failure(rejected, cell, cx),
            },
            Poll::Pending if first => self.arm_first_timer(cell, cx),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The moment, and with it the call's start if it was not known yet.
    #[cold]
    fn read_clock(&self, cell: CellOf<'_, O, S>) -> Ns {
        let now = self.sleeper.now();
        self.record_start(cell, || now);
        now
    }

    /// Enters the call's start if it was not known yet: when its timer was made, or else now.
    fn record_start(&self, cell: CellOf<'_, O, S>, now: impl FnOnce() -> Ns) {
        if !cell.counters().has(TIMED) {
            let timer_made =
                self.boxed_state.as_ref().and_then(|boxed_state| boxed_state.driver().start);
            let start = timer_made.map_or_else(now, Moment::ns);
            cell.with_counters(|counters| {
                counters.start = start;
                counters.set(TIMED);
            });
        }
    }

    /// An attempt of a call without a machine did not succeed. If the call is plain, the next one
    /// starts, now or later.
    #[cold]
    #[inline(never)]
    fn handle_failure(
        &mut self,
        mut rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        if !self.is_plain() {
            let outcome = self.classify.judge(rejected);
            let now = self.read_clock(cell.as_mut());
            self.start_machine(cell.as_mut()).engine.handle_outcome(0, outcome, now);
            return self.poll_machine(cell, cx);
        }
        let origin = self.origin;
        let policy = &origin.policy().core;
        loop {
            if !policy.is_immediate() {
                return self.handle_failure_with_backoff(rejected, cell, cx);
            }
            let verdict = self.decide_after(rejected, cell.as_mut(), |_, failure, cell| {
                let decide = |counters: &mut CallCounters| {
                    decide(
                        policy,
                        counters,
                        failure,
                        Advice::None,
                        0,
                        NEVER,
                        &mut PlainEnvironment(origin),
                    )
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
                    cell.with_counters(decide)
                }
            });
            match verdict {
                ControlFlow::Break(result) => return Poll::Ready(result),
                ControlFlow::Continue(0) => {}
                ControlFlow::Continue(after) => return self.start_sleep(after, cell, cx),
            }
            match ready!(self.start_next(cell.as_mut(), cx)) {
                Ok(value) => return Poll::Ready(self.succeed(value, &cell)),
                Err(another) => rejected = another,
            }
        }
    }

    /// The same for a plain call whose retries do not all follow at once.
    #[inline(never)]
    fn handle_failure_with_backoff(
        &mut self,
        rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        let origin = self.origin;
        let policy = &origin.policy().core;
        let verdict = self.decide_after(rejected, cell.as_mut(), |this, failure, mut cell| {
            // Most policies need no clock before it is known that one must wait.
            let now = if policy.measures_time() { this.read_clock(cell.as_mut()) } else { 0 };
            let env = &mut PlainEnvironment(origin);
            cell.with_counters(|counters| {
                decide(policy, counters, failure, Advice::None, now, NEVER, env)
            })
        });
        match verdict {
            ControlFlow::Break(result) => Poll::Ready(result),
            ControlFlow::Continue(0) => self.run_next(cell, cx),
            ControlFlow::Continue(after) => self.start_sleep(after, cell, cx),
        }
    }

    /// What follows a result that was not accepted: the end, or another attempt after this long.
    #[inline(always)]
    fn decide_after(
        &mut self,
        rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        decide: impl FnOnce(&Self, &Failure, CellOf<'_, O, S>) -> Verdict,
    ) -> ControlFlow<ResultOf<O, C, R>, Ns> {
        let (failure, last) = match self.classify.judge(rejected) {
            Classified::Succeed(value) => return ControlFlow::Break(self.succeed(value, &cell)),
            Classified::Retry(failure, last) => (failure, last),
            Classified::SucceedWith(error) => {
                self.origin.succeeded();
                return ControlFlow::Break(self.fail(
                    StopReason::Succeeded,
                    Last::Error(error),
                    cell,
                ));
            }
            Classified::Fail(last) => {
                return ControlFlow::Break(self.fail(StopReason::NotRetryable, last, cell));
            }
        };
        let stop_reason = match decide(self, &failure, cell.as_mut()) {
            Verdict::Retry { after, .. } => return ControlFlow::Continue(after),
            // A plain policy asks nobody, and its throttle answers at once.
            Verdict::Later { .. } | Verdict::Ask => StopReason::Throttled,
            Verdict::End(stop_reason) => stop_reason,
        };
        ControlFlow::Break(self.fail(stop_reason, last, cell))
    }

    /// Puts a plain call to sleep before its next attempt.
    #[inline(never)]
    fn start_sleep(
        &mut self,
        after: Ns,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        cell.as_mut().with_counters(|counters| counters.set(HAS_WITHDRAWAL));
        let at = self.read_clock(cell.as_mut()).saturating_add(after);
        cell.as_mut().put_sleep(self.sleeper.sleep_until(at));
        self.poll_sleeping(cell, cx)
    }

    /// The end of a plain call that did not get what it asked for.
    #[inline(never)]
    fn fail(
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
    fn start_next(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ValueOf<O>, RejectedOf<O, C>>> {
        let number = cell.as_mut().count_attempt();
        let operation = &mut self.operation;
        cell.as_mut()
            .put_attempt(|| operation.start(Attempt { number, remaining: None, last: None }));
        if number.is_multiple_of(IMMEDIATE_MAX) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let result = ready!(cell.poll_attempt(cx));
        Poll::Ready(self.classify.accept(result))
    }

    /// A plain call that sleeps. Where sleeps are over at once it comes back here by way of its next
    /// failure, so often as `again` lets attempts follow each other.
    #[cold]
    #[inline(never)]
    fn poll_sleeping(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        assert!(cell.has_sleep(), "polled after its end");
        ready!(cell.as_mut().poll_sleep(cx));
        // What its next attempt was paid with is used when that starts.
        cell.as_mut().with_counters(|counters| counters.clear(HAS_WITHDRAWAL));
        self.run_next(cell, cx)
    }

    /// The next attempt of a plain call, and what follows it.
    fn run_next(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        match ready!(self.start_next(cell.as_mut(), cx)) {
            Ok(value) => Poll::Ready(self.succeed(value, &cell)),
            Err(rejected) => self.handle_failure(rejected, cell, cx),
        }
    }

    #[inline(always)]
    fn succeed(&self, value: ValueOf<O>, cell: &CellOf<'_, O, S>) -> ResultOf<O, C, R> {
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
pub(crate) fn min_duration(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
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
                return self.start_first_timed(cell, cx);
            }
            self.start_first(cell.as_mut(), None);
        } else if cell.counters().has(HAS_BOX) {
            return self.poll_boxed(cell, cx);
        } else if !cell.has_attempt() {
            return self.poll_sleeping(cell, cx);
        }
        self.poll_first_attempt(first, cell, cx)
    }

    #[inline(always)]
    fn dropped(&mut self, counters: &CallCounters) {
        *self.boxed_state = None;
        if counters.has(HAS_WITHDRAWAL) {
            self.origin.handle().refund(Withdrawal(0));
        }
    }
}
