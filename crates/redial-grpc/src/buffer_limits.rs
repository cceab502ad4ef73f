//! How many bytes all calls of a channel keep for repetition (decision G25).
//!
//! Invariant: `used <= limit` at every instant that any thread can observe, and what was added is
//! taken off exactly once: by [`Reservation`], when it is released or dropped.

use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// The bytes that the calls of one channel keep.
#[derive(Debug)]
pub(crate) struct BufferLimit {
    /// A count that publishes nothing but itself, so every access is relaxed.
    used: AtomicU64,
    limit: u64,
}

impl BufferLimit {
    pub(crate) fn new(limit: u64) -> Self {
        BufferLimit { used: AtomicU64::new(0), limit }
    }

    /// What is kept now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) -> bool {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            // A plain addition that is taken back when it was too much would refuse others
            // meanwhile, who fit.
            let next = used.checked_add(bytes).filter(|next| *next <= self.limit);
            let Some(next) = next else { return false };
            match self.used.compare_exchange_weak(used, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(current) => used = current,
            }
        }
    }
}

/// What one call keeps of its channel's room.
#[derive(Debug)]
pub(crate) struct Reservation {
    buffer_limit: Arc<BufferLimit>,
    bytes: u64,
    limit: u64,
}

impl Reservation {
    /// Nothing yet, of at most `limit` bytes.
    pub(crate) fn new(buffer_limit: Arc<BufferLimit>, limit: u64) -> Self {
        Reservation { buffer_limit, bytes: 0, limit }
    }

    /// Counts so many bytes more, if they fit both limits.
    pub(crate) fn add(&mut self, bytes: u64) -> bool {
        let sum = self.bytes.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let Some(sum) = sum.filter(|_| self.buffer_limit.add(bytes)) else { return false };
        self.bytes = sum;
        true
    }

    /// Counts nothing any more.
    pub(crate) fn release(&mut self) {
        if self.bytes > 0 {
            self.buffer_limit.used.fetch_sub(self.bytes, Ordering::Relaxed);
            self.bytes = 0;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buffer_limit_is_inclusive() {
        let buffer_limit = Arc::new(BufferLimit::new(100));
        let mut call = Reservation::new(buffer_limit.clone(), 60);
        assert!(call.add(60));
        assert!(!call.add(1), "the call's own limit");
        let mut other = Reservation::new(buffer_limit.clone(), 60);
        assert!(!other.add(41), "the channel's limit");
        assert!(other.add(40));
        assert_eq!(buffer_limit.used(), 100);
        call.release();
        call.release();
        assert_eq!(buffer_limit.used(), 40);
        drop(other);
        assert_eq!(buffer_limit.used(), 0);
    }

    #[test]
    fn buffer_limit_rejects_overflowing_sums() {
        let buffer_limit = Arc::new(BufferLimit::new(u64::MAX));
        let mut call = Reservation::new(buffer_limit.clone(), u64::MAX);
        assert!(call.add(u64::MAX));
        assert!(call.add(0));
        assert!(!call.add(1));
        let mut other = Reservation::new(buffer_limit.clone(), u64::MAX);
        assert!(!other.add(1), "the channel is full");
        assert!(other.add(0));
        drop(other);
        assert_eq!(buffer_limit.used(), u64::MAX, "who added nothing takes nothing off");
        drop(call);
        assert_eq!(buffer_limit.used(), 0);
    }

    #[test]
    fn buffer_limit_of_zero_rejects_all_bytes() {
        for (channel, own) in [(0, 1), (1, 0)] {
            let mut call = Reservation::new(Arc::new(BufferLimit::new(channel)), own);
            assert!(!call.add(1));
            assert!(call.add(0));
        }
    }
}
