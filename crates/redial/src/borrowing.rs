//! The borrowing driver: async operations that borrow a target mutably for each attempt.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use redial_core::{CallStep, Directive};

use crate::classify::{Chain, Classify, ClassifyRule, IntoDirective, When};
use crate::driver::{Attempts, CallDriver, STARTS_PER_POLL_MAX};
use crate::engine::Engine;
use crate::error::Error;
use crate::future::{AsyncTimer, Output, Value, WithReport, finish};
use crate::options::{Options, call_options, retry_options};
use crate::plain::SleepUntil;
use crate::policy::Policy;
use crate::sleeper::{DEFAULT_SLEEPER, DefaultSleeper, Sleeper};

/// A call whose operation borrows a target mutably, made by [`Policy::retry_on`].
///
/// It takes the same options as [`Retry`](crate::Retry). [`when`](BorrowingRetry::when) or
/// [`classify`](BorrowingRetry::classify) comes last and is awaited, because the future of a borrowing
/// closure cannot be named in a field.
#[must_use = "a call does nothing until `when` or `classify` is awaited"]
pub struct BorrowingRetry<'a, A, F, S = DefaultSleeper, R = Value> {
    policy: &'a Policy,
    target: &'a mut A,
    operation: F,
    sleeper: S,
    options: Option<Box<Options<'a>>>,
    output: PhantomData<fn() -> R>,
}

impl<A, F, S, R> fmt::Debug for BorrowingRetry<'_, A, F, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowingRetry").finish_non_exhaustive()
    }
}

impl<'a, A, F> BorrowingRetry<'a, A, F> {
    pub(crate) const fn new(policy: &'a Policy, target: &'a mut A, operation: F) -> Self {
        let sleeper = DEFAULT_SLEEPER;
        BorrowingRetry { policy, target, operation, sleeper, options: None, output: PhantomData }
    }
}

impl<'a, A, F, S, R> BorrowingRetry<'a, A, F, S, R> {
    call_options!('a);
    retry_options!('a);

    /// Uses this sleeper instead of tokio's timer.
    pub fn sleeping_on<Z>(self, sleeper: Z) -> BorrowingRetry<'a, A, F, Z, R> {
        let BorrowingRetry { policy, target, operation, options, output, .. } = self;
        BorrowingRetry { policy, target, operation, sleeper, options, output }
    }

    /// Returns the [`Report`](crate::Report) with the value: the number of attempts and the elapsed time.
    pub fn with_report(self) -> BorrowingRetry<'a, A, F, S, WithReport> {
        let BorrowingRetry { policy, target, operation, sleeper, options, .. } = self;
        BorrowingRetry { policy, target, operation, sleeper, options, output: PhantomData }
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

    async fn run<T, E, C>(mut self, mut classify: C) -> Result<R::Output, Error<E, C::Kept>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        C: Classify<T, E>,
        S: Sleeper,
        R: Output<T>,
    {
        let options = self.options.map_or_else(Options::default, |options| *options);
        let (policy, sleeper) = (self.policy, &self.sleeper);
        let mut engine = Engine::begin(policy, policy.handle.clone(), options, sleeper.now());
        let mut timer = pin!(SleepUntil::unarmed());
        let (mut last, mut starts) = (None, 0);
        let mut step = poll_fn(|cx| {
            let timer = &mut AsyncTimer { sleeper, timer: timer.as_mut() };
            CallDriver { engine: &mut engine, attempts: &mut NoAttempt, timer }.poll_step(cx)
        })
        .await;
        loop {
            step = match step {
                CallStep::End(end) => {
                    let (report, strategy_error) = engine.report(end);
                    return finish::<T, E, C, R>(last, end.stop_reason, strategy_error, || report);
                }
                // The attempt is dropped in this block, before the target is borrowed again.
                CallStep::Start(_) => {
                    let attempt = pin!(Some((self.operation)(self.target)));
                    let mut attempts =
                        BorrowedAttempt { attempt, classify: &mut classify, last: &mut last };
                    poll_fn(|cx| {
                        if starts == STARTS_PER_POLL_MAX {
                            starts = 0;
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        let timer = &mut AsyncTimer { sleeper, timer: timer.as_mut() };
                        let step =
                            CallDriver { engine: &mut engine, attempts: &mut attempts, timer }
                                .poll_step(cx);
                        starts = if step.is_pending() { 0 } else { starts + 1 };
                        step
                    })
                    .await
                }
            };
        }
    }
}

/// The state of a call before its first attempt.
struct NoAttempt;

impl Attempts for NoAttempt {
    fn poll(&mut self, _slot: usize, _cx: &mut Context<'_>) -> Poll<Directive> {
        Poll::Pending
    }
    fn cancel(&mut self, _slot: usize) {}
}

/// The attempt of a borrowing call, which lies in the async function that runs the call.
struct BorrowedAttempt<'a, F, C, T, E> {
    attempt: Pin<&'a mut Option<F>>,
    classify: &'a mut C,
    last: &'a mut Option<Result<T, E>>,
}

impl<F, C, T, E> Attempts for BorrowedAttempt<'_, F, C, T, E>
where
    F: Future<Output = Result<T, E>>,
    C: Classify<T, E>,
{
    fn poll(&mut self, _slot: usize, cx: &mut Context<'_>) -> Poll<Directive> {
        let Some(attempt) = self.attempt.as_mut().as_pin_mut() else { return Poll::Pending };
        let result = ready!(attempt.poll(cx));
        self.attempt.set(None);
        let directive = self.classify.directive(&result);
        *self.last = Some(result);
        Poll::Ready(directive)
    }
    fn cancel(&mut self, _slot: usize) {
        self.attempt.set(None);
    }
}
