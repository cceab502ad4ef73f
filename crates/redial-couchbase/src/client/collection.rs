//! The operations on the documents of a collection.

use std::time::Duration;

use bytes::Bytes;

use super::Client;
use super::cluster::CollectionName;
use super::documents::{self, Cas, CollectionId, Counter, Document, Existence, Mutation};
use super::error::InvalidRequest;
use super::frame::{Extras, ResponseFrame};
use super::opcode;
use super::request::{Command, Request, expiry_seconds};
use super::subdoc::{self, Lookup, LookupIn, MutateIn, PathMutation};
use crate::operation::{self, RequestOperation};
use crate::response::status;

/// The name of scope and collection that every bucket has.
const DEFAULT: &str = "_default";

/// The documents of a collection. Cheap to clone.
///
/// Each method makes a request that is sent when it is awaited. Idempotent are [`get`](Self::get),
/// [`get_replica`](Self::get_replica), [`lookup_in`](Self::lookup_in) and
/// [`collection_id`](Self::collection_id), as RFC 49 lists them; all others are retried only if it is
/// certain that the server did not execute them.
#[derive(Clone, Debug)]
pub struct Collection {
    client: Client,
    name: CollectionName,
}

impl Collection {
    pub(crate) fn new(client: Client, scope: &str, collection: &str) -> Self {
        let name = match (scope, collection) {
            (DEFAULT, DEFAULT) => CollectionName::Default,
            (scope, collection) => {
                CollectionName::Named { scope: scope.into(), collection: collection.into() }
            }
        };
        Collection { client, name }
    }

