//! The async driver: one future for retries and for hedging.
//!
//! A plain call (no deadline, attempt timeout, hedging, strategy or call log) needs only its counters,
//! which are stored beside the operation. The fast path of a success is inlined; all else is in cold
//! functions. Every other call needs the state machine, but not before a timer fires or an attempt
//! fails: until then the first attempt runs beside a timer, in a box that is made when the first poll
//! is pending.
//!
//! Nothing is spawned. Dropping the future drops every attempt and refunds a retry that has not
//! started.

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

/// The clock has been read: `start` of the counters is valid.
const TIMED: u16 = cell::FREE;

/// The number of immediate retries before the future yields to other tasks.
pub(crate) const IMMEDIATE_MAX: u32 = 32;

/// The output of a successful call: the value, alone or with its report.
pub trait Output<T> {
    /// The output type.
    type Output;
    /// Whether the output has the elapsed time, for which the clock is read at the start.
    const TIMED: bool;

    /// Makes the output.
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

/// The driver of a running call. See [`Retrying`](crate::parts::Retrying).
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
    /// Not dropped automatically: the destructor of the call checks only the cell's `HAS_BOX` bit.
    boxed_state: ManuallyDrop<Option<BoxOf<'p, O, C, S, LIVE>>>,
    output: PhantomData<fn() -> R>,
}

/// The environment of a plain call.
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

/// The pinned cell of a call.
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

    /// The initial bits of the cell.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u16 {
        if self.boxed_state.is_some() { HAS_BOX } else { 0 }
    }

    /// Whether the counters are enough for this call, without the state machine.
    fn is_plain(&self) -> bool {
        // An operation that reads its attempt needs the failure before it, which a plain call does
        // not keep during a sleep.
        !O::READS_ATTEMPT
            && self.origin.policy().core.needs_only_counters()
            && self.origin.is_fixed_cost()
    }

    /// Whether the clock is read before the first attempt, or the state machine starts with the call.
    #[inline(always)]
    fn is_timed(&self) -> bool {
        O::READS_ATTEMPT
            || R::TIMED
            || self.origin.policy().rules().deadline.is_some()
            || self.origin.watches_calls()
    }

    /// Starts the first attempt of a call without options.
    #[inline(always)]
    fn start_first(&mut self, cell: CellOf<'_, O, S>, remaining: Option<Duration>) {
        let operation = &mut self.operation;
        cell.put_attempt(|| operation.start(Attempt { number: 1, remaining, last: None }));
    }

    /// Starts and polls the first attempt of a call that needs the time.
    #[cold]
    #[inline(never)]
    fn start_first_timed(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        // The state machine decides whether an expired deadline allows an attempt (P10).
        let expired = self.origin.policy().rules().deadline == Some(Duration::ZERO);
        if expired || crate::trace::is_enabled() || self.origin.watches_calls() {
            self.get_or_make_box(cell.as_mut(), || BoxedState::with_options(Box::default()));
            return self.poll_machine(cell, cx);
        }
        self.read_clock(cell.as_mut());
        let rules = self.origin.policy().rules();
        let remaining = min_duration(rules.deadline, rules.attempt_timeout);
        self.start_first(cell.as_mut(), remaining);
        self.poll_first_attempt(true, cell, cx)
    }

    /// Polls the attempt of a call without the state machine.
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

    /// Reads the clock, and records the start of the call if it is unknown.
    #[cold]
    fn read_clock(&self, cell: CellOf<'_, O, S>) -> Ns {
        let now = self.sleeper.now();
        self.record_start(cell, || now);
        now
    }

    /// Records the start of the call if it is unknown: the time when its timer was made, or now.
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

    /// Handles a failed attempt of a call without the state machine. A plain call starts its next
    /// attempt, now or after a sleep; another call starts its state machine.
    #[cold]
    #[inline(never)]
    fn handle_failure(
        &mut self,
        mut rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        if !self.is_plain() {
            let outcome = self.classify.classify_rejected(rejected);
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
                    // Only the number of attempts matters, so a copy is enough.
                    let binds = CallCounters::USES_STRATEGY | CallCounters::NOT_IDEMPOTENT;
                    debug_assert_eq!(
                        cell.counters().flags & binds,
                        0,
                        "such a call has a state machine"
                    );
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

    /// Handles a failed attempt of a plain call with a backoff.
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
            // Most policies need the clock only if there is a delay.
            let now = if policy.uses_elapsed_time() { this.read_clock(cell.as_mut()) } else { 0 };
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

    /// Classifies a rejected result: breaks with the end of the call, or continues with the delay before
    /// the next attempt.
    #[inline(always)]
    fn decide_after(
        &mut self,
        rejected: RejectedOf<O, C>,
        mut cell: CellOf<'_, O, S>,
        decide: impl FnOnce(&Self, &Failure, CellOf<'_, O, S>) -> Verdict,
    ) -> ControlFlow<ResultOf<O, C, R>, Ns> {
        let (failure, last) = match self.classify.classify_rejected(rejected) {
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
            // A plain policy has no strategy, and its throttle answers at once.
            Verdict::Later { .. } | Verdict::Ask => StopReason::Throttled,
            Verdict::End(stop_reason) => stop_reason,
        };
        ControlFlow::Break(self.fail(stop_reason, last, cell))
    }

    /// Starts the sleep of a plain call before its next attempt.
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

    /// The error of a plain call.
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

    /// Polls a plain call that sleeps. If sleeps are over at once, the next failure comes back here;
    /// `start_next` limits how often.
    #[cold]
    #[inline(never)]
    fn poll_sleeping(
        &mut self,
        mut cell: CellOf<'_, O, S>,
        cx: &mut Context<'_>,
    ) -> Poll<ResultOf<O, C, R>> {
        assert!(cell.has_sleep(), "polled after completion");
        ready!(cell.as_mut().poll_sleep(cx));
        // The withdrawal is used when the next attempt starts.
        cell.as_mut().with_counters(|counters| counters.clear(HAS_WITHDRAWAL));
        self.run_next(cell, cx)
    }

    /// Starts the next attempt of a plain call and handles its result.
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

/// The report of a call without the state machine.
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

/// The shorter of two durations, each of which may be absent.
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
            if self.is_timed() || crate::trace::is_enabled() {
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
