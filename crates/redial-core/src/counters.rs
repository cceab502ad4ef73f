//! What every call remembers: 24 bytes beside the operation.

use crate::time::Ns;

/// The memory of one call. What is rarely needed (the previous delay, what was paid) is the
/// [`Environment`](crate::World)'s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounters {
    /// When the call began.
    pub start: Ns,
    /// The sum of the delays so far.
    pub waited: Ns,
    /// Attempts started; replacements do not count.
    pub attempts: u32,
    /// Delays that were not the backoff's own: the series' next number is `attempts − hinted`.
    ///
    /// It stops at its largest value: after 65,535 hints in one call the series runs ahead.
    pub hinted: u16,
    /// Bits; the low ones are the core's, those from [`CallCounters::FIRST_DRIVER_BIT`] up are the driver's.
    pub flags: u16,
}

impl CallCounters {
    /// The call belongs to one attempt and is never repeated.
    pub const COMMITTED: u16 = 1;
    /// The call must not run twice.
    pub const NOT_IDEMPOTENT: u16 = 1 << 1;
    /// A strategy is asked about each failure.
    pub const USES_STRATEGY: u16 = 1 << 2;
    /// An attempt has ended. The core leaves this bit to drivers that keep the ledger themselves.
    pub const ENDED: u16 = 1 << 3;
    /// The first bit that the core leaves to the driver.
    pub const FIRST_DRIVER_BIT: u16 = 1 << 4;

    /// A call that begins now.
    #[must_use]
    pub const fn new(start: Ns) -> Self {
        CallCounters { start, waited: 0, attempts: 0, hinted: 0, flags: 0 }
    }

    /// Counts an attempt that starts, and says which one it is.
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
