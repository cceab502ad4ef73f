//! The message of a unary request, kept for retries.
//!
//! The first attempt sends the application's own bytes. Small messages are copied: tonic encodes into
//! a buffer of 8 KiB, which a reference to a small message would keep alive, uncounted, for the
//! duration of the call.

use bytes::Bytes;

use crate::buffer_limits::Reservation;

/// The largest message that is copied rather than shared.
const COPIED_MAX: usize = 4096;
/// A buffered message.
#[derive(Debug)]
pub(super) struct BufferedMessage {
    bytes: Kept,
    /// Counts the message until it is dropped.
    _reservation: Reservation,
}

#[derive(Debug)]
enum Kept {
    Copied(Box<[u8]>),
    Shared(Bytes),
}

impl BufferedMessage {
    /// Buffers these bytes, which `reservation` counts.
    pub(super) fn new(bytes: &Bytes, reservation: Reservation) -> Self {
        let bytes = if bytes.len() > COPIED_MAX {
            Kept::Shared(bytes.clone())
        } else {
            Kept::Copied(Box::from(&**bytes))
        };
        BufferedMessage { bytes, _reservation: reservation }
    }

    /// The message for another attempt.
    pub(super) fn to_bytes(&self) -> Bytes {
        match &self.bytes {
            Kept::Copied(copy) => Bytes::copy_from_slice(copy),
            Kept::Shared(shared) => shared.clone(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::buffer_limits::BufferLimit;

    /// A buffered message of `len` bytes, and the limit that counts it.
    fn stored(len: usize) -> (BufferedMessage, Bytes, Arc<BufferLimit>) {
        let buffer_limit = Arc::new(BufferLimit::new(1 << 20));
        let bytes = Bytes::from(vec![7; len]);
        let mut reservation = Reservation::new(buffer_limit.clone(), 1 << 20);
        assert!(reservation.add(len as u64));
        (BufferedMessage::new(&bytes, reservation), bytes, buffer_limit)
    }

    #[test]
    fn buffered_message_is_counted_and_replayed_until_dropped() {
        for len in [0, 5, COPIED_MAX, COPIED_MAX + 1] {
            let (message, bytes, buffer_limit) = stored(len);
            assert_eq!(buffer_limit.used(), len as u64);
            for _ in 0..2 {
                assert_eq!(message.to_bytes(), bytes, "{len}");
            }
            drop(message);
            assert_eq!(buffer_limit.used(), 0);
        }
    }

    #[test]
    fn buffered_message_copies_small_messages() {
        for (len, holds) in [(COPIED_MAX, false), (COPIED_MAX + 1, true)] {
            let (_message, bytes, _) = stored(len);
            assert_eq!(!bytes.is_unique(), holds, "{len}");
        }
    }
}
