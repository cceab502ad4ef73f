//! A copy of the headers of a request, for its next attempt.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// A copy of headers in two allocations. A clone of a map has one for its table, one for its entries and
/// one for most names and values, and most copies are dropped unused.
#[derive(Debug, Default)]
pub(crate) struct SavedHeaders {
    /// All names and values.
    text: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name_bytes: usize,
    value_bytes: usize,
    sensitive: bool,
}

impl SavedHeaders {
    #[inline]
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        if headers.is_empty() { SavedHeaders::default() } else { SavedHeaders::copy(headers) }
    }

    fn copy(headers: &HeaderMap) -> Self {
        let mut entries = Vec::with_capacity(headers.len());
        let mut bytes = 0;
        for (name, value) in headers {
            let entry = Entry {
                name_bytes: name.as_str().len(),
                value_bytes: value.len(),
                sensitive: value.is_sensitive(),
            };
            bytes += entry.name_bytes + entry.value_bytes;
            entries.push(entry);
        }
        let mut text = Vec::with_capacity(bytes);
        for (name, value) in headers {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(value.as_bytes());
        }
        SavedHeaders { text, entries }
    }

    pub(crate) fn restore(self) -> HeaderMap {
        let mut text = Bytes::from(self.text);
        let mut headers = HeaderMap::new();
        for entry in self.entries {
            let name = HeaderName::from_bytes(&text.split_to(entry.name_bytes));
            let value = HeaderValue::from_maybe_shared(text.split_to(entry.value_bytes));
            let (name, mut value) = name.ok().zip(value.ok()).expect("copied from a header");
            value.set_sensitive(entry.sensitive);
            headers.append(name, value);
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Decision H4.
    #[test]
    fn saved_headers_are_those_of_the_original() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("accept", "a"), ("x-own", "b"), ("x-own", "c"), ("cookie", ""), ("accept", "d")]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.insert("x-bytes", HeaderValue::from_bytes(b"\xff \x80").unwrap());
        let mut secret = HeaderValue::from_static("secret");
        secret.set_sensitive(true);
        headers.insert("authorization", secret);
        let restored = SavedHeaders::of(&headers).restore();
        assert_eq!(restored, headers);
        assert!(restored["authorization"].is_sensitive() && !restored["accept"].is_sensitive());
        let names = |headers: &HeaderMap| headers.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&restored), names(&headers));
    }

    #[test]
    fn saved_headers_of_no_headers_allocate_nothing() {
        let saved = SavedHeaders::of(&HeaderMap::new());
        assert_eq!((saved.text.capacity(), saved.entries.capacity()), (0, 0));
        assert!(saved.restore().is_empty());
    }
}
