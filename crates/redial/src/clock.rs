//! Converts between [`Instant`] and the core's nanoseconds.

use std::sync::OnceLock;
use std::time::Instant;

use redial_core::Ns;

/// The origin lies this far before the first clock read, so a clock that a test pauses or sets back
/// stays after it.
const ORIGIN_OFFSET: Ns = 1 << 61;

/// Nanoseconds since the origin of this process.
pub(crate) fn to_ns(instant: Instant) -> Ns {
    let base = base();
    match instant.checked_duration_since(base) {
        Some(after) => ORIGIN_OFFSET.saturating_add(redial_core::ns(after)),
        None => ORIGIN_OFFSET.saturating_sub(redial_core::ns(base.duration_since(instant))),
    }
}

/// The instant of a time. One that does not fit is a century ahead, which no timer reaches.
#[cfg(feature = "tokio")]
pub(crate) fn to_instant(at: Ns) -> Instant {
    let base = base();
    match at.checked_sub(ORIGIN_OFFSET) {
        Some(span) => instant_after(base, span),
        None => base.checked_sub(redial_core::duration(ORIGIN_OFFSET - at)).unwrap_or(base),
    }
}

/// The instant this long after another; one that does not fit, as above.
#[cfg(feature = "tokio")]
pub(crate) fn instant_after(instant: Instant, span: Ns) -> Instant {
    let far = || instant + std::time::Duration::from_secs(100 * 365 * 86_400);
    instant.checked_add(redial_core::duration(span)).unwrap_or_else(far)
}

fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}
