//! Frames of the memcached binary protocol: a header of 24 bytes, then extras, key and value.
//!
//! | bytes | request | response |
//! | --- | --- | --- |
//! | 0 | magic 0x80 | magic 0x81, or 0x18 with framing extras |
//! | 1 | opcode | opcode |
//! | 2..4 | key length | key length; with 0x18 framing extras length, key length |
//! | 4, 5 | extras length, datatype | extras length, datatype |
//! | 6..8 | vbucket | status |
//! | 8..12 | body length | body length |
//! | 12..16 | opaque | the request's opaque |
//! | 16..24 | CAS | CAS |

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;

/// The length of a header.
pub(crate) const HEADER_BYTES: usize = 24;
/// The maximum length of a document key in the default collection: the server's limit.
pub const KEY_BYTES_MAX: usize = 250;
/// The maximum length of a document key in any other collection, whose id takes up to 5 bytes more on
/// the wire: the server's limit.
pub const COLLECTION_KEY_BYTES_MAX: usize = 246;
/// The maximum length of a value: Couchbase's limit of a document.
pub const VALUE_BYTES_MAX: usize = 20 << 20;
/// The maximum length of a response's body: a document, its key and extras, with room for extended
/// attributes.
pub const BODY_BYTES_MAX: usize = 24 << 20;

/// The maximum length of a body that is read as an extended error.
const EXTENDED_ERROR_BYTES_MAX: usize = 4 << 10;
/// The maximum length of a body that is copied out of the read buffer, so that a small document that the
/// application keeps does not keep the whole buffer.
const COPIED_BYTES_MAX: usize = 4 << 10;

const MAGIC_REQUEST: u8 = 0x80;
const MAGIC_RESPONSE: u8 = 0x81;
const MAGIC_RESPONSE_FRAMED: u8 = 0x18;

/// The extras of a request: at most 20 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    bytes: [u8; Extras::BYTES_MAX],
    length: u8,
}

impl Extras {
    const BYTES_MAX: usize = 20;

    /// Adds bytes. What exceeds the maximum would be a bug of this crate and is cut off.
    pub(crate) fn with(mut self, added: &[u8]) -> Self {
        let start = usize::from(self.length);
        let end = (start + added.len()).min(Extras::BYTES_MAX);
        debug_assert_eq!(end, start + added.len());
        self.bytes[start..end].copy_from_slice(&added[..end - start]);
        self.length = end as u8;
        self
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub(crate) fn set(&mut self, at: usize, bytes: [u8; 4]) {
        self.bytes[at..at + 4].copy_from_slice(&bytes);
    }
}

/// A request frame, with its parts in the order of the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFrame<'a> {
    pub(crate) opcode: u8,
    pub(crate) vbucket: u16,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) extras: &'a [u8],
    /// The prefix of the collection; part of the key on the wire.
    pub(crate) key_prefix: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl RequestFrame<'_> {
    fn key_length(&self) -> usize {
        self.key_prefix.len() + self.key.len()
    }

    fn body_length(&self) -> usize {
        self.extras.len() + self.key_length() + self.value.len()
    }

    /// The length of the frame.
    pub(crate) fn encoded_bytes(&self) -> usize {
        HEADER_BYTES + self.body_length()
    }

    /// The bytes of the frame. The caller has checked the lengths of key and value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (key_length, body_length) = (self.key_length(), self.body_length());
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        bytes.extend([MAGIC_REQUEST, self.opcode]);
        bytes.extend((key_length as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0]);
        bytes.extend(self.vbucket.to_be_bytes());
        bytes.extend((body_length as u32).to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        bytes.extend(self.extras);
        bytes.extend(self.key_prefix);
        bytes.extend(self.key);
        bytes.extend(self.value);
        bytes
    }
}

/// A response frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseFrame {
    pub(crate) opcode: u8,
    pub(crate) status: u16,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) extras: Bytes,
    pub(crate) value: Bytes,
}

/// The body of an extended error, which the client asks for in HELLO.
#[derive(Deserialize)]
struct ExtendedError {
    error: Explanation,
}

#[derive(Deserialize)]
struct Explanation {
    context: Option<String>,
    /// What the server's log has about it.
    #[serde(rename = "ref")]
    reference: Option<String>,
}