    /// Reads a document.
    pub fn get(&self, key: impl Into<Bytes>) -> Request<'_, Document> {
        let command = Command::new(operation::KV_GET, opcode::GET, key);
        self.request(command, documents::document)
    }

    /// Reads a replica of a document, numbered from 1. It may be older than the active copy.
    pub fn get_replica(&self, key: impl Into<Bytes>, replica: usize) -> Request<'_, Document> {
        let command = Command::new(operation::KV_GET_REPLICA, opcode::GET_REPLICA, key);
        // Number 0 would be the active copy, which has another command.
        let command = Command { copy: replica.max(1), ..command };
        self.request(command, documents::document)
    }

    /// Checks whether a document exists. Not idempotent, because RFC 49 does not list it.
    pub fn exists(&self, key: impl Into<Bytes>) -> Request<'_, Existence> {
        const EXISTS: RequestOperation = RequestOperation::new("kv.exists");
        let command = Command::new(EXISTS, opcode::GET_META, key);
        let command = Command { also_accepts: Some(status::NOT_FOUND), ..command };
        self.request(command, documents::existence)
    }

    /// Writes a document, whether it exists or not.
    pub fn upsert(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Request<'_, Mutation> {
        self.store(operation::KV_UPSERT, opcode::SET, key, value)
    }

    /// Writes a document that must not exist; else status 0x02.
    pub fn insert(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Request<'_, Mutation> {
        self.store(operation::KV_INSERT, opcode::ADD, key, value)
    }

    /// Writes a document that must exist; else status 0x01.
    pub fn replace(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Request<'_, Mutation> {
        self.store(operation::KV_REPLACE, opcode::REPLACE, key, value)
    }

    /// Deletes a document.
    pub fn remove(&self, key: impl Into<Bytes>) -> Request<'_, Mutation> {
        let command = Command::new(operation::KV_REMOVE, opcode::DELETE, key);
        self.request(command, documents::mutation)
    }

    /// Adds bytes to the end of a document.
    pub fn append(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Request<'_, Mutation> {
        let command = Command::new(operation::KV_APPEND, opcode::APPEND, key);
        self.request(Command { value: value.into(), ..command }, documents::mutation)
    }

    /// Adds bytes to the beginning of a document.
    pub fn prepend(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Request<'_, Mutation> {
        let command = Command::new(operation::KV_PREPEND, opcode::PREPEND, key);
        self.request(Command { value: value.into(), ..command }, documents::mutation)
    }

    /// Adds to a counter; without a document it gets the initial value, or status 0x01 if there is
    /// none.
    pub fn increment(
        &self,
        key: impl Into<Bytes>,
        delta: u64,
        initial: Option<u64>,
    ) -> Request<'_, Counter> {
        self.counter(operation::KV_INCREMENT, opcode::INCREMENT, key, delta, initial)
    }

    /// Subtracts from a counter, down to 0.
    pub fn decrement(
        &self,
        key: impl Into<Bytes>,
        delta: u64,
        initial: Option<u64>,
    ) -> Request<'_, Counter> {
        self.counter(operation::KV_DECREMENT, opcode::DECREMENT, key, delta, initial)
    }

    /// Sets the expiry of a document; zero: never.
    pub fn touch(&self, key: impl Into<Bytes>, expiry: Duration) -> Request<'_, Mutation> {
        let command = with_seconds(Command::new(operation::KV_TOUCH, opcode::TOUCH, key), expiry);
        self.request(Command { expiry_at: Some(0), ..command }, documents::mutation)
    }

    /// Reads a document and sets its expiry.
    pub fn get_and_touch(&self, key: impl Into<Bytes>, expiry: Duration) -> Request<'_, Document> {
        let command = Command::new(operation::KV_GET_AND_TOUCH, opcode::GET_AND_TOUCH, key);
        self.request(with_seconds(command, expiry), documents::document)
    }

    /// Reads a document and locks it, for 30 s at most. Changes need the returned CAS until then.
    pub fn get_and_lock(&self, key: impl Into<Bytes>, lock: Duration) -> Request<'_, Document> {
        let command = Command::new(operation::KV_GET_AND_LOCK, opcode::GET_LOCKED, key);
        self.request(with_seconds(command, lock), documents::document)
    }

    /// Unlocks a document. Another CAS than that of the lock is a
    /// [CAS mismatch](crate::Error::cas_mismatch), which is not retried.
    pub fn unlock(&self, key: impl Into<Bytes>, cas: Cas) -> Request<'_, ()> {
        let command = Command::new(operation::KV_UNLOCK, opcode::UNLOCK, key);
        self.request(Command { cas: cas.0, ..command }, documents::nothing)
    }

    /// Reads parts of a JSON document, at most 16.
    pub fn lookup_in(
        &self,
        key: impl Into<Bytes>,
        paths: impl AsRef<[Lookup]>,
    ) -> Request<'_, LookupIn> {
        let command = Command::new(operation::KV_LOOKUP_IN, opcode::SUBDOC_MULTI_LOOKUP, key);
        let command = with_paths(command, subdoc::encode_lookups(paths.as_ref()));
        self.request(command, subdoc::lookup_in)
    }

    /// Changes parts of a JSON document, at most 16: all or none.
    pub fn mutate_in(
        &self,
        key: impl Into<Bytes>,
        paths: impl AsRef<[PathMutation]>,
    ) -> Request<'_, MutateIn> {
        let command = Command::new(operation::KV_MUTATE_IN, opcode::SUBDOC_MULTI_MUTATION, key);
        let command = with_paths(command, subdoc::encode_mutations(paths.as_ref()));
        self.request(command, subdoc::mutate_in)
    }

    /// Asks a server for the id of this collection. The client does not need it to be called: it
    /// fetches the ids by itself. Status 0x88 means that there is no such collection, and is final.
    pub fn collection_id(&self) -> Request<'_, CollectionId> {
        let command =
            Command::new(operation::KV_GET_COLLECTION_ID, opcode::GET_COLLECTION_ID, Bytes::new());
        let path = match &self.name {
            CollectionName::Default => format!("{DEFAULT}.{DEFAULT}"),
            CollectionName::Named { scope, collection } => format!("{scope}.{collection}"),
        };
        let command = Command { value: path.into(), without_collection: true, ..command };
        self.request(command, documents::collection_id)
    }

    fn store(
        &self,
        operation: RequestOperation,
        opcode: u8,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Request<'_, Mutation> {
        // Flags and expiry.
        let extras = Extras::default().with(&[0; 8]);
        let command = Command::new(operation, opcode, key);
        let command = Command { value: value.into(), extras, expiry_at: Some(4), ..command };
        self.request(command, documents::mutation)
    }

    fn counter(
        &self,
        operation: RequestOperation,
        opcode: u8,
        key: impl Into<Bytes>,
        delta: u64,
        initial: Option<u64>,
    ) -> Request<'_, Counter> {
        // This expiry means: do not create the document.
        let expiry: u32 = if initial.is_some() { 0 } else { u32::MAX };
        let extras = Extras::default()
            .with(&delta.to_be_bytes())
            .with(&initial.unwrap_or(0).to_be_bytes())
            .with(&expiry.to_be_bytes());
        let command = Command { extras, ..Command::new(operation, opcode, key) };
        self.request(command, documents::counter)
    }

    fn request<T>(
        &self,
        command: Command,
        decode: fn(&ResponseFrame) -> Option<T>,
    ) -> Request<'_, T> {
        Request::new(self.client.cluster(), self.name.clone(), command, decode)
    }
}

/// Adds a time in seconds as the extras.
fn with_seconds(command: Command, time: Duration) -> Command {
    match expiry_seconds(time) {
        Some(seconds) => {
            Command { extras: Extras::default().with(&seconds.to_be_bytes()), ..command }
        }
        None => Command { invalid: Some(InvalidRequest::ExpiryTooLong), ..command },
    }
}

/// Adds the paths of a sub-document request.
fn with_paths(command: Command, paths: Result<Bytes, InvalidRequest>) -> Command {
    let also_accepts = Some(status::SUBDOC_MULTI_PATH_FAILURE);
    match paths {
        Ok(value) => Command { value, also_accepts, ..command },
        Err(invalid) => Command { invalid: Some(invalid), ..command },
    }
}
