//! The contents of messages, which make their path checkable: who made the message, for which call,
//! and its position.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Who made a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) source: Source,
    pub(crate) call: u64,
    pub(crate) index: u32,
    pub(crate) total: u32,
}

const SIZE: usize = 17;

impl Mark {
    /// A payload of this many bytes, or as few as the mark needs.
    pub(crate) fn to_bytes(self, size: usize) -> Bytes {
        let mut bytes = BytesMut::with_capacity(size.max(SIZE));
        bytes.put_u8(match self.source {
            Source::Client => b'C',
            Source::Server => b'S',
        });
        bytes.put_u64(self.call);
        bytes.put_u32(self.index);
        bytes.put_u32(self.total);
        bytes.put_bytes(self.filler(), size.saturating_sub(SIZE));
        bytes.freeze()
    }

    /// Differs between messages, so that bytes of another message are detected.
    fn filler(self) -> u8 {
        (self.call as u8).wrapping_mul(31).wrapping_add(self.index as u8)
    }

    /// Parses a payload; an error if it was changed.
    pub(crate) fn read(mut payload: &[u8]) -> Result<Mark, String> {
        if payload.len() < SIZE {
            return Err(format!("a payload of {} bytes has no mark", payload.len()));
        }
        let source = match payload.get_u8() {
            b'C' => Source::Client,
            b'S' => Source::Server,
            other => return Err(format!("a payload begins with {other}")),
        };
        let mark = Mark {
            source,
            call: payload.get_u64(),
            index: payload.get_u32(),
            total: payload.get_u32(),
        };
        if payload.iter().any(|byte| *byte != mark.filler()) {
            return Err(format!("the bytes of {mark:?} are not its own"));
        }
        Ok(mark)
    }
}

/// Checks that marks arrive in order, without duplicates and gaps, and belong to one call.
#[derive(Debug)]
pub(crate) struct Sequence {
    call: u64,
    first: Option<Mark>,
    pub(crate) count: u32,
}

impl Sequence {
    pub(crate) fn of(call: u64) -> Sequence {
        Sequence { call, first: None, count: 0 }
    }

    pub(crate) fn take(&mut self, payload: &[u8]) -> Result<(), String> {
        let mark = Mark::read(payload)?;
        let first = *self.first.get_or_insert(mark);
        let expected = Mark { call: self.call, index: self.count, ..first };
        if mark != expected {
            return Err(format!("{mark:?} came where {expected:?} was due"));
        }
        self.count += 1;
        Ok(())
    }

    /// The total that the first mark stated.
    pub(crate) fn total(&self) -> Option<u32> {
        self.first.map(|mark| mark.total)
    }
}
