//! The borrowing driver: async operations that borrow a target mutably for each attempt.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use redial_core::{Command, Ns, Start};

use crate::classify::{Chain, Classify, ClassifyRule, IntoDirective, When};
use crate::engine::Engine;
use crate::error::Error;
use crate::future::{IMMEDIATE_MAX, Output, Value, WithReport};
use crate::options::{Options, call_options, retry_options};
use crate::policy::Policy;
use crate::report::Report;
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
        let mut driver = BorrowingDriver::begin(self.policy, options, self.sleeper);
        loop {
            let start = match poll_fn(|cx| driver.poll_until_start(cx)).await {
                Ok(start) => start,
                Err(result) => return result.map(|(value, report)| R::output(value, || report)),
            };
            // The attempt is dropped in this block, before the target is borrowed again.
            let result = {
                let mut attempt = pin!((self.operation)(self.target));
                poll_fn(|cx| driver.poll_attempt(attempt.as_mut(), cx)).await
            };
            if let Some(result) = result {
                let outcome = classify.classify(result);
                let now = driver.sleeper.now();
                driver.engine.handle_outcome(start.slot, outcome, now);
            }
        }
    }
}

/// The result of a call, with its report.
type ResultOf<T, E, V> = Result<(T, Report), Error<E, V>>;

/// The state machine and its timer, driven from an async function.
struct BorrowingDriver<'a, S: Sleeper, T, E, V> {
    engine: Engine<'a, T, E, V, 1>,
    sleeper: S,
    timer: Option<(Ns, Pin<Box<S::Sleep>>)>,
    /// Polls of attempts since the last yield to other tasks.
    rounds: u32,
    /// Whether other tasks had a turn since the timer fired.
    yielded: bool,
}

impl<'a, S: Sleeper, T, E, V> BorrowingDriver<'a, S, T, E, V> {
    fn begin(policy: &'a Policy, options: Options<'a>, sleeper: S) -> Self {
        let engine = Engine::begin(policy, policy.handle.clone(), options, sleeper.now());
        BorrowingDriver { engine, sleeper, timer: None, rounds: 0, yielded: false }
    }

    /// Runs commands until an attempt starts or the call ends.
    fn poll_until_start(&mut self, cx: &mut Context<'_>) -> Poll<Result<Start, ResultOf<T, E, V>>> {
        loop {
            while let Some(command) = self.engine.command() {
                match command {
                    Command::Cancel(_) => {}
                    Command::Start(start) => return Poll::Ready(Ok(start)),
                    Command::Ask(failure) => self.engine.ask_strategy(failure, self.sleeper.now()),
                    Command::Await(cost) => self.engine.await_grant(cost),
                    Command::End(end) => return Poll::Ready(Err(self.engine.result(end))),
                }
            }
            if self.engine.poll_pending_answer(cx, || self.sleeper.now()).is_ready() {
                continue;
            }
            let Some(at) = self.engine.call.wake_at() else { return Poll::Pending };
            ready!(self.poll_timer(at, cx));
            self.engine.wake(self.sleeper.now().max(at));
        }
    }

    /// Polls the attempt; `None`: the state machine cancelled it.
    fn poll_attempt<F>(
        &mut self,
        attempt: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<F::Output>>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.rounds += 1;
        if self.rounds.is_multiple_of(IMMEDIATE_MAX) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(result) = attempt.poll(cx) {
            self.yielded = false;
            return Poll::Ready(Some(result));
        }
        while let Some(at) = self.engine.call.wake_at() {
            if !self.yielded {
                ready!(self.poll_timer(at, cx));
                // An outcome of the same moment comes first (P4): yield once before the timer counts.
                self.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.yielded = false;
            self.engine.wake(self.sleeper.now().max(at));
            if !self.engine.call.is_running(0) {
                return Poll::Ready(None);
            }
        }
        Poll::Pending
    }

    fn poll_timer(&mut self, at: Ns, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.as_ref().is_none_or(|(then, _)| *then != at) {
            self.timer = Some((at, Box::pin(self.sleeper.sleep_until(at))));
        }
        if let Some((_, timer)) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
        }
        self.timer = None;
        Poll::Ready(())
    }
}
