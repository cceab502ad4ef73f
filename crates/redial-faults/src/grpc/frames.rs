//! The HTTP/2 frames that the wire parses or sends (RFC 9113, sections 4 and 6).

use bytes::{BufMut, Bytes, BytesMut};
use h2::Reason;

/// The frame header: length, type, flags, stream.
pub(super) const HEAD_BYTES: usize = 9;
/// The client's connection preface.
pub(super) const PREFACE_BYTES: usize = 24;
/// The largest possible stream id.
pub(super) const STREAM_ID_MAX: u32 = (1 << 31) - 1;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;

const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const SETTING_BYTES: usize = 6;

/// `END_STREAM` on DATA and HEADERS, ACK on SETTINGS.
const FLAG_END: u8 = 1;

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) kind: u8,
    flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    pub(super) fn parse(bytes: [u8; HEAD_BYTES]) -> FrameHeader {
        let [l1, l2, l3, kind, flags, s1, s2, s3, s4] = bytes;
        FrameHeader {
            length: u32::from_be_bytes([0, l1, l2, l3]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s1, s2, s3, s4]) & STREAM_ID_MAX,
        }
    }

    /// A frame with this (small) payload.
    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Bytes {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        debug_assert!(length[0] == 0, "a length has three bytes");
        let mut frame = BytesMut::with_capacity(HEAD_BYTES + payload.len());
        frame.put_slice(&length[1..]);
        frame.put_u8(kind);
        frame.put_u8(0);
        frame.put_u32(stream);
        frame.put_slice(payload);
        frame.freeze()
    }

    /// Whether this frame ends its half of the stream.
    pub(super) fn ends_stream(self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & FLAG_END != 0
    }

    /// Whether this is a SETTINGS frame and not its acknowledgement.
    pub(super) fn is_settings(self) -> bool {
        self.kind == SETTINGS && self.flags & FLAG_END == 0
    }
}

pub(super) fn window_update(stream: u32, bytes: u32) -> Bytes {
    FrameHeader::frame(WINDOW_UPDATE, stream, &bytes.to_be_bytes())
}

pub(super) fn go_away(last: u32, reason: Reason, debug: &[u8]) -> Bytes {
    let mut payload = BytesMut::with_capacity(8 + debug.len());
    payload.put_u32(last);
    payload.put_u32(u32::from(reason));
    payload.put_slice(debug);
    FrameHeader::frame(GOAWAY, 0, &payload)
}

/// The SETTINGS of `h2` with our values: an initial window of 0 and the stream limit, if any.
pub(super) fn settings(theirs: &[u8], concurrent_max: Option<u32>) -> Bytes {
    let mut payload = BytesMut::with_capacity(theirs.len() + 2 * SETTING_BYTES);
    for setting in theirs.chunks_exact(SETTING_BYTES) {
        let id = u16::from_be_bytes([setting[0], setting[1]]);
        if id != INITIAL_WINDOW_SIZE && id != MAX_CONCURRENT_STREAMS {
            payload.put_slice(setting);
        }
    }
    payload.put_u16(INITIAL_WINDOW_SIZE);
    payload.put_u32(0);
    if let Some(max) = concurrent_max {
        payload.put_u16(MAX_CONCURRENT_STREAMS);
        payload.put_u32(max);
    }
    FrameHeader::frame(SETTINGS, 0, &payload)
}

/// Splits a byte stream into frames, for chunks of any size.
#[derive(Debug)]
pub(super) struct FrameSplitter {
    /// Bytes before the first frame still to skip.
    skip: usize,
    head: [u8; HEAD_BYTES],
    have: usize,
    /// The current frame, and how many bytes of its payload are missing.
    current: Option<(FrameHeader, usize)>,
}