impl ResponseFrame {
    /// The server's explanation of an error, if the body is one.
    pub(crate) fn explanation(&self) -> Option<String> {
        let is_text = self.value.first() == Some(&b'{');
        if !is_text || self.value.len() > EXTENDED_ERROR_BYTES_MAX {
            return None;
        }
        let ExtendedError { error } = serde_json::from_slice(&self.value).ok()?;
        match (error.context, error.reference) {
            (Some(context), Some(reference)) => Some(format!("{context} (ref {reference})")),
            (Some(context), None) => Some(context),
            (None, reference) => reference.map(|reference| format!("ref {reference}")),
        }
    }

    /// Takes the next frame out of the buffer; `None` if it is not complete.
    ///
    /// # Errors
    /// The bytes are not a response; the connection cannot be used any more.
    pub(crate) fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else {
            // The magic is checked as soon as it is there: another protocol may send less.
            return match buffer.first() {
                Some(magic) => check_magic(*magic).map(|()| None),
                None => Ok(None),
            };
        };
        let mut header = &header[..];
        let magic = header.get_u8();
        check_magic(magic)?;
        let opcode = header.get_u8();
        let (framing_length, key_length) = if magic == MAGIC_RESPONSE_FRAMED {
            (usize::from(header.get_u8()), usize::from(header.get_u8()))
        } else {
            (0, usize::from(header.get_u16()))
        };
        let extras_length = usize::from(header.get_u8());
        header.advance(1);
        let status = header.get_u16();
        let body_length = header.get_u32() as usize;
        let (opaque, cas) = (header.get_u32(), header.get_u64());
        if body_length > BODY_BYTES_MAX {
            return Err(FrameError::TooLong(body_length));
        }
        let before_value = framing_length + extras_length + key_length;
        if before_value > body_length {
            return Err(FrameError::Lengths { parts: before_value, body: body_length });
        }
        if buffer.len() < HEADER_BYTES + body_length {
            buffer.reserve(HEADER_BYTES + body_length - buffer.len());
            return Ok(None);
        }
        buffer.advance(HEADER_BYTES);
        let mut body = if body_length <= COPIED_BYTES_MAX {
            let body = Bytes::copy_from_slice(&buffer[..body_length]);
            buffer.advance(body_length);
            body
        } else {
            buffer.split_to(body_length).freeze()
        };
        body.advance(framing_length);
        let extras = body.split_to(extras_length);
        body.advance(key_length);
        Ok(Some(ResponseFrame { opcode, status, opaque, cas, extras, value: body }))
    }
}

const fn check_magic(magic: u8) -> Result<(), FrameError> {
    match magic {
        MAGIC_RESPONSE | MAGIC_RESPONSE_FRAMED => Ok(()),
        other => Err(FrameError::Magic(other)),
    }
}

