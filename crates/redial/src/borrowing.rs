//! The borrowing driver: async operations that borrow a target mutably for each attempt.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context, Poll};

use crate::classify::{Chain, Classify, ClassifyRule, IntoDirective, Until, When};
use crate::driver::{CallDriver, CallTraits, Input, PollContext, Step};
use crate::engine::Engine;
use crate::error::Error;
use crate::future::{Output, Value, WithReport, finish};
use crate::options::{Options, call_options, retry_options};
use crate::phase::AsyncTimer;
use crate::plain::SleepUntil;
use crate::policy::Policy;
use crate::policy_ref::PolicyRef;
use crate::sleeper::{DEFAULT_SLEEPER, DefaultSleeper, Sleeper};

/// A call whose operation borrows a target mutably, made by [`Policy::retry_on`].
///
/// It takes the same options as [`Retry`](crate::Retry). [`when`](BorrowingRetry::when) or
/// [`classify`](BorrowingRetry::classify) comes last and is awaited, because the future of a borrowing
/// closure cannot be named in a field.
#[must_use = "a call does nothing until `when` or `classify` is awaited"]
pub struct BorrowingRetry<'a, A, F, S = DefaultSleeper, R = Value, U = EveryValue> {
    policy: &'a Policy,
    target: &'a mut A,
    operation: F,
    accepts: U,
    sleeper: S,
    options: Option<Box<Options<'a>>>,
    output: PhantomData<fn() -> R>,
}

/// The rule for values of a call without [`BorrowingRetry::until`].
#[derive(Clone, Copy, Debug)]
pub struct EveryValue;

/// The rule for values of a call with [`BorrowingRetry::until`].
#[derive(Clone, Copy, Debug)]
pub struct AcceptedValue<H>(H);

impl<A, F, S, R, U> fmt::Debug for BorrowingRetry<'_, A, F, S, R, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowingRetry").finish_non_exhaustive()
    }
}

impl<'a, A, F> BorrowingRetry<'a, A, F> {
    pub(crate) const fn new(policy: &'a Policy, target: &'a mut A, operation: F) -> Self {
        BorrowingRetry {
            policy,
            target,
            operation,
            accepts: EveryValue,
            sleeper: DEFAULT_SLEEPER,
            options: None,
            output: PhantomData,
        }
    }
}

impl<'a, A, F, S, R, U> BorrowingRetry<'a, A, F, S, R, U> {
    call_options!('a);
    retry_options!('a);

    /// Uses this sleeper instead of tokio's timer.
    pub fn sleeping_on<Z>(self, sleeper: Z) -> BorrowingRetry<'a, A, F, Z, R, U> {
        let BorrowingRetry { policy, target, operation, accepts, options, output, .. } = self;
        BorrowingRetry { policy, target, operation, accepts, sleeper, options, output }
    }

    /// Returns the [`Report`](crate::Report) with the value: the number of attempts and the elapsed time.
    pub fn with_report(self) -> BorrowingRetry<'a, A, F, S, WithReport, U> {
        let BorrowingRetry { policy, target, operation, accepts, sleeper, options, .. } = self;
        let output = PhantomData;
        BorrowingRetry { policy, target, operation, accepts, sleeper, options, output }
    }
}

impl<'a, A, F, S, R> BorrowingRetry<'a, A, F, S, R> {
    /// Waits for a value: a value that `accepts` rejects is retried. `when` follows it.
    ///
    /// ```
    /// use redial::{Policy, ms};
    /// # struct Queue(u32);
    /// # impl Queue { async fn pop(&mut self) -> Result<Option<u32>, std::io::Error> { self.0 += 1; Ok((self.0 > 2).then_some(7)) } }
    ///
    /// static POLL: Policy = Policy::constant(ms(1)).attempts(5).build();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::io::Error> {
    /// let mut queue = Queue(0);
    /// let job = POLL
    ///     .retry_on(&mut queue, async |queue| queue.pop().await)
    ///     .until(Option::is_some)
    ///     .when(|_| true)
    ///     .await?;
    /// assert_eq!(job, Some(7));
    /// # Ok(())
    /// # }
    /// ```
    pub fn until<H, T, E>(self, accepts: H) -> BorrowingRetry<'a, A, F, S, R, AcceptedValue<H>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        H: FnMut(&T) -> bool,
    {
        let BorrowingRetry { policy, target, operation, sleeper, options, output, .. } = self;
        let accepts = AcceptedValue(accepts);
        BorrowingRetry { policy, target, operation, accepts, sleeper, options, output }
    }

