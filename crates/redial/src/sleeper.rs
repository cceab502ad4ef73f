//! Clocks and timers of the async driver.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use redial_core::{Ns, duration};

/// A clock and its timer. Implement it for virtual time, or for an executor with a clock of its own. For a
/// timer that is a function of a `Duration`, [`sleep_fn`](crate::time::sleep_fn) is enough.
///
/// ```
/// use redial::time::{Ns, Sleeper};
///
/// #[derive(Clone, Copy)]
/// struct MyExecutor;
///
/// impl Sleeper for MyExecutor {
///     type Sleep = std::future::Ready<()>;
///     fn now(&self) -> Ns {
///         0 // nanoseconds since any fixed origin
///     }
///     fn sleep_until(&self, _at: Ns) -> Self::Sleep {
///         std::future::ready(()) // a future that is ready at that moment
///     }
/// }
/// ```
pub trait Sleeper {
    /// The future of a sleep.
    type Sleep: Future<Output = ()>;

    /// The time in nanoseconds since any fixed origin. It must not go back.
    fn now(&self) -> Ns;

    /// A future that is ready at that time.
    fn sleep_until(&self, at: Ns) -> Self::Sleep;
}

/// tokio's clock and timer; they follow `tokio::time::pause`.
///
/// A call that has to wait needs a tokio runtime with the time driver and panics without it, as tokio's
/// timers do. A call that succeeds at its first poll needs neither.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokio;

#[cfg(feature = "tokio")]
impl Sleeper for Tokio {
    type Sleep = tokio::time::Sleep;

    fn now(&self) -> Ns {
        crate::clock::to_ns(tokio::time::Instant::now().into_std())
    }

    fn sleep_until(&self, at: Ns) -> Self::Sleep {
        tokio::time::sleep_until(crate::clock::to_instant(at).into())
    }
}

/// A sleeper of a function that sleeps for a `Duration`, with the clock of [`Instant`]. The output of its
/// future is ignored.
///
/// ```
/// use async_io::Timer;
/// use redial::time::{SleepFn, SleepingOn, sleep_fn};
/// use redial::{Policy, ms};
/// use std::time::Duration;
///
/// type Smol = SleepFn<fn(Duration) -> Timer>;
///
/// static FETCH: SleepingOn<Policy, Smol> =
///     Policy::constant(ms(1)).attempts(3).build().sleeping_on(sleep_fn(Timer::after));
///
/// let mut answers = [Err("busy"), Ok(7)].into_iter();
/// let call = FETCH.retry(|| std::future::ready(answers.next().unwrap())).when(|_| true);
/// assert_eq!(async_io::block_on(call.into_future()).ok(), Some(7));
/// ```
#[must_use]
pub const fn sleep_fn<F>(sleep: F) -> SleepFn<F> {
    SleepFn(sleep)
}

/// The sleeper that [`sleep_fn`] makes.
#[derive(Clone, Copy)]
pub struct SleepFn<F>(F);

impl<F: Fn(Duration) -> A, A: Future> Sleeper for SleepFn<F> {
    type Sleep = FnSleep<A>;

    fn now(&self) -> Ns {
        crate::clock::to_ns(Instant::now())
    }

    fn sleep_until(&self, at: Ns) -> FnSleep<A> {
        FnSleep { sleep: (self.0)(duration(at.saturating_sub(self.now()))) }
    }
}

impl<F> fmt::Debug for SleepFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepFn").finish_non_exhaustive()
    }
}

pin_project! {
    /// The sleep of a [`SleepFn`].
    pub struct FnSleep<A> {
        #[pin]
        sleep: A,
    }
}

impl<A: Future> Future for FnSleep<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().sleep.poll(cx).map(drop)
    }
}

impl<A> fmt::Debug for FnSleep<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnSleep").finish_non_exhaustive()
    }
}

/// The sleeper of a call without [`Retry::sleeping_on`](crate::Retry::sleeping_on).
#[cfg(feature = "tokio")]
pub type DefaultSleeper = Tokio;

/// The sleeper of a call that names none. Without the feature `tokio` there is none, so such a call can
/// only block.
#[cfg(not(feature = "tokio"))]
pub type DefaultSleeper = NameASleeperWithSleepingOn;

/// The sleeper of a call that names none, or tokio's: a blocking call waits in its thread, and would ignore
/// another one.
#[diagnostic::on_unimplemented(
    message = "a blocking call waits in its thread: remove `.sleeping_on(..)`",
    label = "this sleeper would be ignored"
)]
pub trait UnsetSleeper {}

impl UnsetSleeper for DefaultSleeper {}

/// A placeholder whose name in a compile error states the fix.
#[cfg(not(feature = "tokio"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct NameASleeperWithSleepingOn;

#[cfg(feature = "tokio")]
pub(crate) const DEFAULT_SLEEPER: DefaultSleeper = Tokio;
#[cfg(not(feature = "tokio"))]
pub(crate) const DEFAULT_SLEEPER: DefaultSleeper = NameASleeperWithSleepingOn;

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;
    use redial_core::NEVER;

    #[tokio::test(start_paused = true)]
    async fn sleeper_time_that_no_timer_reaches_does_not_panic() {
        assert!(Tokio.sleep_until(NEVER).deadline() > tokio::time::Instant::now());
    }
}
