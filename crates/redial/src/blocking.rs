//! The blocking driver: runs the attempts one after the other in the calling thread (decision P12).

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use redial_core::{Directive, Ns, StopReason};

use crate::attempt::{Attempt, Blocking, Operation};
use crate::classify::Classify;
use crate::clock;
use crate::driver::{CallDriver, CallTraits, Input, PollContext, Step, Timer, error_text};
use crate::engine::Engine;
use crate::error::Error;
use crate::future::{CallResult, Output, finish};
use crate::options::Options;
use crate::policy::Sequential;
use crate::report::Report;
use crate::retry::Retry;
use crate::sleeper::UnsetSleeper;

impl<'p, G, O, C, S, R, T, E> Retry<'p, C, G, O, Blocking, S, R>
where
    G: Sequential<'p>,
    O: Operation<Answer = Result<T, E>>,
    C: Classify<T, E>,
    R: Output<T>,
{
    /// Runs the call in this thread.
    ///
    /// The thread is blocked while an attempt runs and during the backoff. A running attempt cannot be
    /// cancelled: the operation has to keep its own timeout, for which
    /// [`Policy::retry_with`](crate::Policy::retry_with) passes the remaining time. The deadline is
    /// checked when the attempt returns (decision P12). An
    /// [`attempt_timeout`](crate::Builder::attempt_timeout) only shortens
    /// [`Attempt::remaining`](crate::Attempt::remaining), and `retry_timeouts` has no effect.
    ///
    /// ```
    /// use redial::{Policy, ms};
    /// use std::fs;
    /// use std::io::ErrorKind;
    ///
    /// static READ: Policy = Policy::exponential(ms(10)).attempts(5).build();
    ///
    /// let text = READ
    ///     .retry(|| fs::read_to_string("Cargo.toml"))
    ///     .when(|error| error.kind() == ErrorKind::Interrupted)
    ///     .call()?;
    /// assert!(text.contains("[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The call failed; [`Error`] has the stop reason and the last error.
    ///
    /// # Panics
    /// If the operation, a classifier or a hook panics.
    pub fn call(self) -> Result<R::Output, Error<E, C::Kept>>
    where
        S: UnsetSleeper,
    {
        let Retry { origin, mut operation, mut classify, options, .. } = self;
        let start = Instant::now();
        let policy = origin.policy();
        if options.is_some() || policy.needs_machine() || crate::is_observed() {
            let mut options = options.map_or_else(Options::default, |options| *options);
            CallTraits::of_blocking(&operation).complete(&mut options);
            let engine =
                Engine::begin(origin.policy_ref(), origin.handle(), options, clock::to_ns(start));
            return run::<O, C, R, T, E>(engine, operation, classify, Input::Polled, None);
        }
        let result = operation.start(Attempt::first(policy.first_attempt_timeout()));
        match (classify.directive(&result), result) {
            (Directive::Succeed, Ok(value)) => {
                origin.succeeded();
                let report = || Report {
                    policy: origin.name(),
                    attempts: 1,
                    attempts_max: policy.rules().attempts,
                    elapsed: start.elapsed(),
                    elapsed_exact: true,
                    stop_reason: StopReason::Succeeded,
                    tokens: None,
                    error: None,
                    history: Vec::new(),
                };
                Ok(R::output(value, report))
            }
            (directive, result) => {
                let (policy, handle) = (origin.policy_ref(), origin.handle());
                let traits = CallTraits::of_blocking(&operation);
                let engine = Engine::begin_late(policy, handle, traits, clock::to_ns(start));
                let input = Input::Outcome(0, directive);
                run::<O, C, R, T, E>(engine, operation, classify, input, Some(result))
            }
        }
    }
}

/// Runs a call with its state machine; `last` is the result of the first attempt, if it has run, and
/// `input` its outcome.
fn run<O, C, R, T, E>(
    mut engine: Engine<'_>,
    mut operation: O,
    mut classify: C,
    mut input: Input,
    mut last: Option<Result<T, E>>,
) -> CallResult<T, E, C, R>
where
    O: Operation<Answer = Result<T, E>>,
    C: Classify<T, E>,
    R: Output<T>,
{
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let cx = &mut Context::from_waker(&waker);
    let traits = CallTraits::of_blocking(&operation);
    loop {
        let poll = &mut PollContext::new(traits, cx);
        if let Some(error) = error_text::<T, E, C>(&input, last.as_ref()) {
            engine.record_error(error);
        }
        let step = next_step(&mut engine, input, poll, &mut |poll| {
            poll.notify(&mut classify, last.as_ref());
        });
        input = match step {
            Step::Start(slot) | Step::StartAndPoll(slot) => {
                let result = operation.start(poll.attempt);
                let directive = classify.directive(&result);
                last = Some(result);
                Input::Outcome(slot, directive)
            }
            // An attempt has returned before the next step, so none can be polled or cancelled.
            Step::Poll(_) => Input::Pending,
            Step::Cancel(_) => Input::Cancelled,
            Step::End(stop_reason) => {
                return finish::<T, E, C, R>(last, stop_reason, |error| {
                    engine.details(stop_reason, error)
                });
            }
        }
    }
}

/// The next step of a call. Blocks the thread until there is one, after a call of `notify`.
fn next_step(
    engine: &mut Engine<'_>,
    input: Input,
    poll: &mut PollContext<'_, '_>,
    notify: &mut dyn FnMut(&mut PollContext<'_, '_>),
) -> Step {
    let mut timer = ThreadTimer { until: None };
    let mut input = input;
    loop {
        let step = CallDriver { engine, timer: &mut timer }.next_step(&input, poll);
        notify(poll);
        match step {
            Poll::Pending => timer.park(),
            Poll::Ready(step) => return step,
        }
        input = Input::Polled;
    }
}

/// A timer that blocks the thread.
struct ThreadTimer {
    /// When the next timer is due.
    until: Option<Ns>,
}

impl ThreadTimer {
    /// Waits for the timer, or until an answer wakes the thread.
    fn park(&mut self) {
        match self.until.take() {
            Some(at) => {
                let left = at.saturating_sub(self.now());
                thread::park_timeout(redial_core::duration(left));
            }
            None => thread::park(),
        }
    }
}

impl Timer for ThreadTimer {
    fn now(&self) -> Ns {
        clock::to_ns(Instant::now())
    }
    fn poll_until(&mut self, at: Ns, _cx: &mut Context<'_>) -> Poll<()> {
        if self.now() >= at {
            return Poll::Ready(());
        }
        self.until = Some(at);
        Poll::Pending
    }
}

/// A waker that unparks the thread of the blocking driver.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
