//! The borrowing driver: async operations that borrow a target mutably for each attempt.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::call_phase::AsyncTimer;
use crate::classify::{Chain, Classify, ClassifyRule, IntoDirective, NeedsWhen, Until, When};
use crate::driver::{CallDriver, CallTraits, Input, PollContext, Step, error_text};
use crate::engine::Engine;
use crate::error::Error;
use crate::error_hook::{ErrorHook, Hooked, NoHook, Notify, RecordErrors};
use crate::future::{Output, Value, WithReport, finish};
use crate::options::{Options, call_log_option, call_options, retry_options};
use crate::plain_call::SleepUntil;
use crate::policy::Policy;
use crate::policy_ref::PolicyRef;
use crate::sleeper::{DEFAULT_SLEEPER, DefaultSleeper, Sleeper};

/// A call whose operation borrows a target mutably, made by [`Policy::retry_on`].
///
/// It takes the same options as [`Retry`](crate::Retry). [`when`](RetryOn::when) or
/// [`classify`](RetryOn::classify) comes last and is awaited, because the future of a borrowing
/// closure cannot be named in a field.
///
/// `U` is the rule for values, in [`NeedsWhen`]. It is the first type because rustc shortens long types, and this
/// part of the type of a call without `when` must stay visible.
#[must_use = "a call does nothing until `when` or `classify` is awaited"]
pub struct RetryOn<'a, U, A, F, S = DefaultSleeper, R = Value, N = NoHook> {
    policy: &'a Policy,
    target: &'a mut A,
    operation: F,
    accepts: U,
    hook: N,
    sleeper: S,
    options: Option<Box<Options<'a>>>,
    output: PhantomData<fn() -> R>,
}

/// The rule for values of a call without [`RetryOn::until`].
#[derive(Clone, Copy, Debug)]
pub struct EveryValue;

/// The rule for values of a call with [`RetryOn::until`].
#[derive(Clone, Copy, Debug)]
pub struct AcceptedValue<H>(H);

impl<A, F, S, R, U, N> fmt::Debug for RetryOn<'_, U, A, F, S, R, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryOn").finish_non_exhaustive()
    }
}

impl<'a, A, F> RetryOn<'a, NeedsWhen<EveryValue>, A, F> {
    pub(crate) const fn new(policy: &'a Policy, target: &'a mut A, operation: F) -> Self {
        RetryOn {
            policy,
            target,
            operation,
            accepts: NeedsWhen(EveryValue),
            hook: NoHook,
            sleeper: DEFAULT_SLEEPER,
            options: None,
            output: PhantomData,
        }
    }
}

impl<'a, A, F, S, R, U, N> RetryOn<'a, U, A, F, S, R, N> {
    call_options!('a);
    call_log_option!('a);
    retry_options!('a, &'a Policy);

    /// Uses this sleeper instead of tokio's timer: a type that implements [`Sleeper`](crate::time::Sleeper), or a
    /// function in [`sleep_fn`](crate::time::sleep_fn). [`Policy::sleeping_on`](crate::Policy::sleeping_on)
    /// names one for all calls of a policy.
    pub fn sleeping_on<Z: Sleeper>(self, sleeper: Z) -> RetryOn<'a, U, A, F, Z, R, N> {
        let RetryOn { policy, target, operation, accepts, hook, options, output, .. } = self;
        RetryOn { policy, target, operation, accepts, hook, sleeper, options, output }
    }

    /// Returns the [`Report`](crate::Report) with the value: the number of attempts and the elapsed time.
    pub fn with_report(self) -> RetryOn<'a, U, A, F, S, WithReport, N> {
        let RetryOn { policy, target, operation, accepts, hook, sleeper, options, .. } = self;
        let output = PhantomData;
        RetryOn { policy, target, operation, accepts, hook, sleeper, options, output }
    }

    /// Calls `notify` each time that an error is retried, with the error and the delay before the next
    /// attempt; see [`Retry::notify`](crate::Retry::notify). `when` follows it.
    ///
    /// ```
    /// use redial::{Policy, ms};
    /// # struct Queue(u32);
    /// # impl Queue { async fn pop(&mut self) -> Result<u32, &'static str> { self.0 += 1; if self.0 > 2 { Ok(7) } else { Err("locked") } } }
    ///
    /// static POP: Policy = Policy::constant(ms(1)).attempts(5).build();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut queue = Queue(0);
    /// let job = POP
    ///     .retry_on(&mut queue, async |queue| queue.pop().await)
    ///     .notify(|error, delay| eprintln!("{error}, next attempt in {delay:?}"))
    ///     .when(|_| true)
    ///     .await;
    /// assert_eq!(job.ok(), Some(7));
    /// # }
    /// ```
    pub fn notify<M, T, E>(self, notify: M) -> RetryOn<'a, U, A, F, S, R, (N, Notify<M>)>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        M: FnMut(&E, Duration),
    {
        self.with_hook(Notify(notify))
    }

