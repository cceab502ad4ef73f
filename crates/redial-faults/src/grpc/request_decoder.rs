//! Decodes the gRPC messages of a request body that arrives in arbitrary chunks.
//!
//! A message is a flag, a length of four bytes and that many bytes of payload. The counters cover
//! everything that arrived; the memory for kept payloads is bounded.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Flag and length.
pub(super) const PREFIX_BYTES: usize = 5;
/// The largest message that can be echoed: gRPC's default limit.
pub(super) const MESSAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How many bytes of a request may be queued for the echo.
pub(super) const ECHO_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The digest of no bytes.
pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a (64 bits): the digest after these further bytes.
pub(crate) fn fnv(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// The state of one request.
#[derive(Debug)]
pub(super) struct RequestDecoder {
    prefix: [u8; PREFIX_BYTES],
    have: usize,
    /// The missing bytes of the current payload, once its prefix is complete.
    missing: Option<u64>,
    /// The payload so far, if it is recorded or echoed.
    payload: Option<BytesMut>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) digest: u64,
    pub(super) half_closed: bool,
    /// How many more payload bytes the record may keep.
    room: u64,
    /// Messages queued for the echo, if the answer echoes.
    echo: Option<VecDeque<Bytes>>,
    echo_bytes: usize,
    /// The request exceeded a limit of the echo.
    overflow: bool,
}

impl RequestDecoder {
    /// Keeps up to this many payload bytes for the record.
    pub(super) fn new(kept_max: u64) -> RequestDecoder {
        RequestDecoder {
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

    /// Queues messages for the echo as well.
    pub(super) fn keep_for_echo(&mut self) {
        self.echo = Some(VecDeque::new());
    }

    /// Whether the request exceeded a limit of the echo.
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

    /// The missing bytes of the current message or, before its length is known, of its prefix.
    pub(super) fn bytes_missing(&self) -> u64 {
        self.missing.unwrap_or((PREFIX_BYTES - self.have) as u64)
    }

    /// Decodes bytes, and returns the payloads to record of the messages that are now complete.
    pub(super) fn decode(&mut self, mut bytes: &[u8]) -> Vec<Bytes> {
        self.bytes += bytes.len() as u64;
        self.digest = fnv(self.digest, bytes);
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
                    self.start_message();
                }
                Some(0) => {
                    self.missing = None;
                    kept.extend(self.finish_message());
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

    fn start_message(&mut self) {
        let [_, l1, l2, l3, l4] = self.prefix;
        let length = u64::from(u32::from_be_bytes([l1, l2, l3, l4]));
        self.missing = Some(length);
        let echoes = self.echo.is_some();
        self.overflow |= echoes && length > MESSAGE_BYTES_MAX;
        // The length in a prefix is untrusted: the buffer grows with the received data.
        let wanted = length <= self.room || (echoes && !self.overflow);
        self.payload = wanted.then(BytesMut::new);
    }

    /// Completes a message, and returns its payload if the record keeps it.
    fn finish_message(&mut self) -> Option<Bytes> {
        self.messages += 1;
        let payload = self.payload.take().map(BytesMut::freeze);
        if let (Some(echo), Some(payload)) = (&mut self.echo, &payload) {
            self.echo_bytes += payload.len();
            self.overflow |= self.echo_bytes > ECHO_BYTES_MAX;
            echo.push_back(payload.clone());
        }
        // Only the first messages are kept: a gap would look like a different request.
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
    fn request_decoder_finds_messages_for_any_read_size() {
        let bytes = [message(b"first"), message(b""), message(&[7; 300])].concat();
        let mut whole = RequestDecoder::new(1000);
        let kept = whole.decode(&bytes);
        assert_eq!(kept, [&b"first"[..], b"", &[7; 300]]);
        for size in 1..20 {
            let mut decoder = RequestDecoder::new(1000);
            let pieces: Vec<_> =
                bytes.chunks(size).flat_map(|piece| decoder.decode(piece)).collect();
            assert_eq!(pieces, kept);
            assert_eq!((decoder.messages, decoder.bytes), (3, bytes.len() as u64));
            assert_eq!(decoder.digest, whole.digest);
            assert_eq!(decoder.bytes_missing(), 5);
        }
    }

    #[test]
    fn request_decoder_counts_missing_bytes_from_the_prefix() {
        let mut decoder = RequestDecoder::new(0);
        assert_eq!(decoder.bytes_missing(), 5);
        decoder.decode(&[0, 0, 0]);
        assert_eq!(decoder.bytes_missing(), 2);
        decoder.decode(&[0, 9]);
        assert_eq!(decoder.bytes_missing(), 9);
        decoder.decode(&[1; 4]);
        assert_eq!(decoder.bytes_missing(), 5);
        decoder.decode(&[1; 5]);
        assert_eq!((decoder.bytes_missing(), decoder.messages), (5, 1));
    }

    #[test]
    fn payloads_are_kept_up_to_limit_without_a_gap() {
        let mut decoder = RequestDecoder::new(8);
        assert_eq!(decoder.decode(&message(b"12345678")), [&b"12345678"[..]]);
        assert!(decoder.decode(&message(b"1")).is_empty());
        let mut decoder = RequestDecoder::new(7);
        assert!(decoder.decode(&message(b"12345678")).is_empty());
        assert!(decoder.decode(&message(b"1")).is_empty(), "a gap would look like other messages");
        assert_eq!(decoder.messages, 2);
    }

    #[test]
    fn request_decoder_echo_overflows_on_a_large_message() {
        let mut decoder = RequestDecoder::new(0);
        decoder.keep_for_echo();
        let prefix =
            |length: u64| [&[0], &u32::try_from(length).unwrap().to_be_bytes()[..]].concat();
        decoder.decode(&prefix(MESSAGE_BYTES_MAX));
        assert!(!decoder.overflows());
        decoder.decode(&vec![1; MESSAGE_BYTES_MAX as usize]);
        assert!(decoder.has_echo());
        decoder.decode(&prefix(MESSAGE_BYTES_MAX + 1));
        assert!(decoder.overflows());
    }

    #[test]
    fn request_decoder_echo_queue_is_bounded() {
        let mut decoder = RequestDecoder::new(0);
        decoder.keep_for_echo();
        let large = message(&vec![1; MESSAGE_BYTES_MAX as usize]);
        for _ in 0..ECHO_BYTES_MAX / MESSAGE_BYTES_MAX as usize {
            decoder.decode(&large);
        }
        assert!(!decoder.overflows());
        decoder.decode(&message(b"1"));
        assert!(decoder.overflows());
    }
}
