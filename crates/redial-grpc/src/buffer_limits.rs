//! Limits on the bytes that calls buffer for retries, per call and per channel (decision G25).
//! The limits are [`ClientOptions`](redial_service_config::ClientOptions), which also has their defaults.
//!
//! Invariant: `used <= limit` at every instant that any thread can observe. Reserved bytes are
//! returned exactly once: by [`Reservation`], when it is released or dropped.

use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// The buffer limit that the calls of one channel share.
#[derive(Debug)]
pub(crate) struct BufferLimit {
    /// A counter that publishes no other data, so all accesses are relaxed.
    used: AtomicU64,
    limit: u64,
}

impl BufferLimit {
    pub(crate) fn new(limit: u64) -> Self {
        BufferLimit { used: AtomicU64::new(0), limit }
    }

    /// Bytes reserved now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) -> bool {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            // A compare-exchange loop, not `fetch_add` with a rollback: until the rollback, other
            // calls that fit would be refused.
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

/// The bytes that one call has reserved.
#[derive(Debug)]
pub(crate) struct Reservation {
    buffer_limit: Arc<BufferLimit>,
    bytes: u64,
    limit: u64,
}

impl Reservation {
    /// An empty reservation of at most `limit` bytes.
    pub(crate) fn new(buffer_limit: Arc<BufferLimit>, limit: u64) -> Self {
        Reservation { buffer_limit, bytes: 0, limit }
    }

    /// Reserves more bytes; false if they exceed the limit of the call or of the channel.
    pub(crate) fn add(&mut self, bytes: u64) -> bool {
        let sum = self.bytes.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let Some(sum) = sum.filter(|_| self.buffer_limit.add(bytes)) else { return false };
        self.bytes = sum;
        true
    }

    /// Returns all reserved bytes.
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
        assert!(!call.add(1), "limit of the call");
        let mut other = Reservation::new(buffer_limit.clone(), 60);
        assert!(!other.add(41), "limit of the channel");
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
        assert_eq!(buffer_limit.used(), u64::MAX, "an empty reservation returns nothing");
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