    /// Runs the call. An error is retried only if `accepts` returns `true` or a
    /// [`Failure`](crate::Failure) for it.
    ///
    /// # Errors
    /// The call failed; [`Error`] has the stop reason and the last error.
    ///
    /// # Cancel safety
    /// Dropping the future drops the running attempt and refunds a retry that has not started.
    pub async fn when<T, E, W, G>(self, accepts: G) -> Result<R::Output, Error<E>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        G: FnMut(&E) -> W,
        W: IntoDirective,
        S: Sleeper,
        R: Output<T>,
    {
        self.run(When(accepts)).await
    }

    /// Runs the call and classifies values and errors with these rules; see
    /// [`Retry::classify`](crate::Retry::classify).
    ///
    /// # Errors
    /// The call failed; [`Error`] has the stop reason and the last error.
    ///
    /// # Cancel safety
    /// As for [`when`](BorrowingRetry::when).
    pub async fn classify<T, E, J>(self, rules: J) -> Result<R::Output, Error<E, T>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        J: ClassifyRule<T, E>,
        S: Sleeper,
        R: Output<T>,
    {
        self.run(Chain(rules)).await
    }
}

impl<A, F, S, R, H> BorrowingRetry<'_, A, F, S, R, AcceptedValue<H>> {
    /// Runs the call until a value is accepted. An error is retried only if `accepts` returns `true` or a
    /// [`Failure`](crate::Failure) for it.
    ///
    /// # Errors
    /// The call failed; [`Error`] has the stop reason and the last error or value.
    ///
    /// # Cancel safety
    /// Dropping the future drops the running attempt and refunds a retry that has not started.
    pub async fn when<T, E, W, G>(self, accepts: G) -> Result<R::Output, Error<E, T>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        H: FnMut(&T) -> bool,
        G: FnMut(&E) -> W,
        W: IntoDirective,
        S: Sleeper,
        R: Output<T>,
    {
        let BorrowingRetry { policy, target, operation, accepts: until, sleeper, options, output } =
            self;
        let call = BorrowingRetry {
            policy,
            target,
            operation,
            accepts: EveryValue,
            sleeper,
            options,
            output,
        };
        call.run(Until(until.0, When(accepts))).await
    }
}

impl<A, F, S, R> BorrowingRetry<'_, A, F, S, R> {
    async fn run<T, E, C>(mut self, mut classify: C) -> Result<R::Output, Error<E, C::Kept>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        C: Classify<T, E>,
        S: Sleeper,
        R: Output<T>,
    {
        let options = self.options.map_or_else(Options::default, |options| *options);
        let (policy, sleeper) = (self.policy, &self.sleeper);
        let mut engine = Engine::begin(
            PolicyRef::Borrowed(policy),
            policy.handle.clone(),
            options,
            sleeper.now(),
        );
        let mut timer = pin!(SleepUntil::unarmed());
        let traits = CallTraits { reads_attempt: true, reports_elapsed: true, replayable: true };
        let (mut last, mut starts) = (None, 0);
        let mut next_step = |input: &Input, cx: &mut Context<'_>| {
            let timer = &mut AsyncTimer { sleeper, timer: timer.as_mut() };
            let poll = &mut PollContext::with_starts(starts, traits, cx);
            let step = CallDriver { engine: &mut engine, timer }.next_step(input, poll);
            starts = if step.is_pending() { 0 } else { poll.starts };
            step
        };
        let mut step = poll_fn(|cx| next_step(&Input::Polled, cx)).await;
        loop {
            step = match step {
                Step::End(stop_reason) => {
                    let details = || engine.details(stop_reason);
                    return finish::<T, E, C, R>(last, stop_reason, details);
                }
                // No attempt runs between two attempts, so none can be polled or cancelled.
                Step::Poll(_) | Step::Cancel(_) => {
                    poll_fn(|cx| next_step(&Input::Pending, cx)).await
                }
                // The attempt is dropped in this block, before the target is borrowed again.
                Step::Start(_) | Step::StartAndPoll(_) => {
                    let mut attempt = pin!(Some((self.operation)(self.target)));
                    let mut input = Input::Started;
                    poll_fn(|cx| {
                        loop {
                            let Poll::Ready(step) = next_step(&input, cx) else {
                                input = Input::Polled;
                                return Poll::Pending;
                            };
                            input = match (step, attempt.as_mut().as_pin_mut()) {
                                (Step::Poll(slot), Some(running)) => match running.poll(cx) {
                                    Poll::Pending => Input::Pending,
                                    Poll::Ready(result) => {
                                        attempt.set(None);
                                        let directive = classify.directive(&result);
                                        last = Some(result);
                                        Input::Outcome(slot, directive)
                                    }
                                },
                                (Step::Poll(_), None) => Input::Pending,
                                (Step::Cancel(_), _) => {
                                    attempt.set(None);
                                    Input::Cancelled
                                }
                                (step, _) => return Poll::Ready(step),
                            };
                        }
                    })
                    .await
                }
            };
        }
    }
}
