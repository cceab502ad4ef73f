//! Moments and spans in whole nanoseconds (decision P2).
//!
//! Invariant: arithmetic on them saturates; nothing wraps and nothing panics.

use core::time::Duration;

/// A moment or a span in nanoseconds; a moment counts from an origin that the caller chooses.
///
/// 64 bits hold some 584 years. What does not fit is played as the largest value, [`NEVER`].
pub type Ns = u64;

/// The moment that does not come: later than every timer.
pub const NEVER: Ns = Ns::MAX;

/// The span as nanoseconds; one that does not fit saturates to [`NEVER`].
#[must_use]
pub const fn ns(span: Duration) -> Ns {
    let whole = span.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(span.subsec_nanos() as u64)
}

/// The nanoseconds as a [`Duration`].
#[must_use]
pub const fn duration(span: Ns) -> Duration {
    Duration::from_nanos(span)
}

/// So many milliseconds; works in a `static`.
#[must_use]
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// So many seconds; works in a `static`.
#[must_use]
pub const fn s(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
