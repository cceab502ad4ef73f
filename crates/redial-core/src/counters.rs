//! The state of a call without timers: 24 bytes beside the operation.

use crate::time::Ns;

/// Counters and flags of one call. State that is rarely needed (the previous delay, withdrawn
/// tokens) is kept by the [`Environment`](crate::Environment).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounters {
    /// When the call started.
    pub start: Ns,
    /// The sum of the delays so far.
    pub waited: Ns,
    /// Attempts started, without transparent retries.
    pub attempts: u32,
    /// Delays that the server chose: the backoff series continues at `attempts − hinted`.
    ///
    /// Saturates: after 65,535 hints in one call the series runs ahead.
    pub hinted: u16,
    /// Bit flags; bits from [`CallCounters::FIRST_DRIVER_BIT`] up are free for drivers.
    pub flags: u16,
}

impl CallCounters {
    /// The call is committed to one attempt and is not retried.
    pub const COMMITTED: u16 = 1;
    /// The call is not idempotent.
    pub const NOT_IDEMPOTENT: u16 = 1 << 1;
    /// A strategy decides on each failure.
    pub const USES_STRATEGY: u16 = 1 << 2;
    /// An attempt has ended. The core does not use this bit; drivers that run on counters alone do.
    pub const ENDED: u16 = 1 << 3;
    /// The first bit that is free for drivers.
    pub const FIRST_DRIVER_BIT: u16 = 1 << 4;

    /// The counters of a call that starts at `start`.
    #[must_use]
    pub const fn new(start: Ns) -> Self {
        CallCounters { start, waited: 0, attempts: 0, hinted: 0, flags: 0 }
    }

    /// Counts an attempt that starts, and returns its number.
    #[inline]
    pub const fn count(&mut self) -> u32 {
        self.attempts = self.attempts.saturating_add(1);
        self.attempts
    }

    /// Whether all of these bits are set.
    #[must_use]
    pub const fn has(&self, bits: u16) -> bool {
        self.flags & bits == bits
    }

    /// Sets these bits.
    pub const fn set(&mut self, bits: u16) {
        self.flags |= bits;
    }

    /// Clears these bits.
    pub const fn clear(&mut self, bits: u16) {
        self.flags &= !bits;
    }
}