    /// Records the text of each error; see [`Retry::record_errors`](crate::Retry::record_errors). `when`
    /// follows it.
    ///
    /// ```
    /// use redial::Policy;
    ///
    /// static POP: Policy = Policy::immediate().attempts(2).build();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut queue = vec![7];
    /// let pop = async |queue: &mut Vec<u32>| queue.pop().filter(|job| *job > 9).ok_or("no job");
    /// let call = POP.retry_on(&mut queue, pop).record_errors().history();
    /// let error = call.when(|_| true).await.unwrap_err();
    /// assert_eq!(error.report().history[1].error.as_deref(), Some("no job"));
    /// # }
    /// ```
    pub fn record_errors<T, E>(self) -> RetryOn<'a, U, A, F, S, R, (N, RecordErrors)>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        E: fmt::Display,
    {
        self.with_hook(RecordErrors)
    }

    /// Replaces the rule for values, and returns the old one with the call.
    fn with_rule<V>(self, accepts: V) -> (U, RetryOn<'a, V, A, F, S, R, N>) {
        let RetryOn { policy, target, operation, hook, sleeper, options, output, .. } = self;
        let call = RetryOn { policy, target, operation, accepts, hook, sleeper, options, output };
        (self.accepts, call)
    }

    fn with_hook<M>(self, added: M) -> RetryOn<'a, U, A, F, S, R, (N, M)> {
        let RetryOn { policy, target, operation, accepts, hook, sleeper, options, output } = self;
        let hook = (hook, added);
        RetryOn { policy, target, operation, accepts, hook, sleeper, options, output }
    }
}

impl<'a, A, F, S, R, N> RetryOn<'a, NeedsWhen<EveryValue>, A, F, S, R, N> {
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
    pub fn until<H, T, E>(
        self,
        accepts: H,
    ) -> RetryOn<'a, NeedsWhen<AcceptedValue<H>>, A, F, S, R, N>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        H: FnMut(&T) -> bool,
    {
        self.with_rule(NeedsWhen(AcceptedValue(accepts))).1
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
        N: ErrorHook<E>,
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
    /// As for [`when`](RetryOn::when).
    pub async fn classify<T, E, J>(self, rules: J) -> Result<R::Output, Error<E, T>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        J: ClassifyRule<T, E>,
        S: Sleeper,
        R: Output<T>,
        N: ErrorHook<E>,
    {
        self.run(Chain(rules)).await
    }
}

impl<A, F, S, R, H, N> RetryOn<'_, NeedsWhen<AcceptedValue<H>>, A, F, S, R, N> {
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
        N: ErrorHook<E>,
    {
        let (NeedsWhen(until), call) = self.with_rule(NeedsWhen(EveryValue));
        call.run(Until(until.0, When(accepts))).await
    }
}

impl<A, F, S, R, N> RetryOn<'_, NeedsWhen<EveryValue>, A, F, S, R, N> {
    // `V` and not `C::Kept`: a future whose type has a projection through `Classify<_, E>` is not `Send` in a
    // task if `E` has a lifetime.
    async fn run<T, E, V, C>(mut self, classify: C) -> Result<R::Output, Error<E, V>>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
        C: Classify<T, E, Kept = V>,
        S: Sleeper,
        R: Output<T>,
        N: ErrorHook<E>,
    {
        let mut classify = Hooked(classify, self.hook);
        let options = self.options.map_or_else(Options::default, |options| *options);
        let (policy, sleeper) = (self.policy, &self.sleeper);
        let mut engine = Engine::begin(
            PolicyRef::Borrowed(policy),
            policy.handle.clone(),
            options,
            sleeper.now(),
        );
        let mut timer = pin!(SleepUntil::unarmed());
        let traits = CallTraits::OF_CLOSURE;
        let (mut last, mut starts) = (None, 0);
        let mut next_step = |input: &Input,
                             classify: &mut Hooked<C, N>,
                             last: Option<&Result<T, E>>,
                             cx: &mut Context<'_>| {
            if let Some(error) = error_text::<T, E, Hooked<C, N>>(input, last) {
                engine.record_error(error);
            }
            let timer = &mut AsyncTimer { sleeper, timer: timer.as_mut() };
            let poll = &mut PollContext::with_starts(starts, traits, cx);
            let step = CallDriver { engine: &mut engine, timer }.next_step(input, poll);
            poll.notify(classify, last);
            starts = if step.is_pending() { 0 } else { poll.starts };
            step
        };
        let mut step = poll_fn(|cx| next_step(&Input::Polled, &mut classify, None, cx)).await;
        loop {
            step = match step {
                Step::End(stop_reason) => {
                    let details =
                        |error: Option<&dyn fmt::Display>| engine.details(stop_reason, error);
                    return finish::<T, E, Hooked<C, N>, R>(last, stop_reason, details);
                }
                // No attempt runs between two attempts, so none can be polled or cancelled.
                Step::Poll(_) | Step::Cancel(_) => {
                    poll_fn(|cx| next_step(&Input::Pending, &mut classify, last.as_ref(), cx)).await
                }
                // The attempt is dropped in this block, before the target is borrowed again.
                Step::Start(_) | Step::StartAndPoll(_) => {
                    let mut attempt = pin!(Some((self.operation)(self.target)));
                    let mut input = Input::Started;
                    poll_fn(|cx| {
                        loop {
                            let step = next_step(&input, &mut classify, last.as_ref(), cx);
                            let Poll::Ready(step) = step else {
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
