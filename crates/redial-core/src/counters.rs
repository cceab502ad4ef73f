//! The counters of one call: all the state that [`decide`](crate::decide) needs.

use crate::time::Ns;

/// The counters and properties of one call. State that is rarely needed (the previous delay,
/// withdrawn tokens) is kept by the [`Environment`](crate::Environment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCounters {
    /// When the call started.
    pub start: Ns,
    /// The sum of the delays so far.
    pub waited: Ns,
    /// Attempts started, without transparent retries.
    pub attempts: u32,
    /// Attempts before the series of delays started anew ([`Rules::reset_after`](crate::Rules)).
    pub earlier_attempts: u32,
    /// Delays that the server chose: the backoff series continues at `attempts − hinted`.
    ///
    /// Saturates: after 65,535 hints in one call the series runs ahead.
    pub hinted: u16,
    /// Whether the call is committed to one attempt and is not retried.
    pub committed: bool,
    /// Whether the call is idempotent, so that an attempt that may have run can be repeated.
    pub idempotent: bool,
    /// Whether a strategy decides on each failure.
    pub uses_strategy: bool,
}

impl CallCounters {
    /// The counters of an idempotent call without a strategy that starts at `start`.
    #[must_use]
    pub const fn new(start: Ns) -> Self {
        CallCounters {
            start,
            waited: 0,
            attempts: 0,
            earlier_attempts: 0,
            hinted: 0,
            committed: false,
            idempotent: true,
            uses_strategy: false,
        }
    }

    /// The attempts since the series of delays started.
    ///
    /// ```
    /// use redial_core::CallCounters;
    ///
    /// let counters = CallCounters { attempts: 5, earlier_attempts: 3, ..CallCounters::new(0) };
    /// assert_eq!(counters.attempts_in_series(), 2);
    /// ```
    #[must_use]
    pub const fn attempts_in_series(&self) -> u32 {
        self.attempts.saturating_sub(self.earlier_attempts)
    }

    /// Starts the series of delays anew: the last attempt counts as the first one.
    pub(crate) const fn start_series(&mut self) {
        self.earlier_attempts = self.attempts.saturating_sub(1);
        self.waited = 0;
        self.hinted = 0;
    }

    /// Counts an attempt that starts, and returns its number.
    pub const fn count(&mut self) -> u32 {
        self.attempts = self.attempts.saturating_add(1);
        self.attempts
    }
}
