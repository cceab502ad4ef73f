//! Sub-document requests: reading and changing parts of a JSON document.

use bytes::{Buf, BufMut, Bytes};

use super::documents::Cas;
use super::error::InvalidRequest;
use super::frame::ResponseFrame;
use crate::response::status;

/// The maximum number of paths in a request: the server's limit.
pub const PATHS_MAX: usize = 16;
/// The maximum length of a path.
pub const PATH_BYTES_MAX: usize = 1024;

/// The flag that creates the objects on the way to a path.
const FLAG_CREATE_PATH: u8 = 0x01;

/// A path to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    opcode: u8,
    path: String,
}

impl Lookup {
    /// Reads the value at a path, for example `address.city` or `phones[0]`.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Lookup { opcode: 0xc5, path: path.into() }
    }

    /// Checks that a path exists.
    #[must_use]
    pub fn exists(path: impl Into<String>) -> Self {
        Lookup { opcode: 0xc6, path: path.into() }
    }

    /// Counts the elements of an array, or the fields of an object.
    #[must_use]
    pub fn count(path: impl Into<String>) -> Self {
        Lookup { opcode: 0xd2, path: path.into() }
    }
}

/// A path to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMutation {
    opcode: u8,
    flags: u8,
    path: String,
    value: Bytes,
}

impl PathMutation {
    fn new(opcode: u8, path: impl Into<String>, value: impl Into<Bytes>) -> Self {
        PathMutation { opcode, flags: 0, path: path.into(), value: value.into() }
    }

    /// Adds a field of an object; fails if it exists. Values are JSON.
    #[must_use]
    pub fn insert(path: impl Into<String>, value: impl Into<Bytes>) -> Self {
        PathMutation::new(0xc7, path, value)
    }

    /// Sets a field of an object.
    #[must_use]
    pub fn upsert(path: impl Into<String>, value: impl Into<Bytes>) -> Self {
        PathMutation::new(0xc8, path, value)
    }

    /// Removes the value at a path.
    #[must_use]
    pub fn remove(path: impl Into<String>) -> Self {
        PathMutation::new(0xc9, path, Bytes::new())
    }

    /// Replaces the value at a path; fails if there is none.
    #[must_use]
    pub fn replace(path: impl Into<String>, value: impl Into<Bytes>) -> Self {
        PathMutation::new(0xca, path, value)
    }

    /// Adds an element to the end of an array.
    #[must_use]
    pub fn array_append(path: impl Into<String>, value: impl Into<Bytes>) -> Self {
        PathMutation::new(0xcb, path, value)
    }

    /// Adds to a number, or subtracts from it.
    #[must_use]
    pub fn counter(path: impl Into<String>, delta: i64) -> Self {
        PathMutation::new(0xcf, path, delta.to_string())
    }

    /// Creates the objects on the way to the path.
    #[must_use]
    pub fn create_path(mut self) -> Self {
        self.flags |= FLAG_CREATE_PATH;
        self
    }
}

/// The results of a lookup, one for each path in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupIn {
    /// The version of the document.
    pub cas: Cas,
    /// The value of each path as JSON, or why there is none.
    pub values: Vec<Result<Bytes, PathError>>,
}

/// The result of changing paths.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MutateIn {
    /// The new version of the document.
    pub cas: Cas,
    /// The results of counters, with the number of their path.
    pub values: Vec<(u8, Bytes)>,
    /// The first path that failed, with its number: then nothing was changed.
    pub failed: Option<(u8, PathError)>,
}

/// The status of a path that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError(pub u16);

impl PathError {
    /// The path does not exist.
    pub const NOT_FOUND: PathError = PathError(0xc0);
    /// The path exists already.
    pub const EXISTS: PathError = PathError(0xc9);
}

impl std::fmt::Display for PathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "path status {:#04x}", self.0)
    }
}

impl std::error::Error for PathError {}

pub(crate) fn encode_lookups(lookups: &[Lookup]) -> Result<Bytes, InvalidRequest> {
    check(lookups.len(), lookups.iter().map(|lookup| lookup.path.len()))?;
    let mut bytes = Vec::new();
    for Lookup { opcode, path } in lookups {
        bytes.put_u8(*opcode);
        bytes.put_u8(0);
        bytes.put_u16(path.len() as u16);
        bytes.put_slice(path.as_bytes());
    }
    Ok(bytes.into())
}

pub(crate) fn encode_mutations(mutations: &[PathMutation]) -> Result<Bytes, InvalidRequest> {
    check(mutations.len(), mutations.iter().map(|mutation| mutation.path.len()))?;
    let mut bytes = Vec::new();
    for PathMutation { opcode, flags, path, value } in mutations {
        bytes.put_u8(*opcode);
        bytes.put_u8(*flags);
        bytes.put_u16(path.len() as u16);
        bytes.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        bytes.put_slice(path.as_bytes());
        bytes.put_slice(value);
    }
    Ok(bytes.into())
}

