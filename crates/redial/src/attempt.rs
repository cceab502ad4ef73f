//! Operations, and the context that each attempt of them gets.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use redial_core::Failure;

/// The context of one attempt: its number, the remaining time and the failure before it.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub(crate) number: u32,
    pub(crate) remaining: Option<Duration>,
    pub(crate) last: Option<Failure>,
}

impl Attempt {
    /// The context of a first attempt. Public for adapters that start it before the call.
    #[doc(hidden)]
    #[must_use]
    pub const fn first(remaining: Option<Duration>) -> Self {
        Attempt { number: 1, remaining, last: None }
    }

    /// The number of the attempt, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The time until the deadline or the attempt timeout, whichever is earlier; `None` without either.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// The failure of the attempt before; `None` for the first attempt.
    #[must_use]
    pub const fn last_failure(&self) -> Option<&Failure> {
        self.last.as_ref()
    }
}

/// Marks operations that return futures.
#[derive(Debug)]
pub enum Async {}
/// Marks operations that block.
#[derive(Debug)]
pub enum Blocking {}

/// The return type of an operation: a `Result`, or a future of one. `K` is [`Blocking`] or [`Async`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the return type of an operation",
    note = "an operation returns a `Result` or a future of one, and where it is hedged a future"
)]
pub trait Answer<K> {
    /// The value of a success.
    type Value;
    /// The error of a failure.
    type Error;
}

impl<T, E> Answer<Blocking> for Result<T, E> {
    type Value = T;
    type Error = E;
}

impl<T, E, F: Future<Output = Result<T, E>>> Answer<Async> for F {
    type Value = T;
    type Error = E;
}

/// An operation that can be attempted more than once: a closure, usually.
pub trait Operation {
    /// The return type of one attempt.
    type Answer;
    /// Whether it uses its [`Attempt`]. If so, the clock is read before each attempt.
    const READS_ATTEMPT: bool;
    /// Whether the report of a call that is retried has its attempts, as with
    /// [`Retry::history`](crate::Retry::history). A call that succeeds at once is not recorded.
    const RECORDS_HISTORY: bool = false;

    /// Starts one attempt.
    fn start(&mut self, attempt: Attempt) -> Self::Answer;

    /// Starts the first attempt of a call that has not read the clock.
    #[doc(hidden)]
    #[inline(always)]
    fn start_first(&mut self) -> Self::Answer {
        self.start(Attempt::first(None))
    }

    /// Whether another attempt can be started. If not, the call ends with the running attempt, as after
    /// gRPC's commit.
    fn is_replayable(&self) -> bool {
        true
    }

    /// Whether the operation is idempotent. If not, a failed attempt is retried only with proof that it
    /// did not run, as with [`Retry::not_idempotent`](crate::Retry::not_idempotent); under a
    /// [`Hedged`](crate::Hedged) policy such an operation is attempted once.
    fn is_idempotent(&self) -> bool {
        true
    }
}

impl<R, F: FnMut() -> R> Operation for F {
    type Answer = R;
    const READS_ATTEMPT: bool = false;

    fn start(&mut self, _attempt: Attempt) -> R {
        self()
    }
}

/// An operation that takes its [`Attempt`]; see [`Policy::retry_with`](crate::Policy::retry_with).
#[derive(Debug)]
pub struct WithAttempt<F>(pub(crate) F);

impl<R, F: FnMut(Attempt) -> R> Operation for WithAttempt<F> {
    type Answer = R;
    const READS_ATTEMPT: bool = true;

    fn start(&mut self, attempt: Attempt) -> R {
        (self.0)(attempt)
    }
}

/// An operation that owns its context while an attempt runs; see
/// [`Policy::retry_with_context`](crate::Policy::retry_with_context).
pub struct WithContext<C, F> {
    operation: F,
    /// The context between two attempts. An attempt returns it when it ends.
    context: Arc<Mutex<Option<C>>>,
}

impl<C, F> WithContext<C, F> {
    pub(crate) fn new(context: C, operation: F) -> Self {
        WithContext { operation, context: Arc::new(Mutex::new(Some(context))) }
    }
}

impl<C, F> fmt::Debug for WithContext<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithContext").finish_non_exhaustive()
    }
}

impl<C, A, F: FnMut(C, Attempt) -> A> Operation for WithContext<C, F> {
    type Answer = ContextAttempt<C, A>;
    const READS_ATTEMPT: bool = true;

    fn start(&mut self, attempt: Attempt) -> ContextAttempt<C, A> {
        let context = lock(&self.context).take();
        // Only a cancelled attempt does not return its context, and it is the last one of its call.
        let context = context.expect("a call with a context ends when an attempt is cancelled");
        ContextAttempt {
            attempt: (self.operation)(context, attempt),
            context: self.context.clone(),
        }
    }
}

pin_project! {
    /// An attempt that returns its context.
    pub struct ContextAttempt<C, A> {
        #[pin]
        attempt: A,
        context: Arc<Mutex<Option<C>>>,
    }
}

impl<C, A> fmt::Debug for ContextAttempt<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextAttempt").finish_non_exhaustive()
    }
}

impl<C, T, E, A: Future<Output = (C, Result<T, E>)>> Future for ContextAttempt<C, A> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let this = self.project();
        let (context, result) = ready!(this.attempt.poll(cx));
        *lock(this.context) = Some(context);
        Poll::Ready(result)
    }
}

/// A panic of the operation leaves no half-changed context behind: it drops the context.
fn lock<C>(context: &Mutex<Option<C>>) -> MutexGuard<'_, Option<C>> {
    context.lock().unwrap_or_else(PoisonError::into_inner)
}
