//! The async driver: the future of a call, for retries and for hedging.
//!
//! What is compiled for each call site starts the operation, polls it and classifies its result. The fast
//! path of a success at the first poll is inlined; the rest of the call is in `plain` (counters) and in
//! `driver` (the state machine), which call sites share.
//!
//! Nothing is spawned. Dropping the future drops every attempt and refunds a retry that has not
//! started.

use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use redial_core::{CallStep, Directive, Ns, Start, StopReason};

use crate::attempt::{Attempt, Operation};
use crate::classify::Classify;
use crate::driver::{Attempts, CallDriver, STARTS_PER_POLL_MAX, Timer};
use crate::engine::Engine;
use crate::error::{BoxError, Error};
use crate::options::Options;
use crate::plain::{Next, PlainCall, SleepUntil, UNKNOWN};
use crate::policy::Origin;
use crate::report::Report;
use crate::sleeper::Sleeper;

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

/// The result of a call.
pub(crate) type CallResult<T, E, C, R> =
    Result<<R as Output<T>>::Output, Error<E, <C as Classify<T, E>>::Kept>>;

pin_project! {
    /// The future of a call.
    ///
    /// `A` is the future of one attempt, with the result `Result<T, E>`.
    #[must_use = "futures do nothing unless polled"]
    #[project = RetryingParts]
    pub struct Retrying<'p, C, G, O, A, T, E, S, R>
    where
        S: Sleeper,
    {
        phase: Phase<'p, A, T, E, S>,
        // The first attempt and, of a call without hedging, every later one.
        #[pin]
        attempt: Option<A>,
        origin: G,
        operation: O,
        classify: C,
        sleeper: S,
        output: PhantomData<fn() -> R>,
    }
}

enum Phase<'p, A, T, E, S: Sleeper> {
    /// The future has not been polled.
    NotStarted(Option<Box<Options<'p>>>),
    /// Without the state machine.
    Plain(PlainCall<S>),
    /// With the state machine.
    Machine(Pin<Box<MachineCall<'p, A, T, E, S>>>),
    /// The call has ended, or user code panicked: the future can only be dropped.
    Done,
}

pin_project! {
    #[project = MachineParts]
    struct MachineCall<'p, A, T, E, S>
    where
        S: Sleeper,
    {
        engine: Engine<'p>,
        // The last result of an attempt.
        last: Option<Result<T, E>>,
        // The attempts in the slots after the first.
        hedges: Vec<Option<Pin<Box<A>>>>,
        #[pin]
        timer: SleepUntil<S>,
    }
}

impl<'p, A, T, E, S: Sleeper> MachineCall<'p, A, T, E, S> {
    fn new(engine: Engine<'p>, last: Option<Result<T, E>>) -> Pin<Box<Self>> {
        let (hedges, timer) = (Vec::new(), SleepUntil::unarmed());
        Box::pin(MachineCall { engine, last, hedges, timer })
    }
}

impl<'p, C, G, O, A, T, E, S: Sleeper, R> Retrying<'p, C, G, O, A, T, E, S, R> {
    #[inline]
    pub(crate) fn new(
        origin: G,
        operation: O,
        classify: C,
        sleeper: S,
        options: Option<Box<Options<'p>>>,
    ) -> Self {
        let phase = Phase::NotStarted(options);
        let (attempt, output) = (None, PhantomData);
        Retrying { phase, attempt, origin, operation, classify, sleeper, output }
    }
}

impl<C, G, O, A, T, E, S: Sleeper, R> std::fmt::Debug for Retrying<'_, C, G, O, A, T, E, S, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retrying").finish_non_exhaustive()
    }
}

impl<'p, C, G, O, A, T, E, S, R> Future for Retrying<'p, C, G, O, A, T, E, S, R>
where
    G: Origin<'p>,
    O: Operation<Answer = A>,
    A: Future<Output = Result<T, E>>,
    C: Classify<T, E>,
    S: Sleeper,
    R: Output<T>,
{
    type Output = CallResult<T, E, C, R>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // If user code panics, the phase stays `Done`.
        let plain = match mem::replace(this.phase, Phase::Done) {
            Phase::NotStarted(None) if !this.needs_clock() => {
                let attempt = this.operation.start(Attempt::first(None));
                this.attempt.set(Some(attempt));
                PlainCall::Immediate { attempts: 1, start: UNKNOWN }
            }
            phase => return this.poll_slow(phase, cx),
        };
        let Some(attempt) = this.attempt.as_mut().as_pin_mut() else {
            return this.poll_slow(Phase::Plain(plain), cx);
        };
        let Poll::Ready(result) = attempt.poll(cx) else { return this.pending(plain, cx) };
        this.attempt.set(None);
        match (this.classify.directive(&result), result) {
            (Directive::Succeed, Ok(value)) => {
                this.origin.succeeded();
                Poll::Ready(Ok(R::output(value, || this.report(plain, StopReason::Succeeded))))
            }
            (directive, result) => this.run_plain(plain, Some((directive, result)), cx),
        }
    }
}

