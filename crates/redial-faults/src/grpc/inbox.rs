//! The request as it comes in: bytes, and the gRPC messages in them.
//!
//! Rule: a message is a flag, a length of four bytes and that many bytes of payload, however the
//! frames are cut. What is counted is all that came; what is kept is bounded.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Flag and length.
pub(super) const PREFIX_BYTES: usize = 5;
/// The largest message that can be echoed, as large as gRPC takes by default.
pub(super) const MESSAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How much of a request may wait for being echoed.
pub(super) const ECHO_BYTES_MAX: usize = 16 * 1024 * 1024;

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// What has come of a request.
#[derive(Debug)]
pub(super) struct Inbox {
    prefix: [u8; PREFIX_BYTES],
    have: usize,
    /// What is missing of a payload whose prefix is whole.
    missing: Option<u64>,
    /// The payload so far, if somebody wants it.
    payload: Option<BytesMut>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) digest: u64,
    pub(super) half_closed: bool,
    /// How many bytes of payload may still be kept for the record.
    room: u64,
    /// Messages that wait for being echoed, if the answer echoes.
    echo: Option<VecDeque<Bytes>>,
    echo_bytes: usize,
    /// More than can be echoed has come.
    overflow: bool,
}

impl Inbox {
    /// Keeps that many bytes of payload for the record.
    pub(super) fn new(kept_max: u64) -> Inbox {
        Inbox {
            prefix: [0; PREFIX_BYTES],
            have: 0,
            missing: None,
            payload: None,
            messages: 0,
            bytes: 0,
            digest: FNV_START,
            half_closed: false,
            room: kept_max,
            echo: None,
            echo_bytes: 0,
            overflow: false,
        }
    }

    /// Keeps messages for being echoed too.
    pub(super) fn keep_for_echo(&mut self) {
        self.echo = Some(VecDeque::new());
    }

    /// Whether more has come than can be echoed.
    pub(super) fn overflows(&self) -> bool {
        self.overflow
    }

    pub(super) fn has_echo(&self) -> bool {
        self.echo.as_ref().is_some_and(|echo| !echo.is_empty())
    }

    pub(super) fn next_echo(&mut self) -> Option<Bytes> {
        let message = self.echo.as_mut()?.pop_front()?;
        self.echo_bytes -= message.len();
        Some(message)
    }

    /// How many bytes the message that is under way lacks, as far as that is known: its prefix
    /// says the rest.
    pub(super) fn lacking(&self) -> u64 {
        self.missing.unwrap_or((PREFIX_BYTES - self.have) as u64)
    }

