//! Clocks and timers of the async driver.

use redial_core::Ns;

/// A clock and its timer. Implement it for another executor or for virtual time.
///
/// ```
/// use redial::{Sleeper, time::Ns};
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
