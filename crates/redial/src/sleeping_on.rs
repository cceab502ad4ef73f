//! Policies with a default sleeper.

use std::fmt;

use crate::any_policy::AnyPolicy;
use crate::attempt::{Answer, Async, Attempt, Operation, WithAttempt, WithContext};
use crate::borrowing::{EveryValue, RetryOn};
use crate::classify::NeedsWhen;
use crate::policy::{Hedged, Origin, Policy};
use crate::retry::Retry;
use crate::sleeper::Sleeper;

/// A policy with a default sleeper: its calls need no [`sleeping_on`](Retry::sleeping_on). `P` is
/// [`Policy`], [`Hedged`] or [`AnyPolicy`].
///
/// ```
/// use redial::time::SleepingOn;
/// use redial::{Policy, ms, testing};
///
/// // `testing::Clock` stands for the timer of your executor.
/// static FETCH: SleepingOn<Policy, testing::Clock> =
///     Policy::constant(ms(20)).attempts(2).build().sleeping_on(testing::Clock);
///
/// let call = FETCH.retry(|| async { Ok::<_, std::io::Error>(7) }).when(|_| true);
/// # let mut call = Box::pin(call.into_future());
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert!(call.as_mut().poll(&mut context).is_ready());
/// ```
///
/// Each call gets a clone of the sleeper, so it should be cheap to clone. A call can name another one. A blocking
/// call has no sleeper: start it with [`policy`](SleepingOn::policy).
#[derive(Clone)]
pub struct SleepingOn<P, S> {
    policy: P,
    sleeper: S,
}

impl<P, S> SleepingOn<P, S> {
    /// The policy, for blocking calls and for what has a sleeper of its own.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    #[cfg(feature = "tower")]
    pub(crate) fn into_parts(self) -> (P, S) {
        (self.policy, self.sleeper)
    }

    /// The sleeper.
    #[must_use]
    pub const fn sleeper(&self) -> &S {
        &self.sleeper
    }
}

impl<P, S: Sleeper + Clone> SleepingOn<P, S> {
    /// Retries or hedges the operation, which returns a future of a `Result`; see [`Policy::retry`].
    pub fn retry<'p, O>(&'p self, operation: O) -> Retry<'p, NeedsWhen, &'p P, O, Async, S>
    where
        &'p P: Origin<'p>,
        O: Operation,
        O::Answer: Answer<Async>,
    {
        Retry::new(&self.policy, operation).sleeping_on(self.sleeper.clone())
    }

    /// The same, with the [`Attempt`] as an argument of the closure; see [`Policy::retry_with`].
    pub fn retry_with<'p, F, R>(
        &'p self,
        operation: F,
    ) -> Retry<'p, NeedsWhen, &'p P, WithAttempt<F>, Async, S>
    where
        &'p P: Origin<'p>,
        F: FnMut(Attempt) -> R,
        R: Answer<Async>,
    {
        Retry::new(&self.policy, WithAttempt(operation)).sleeping_on(self.sleeper.clone())
    }
}

impl<S: Sleeper + Clone> SleepingOn<Policy, S> {
    /// Retries an async operation that borrows `target` mutably for each attempt; see
    /// [`Policy::retry_on`].
    pub fn retry_on<'a, A, F, T, E>(
        &'a self,
        target: &'a mut A,
        operation: F,
    ) -> RetryOn<'a, NeedsWhen<EveryValue>, A, F, S>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
    {
        self.policy.retry_on(target, operation).sleeping_on(self.sleeper.clone())
    }

    /// Retries an async operation that owns `context` while an attempt runs; see
    /// [`Policy::retry_with_context`].
    pub fn retry_with_context<C, F, A, T, E>(
        &self,
        context: C,
        operation: F,
    ) -> Retry<'_, NeedsWhen, &Policy, WithContext<C, F>, Async, S>
    where
        F: FnMut(C, Attempt) -> A,
        A: Future<Output = (C, Result<T, E>)>,
    {
        self.policy.retry_with_context(context, operation).sleeping_on(self.sleeper.clone())
    }
}

/// `sleeping_on` of each kind of policy.
macro_rules! sleeping_on {
    ($policy:ident) => {
        impl $policy {
            /// The policy with this sleeper as the default of its calls, in place of tokio's timer. See
            /// [`SleepingOn`](crate::time::SleepingOn), and [`sleep_fn`](crate::time::sleep_fn) for a timer
            /// that is a function.
            #[must_use]
            pub const fn sleeping_on<S: Sleeper>(self, sleeper: S) -> SleepingOn<$policy, S> {
                SleepingOn { policy: self, sleeper }
            }
        }
    };
}

sleeping_on!(Policy);
sleeping_on!(Hedged);
sleeping_on!(AnyPolicy);

// Few timers can be printed.
impl<P: fmt::Debug, S> fmt::Debug for SleepingOn<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepingOn").field("policy", &self.policy).finish_non_exhaustive()
    }
}