/// A part of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FramePart<'b> {
    /// Bytes before the first frame.
    Preface(&'b [u8]),
    /// A complete frame header.
    FrameHeader(FrameHeader, [u8; HEAD_BYTES]),
    /// A part of its payload.
    Payload(FrameHeader, &'b [u8]),
    /// The end of the frame.
    End(FrameHeader),
}

impl FrameSplitter {
    pub(super) fn new(skip: usize) -> FrameSplitter {
        FrameSplitter { skip, head: [0; HEAD_BYTES], have: 0, current: None }
    }

    /// Whether the last frame is complete.
    pub(super) fn between_frames(&self) -> bool {
        self.current.is_none() && self.have == 0
    }

    /// Takes the next part from `bytes`; `None` when more bytes are needed.
    pub(super) fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<FramePart<'b>> {
        if let Some((head, 0)) = self.current {
            self.current = None;
            return Some(FramePart::End(head));
        }
        if bytes.is_empty() {
            return None;
        }
        if self.skip > 0 {
            let (piece, rest) = bytes.split_at(self.skip.min(bytes.len()));
            *bytes = rest;
            self.skip -= piece.len();
            return Some(FramePart::Preface(piece));
        }
        if let Some((head, missing)) = &mut self.current {
            let (piece, rest) = bytes.split_at((*missing).min(bytes.len()));
            *bytes = rest;
            *missing -= piece.len();
            return Some(FramePart::Payload(*head, piece));
        }
        let (piece, rest) = bytes.split_at((HEAD_BYTES - self.have).min(bytes.len()));
        *bytes = rest;
        self.head[self.have..self.have + piece.len()].copy_from_slice(piece);
        self.have += piece.len();
        if self.have < HEAD_BYTES {
            return None;
        }
        self.have = 0;
        let head = FrameHeader::parse(self.head);
        self.current = Some((head, head.length));
        Some(FramePart::FrameHeader(head, self.head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers and payloads of these bytes, read in chunks of `size`.
    fn split(bytes: &[u8], skip: usize, size: usize) -> Vec<(FrameHeader, Vec<u8>)> {
        let mut splitter = FrameSplitter::new(skip);
        let mut frames = Vec::new();
        let mut payload = Vec::new();
        for mut piece in bytes.chunks(size) {
            while let Some(piece) = splitter.next(&mut piece) {
                match piece {
                    FramePart::Preface(_) | FramePart::FrameHeader(..) => {}
                    FramePart::Payload(_, bytes) => payload.extend_from_slice(bytes),
                    FramePart::End(head) => frames.push((head, std::mem::take(&mut payload))),
                }
            }
        }
        assert!(splitter.between_frames());
        frames
    }

    #[test]
    fn frames_are_split_for_any_read_size() {
        let mut bytes = b"the preface".to_vec();
        bytes.extend_from_slice(&window_update(5, 77));
        bytes.extend_from_slice(&FrameHeader::frame(DATA, 7, b""));
        bytes.extend_from_slice(&go_away(3, Reason::ENHANCE_YOUR_CALM, b"why"));
        let whole = split(&bytes, 11, bytes.len());
        let seen: Vec<_> = whole.iter().map(|(head, _)| (head.kind, head.stream)).collect();
        assert_eq!(seen, [(WINDOW_UPDATE, 5), (DATA, 7), (GOAWAY, 0)]);
        assert_eq!(whole[0].1, 77_u32.to_be_bytes());
        assert_eq!(whole[2].1, [&[0, 0, 0, 3, 0, 0, 0, 11], &b"why"[..]].concat());
        for size in 1..bytes.len() {
            assert_eq!(split(&bytes, 11, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn frames_only_data_and_headers_end_a_stream() {
        let head = |kind, flags| FrameHeader { length: 0, kind, flags, stream: 1 };
        assert!(head(DATA, 1).ends_stream() && head(HEADERS, 5).ends_stream());
        assert!(!head(DATA, 4).ends_stream() && !head(SETTINGS, 1).ends_stream());
        assert!(head(SETTINGS, 0).is_settings() && !head(SETTINGS, 1).is_settings());
    }

    #[test]
    fn frames_settings_keep_foreign_values() {
        let mut theirs = BytesMut::new();
        for (id, number) in [(4_u16, 65_536_u32), (5, 16_384), (3, 9)] {
            theirs.put_u16(id);
            theirs.put_u32(number);
        }
        let frame = settings(&theirs, Some(2));
        let numbers: Vec<_> = frame[HEAD_BYTES..]
            .chunks(SETTING_BYTES)
            .map(|it| (it[1], u32::from_be_bytes([it[2], it[3], it[4], it[5]])))
            .collect();
        assert_eq!(numbers, [(5, 16_384), (4, 0), (3, 2)]);
        assert_eq!(settings(&theirs, None).len(), HEAD_BYTES + 2 * SETTING_BYTES);
    }
}
