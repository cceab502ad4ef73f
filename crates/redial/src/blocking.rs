//! The blocking driver: runs the attempts one after the other in the calling thread (decision P12).

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use redial_core::Command;

use crate::attempt::{Attempt, Blocking, Operation};
use crate::classify::{Classified, Classify};
use crate::clock;
use crate::engine::Engine;
use crate::error::Error;
use crate::future::{Output, min_duration};
use crate::options::Options;
use crate::policy::{Origin, Policy};
use crate::report::Report;
use crate::retry::Retry;
use crate::throttle::Handle;

impl<'p, G, O, C, S, R, T, E> Retry<'p, G, O, Blocking, C, S, R>
where
    G: Origin<'p>,
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
        let rules = origin.policy().rules();
        // The state machine decides whether an expired deadline allows an attempt (P10).
        let expired = rules.deadline == Some(Duration::ZERO);
        let machine = expired || crate::trace::is_enabled() || origin.watches_calls();
        if options.is_none() && !machine {
            let remaining = min_duration(rules.deadline, rules.attempt_timeout);
            let attempt = Attempt { number: 1, remaining, last: None };
            let outcome = classify.classify(operation.start(attempt));
            if let Classified::Succeed(value) = outcome {
                origin.succeeded();
                let report = || Report {
                    attempts: 1,
                    attempts_max: rules.attempts,
                    elapsed: start.elapsed(),
                    stop_reason: redial_core::StopReason::Succeeded,
                    tokens: None,
                    history: Vec::new(),
                };
                return Ok(R::output(value, report));
            }
            return run::<O, C, R, T, E>(
                origin.policy(),
                origin.handle(),
                operation,
                classify,
                Options::default(),
                start,
                Some(outcome),
            );
        }
        let options = options.map_or_else(Options::default, |options| *options);
        run::<O, C, R, T, E>(
            origin.policy(),
            origin.handle(),
            operation,
            classify,
            options,
            start,
            None,
        )
    }
}

/// Drives the state machine; `first` is the outcome of the first attempt if it has already run.
#[cold]
fn run<O, C, R, T, E>(
    policy: &Policy,
    handle: Handle,
    mut operation: O,
    mut classify: C,
    options: Options<'_>,
    start: Instant,
    mut first: Option<Classified<T, E, C::Kept>>,
) -> Result<R::Output, Error<E, C::Kept>>
where
    O: Operation<Answer = Result<T, E>>,
    C: Classify<T, E>,
    R: Output<T>,
{
    let now = || clock::to_ns(Instant::now());
    let mut engine =
        Engine::<T, E, C::Kept, 1>::begin(policy, handle, options, clock::to_ns(start));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        while let Some(command) = engine.command() {
            match command {
                // A blocking attempt has returned before a command can cancel it.
                Command::Cancel(_) => {}
                Command::Start(start) => {
                    let outcome = first.take().unwrap_or_else(|| {
                        classify.classify(operation.start(engine.attempt(start, now())))
                    });
                    engine.handle_outcome(start.slot, outcome, now());
                }
                Command::Ask(failure) => engine.ask_strategy(failure, now()),
                Command::Await(cost) => engine.await_grant(cost),
                Command::End(end) => {
                    let result = engine.result(end);
                    return result.map(|(value, report)| R::output(value, || report));
                }
            }
        }
        if engine.poll_pending_answer(&mut Context::from_waker(&waker), now) == Poll::Ready(()) {
            continue;
        }
        let Some(at) = engine.call.wake_at() else {
            // Only an answer can be pending: its waker unparks this thread.
            thread::park();
            continue;
        };
        let left = at.saturating_sub(now());
        if left > 0 {
            // A pending answer that arrives ends the wait early.
            thread::park_timeout(redial_core::duration(left));
        } else {
            engine.wake(now());
        }
    }
}

/// A waker that unparks the thread of the blocking driver.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
