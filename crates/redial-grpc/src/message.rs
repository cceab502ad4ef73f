//! A message that was there whole when its call began, kept for further attempts.
//!
//! The first attempt is sent the application's own bytes. What is kept is a copy of them if they
//! are few: tonic encodes a message into a buffer of 8 KiB, which a small message would otherwise
//! hold on to, uncounted, for as long as its call runs.

use bytes::Bytes;

use crate::meter::Held;

/// The largest message that is copied to be kept.
const COPIED_MAX: usize = 4096;
/// The most room that stays for the messages of later calls.
const ROOM_MAX: usize = 256;

/// What is kept of a message, and the room for it.
#[derive(Debug)]
pub(crate) struct Message {
    copy: Vec<u8>,
    /// In place of the copy, if it is large; in a box, since few are.
    shared: Option<Box<Bytes>>,
    /// What counts against the limits; none if nothing is kept.
    held: Option<Held>,
}

impl Message {
    /// Nothing, and no room.
    pub(crate) const NONE: Message = Message { copy: Vec::new(), shared: None, held: None };

    /// Keeps these bytes, which `held` counts.
    pub(crate) fn keep(&mut self, bytes: &Bytes, held: Held) {
        debug_assert!(self.held.is_none() && self.copy.is_empty(), "a message is kept already");
        if bytes.len() > COPIED_MAX {
            self.shared = Some(Box::new(bytes.clone()));
        } else {
            self.copy.reserve_exact(bytes.len());
            self.copy.extend_from_slice(bytes);
        }
        self.held = Some(held);
    }

    /// The message for one more attempt, if it is kept.
    pub(crate) fn again(&self) -> Option<Bytes> {
        self.held.as_ref()?;
        Some(match &self.shared {
            Some(shared) => Bytes::clone(shared),
            None => Bytes::copy_from_slice(&self.copy),
        })
    }

    /// Nobody needs it any more.
    #[inline]
    pub(crate) fn forget(&mut self) {
        if self.held.take().is_none() {
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
    use crate::meter::Meter;

    /// A message of so many bytes that is kept, and the meter that counts it.
    fn kept(len: usize) -> (Message, Bytes, Arc<Meter>) {
        let meter = Arc::new(Meter::new(1 << 20));
        let bytes = Bytes::from(vec![7; len]);
        let mut held = Held::new(meter.clone(), 1 << 20);
        assert!(held.add(len as u64));
        let mut message = Message::NONE;
        message.keep(&bytes, held);
        (message, bytes, meter)
    }

    #[test]
    fn every_attempt_gets_the_same_until_it_is_forgotten() {
        for len in [0, 5, ROOM_MAX, ROOM_MAX + 1, COPIED_MAX, COPIED_MAX + 1] {
            let (mut message, bytes, meter) = kept(len);
            assert_eq!(meter.used(), len as u64);
            for _ in 0..2 {
                assert_eq!(message.again().as_ref(), Some(&bytes), "{len}");
            }
            message.forget();
            assert_eq!(message.again(), None);
            assert_eq!(meter.used(), 0);
        }
    }

    #[test]
    fn a_small_message_does_not_hold_on_to_the_applications_buffer() {
        for (len, holds) in [(COPIED_MAX, false), (COPIED_MAX + 1, true)] {
            let (_message, bytes, _) = kept(len);
            assert_eq!(!bytes.is_unique(), holds, "{len}");
        }
    }

    #[test]
    fn little_room_stays_for_later_calls() {
        for (len, room) in [(ROOM_MAX, ROOM_MAX), (ROOM_MAX + 1, 0)] {
            let (mut message, ..) = kept(len);
            message.forget();
            assert_eq!(message.copy.capacity(), room);
        }
    }
}
