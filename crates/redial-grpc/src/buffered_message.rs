//! The message of a unary request, kept for retries.
//!
//! The first attempt sends the application's own bytes. Small messages are copied: tonic encodes into
//! a buffer of 8 KiB, which a reference to a small message would keep alive, uncounted, for the
//! duration of the call.

use bytes::Bytes;

use crate::buffer_limits::Reservation;

/// The largest message that is copied rather than shared.
const COPIED_MAX: usize = 4096;
/// The largest capacity that a pooled message keeps for later calls.
const ROOM_MAX: usize = 256;

/// A buffered message, or an empty buffer.
#[derive(Debug)]
pub(crate) struct BufferedMessage {
    copy: Vec<u8>,
    /// A large message, shared instead of copied. Boxed, since large messages are rare.
    shared: Option<Box<Bytes>>,
    /// The reservation that counts the message; `None` if no message is buffered.
    reservation: Option<Reservation>,
}

impl BufferedMessage {
    /// No message and no capacity.
    pub(crate) const NONE: BufferedMessage =
        BufferedMessage { copy: Vec::new(), shared: None, reservation: None };

    /// Buffers these bytes, which `reservation` counts.
    pub(crate) fn store(&mut self, bytes: &Bytes, reservation: Reservation) {
        debug_assert!(
            self.reservation.is_none() && self.copy.is_empty(),
            "a message is already buffered"
        );
        if bytes.len() > COPIED_MAX {
            self.shared = Some(Box::new(bytes.clone()));
        } else {
            self.copy.reserve_exact(bytes.len());
            self.copy.extend_from_slice(bytes);
        }
        self.reservation = Some(reservation);
    }

    /// The message for another attempt, if one is buffered.
    pub(crate) fn to_bytes(&self) -> Option<Bytes> {
        self.reservation.as_ref()?;
        Some(match &self.shared {
            Some(shared) => Bytes::clone(shared),
            None => Bytes::copy_from_slice(&self.copy),
        })
    }

    /// Frees the message and its reservation.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.reservation.take().is_none() {
            return;
        }
        self.shared = None;
        self.copy.clear();
        if self.copy.capacity() > ROOM_MAX {
            self.copy = Vec::new();
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
        let mut message = BufferedMessage::NONE;
        message.store(&bytes, reservation);
        (message, bytes, buffer_limit)
    }

    #[test]
    fn buffered_message_is_replayed_until_cleared() {
        for len in [0, 5, ROOM_MAX, ROOM_MAX + 1, COPIED_MAX, COPIED_MAX + 1] {
            let (mut message, bytes, buffer_limit) = stored(len);
            assert_eq!(buffer_limit.used(), len as u64);
            for _ in 0..2 {
                assert_eq!(message.to_bytes().as_ref(), Some(&bytes), "{len}");
            }
            message.clear();
            assert_eq!(message.to_bytes(), None);
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

    #[test]
    fn buffered_message_keeps_little_capacity_for_later_calls() {
        for (len, room) in [(ROOM_MAX, ROOM_MAX), (ROOM_MAX + 1, 0)] {
            let (mut message, ..) = stored(len);
            message.clear();
            assert_eq!(message.copy.capacity(), room);
        }
    }
}
