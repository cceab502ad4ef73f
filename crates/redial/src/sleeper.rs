//! Clocks and timers of the async driver.

use std::time::Instant;

use redial_core::Ns;

/// A time that is converted to nanoseconds only on demand: a call that succeeds before its timer fires
/// never needs the conversion.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Repr);

#[derive(Clone, Copy, Debug)]
enum Repr {
    Ns(Ns),
    Instant(Instant),
}

impl Moment {
    /// Nanoseconds since the origin of the clock.
    #[must_use]
    pub fn ns(self) -> Ns {
        match self.0 {
            Repr::Ns(at) => at,
            Repr::Instant(instant) => crate::clock::to_ns(instant),
        }
    }
}

impl From<Ns> for Moment {
    fn from(at: Ns) -> Self {
        Moment(Repr::Ns(at))
    }
}

/// Counts from the origin of this process, as `Tokio` and blocking calls do.
impl From<Instant> for Moment {
    fn from(instant: Instant) -> Self {
        Moment(Repr::Instant(instant))
    }
}

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

    /// The time without the conversion to nanoseconds, for the start of a call that may never need it.
    fn moment(&self) -> Moment {
        self.now().into()
    }

    /// A future that is ready `span` after `start`.
    fn sleep_after(&self, start: Moment, span: Ns) -> Self::Sleep {
        self.sleep_until(start.ns().saturating_add(span))
    }
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

    fn moment(&self) -> Moment {
        tokio::time::Instant::now().into_std().into()
    }

    fn sleep_after(&self, start: Moment, span: Ns) -> Self::Sleep {
        let end = match start.0 {
            Repr::Ns(at) => crate::clock::to_instant(at.saturating_add(span)),
            Repr::Instant(instant) => crate::clock::instant_after(instant, span),
        };
        tokio::time::sleep_until(end.into())
    }
}

/// The sleeper of a call without [`Retry::sleeping_on`](crate::Retry::sleeping_on).
#[cfg(feature = "tokio")]
pub type DefaultSleeper = Tokio;

/// The sleeper of a call that names none. Without the feature `tokio` there is none, so such a call can
/// only block.
#[cfg(not(feature = "tokio"))]
pub type DefaultSleeper = NameASleeperWithSleepingOn;

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
    use redial_core::{NEVER, ms, ns, s};

    #[tokio::test(start_paused = true)]
    async fn sleeper_moment_converts_lazily_to_the_same_time() {
        let start = Tokio.moment();
        assert_eq!(start.ns(), Tokio.now());
        tokio::time::advance(s(1)).await;
        assert_eq!(start.ns() + ns(s(1)), Tokio.now());
        for span in [0, 1, ns(ms(20)), ns(s(86_400))] {
            let late = Tokio.sleep_after(start, span).deadline();
            assert_eq!(late, Tokio.sleep_until(start.ns() + span).deadline());
            assert_eq!(late, Tokio.sleep_after(start.ns().into(), span).deadline());
        }
        // A time that no timer reaches does not panic.
        assert!(Tokio.sleep_after(start, NEVER).deadline() > tokio::time::Instant::now());
    }
}
