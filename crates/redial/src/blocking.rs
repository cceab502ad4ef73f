//! The blocking driver: runs the attempts one after the other in the calling thread (decision P12).

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use redial_core::{CallStep, Directive, Ns, StopReason};

use crate::attempt::{Attempt, Blocking, Operation};
use crate::classify::Classify;
use crate::clock;
use crate::driver::{Attempts, CallDriver, Timer};
use crate::engine::Engine;
use crate::error::Error;
use crate::future::{CallResult, Output, finish};
use crate::options::Options;
use crate::policy::Sequential;
use crate::report::Report;
use crate::retry::Retry;

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
    /// checked when the attempt returns (decision P12).
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
    pub fn call(self) -> Result<R::Output, Error<E, C::Kept>> {
        let Retry { origin, mut operation, mut classify, options, .. } = self;
        let start = Instant::now();
        let policy = origin.policy();
        if options.is_some() || policy.needs_machine() || crate::trace::is_enabled() {
            let options = options.map_or_else(Options::default, |options| *options);
            let engine = Engine::begin(policy, origin.handle(), options, clock::to_ns(start));
            let last = None;
            return run::<O, C, R, T, E>(
                engine,
                BlockingAttempts { operation, classify, last, outcome: None },
            );
        }
        let result = operation.start(Attempt::first(policy.first_attempt_timeout()));
        match (classify.directive(&result), result) {
            (Directive::Succeed, Ok(value)) => {
                origin.succeeded();
                let report = || Report {
                    attempts: 1,
                    attempts_max: policy.rules().attempts,
                    elapsed: start.elapsed(),
                    elapsed_exact: true,
                    stop_reason: StopReason::Succeeded,
                    tokens: None,
                    history: Vec::new(),
                };
                Ok(R::output(value, report))
            }
            (directive, result) => {
                let engine = Engine::begin_late(policy, origin.handle(), clock::to_ns(start));
                let (last, outcome) = (Some(result), Some(directive));
                run::<O, C, R, T, E>(
                    engine,
                    BlockingAttempts { operation, classify, last, outcome },
                )
            }
        }
    }
}

/// Drives a call with its state machine.
#[cold]
#[inline(never)]
fn run<O, C, R, T, E>(
    mut engine: Engine<'_>,
    mut attempts: BlockingAttempts<O, C, T, E>,
) -> CallResult<T, E, C, R>
where
    O: Operation<Answer = Result<T, E>>,
    C: Classify<T, E>,
    R: Output<T>,
{
    let mut timer = ThreadTimer { until: None };
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let cx = &mut Context::from_waker(&waker);
    loop {
        let mut driver =
            CallDriver { engine: &mut engine, attempts: &mut attempts, timer: &mut timer };
        match driver.poll_step(cx) {
            Poll::Pending => timer.park(),
            Poll::Ready(CallStep::Start(start)) => {
                attempts.run(engine.attempt(start, timer.now()));
            }
            Poll::Ready(CallStep::End(end)) => {
                let (report, strategy_error) = engine.report(end);
                let last = attempts.last.take();
                return finish::<T, E, C, R>(last, end.stop_reason, strategy_error, || report);
            }
        }
    }
}

/// The attempts of a blocking call: each has returned before the state machine takes its outcome.
struct BlockingAttempts<O, C, T, E> {
    operation: O,
    classify: C,
    last: Option<Result<T, E>>,
    outcome: Option<Directive>,
}

impl<O, C, T, E> BlockingAttempts<O, C, T, E>
where
    O: Operation<Answer = Result<T, E>>,
    C: Classify<T, E>,
{
    fn run(&mut self, attempt: Attempt) {
        let result = self.operation.start(attempt);
        self.outcome = Some(self.classify.directive(&result));
        self.last = Some(result);
    }
}

impl<O, C, T, E> Attempts for BlockingAttempts<O, C, T, E> {
    fn poll(&mut self, _slot: usize, _cx: &mut Context<'_>) -> Poll<Directive> {
        self.outcome.take().map_or(Poll::Pending, Poll::Ready)
    }
    fn cancel(&mut self, _slot: usize) {}
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
