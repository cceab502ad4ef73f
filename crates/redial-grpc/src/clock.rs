//! The clock of a layer.

use std::time::Duration;

use redial_core::{Ns, duration, ns};
use tokio::time::Instant;

/// A clock in nanoseconds since the creation of its layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Ns {
        ns(Instant::now().saturating_duration_since(self.0))
    }

    /// Converts an instant to nanoseconds.
    pub(crate) fn moment(self, at: Instant) -> Ns {
        ns(at.saturating_duration_since(self.0))
    }

    /// Converts nanoseconds to an instant.
    pub(crate) fn at(self, moment: Ns) -> Instant {
        after(self.0, duration(moment))
    }
}

/// `start + span`, saturating far in the future.
pub(crate) fn after(start: Instant, span: Duration) -> Instant {
    start.checked_add(span).unwrap_or_else(|| start + FAR)
}

/// Thirty years: the same limit that tokio uses for a time that never comes.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);