impl<'p, C, G, O, A, T, E, S, R> RetryingParts<'_, 'p, C, G, O, A, T, E, S, R>
where
    G: Origin<'p>,
    O: Operation<Answer = A>,
    A: Future<Output = Result<T, E>>,
    C: Classify<T, E>,
    S: Sleeper,
    R: Output<T>,
{
    /// Whether the clock is read before the first attempt, or the state machine starts with the call.
    #[inline(always)]
    fn needs_clock(&self) -> bool {
        self.is_elapsed_exact() || crate::trace::is_enabled()
    }

    /// Whether the elapsed time counts from the first poll.
    #[inline(always)]
    fn is_elapsed_exact(&self) -> bool {
        O::READS_ATTEMPT || R::TIMED || self.origin.policy().needs_clock()
    }

    /// Polls a call that has left the fast path.
    #[cold]
    #[inline(never)]
    fn poll_slow(
        self,
        phase: Phase<'p, A, T, E, S>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<T, E, C, R>> {
        match phase {
            Phase::NotStarted(options) => self.start(options, cx),
            Phase::Plain(plain) => self.run_plain(plain, None, cx),
            Phase::Machine(machine) => self.run_machine(machine, cx),
            Phase::Done => panic!("polled after completion"),
        }
    }

    /// Starts a call that needs the clock or the state machine from its start.
    fn start(
        mut self,
        options: Option<Box<Options<'p>>>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<T, E, C, R>> {
        let policy = self.origin.policy();
        let start = self.sleeper.now();
        if options.is_some() || policy.needs_machine() || crate::trace::is_enabled() {
            let options = options.map_or_else(Options::default, |options| *options);
            let engine = Engine::begin(policy, self.origin.handle(), options, start);
            return self.run_machine(MachineCall::new(engine, None), cx);
        }
        let attempt = self.operation.start(Attempt::first(policy.first_attempt_timeout()));
        self.attempt.set(Some(attempt));
        self.run_plain(PlainCall::Immediate { attempts: 1, start }, None, cx)
    }

    /// Waits for the running attempt of a call without its state machine.
    #[cold]
    #[inline(never)]
    fn pending(
        self,
        mut plain: PlainCall<S>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<T, E, C, R>> {
        let policy = self.origin.policy();
        if plain.poll_first_timer(&policy.core, self.sleeper, cx).is_pending() {
            *self.phase = Phase::Plain(plain);
            return Poll::Pending;
        }
        let mut engine =
            Engine::begin_late(policy, self.origin.handle(), plain.start(self.sleeper));
        engine.elapsed_exact = self.is_elapsed_exact();
        // An outcome of the moment at which a timer fires comes first (P4), so other tasks get a turn.
        let fired = matches!(plain, PlainCall::Timed(_));
        engine.yielded = fired;
        let machine = MachineCall::new(engine, None);
        if !fired {
            return self.run_machine(machine, cx);
        }
        *self.phase = Phase::Machine(machine);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Runs a call without its state machine; `outcome` is the result of an attempt, if there is one.
    #[cold]
    #[inline(never)]
    fn run_plain(
        mut self,
        mut plain: PlainCall<S>,
        mut outcome: Option<(Directive, Result<T, E>)>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<T, E, C, R>> {
        let policy = self.origin.policy();
        let mut starts = 0;
        loop {
            if starts == STARTS_PER_POLL_MAX {
                *self.phase = Phase::Plain(plain);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let (directive, result) = match (outcome.take(), self.attempt.as_mut().as_pin_mut()) {
                (Some(outcome), _) => outcome,
                (None, Some(attempt)) => {
                    let Poll::Ready(result) = attempt.poll(cx) else {
                        return self.pending(plain, cx);
                    };
                    self.attempt.set(None);
                    (self.classify.directive(&result), result)
                }
                (None, None) => {
                    let Poll::Ready(number) = plain.poll_next_attempt(self.sleeper, cx) else {
                        *self.phase = Phase::Plain(plain);
                        return Poll::Pending;
                    };
                    self.start_attempt(number, &mut starts);
                    continue;
                }
            };
            let stop_reason = match directive {
                Directive::Succeed => {
                    self.origin.succeeded();
                    StopReason::Succeeded
                }
                Directive::Fail => StopReason::NotRetryable,
                Directive::Retry(failure) => {
                    if O::READS_ATTEMPT || !policy.needs_only_counters() {
                        let start = plain.start(self.sleeper);
                        let mut engine = Engine::begin_late(policy, self.origin.handle(), start);
                        engine.elapsed_exact = self.is_elapsed_exact();
                        engine.handle_outcome(0, directive, self.sleeper.now());
                        return self.run_machine(MachineCall::new(engine, Some(result)), cx);
                    }
                    match plain.after_failure(*self.origin, &failure, self.sleeper) {
                        Next::Start(number) => {
                            self.start_attempt(number, &mut starts);
                            continue;
                        }
                        Next::Wait => continue,
                        Next::End(stop_reason) => stop_reason,
                    }
                }
            };
            return Poll::Ready(finish::<T, E, C, R>(Some(result), stop_reason, None, || {
                self.report(plain, stop_reason)
            }));
        }
    }

    #[inline(always)]
    fn start_attempt(&mut self, number: u32, starts: &mut u32) {
        *starts += 1;
        let attempt = self.operation.start(Attempt { number, remaining: None, last: None });
        self.attempt.set(Some(attempt));
    }

    /// Runs a call with its state machine.
    #[cold]
    #[inline(never)]
    fn run_machine(
        mut self,
        mut machine: Pin<Box<MachineCall<'p, A, T, E, S>>>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<T, E, C, R>> {
        for _ in 0..STARTS_PER_POLL_MAX {
            let MachineParts { engine, last, hedges, timer } = machine.as_mut().project();
            let attempts = &mut FutureAttempts {
                first: self.attempt.as_mut(),
                hedges,
                classify: self.classify,
                last,
            };
            let timer = &mut AsyncTimer { sleeper: self.sleeper, timer };
            match (CallDriver { engine, attempts, timer }).poll_step(cx) {
                Poll::Pending => {
                    *self.phase = Phase::Machine(machine);
                    return Poll::Pending;
                }
                Poll::Ready(CallStep::Start(start)) => {
                    let now = if O::READS_ATTEMPT { self.sleeper.now() } else { 0 };
                    let attempt = self.operation.start(engine.attempt(start, now));
                    put_attempt(start, attempt, self.attempt.as_mut(), hedges);
                }
                Poll::Ready(CallStep::End(end)) => {
                    let last = last.take();
                    let (report, strategy_error) = engine.report(end);
                    drop(machine);
                    let stop_reason = end.stop_reason;
                    return Poll::Ready(finish::<T, E, C, R>(
                        last,
                        stop_reason,
                        strategy_error,
                        || report,
                    ));
                }
            }
        }
        *self.phase = Phase::Machine(machine);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The report of a call without its state machine.
    fn report(&self, mut plain: PlainCall<S>, stop_reason: StopReason) -> Report {
        let (policy, handle) = (self.origin.policy(), self.origin.handle());
        plain.report(policy, &handle, self.sleeper, stop_reason, self.is_elapsed_exact())
    }
}

fn put_attempt<A>(
    start: Start,
    attempt: A,
    mut first: Pin<&mut Option<A>>,
    hedges: &mut Vec<Option<Pin<Box<A>>>>,
) {
    if start.slot == 0 {
        first.set(Some(attempt));
        return;
    }
    if hedges.len() < start.slot {
        hedges.resize_with(start.slot, || None);
    }
    hedges[start.slot - 1] = Some(Box::pin(attempt));
}

/// The result of a call from the last result of an attempt.
pub(crate) fn finish<T, E, C, R>(
    last: Option<Result<T, E>>,
    stop_reason: StopReason,
    strategy_error: Option<BoxError>,
    report: impl FnOnce() -> Report,
) -> CallResult<T, E, C, R>
where
    C: Classify<T, E>,
    R: Output<T>,
{
    match last {
        Some(Ok(value)) if stop_reason == StopReason::Succeeded => Ok(R::output(value, report)),
        last => Err(Error::new(last.and_then(C::keep), strategy_error, report())),
    }
}

/// The attempts of one call of the async driver.
struct FutureAttempts<'a, A, C, T, E> {
    first: Pin<&'a mut Option<A>>,
    hedges: &'a mut Vec<Option<Pin<Box<A>>>>,
    classify: &'a mut C,
    last: &'a mut Option<Result<T, E>>,
}

impl<A, C, T, E> Attempts for FutureAttempts<'_, A, C, T, E>
where
    A: Future<Output = Result<T, E>>,
    C: Classify<T, E>,
{
    fn poll(&mut self, slot: usize, cx: &mut Context<'_>) -> Poll<Directive> {
        let attempt = match slot {
            0 => self.first.as_mut().as_pin_mut(),
            _ => self.hedges.get_mut(slot - 1).and_then(Option::as_mut).map(Pin::as_mut),
        };
        let Some(Poll::Ready(result)) = attempt.map(|attempt| attempt.poll(cx)) else {
            return Poll::Pending;
        };
        self.cancel(slot);
        let directive = self.classify.directive(&result);
        *self.last = Some(result);
        Poll::Ready(directive)
    }

    fn cancel(&mut self, slot: usize) {
        match slot {
            0 => self.first.set(None),
            _ => self.hedges[slot - 1] = None,
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
