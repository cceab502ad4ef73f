//! Frames as the server sees them, written independently of the client.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest body of a request: a document of 20 MiB with key and extras.
pub(super) const BODY_BYTES_MAX: usize = 21 << 20;
const HEADER_BYTES: usize = 24;

/// A request of the client.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) opcode: u8,
    pub(super) vbucket: u16,
    pub(super) opaque: u32,
    pub(super) cas: u64,
    pub(super) extras: Bytes,
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

/// The next request of the buffer; `Ok(None)` if it is not complete.
///
/// # Errors
/// The bytes are not a request.
pub(super) fn decode(buffer: &mut BytesMut) -> Result<Option<Request>, &'static str> {
    if buffer.first().is_some_and(|magic| *magic != 0x80) {
        return Err("a request begins with 0x80");
    }
    if buffer.len() < HEADER_BYTES {
        return Ok(None);
    }
    let mut header = &buffer[1..HEADER_BYTES];
    let opcode = header.get_u8();
    let key_length = usize::from(header.get_u16());
    let extras_length = usize::from(header.get_u8());
    header.advance(1);
    let vbucket = header.get_u16();
    let body_length = header.get_u32() as usize;
    let (opaque, cas) = (header.get_u32(), header.get_u64());
    if body_length > BODY_BYTES_MAX {
        return Err("the request is too long");
    }
    if key_length + extras_length > body_length {
        return Err("key and extras are longer than the body");
    }
    if buffer.len() < HEADER_BYTES + body_length {
        return Ok(None);
    }
    buffer.advance(HEADER_BYTES);
    let mut body = buffer.split_to(body_length).freeze();
    let extras = body.split_to(extras_length);
    let key = body.split_to(key_length);
    Ok(Some(Request { opcode, vbucket, opaque, cas, extras, key, value: body }))
}

/// What a request is answered with.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) cas: u64,
    pub(super) extras: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        Reply { status, ..Reply::default() }
    }

    pub(super) fn value(value: impl Into<Vec<u8>>) -> Self {
        Reply { value: value.into(), ..Reply::default() }
    }

    pub(super) fn encode(&self, opcode: u8, opaque: u32) -> Vec<u8> {
        let body_length = self.extras.len() + self.value.len();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body_length);
        bytes.put_slice(&[0x81, opcode, 0, 0, self.extras.len() as u8, 0]);
        bytes.put_u16(self.status);
        bytes.put_u32(u32::try_from(body_length).unwrap_or(u32::MAX));
        bytes.put_u32(opaque);
        bytes.put_u64(self.cas);
        bytes.put_slice(&self.extras);
        bytes.put_slice(&self.value);
        bytes
    }
}

/// The names of commands in scripts and records.
pub(super) const COMMANDS: [(u8, &str); 27] = [
    (0x00, "get"),
    (0x01, "upsert"),
    (0x02, "insert"),
    (0x03, "replace"),
    (0x04, "remove"),
    (0x05, "increment"),
    (0x06, "decrement"),
    (0x0a, "noop"),
    (0x0e, "append"),
    (0x0f, "prepend"),
    (0x1c, "touch"),
    (0x1d, "get_and_touch"),
    (0x1f, "hello"),
    (0x20, "sasl_list_mechs"),
    (0x21, "sasl_auth"),
    (0x22, "sasl_step"),
    (0x83, "get_replica"),
    (0x89, "select_bucket"),
    (0x94, "get_and_lock"),
    (0x95, "unlock"),
    (0xa0, "exists"),
    (0xb5, "cluster_config"),
    (0xba, "get_collection_manifest"),
    (0xbb, "get_collection_id"),
    (0xd0, "lookup_in"),
    (0xd1, "mutate_in"),
    (0xfe, "get_error_map"),
];

/// The name of a command; its number if it is not known.
pub(super) fn command(opcode: u8) -> String {
    let known = COMMANDS.iter().find(|(code, _)| *code == opcode);
    known.map_or_else(|| format!("{opcode:#04x}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body_length: u32) -> BytesMut {
        let mut bytes = BytesMut::new();
        bytes.put_slice(&[0x80, 0x00, 0, 1, 0, 0, 0, 7]);
        bytes.put_u32(body_length);
        bytes.put_u32(9);
        bytes.put_u64(0);
        bytes.put_u8(b'k');
        bytes
    }

    #[test]
    fn couchbase_request_is_read_when_it_is_complete() {
        let mut bytes = request(1);
        let end = bytes.split_off(20);
        assert!(decode(&mut bytes).unwrap().is_none());
        bytes.unsplit(end);
        let read = decode(&mut bytes).unwrap().unwrap();
        assert_eq!((read.vbucket, read.opaque, &read.key[..]), (7, 9, &b"k"[..]));
    }

    #[test]
    fn couchbase_request_limits_are_exact() {
        assert!(decode(&mut request(BODY_BYTES_MAX as u32)).unwrap().is_none());
        assert!(decode(&mut request(BODY_BYTES_MAX as u32 + 1)).is_err());
        assert!(decode(&mut request(0)).is_err(), "the key is longer than the body");
        assert!(decode(&mut BytesMut::from("GET / HTTP/1.1")).is_err());
    }
}