fn check(count: usize, mut paths: impl Iterator<Item = usize>) -> Result<(), InvalidRequest> {
    if !(1..=PATHS_MAX).contains(&count) {
        return Err(InvalidRequest::PathCount(count));
    }
    match paths.find(|bytes| *bytes > PATH_BYTES_MAX) {
        Some(bytes) => Err(InvalidRequest::PathTooLong(bytes)),
        None => Ok(()),
    }
}

pub(crate) fn lookup_in(frame: &ResponseFrame) -> Option<LookupIn> {
    let mut body = frame.value.clone();
    let mut values = Vec::new();
    while body.has_remaining() {
        let status = body.try_get_u16().ok()?;
        let length = body.try_get_u32().ok()? as usize;
        if length > body.len() {
            return None;
        }
        let value = body.split_to(length);
        values.push(if status == status::SUCCESS { Ok(value) } else { Err(PathError(status)) });
    }
    Some(LookupIn { cas: Cas(frame.cas), values })
}

pub(crate) fn mutate_in(frame: &ResponseFrame) -> Option<MutateIn> {
    let mut body = frame.value.clone();
    let mut result = MutateIn { cas: Cas(frame.cas), values: Vec::new(), failed: None };
    if frame.status == status::SUBDOC_MULTI_PATH_FAILURE {
        let (path, status) = (body.try_get_u8().ok()?, body.try_get_u16().ok()?);
        result.failed = Some((path, PathError(status)));
        return Some(result);
    }
    while body.has_remaining() {
        let (path, status) = (body.try_get_u8().ok()?, body.try_get_u16().ok()?);
        if status != status::SUCCESS {
            return None;
        }
        let length = body.try_get_u32().ok()? as usize;
        if length > body.len() {
            return None;
        }
        result.values.push((path, body.split_to(length)));
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    //! Goal: bodies are written and read byte by byte as the protocol says, whatever arrives.

    use super::*;

    fn frame(status: u16, value: &[u8]) -> ResponseFrame {
        ResponseFrame {
            opcode: 0xd0,
            status,
            opaque: 0,
            cas: 7,
            extras: Bytes::new(),
            value: Bytes::copy_from_slice(value),
        }
    }

    #[test]
    fn subdoc_requests_have_the_bytes_of_the_protocol() {
        let bytes = encode_lookups(&[Lookup::get("a.b"), Lookup::exists("c")]).unwrap();
        assert_eq!(bytes, [&[0xc5, 0, 0, 3][..], b"a.b", &[0xc6, 0, 0, 1], b"c"].concat());
        let mutation = PathMutation::upsert("a", "1").create_path();
        let bytes = encode_mutations(&[mutation]).unwrap();
        assert_eq!(bytes, [&[0xc8, 1, 0, 1, 0, 0, 0, 1][..], b"a1"].concat());
    }

    #[test]
    fn subdoc_limits_are_exact() {
        let paths = |count: usize| vec![Lookup::get("a"); count];
        assert!(encode_lookups(&paths(PATHS_MAX)).is_ok());
        let error = encode_lookups(&paths(PATHS_MAX + 1)).unwrap_err();
        assert_eq!(error, InvalidRequest::PathCount(17));
        assert_eq!(encode_lookups(&[]).unwrap_err(), InvalidRequest::PathCount(0));
        let path = |bytes| PathMutation::remove("x".repeat(bytes));
        assert!(encode_mutations(&[path(PATH_BYTES_MAX)]).is_ok());
        let error = encode_mutations(&[path(PATH_BYTES_MAX + 1)]).unwrap_err();
        assert_eq!(error, InvalidRequest::PathTooLong(1025));
    }

    #[test]
    fn subdoc_responses_are_read_completely_or_not_at_all() {
        let bytes = [0, 0, 0, 0, 0, 2, b'4', b'2', 0, 0xc0, 0, 0, 0, 0];
        let read = lookup_in(&frame(0xcc, &bytes)).unwrap();
        let expected = [Ok(Bytes::from("42")), Err(PathError::NOT_FOUND)];
        assert_eq!((read.cas, &read.values[..]), (Cas(7), &expected[..]));
        for cut in [1, 5, 7, 9, 13] {
            assert_eq!(lookup_in(&frame(0, &bytes[..cut])), None, "{cut}");
        }
        let read = mutate_in(&frame(0, &[1, 0, 0, 0, 0, 0, 1, b'5'])).unwrap();
        assert_eq!(read.values, [(1, Bytes::from("5"))]);
        assert_eq!(mutate_in(&frame(0, &[1, 0, 0, 0, 0, 0, 2, b'5'])), None);
        let read = mutate_in(&frame(0xcc, &[1, 0, 0xc9])).unwrap();
        assert_eq!(read.failed, Some((1, PathError::EXISTS)));
        assert_eq!(mutate_in(&frame(0xcc, &[1])), None);
        assert_eq!(mutate_in(&frame(0, &[])).unwrap().values, []);
    }
}