/// The bytes from the server are not a response frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    Magic(u8),
    TooLong(usize),
    Lengths { parts: usize, body: usize },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Magic(magic) => {
                write!(f, "a response begins with 0x81 or 0x18, the server sent {magic:#04x}")
            }
            FrameError::TooLong(bytes) => {
                write!(f, "a response of {bytes} bytes; at most {BODY_BYTES_MAX} are accepted")
            }
            FrameError::Lengths { parts, body } => {
                write!(f, "extras and key of a response have {parts} bytes, its body {body}")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// Appends an unsigned LEB128 number: the prefix of a key in a collection.
pub(crate) fn leb128(mut number: u32, bytes: &mut Vec<u8>) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    //! Goal: frames are read and written byte by byte as the protocol says, whatever arrives.

    use super::*;

    fn response(extras: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x81, 0x00, 0, 0, extras.len() as u8, 0, 0, 0x86];
        bytes.extend(((extras.len() + value.len()) as u32).to_be_bytes());
        bytes.extend([0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0, 0, 0, 9]);
        bytes.extend(extras);
        bytes.extend(value);
        bytes
    }

    #[test]
    fn frame_request_has_the_bytes_of_the_protocol() {
        let frame = RequestFrame {
            opcode: 0x01,
            vbucket: 0x0203,
            opaque: 0x0405_0607,
            cas: 0x08,
            extras: &[0xaa],
            key_prefix: &[0x09],
            key: b"k",
            value: b"vv",
        };
        let expected = [
            &[0x80, 0x01, 0, 2, 1, 0, 0x02, 0x03, 0, 0, 0, 5, 4, 5, 6, 7][..],
            &[0, 0, 0, 0, 0, 0, 0, 8, 0xaa, 0x09, b'k', b'v', b'v'],
        ];
        assert_eq!(frame.encode(), expected.concat());
    }

    #[test]
    fn frame_explanation_needs_an_extended_error() {
        let explanation = |value: &str| {
            let mut buffer = BytesMut::from(&response(&[], value.as_bytes())[..]);
            ResponseFrame::decode(&mut buffer).unwrap().expect("it is complete").explanation()
        };
        for (body, expected) in [
            (r#"{"error": {"context": "too long"}}"#, Some("too long")),
            (r#"{"error": {"context": "too long", "ref": "7f"}}"#, Some("too long (ref 7f)")),
            (r#"{"error": {"ref": "7f"}, "more": 1}"#, Some("ref 7f")),
            (r#"{"error": {}}"#, None),
            (r#"{"rev": 7}"#, None),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(explanation(body).as_deref(), expected, "{body}");
        }
        let of_length = |bytes: usize| {
            let text = "x".repeat(bytes - r#"{"error":{"context":""}}"#.len());
            explanation(&format!(r#"{{"error":{{"context":"{text}"}}}}"#))
        };
        assert!(of_length(EXTENDED_ERROR_BYTES_MAX).is_some());
        assert_eq!(of_length(EXTENDED_ERROR_BYTES_MAX + 1), None);
    }

    #[test]
    fn frame_response_is_read_from_any_split() {
        let bytes = response(&[1, 2, 3, 4], b"value");
        for split in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..split]);
            assert_eq!(ResponseFrame::decode(&mut buffer), Ok(None), "at {split}");
            buffer.extend(&bytes[split..]);
            let frame = ResponseFrame::decode(&mut buffer).unwrap().expect("it is complete");
            assert_eq!((frame.status, frame.opaque, frame.cas), (0x86, 0xdead_beef, 9));
            assert_eq!((&frame.extras[..], &frame.value[..]), (&[1, 2, 3, 4][..], &b"value"[..]));
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn frame_response_with_framing_extras_is_read() {
        // Server duration, as the mock sends it when tracing was negotiated.
        let mut bytes = vec![0x18, 0x00, 3, 1, 4, 0, 0, 0, 0, 0, 0, 10];
        bytes.extend([0; 12]);
        bytes.extend([0x02, 0x00, 0x07, 1, 2, 3, 4, b'k', b'v', b'v']);
        let frame = ResponseFrame::decode(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
        assert_eq!((&frame.extras[..], &frame.value[..]), (&[1, 2, 3, 4][..], &b"vv"[..]));
    }

    #[test]
    fn frame_body_limit_is_exact() {
        let mut bytes = response(&[], &[]);
        bytes[8..12].copy_from_slice(&(BODY_BYTES_MAX as u32).to_be_bytes());
        assert_eq!(ResponseFrame::decode(&mut BytesMut::from(&bytes[..])), Ok(None));
        bytes[8..12].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_be_bytes());
        let error = ResponseFrame::decode(&mut BytesMut::from(&bytes[..])).unwrap_err();
        assert_eq!(error, FrameError::TooLong(BODY_BYTES_MAX + 1));
    }

    #[test]
    fn frame_small_value_does_not_keep_the_read_buffer() {
        for (length, is_copied) in [(COPIED_BYTES_MAX, true), (COPIED_BYTES_MAX + 1, false)] {
            let mut buffer = BytesMut::from(&response(&[], &vec![7; length])[..]);
            let read = buffer.as_ptr_range();
            let frame = ResponseFrame::decode(&mut buffer).unwrap().expect("it is complete");
            assert_eq!(frame.value, vec![7; length]);
            assert_eq!(read.contains(&frame.value.as_ptr()), !is_copied, "{length}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn frame_of_another_protocol_is_an_error_at_once() {
        let error = ResponseFrame::decode(&mut BytesMut::from("HTTP/1.1")).unwrap_err();
        let text = "a response begins with 0x81 or 0x18, the server sent 0x48";
        assert_eq!(error.to_string(), text);
        let mut bytes = response(&[1, 2], &[]);
        bytes[3] = 1;
        let error = ResponseFrame::decode(&mut BytesMut::from(&bytes[..])).unwrap_err();
        assert_eq!(error, FrameError::Lengths { parts: 3, body: 2 });
    }

    #[test]
    fn frame_collection_prefix_is_leb128() {
        for (number, expected) in [
            (0, &[0x00][..]),
            (0x7f, &[0x7f]),
            (0x80, &[0x80, 0x01]),
            (0x555, &[0xd5, 0x0a]),
            (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut bytes = Vec::new();
            leb128(number, &mut bytes);
            assert_eq!(bytes, expected);
        }
    }
}
