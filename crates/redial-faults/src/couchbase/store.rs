//! Documents in memory: enough of the KV service for a client to work with.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::frames::{Reply, Request};
use super::subdoc;

const NOT_FOUND: u16 = 0x01;
const EXISTS: u16 = 0x02;
const INVALID: u16 = 0x04;
const NOT_STORED: u16 = 0x05;
const BAD_DELTA: u16 = 0x06;
const LOCKED: u16 = 0x09;
pub(super) const UNKNOWN_COMMAND: u16 = 0x81;
const TEMPORARY_FAILURE: u16 = 0x86;
/// The lock that a client gets if it asks for none, and the longest one.
const LOCK_DEFAULT: Duration = Duration::from_secs(15);
const LOCK_MAX: Duration = Duration::from_secs(30);
/// Expiries above are seconds since 1970.
const RELATIVE_MAX: u32 = 30 * 24 * 60 * 60;

#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) value: Vec<u8>,
    flags: u32,
    cas: u64,
    expires: Option<Instant>,
    locked_until: Option<Instant>,
}

/// The documents of a bucket by key, with the prefix of the collection.
#[derive(Debug, Default)]
pub(super) struct Store {
    documents: HashMap<Vec<u8>, Document>,
    last_cas: u64,
}

impl Store {
    /// Executes a request for a document.
    pub(super) fn execute(&mut self, request: &Request) -> Reply {
        let now = Instant::now();
        if self.documents.get(&request.key[..]).is_some_and(|it| is_over(it.expires, now)) {
            self.documents.remove(&request.key[..]);
        }
        match request.opcode {
            0x00 | 0x83 => self.get(request),
            0x01..=0x03 => self.store(request, now),
            0x04 => self.remove(request, now),
            0x05 | 0x06 => self.count(request, now),
            0x0e | 0x0f => self.extend(request, now),
            0x1c | 0x1d => self.touch(request, now),
            0x94 => self.lock(request, now),
            0x95 => self.unlock(request, now),
            0xa0 => self.meta(request),
            0xd0 => self.lookup(request),
            0xd1 => self.mutate(request, now),
            _ => Reply::status(UNKNOWN_COMMAND),
        }
    }

    fn found(&self, request: &Request) -> Option<&Document> {
        self.documents.get(&request.key[..])
    }

    fn get(&self, request: &Request) -> Reply {
        self.found(request).map_or(Reply::status(NOT_FOUND), read)
    }

    fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }

    /// Whether the document may be changed: its lock and the CAS of the request.
    fn may_change(&self, request: &Request, now: Instant) -> Result<Option<Document>, Reply> {
        let Some(found) = self.found(request) else {
            return if request.cas == 0 { Ok(None) } else { Err(Reply::status(NOT_FOUND)) };
        };
        let is_locked = found.locked_until.is_some_and(|until| now < until);
        match (is_locked, request.cas) {
            (true, cas) if cas != found.cas => Err(Reply::status(LOCKED)),
            (false, cas) if cas != 0 && cas != found.cas => Err(Reply::status(EXISTS)),
            _ => Ok(Some(found.clone())),
        }
    }

    fn put(&mut self, request: &Request, document: Document) -> Reply {
        let cas = self.next_cas();
        let document = Document { cas, locked_until: None, ..document };
        self.documents.insert(request.key.to_vec(), document);
        Reply { cas, ..Reply::default() }
    }

    fn store(&mut self, request: &Request, now: Instant) -> Reply {
        let Some([flags, expiry]) = numbers(&request.extras) else {
            return Reply::status(INVALID);
        };
        match (request.opcode, self.may_change(request, now)) {
            (_, Err(refused)) => return refused,
            (0x02, Ok(Some(_))) => return Reply::status(EXISTS),
            (0x03, Ok(None)) => return Reply::status(NOT_FOUND),
            _ => {}
        }
        let value = request.value.to_vec();
        let expires = expires(expiry, now);
        self.put(request, Document { value, flags, cas: 0, expires, locked_until: None })
    }

    fn remove(&mut self, request: &Request, now: Instant) -> Reply {
        match self.may_change(request, now) {
            Err(refused) => refused,
            Ok(None) => Reply::status(NOT_FOUND),
            Ok(Some(_)) => {
                self.documents.remove(&request.key[..]);
                Reply { cas: self.next_cas(), ..Reply::default() }
            }
        }
    }

    fn count(&mut self, request: &Request, now: Instant) -> Reply {
        let Some([high, low, initial_high, initial_low, expiry]) = numbers::<5>(&request.extras)
        else {
            return Reply::status(INVALID);
        };
        let long = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        let (delta, initial) = (long(high, low), long(initial_high, initial_low));
        let present = match self.may_change(request, now) {
            Err(refused) => return refused,
            Ok(present) => present,
        };
        let (value, document) = match present {
            None if expiry == u32::MAX => return Reply::status(NOT_FOUND),
            None => (initial, None),
            Some(document) => {
                let text = String::from_utf8_lossy(&document.value).into_owned();
                let Ok(number) = text.parse::<u64>() else { return Reply::status(BAD_DELTA) };
                let changed = if request.opcode == 0x05 {
                    number.wrapping_add(delta)
                } else {
                    number.saturating_sub(delta)
                };
                (changed, Some(document))
            }
        };
        let (flags, expires) = document
            .map_or((0, expires(expiry, now)), |document| (document.flags, document.expires));
        let bytes = value.to_string().into_bytes();
        let reply = Document { value: bytes, flags, cas: 0, expires, locked_until: None };
        Reply { value: value.to_be_bytes().to_vec(), ..self.put(request, reply) }
    }

    fn extend(&mut self, request: &Request, now: Instant) -> Reply {
        match self.may_change(request, now) {
            Err(refused) => refused,
            Ok(None) => Reply::status(NOT_STORED),
            Ok(Some(mut document)) => {
                let at = if request.opcode == 0x0e { document.value.len() } else { 0 };
                document.value.splice(at..at, request.value.iter().copied());
                self.put(request, document)
            }
        }
    }

    fn touch(&mut self, request: &Request, now: Instant) -> Reply {
        let Some([expiry]) = numbers(&request.extras) else { return Reply::status(INVALID) };
        match self.may_change(request, now) {
            Err(refused) => refused,
            Ok(None) => Reply::status(NOT_FOUND),
            Ok(Some(document)) => {
                let document = Document { expires: expires(expiry, now), ..document };
                let reply = self.put(request, document.clone());
                if request.opcode == 0x1c {
                    return reply;
                }
                Reply { cas: reply.cas, ..read(&document) }
            }
        }
    }

    fn lock(&mut self, request: &Request, now: Instant) -> Reply {
        let seconds = numbers::<1>(&request.extras).map_or(0, |[seconds]| seconds);
        let time = match Duration::from_secs(seconds.into()) {
            Duration::ZERO => LOCK_DEFAULT,
            time => time.min(LOCK_MAX),
        };
        let cas = self.next_cas();
        let Some(document) = self.documents.get_mut(&request.key[..]) else {
            return Reply::status(NOT_FOUND);
        };
        if document.locked_until.is_some_and(|until| now < until) {
            return Reply::status(LOCKED);
        }
        (document.cas, document.locked_until) = (cas, Some(now + time));
        read(document)
    }

    fn unlock(&mut self, request: &Request, now: Instant) -> Reply {
        let Some(document) = self.documents.get_mut(&request.key[..]) else {
            return Reply::status(NOT_FOUND);
        };
        let is_locked = document.locked_until.is_some_and(|until| now < until);
        if !is_locked {
            return Reply::status(TEMPORARY_FAILURE);
        }
        if request.cas != document.cas {
            return Reply::status(LOCKED);
        }
        document.locked_until = None;
        Reply::default()
    }

    fn meta(&self, request: &Request) -> Reply {
        self.found(request).map_or(Reply::status(NOT_FOUND), |document| {
            // Deleted, flags, expiry, sequence number.
            let mut extras = vec![0; 20];
            extras[4..8].copy_from_slice(&document.flags.to_be_bytes());
            Reply { cas: document.cas, extras, ..Reply::default() }
        })
    }

    fn lookup(&self, request: &Request) -> Reply {
        let Some(document) = self.found(request) else { return Reply::status(NOT_FOUND) };
        let reply = subdoc::lookup(&document.value, &request.value);
        Reply { cas: document.cas, ..reply }
    }

    fn mutate(&mut self, request: &Request, now: Instant) -> Reply {
        match self.may_change(request, now) {
            Err(refused) => refused,
            Ok(None) => Reply::status(NOT_FOUND),
            Ok(Some(document)) => match subdoc::mutate(&document.value, &request.value) {
                Err(reply) => reply,
                Ok((value, reply)) => {
                    let stored = self.put(request, Document { value, ..document });
                    Reply { cas: stored.cas, ..reply }
                }
            },
        }
    }
}

fn read(document: &Document) -> Reply {
    let extras = document.flags.to_be_bytes().to_vec();
    Reply { cas: document.cas, extras, value: document.value.clone(), status: 0 }
}

fn is_over(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now >= at)
}

fn expires(expiry: u32, now: Instant) -> Option<Instant> {
    let seconds = match expiry {
        0 => return None,
        relative if relative <= RELATIVE_MAX => relative.into(),
        absolute => {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::from(absolute).saturating_sub(since_1970.as_secs())
        }
    };
    now.checked_add(Duration::from_secs(seconds))
}

/// Extras as numbers of four bytes.
fn numbers<const N: usize>(extras: &[u8]) -> Option<[u32; N]> {
    let chunks = extras.as_chunks::<4>();
    let numbers: Vec<u32> = chunks.0.iter().map(|bytes| u32::from_be_bytes(*bytes)).collect();
    if chunks.1.is_empty() { numbers.try_into().ok() } else { None }
}
