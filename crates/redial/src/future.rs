//! The async driver: the future of a call, for retries and for hedging.
//!
//! What is compiled for each call site starts the operation, polls it and classifies its result. The fast
//! path of a success at the first poll is inlined; the rest of the call is in `plain` (counters) and in
//! `driver` (the state machine), which call sites share.
//!
//! Nothing is spawned. Dropping the future drops every attempt and refunds a retry that has not
//! started.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use redial_core::{Ns, StopReason};

use crate::attempt::Operation;
use crate::call_phase::{CallPhase, PhaseCell};
use crate::classify::Classify;
use crate::driver::{CallTraits, Input, PollContext, Step, error_text};
use crate::error::{Details, Error};
use crate::options::Options;
use crate::plain_call::{PlainCall, UNKNOWN};
use crate::policy::{Origin, OriginKind};
use crate::report::Report;
use crate::sleeper::Sleeper;

/// The output of a successful call: the value, alone or with its report.
pub trait Output<T> {
    /// The output type.
    type Output;
    /// Whether the output has the elapsed time, for which the clock is read at the start.
    const TIMED: bool;
    /// Whether the output takes the report. If not, a success has no code for it.
    #[doc(hidden)]
    const REPORTS: bool = true;

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
    const REPORTS: bool = false;
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
    pub struct Retrying<'p, C, G, O, A, T, E, S, R>
    where
        G: OriginKind,
        S: Sleeper,
    {
        // The first attempt and, of a call without hedging, every later one.
        #[pin]
        attempt: Option<A>,
        call: CallState<'p, C, G, O, A, T, E, S>,
        output: PhantomData<fn() -> R>,
    }
}

/// Everything of a call but its first attempt, which is pinned.
struct CallState<'p, C, G: OriginKind, O, A, T, E, S: Sleeper> {
    phase: PhaseCell<'p, S>,
    /// The last result of an attempt: the deadline may cancel a later attempt.
    last: Option<Result<T, E>>,
    hedges: G::Hedges<A>,
    origin: G,
    operation: O,
    classify: C,
    sleeper: S,
}

/// The attempts of a call beside the first. `A` is the future of an attempt.
pub trait Hedges<A>: Sized {
    /// No attempt beside the first.
    const NONE: Self;

    /// The attempt in this slot; `first` is that of slot 0.
    fn slot_mut<'a>(
        &'a mut self,
        slot: usize,
        first: Pin<&'a mut Option<A>>,
    ) -> Pin<&'a mut Option<A>>;
}

/// A call that does not hedge: one attempt at a time, in slot 0.
#[derive(Debug)]
pub struct NoHedges;

impl<A> Hedges<A> for NoHedges {
    const NONE: Self = NoHedges;

    fn slot_mut<'a>(
        &'a mut self,
        _slot: usize,
        first: Pin<&'a mut Option<A>>,
    ) -> Pin<&'a mut Option<A>> {
        first
    }
}

/// The hedges of a call: the attempt in slot 1, and those in the slots after it.
pub struct HedgeList<A>(Option<Pin<Box<Hedge<A>>>>);

pin_project! {
    struct Hedge<A> {
        #[pin]
        attempt: Option<A>,
        next: HedgeList<A>,
    }
}

impl<A> fmt::Debug for HedgeList<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgeList").finish_non_exhaustive()
    }
}

impl<A> Hedges<A> for HedgeList<A> {
    const NONE: Self = HedgeList(None);

    fn slot_mut<'a>(
        &'a mut self,
        slot: usize,
        first: Pin<&'a mut Option<A>>,
    ) -> Pin<&'a mut Option<A>> {
        if slot == 0 {
            return first;
        }
        let new = || Box::pin(Hedge { attempt: None, next: HedgeList::NONE });
        let hedge = self.0.get_or_insert_with(new).as_mut().project();
        hedge.next.slot_mut(slot - 1, hedge.attempt)
    }
}

impl<'p, C, G: OriginKind, O, A, T, E, S: Sleeper, R> Retrying<'p, C, G, O, A, T, E, S, R> {
    pub(crate) fn new(
        origin: G,
        operation: O,
        classify: C,
        sleeper: S,
        options: Option<Box<Options<'p>>>,
    ) -> Self {
        let phase = PhaseCell::new(PlainCall::NotStarted(options));
        let (last, hedges) = (None, G::Hedges::NONE);
        let call = CallState { phase, last, hedges, origin, operation, classify, sleeper };
        Retrying { attempt: None, call, output: PhantomData }
    }

    /// A call without options whose first attempt was started by the caller.
    pub(crate) fn resumed(
        origin: G,
        operation: O,
        classify: C,
        sleeper: S,
        first: A,
        start: Ns,
    ) -> Self {
        let mut retrying = Retrying::new(origin, operation, classify, sleeper, None);
        retrying.attempt = Some(first);
        let phase = CallPhase::Plain(PlainCall::Immediate { attempts: 1, start });
        *retrying.call.phase = phase;
        retrying
    }
}

