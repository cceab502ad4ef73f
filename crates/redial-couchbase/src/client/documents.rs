//! Results of requests.

use bytes::{Buf, Bytes};

use super::frame::ResponseFrame;
use crate::response::status;

/// The version of a document: it changes with every change of the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cas(pub u64);

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Document {
    /// Its bytes.
    pub value: Bytes,
    /// Its flags: how the application encoded the value.
    pub flags: u32,
    /// Its version.
    pub cas: Cas,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mutation {
    /// The new version of the document.
    pub cas: Cas,
}

/// The result of changing a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counter {
    /// Its new value.
    pub value: u64,
    /// Its new version.
    pub cas: Cas,
}

/// Whether a document exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existence {
    /// It exists with this version.
    Exists(Cas),
    /// It does not exist, or was deleted.
    Missing,
}

/// The id of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionId {
    /// The id.
    pub id: u32,
    /// The version of the bucket's collections.
    pub manifest: u64,
}

pub(crate) fn document(frame: &ResponseFrame) -> Option<Document> {
    let flags = frame.extras.first_chunk::<4>()?;
    let flags = u32::from_be_bytes(*flags);
    Some(Document { value: frame.value.clone(), flags, cas: Cas(frame.cas) })
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of all decoders")]
pub(crate) fn mutation(frame: &ResponseFrame) -> Option<Mutation> {
    Some(Mutation { cas: Cas(frame.cas) })
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of all decoders")]
pub(crate) fn nothing(_frame: &ResponseFrame) -> Option<()> {
    Some(())
}

pub(crate) fn counter(frame: &ResponseFrame) -> Option<Counter> {
    let value = frame.value.first_chunk::<8>().filter(|_| frame.value.len() == 8)?;
    Some(Counter { value: u64::from_be_bytes(*value), cas: Cas(frame.cas) })
}

pub(crate) fn existence(frame: &ResponseFrame) -> Option<Existence> {
    if frame.status == status::NOT_FOUND {
        return Some(Existence::Missing);
    }
    let deleted = u32::from_be_bytes(*frame.extras.first_chunk::<4>()?) != 0;
    Some(if deleted { Existence::Missing } else { Existence::Exists(Cas(frame.cas)) })
}

pub(crate) fn collection_id(frame: &ResponseFrame) -> Option<CollectionId> {
    let mut extras = frame.extras.clone();
    (extras.len() >= 12).then(|| CollectionId { manifest: extras.get_u64(), id: extras.get_u32() })
}
