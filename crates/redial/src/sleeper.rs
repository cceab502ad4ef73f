//! Clocks and timers: what an async driver waits with.

use redial_core::Ns;

/// A clock and its timer. Implement it to run on another executor or on virtual time.
///
/// ```
/// use redial::{Ns, Sleeper};
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
        crate::clock::moment(tokio::time::Instant::now().into_std())
    }

    fn sleep_until(&self, at: Ns) -> Self::Sleep {
        tokio::time::sleep_until(crate::clock::instant(at).into())
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