impl<C, G, O, A, T, E, S, R> fmt::Debug for Retrying<'_, C, G, O, A, T, E, S, R>
where
    G: OriginKind,
    S: Sleeper,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut attempt, call) = (this.attempt, this.call);
        let mut input = Input::Polled;
        if call.phase.is_not_started() && !call.needs_clock::<R>() {
            // If user code panics, the phase stays `Done`. A call that has not started has nothing to drop.
            mem::forget(mem::replace(&mut *call.phase, CallPhase::Done));
            attempt.set(Some(call.operation.start_first()));
            input = match attempt.as_mut().as_pin_mut().map(|attempt| attempt.poll(cx)) {
                Some(Poll::Ready(Ok(value))) if C::ACCEPTS_VALUES && !R::REPORTS => {
                    attempt.set(None);
                    call.origin.succeeded();
                    return Poll::Ready(Ok(R::output(value, no_report)));
                }
                Some(Poll::Ready(result)) => {
                    attempt.set(None);
                    let directive = call.classify.directive(&result);
                    call.last = Some(result);
                    Input::Outcome(0, directive)
                }
                Some(Poll::Pending) | None => Input::Pending,
            };
            let phase = CallPhase::Plain(PlainCall::Immediate { attempts: 1, start: UNKNOWN });
            mem::forget(mem::replace(&mut *call.phase, phase));
        }
        call.poll_slow::<R>(input, attempt, cx)
    }
}

impl<'p, C, G, O, A, T, E, S> CallState<'p, C, G, O, A, T, E, S>
where
    G: Origin<'p>,
    O: Operation<Answer = A>,
    A: Future<Output = Result<T, E>>,
    C: Classify<T, E>,
    S: Sleeper,
{
    /// Whether the clock is read before the first attempt, or the state machine starts with the call.
    fn needs_clock<R: Output<T>>(&self) -> bool {
        O::READS_ATTEMPT || R::TIMED || self.origin.needs_clock() || crate::is_observed()
    }

    /// Polls a call that has left the fast path: carries out its steps.
    #[cold]
    #[inline(never)]
    fn poll_slow<R: Output<T>>(
        &mut self,
        mut input: Input,
        mut first: Pin<&mut Option<A>>,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<T, E, C, R>> {
        let origin = &self.origin;
        let traits = CallTraits {
            reads_attempt: O::READS_ATTEMPT,
            reports_elapsed: R::TIMED,
            replayable: self.operation.is_replayable(),
            idempotent: self.operation.is_idempotent(),
            records_history: O::RECORDS_HISTORY,
        };
        let poll = &mut PollContext::new(traits, cx);
        let end = EndOnDrop(&mut self.phase);
        let mut running = matches!(input, Input::Polled) && end.0.is_attempt_running();
        loop {
            let step = if mem::take(&mut running) {
                Step::Poll(0)
            } else {
                if C::RECORDS_ERRORS
                    && let Some(error) = error_text::<T, E, C>(&input, self.last.as_ref())
                {
                    end.0.record_error(error);
                }
                let step = end.0.next_step(origin, &input, poll, &self.sleeper);
                if C::RELEASES {
                    poll.release(&mut self.classify, self.last.as_mut());
                }
                if C::NOTIFIES {
                    poll.notify(&mut self.classify, self.last.as_ref());
                }
                let Poll::Ready(step) = step else {
                    mem::forget(end);
                    return Poll::Pending;
                };
                step
            };
            let slot = match step {
                Step::Poll(slot) => slot,
                Step::Start(slot) | Step::StartAndPoll(slot) => {
                    let attempt = self.operation.start(poll.attempt);
                    poll.traits.replayable = self.operation.is_replayable();
                    self.hedges.slot_mut(slot, first.as_mut()).set(Some(attempt));
                    if let Step::Start(_) = step {
                        input = Input::Started;
                        continue;
                    }
                    slot
                }
                Step::Cancel(slot) => {
                    self.hedges.slot_mut(slot, first.as_mut()).set(None);
                    input = Input::Cancelled;
                    continue;
                }
                Step::End(stop_reason) => {
                    let details = |error: Option<&dyn fmt::Display>| {
                        end.0.details(origin, traits, &self.sleeper, stop_reason, error)
                    };
                    let last = self.last.take();
                    return Poll::Ready(finish::<T, E, C, R>(last, stop_reason, details));
                }
            };
            let mut attempt = self.hedges.slot_mut(slot, first.as_mut());
            input = match attempt.as_mut().as_pin_mut().map(|attempt| attempt.poll(poll.cx)) {
                Some(Poll::Ready(Ok(value)))
                    if C::ACCEPTS_VALUES && !R::REPORTS && end.0.is_plain() =>
                {
                    attempt.set(None);
                    origin.succeeded();
                    return Poll::Ready(Ok(R::output(value, no_report)));
                }
                Some(Poll::Ready(result)) => {
                    attempt.set(None);
                    let directive = self.classify.directive(&result);
                    self.last = Some(result);
                    Input::Outcome(slot, directive)
                }
                Some(Poll::Pending) | None => Input::Pending,
            };
        }
    }
}

/// Ends the phase of a call when it is dropped: the call has ended, or user code has panicked.
struct EndOnDrop<'a, 'p, S: Sleeper>(&'a mut CallPhase<'p, S>);

impl<S: Sleeper> Drop for EndOnDrop<'_, '_, S> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        *self.0 = CallPhase::Done;
    }
}

/// The report of an output that takes none.
fn no_report() -> Report {
    unreachable!("an output without a report takes it")
}

/// The result of a call from the last result of an attempt.
pub(crate) fn finish<T, E, C, R>(
    last: Option<Result<T, E>>,
    stop_reason: StopReason,
    details: impl FnOnce(Option<&dyn fmt::Display>) -> Box<Details>,
) -> CallResult<T, E, C, R>
where
    C: Classify<T, E>,
    R: Output<T>,
{
    match last {
        Some(Ok(value)) if stop_reason == StopReason::Succeeded => {
            Ok(R::output(value, || details(None).report))
        }
        last => {
            let details = details(match &last {
                Some(Err(error)) if C::RECORDS_ERRORS => C::error_text(error),
                _ => None,
            });
            Err(Error::new(last.and_then(C::keep), details))
        }
    }
}
