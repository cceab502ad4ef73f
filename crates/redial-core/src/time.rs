//! Points in time and durations in whole nanoseconds (decision P2).
//!
//! Invariant: arithmetic saturates; it neither wraps nor panics.

use core::time::Duration;

/// A point in time or a duration in nanoseconds; time zero is chosen by the caller.
///
/// 64 bits hold about 584 years. Longer durations saturate to [`NEVER`].
pub type Ns = u64;

/// A point in time after every timer.
pub const NEVER: Ns = Ns::MAX;

/// A [`Duration`] in nanoseconds; saturates to [`NEVER`].
#[must_use]
pub const fn ns(span: Duration) -> Ns {
    let whole = span.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(span.subsec_nanos() as u64)
}

/// Nanoseconds as a [`Duration`].
#[must_use]
pub const fn duration(span: Ns) -> Duration {
    Duration::from_nanos(span)
}

/// A duration in milliseconds; works in a `static`.
#[must_use]
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A duration in seconds; works in a `static`.
#[must_use]
pub const fn s(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