    /// Takes bytes, and gives the payloads to be kept of messages that they made whole.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Vec<Bytes> {
        self.bytes += bytes.len() as u64;
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
        }
        let mut kept = Vec::new();
        loop {
            match self.missing {
                None => {
                    let (piece, rest) = bytes.split_at((PREFIX_BYTES - self.have).min(bytes.len()));
                    bytes = rest;
                    self.prefix[self.have..self.have + piece.len()].copy_from_slice(piece);
                    self.have += piece.len();
                    if self.have < PREFIX_BYTES {
                        return kept;
                    }
                    self.have = 0;
                    self.begin();
                }
                Some(0) => {
                    self.missing = None;
                    kept.extend(self.end());
                }
                Some(_) if bytes.is_empty() => return kept,
                Some(missing) => {
                    let fits = usize::try_from(missing).unwrap_or(usize::MAX);
                    let (piece, rest) = bytes.split_at(fits.min(bytes.len()));
                    bytes = rest;
                    self.missing = Some(missing - piece.len() as u64);
                    if let Some(payload) = &mut self.payload {
                        payload.extend_from_slice(piece);
                    }
                }
            }
        }
    }

    fn begin(&mut self) {
        let [_, l1, l2, l3, l4] = self.prefix;
        let length = u64::from(u32::from_be_bytes([l1, l2, l3, l4]));
        self.missing = Some(length);
        let echoes = self.echo.is_some();
        self.overflow |= echoes && length > MESSAGE_BYTES_MAX;
        // What a prefix claims is not believed: the buffer grows with what comes.
        let wanted = length <= self.room || (echoes && !self.overflow);
        self.payload = wanted.then(BytesMut::new);
    }

    /// A message is whole. Gives its payload if it is to be kept.
    fn end(&mut self) -> Option<Bytes> {
        self.messages += 1;
        let payload = self.payload.take().map(BytesMut::freeze);
        if let (Some(echo), Some(payload)) = (&mut self.echo, &payload) {
            self.echo_bytes += payload.len();
            self.overflow |= self.echo_bytes > ECHO_BYTES_MAX;
            echo.push_back(payload.clone());
        }
        // The first messages are kept, without a gap.
        let kept = payload.filter(|payload| payload.len() as u64 <= self.room);
        self.room = kept.as_ref().map_or(0, |payload| self.room - payload.len() as u64);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[0], &length[..], payload].concat()
    }

    #[test]
    fn messages_are_found_however_the_bytes_are_cut() {
        let bytes = [message(b"first"), message(b""), message(&[7; 300])].concat();
        let mut whole = Inbox::new(1000);
        let kept = whole.take(&bytes);
        assert_eq!(kept, [&b"first"[..], b"", &[7; 300]]);
        for size in 1..20 {
            let mut inbox = Inbox::new(1000);
            let pieces: Vec<_> = bytes.chunks(size).flat_map(|piece| inbox.take(piece)).collect();
            assert_eq!(pieces, kept);
            assert_eq!((inbox.messages, inbox.bytes), (3, bytes.len() as u64));
            assert_eq!(inbox.digest, whole.digest);
            assert_eq!(inbox.lacking(), 5);
        }
    }

    #[test]
    fn what_a_message_lacks_is_known_from_its_prefix() {
        let mut inbox = Inbox::new(0);
        assert_eq!(inbox.lacking(), 5);
        inbox.take(&[0, 0, 0]);
        assert_eq!(inbox.lacking(), 2);
        inbox.take(&[0, 9]);
        assert_eq!(inbox.lacking(), 9);
        inbox.take(&[1; 4]);
        assert_eq!(inbox.lacking(), 5);
        inbox.take(&[1; 5]);
        assert_eq!((inbox.lacking(), inbox.messages), (5, 1));
    }

    #[test]
    fn payloads_are_kept_up_to_the_limit_and_without_a_gap() {
        let mut inbox = Inbox::new(8);
        assert_eq!(inbox.take(&message(b"12345678")), [&b"12345678"[..]]);
        assert!(inbox.take(&message(b"1")).is_empty());
        let mut inbox = Inbox::new(7);
        assert!(inbox.take(&message(b"12345678")).is_empty());
        assert!(inbox.take(&message(b"1")).is_empty(), "a gap would look like other messages");
        assert_eq!(inbox.messages, 2);
    }

    #[test]
    fn a_message_larger_than_an_echo_holds_overflows_and_is_not_kept() {
        let mut inbox = Inbox::new(0);
        inbox.keep_for_echo();
        let prefix =
            |length: u64| [&[0], &u32::try_from(length).unwrap().to_be_bytes()[..]].concat();
        inbox.take(&prefix(MESSAGE_BYTES_MAX));
        assert!(!inbox.overflows());
        inbox.take(&vec![1; MESSAGE_BYTES_MAX as usize]);
        assert!(inbox.has_echo());
        inbox.take(&prefix(MESSAGE_BYTES_MAX + 1));
        assert!(inbox.overflows());
    }

    #[test]
    fn what_waits_for_its_echo_is_bounded() {
        let mut inbox = Inbox::new(0);
        inbox.keep_for_echo();
        let large = message(&vec![1; MESSAGE_BYTES_MAX as usize]);
        for _ in 0..ECHO_BYTES_MAX / MESSAGE_BYTES_MAX as usize {
            inbox.take(&large);
        }
        assert!(!inbox.overflows());
        inbox.take(&message(b"1"));
        assert!(inbox.overflows());
    }
}
