//! Clocks and timers: what an async driver waits with.

use std::time::Instant;

use redial_core::Ns;

/// A moment as a clock shows it. It is counted only when somebody asks: a call that is answered
/// before its timer fires never needs to know when it began.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Repr);

#[derive(Clone, Copy, Debug)]
enum Repr {
    Ns(Ns),
    Instant(Instant),
}

impl Moment {
    /// Nanoseconds since the origin of the clock that showed it.
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

/// The origin is the process's own, the one of `Tokio` and of blocking calls.
impl From<Instant> for Moment {
    fn from(instant: Instant) -> Self {
        Moment(Repr::Instant(instant))
    }
}

/// A clock and its timer. Implement it to run on another executor or on virtual time.
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
    /// A future that is ready at its moment.
    type Sleep: Future<Output = ()>;

    /// The time, in nanoseconds since any fixed origin; it never goes back.
    fn now(&self) -> Ns;

    /// A future that is ready at that moment.
    fn sleep_until(&self, at: Ns) -> Self::Sleep;

    /// The time as the clock shows it, for a sleep that begins now and a start that perhaps nobody
    /// asks for.
    fn moment(&self) -> Moment {
        self.now().into()
    }

    /// A future that is ready this long after that moment.
    fn sleep_after(&self, start: Moment, span: Ns) -> Self::Sleep {
        self.sleep_until(start.ns().saturating_add(span))
    }
}

/// tokio's clock and timer; they follow `tokio::time::pause`.
///
/// A call that must wait panics outside a tokio runtime with its time driver on, as tokio's own
/// timers do; one that succeeds at once needs neither.
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

/// The sleeper of a call that names none.
#[cfg(feature = "tokio")]
pub type DefaultSleeper = Tokio;

/// The sleeper of a call that names none: without the feature `tokio` it sleeps on nothing, and
/// such a call can only be made blocking.
#[cfg(not(feature = "tokio"))]
pub type DefaultSleeper = NameASleeperWithSleepingOn;

/// What a call sleeps on until one says `.sleeping_on(..)`.
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

    // Breaks if a moment that is still an instant is counted from another origin, or if its sleep
    // ends elsewhere than that of the same moment in nanoseconds.
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
        // What no timer reaches is no reason to panic.
        assert!(Tokio.sleep_after(start, NEVER).deadline() > tokio::time::Instant::now());
    }
}
