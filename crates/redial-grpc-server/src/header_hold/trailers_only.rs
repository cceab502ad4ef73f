//! Merges headers and trailers into one frame (Trailers-Only), which clients may still retry (gRFC
//! A6).
//!
//! Source: "gRPC over HTTP2", Responses: `Trailers-Only → HTTP-Status Content-Type Trailers`.

use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderMap, response};
use tonic::Status;

/// The size limit of one header frame, computed as in HTTP/2 (RFC 9113, section 6.5.2): the initial
/// limit of clients based on h2, hyper and grpc-go. Larger responses are sent as headers and
/// trailers.
const HEADER_LIST_MAX: usize = 16 * 1024;

/// The overhead per header in the size of a header list.
const HEADER_OVERHEAD: usize = 32;

/// Headers that describe messages. A Trailers-Only response has none.
const MESSAGE_HEADERS: [HeaderName; 3] = [
    CONTENT_LENGTH,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];

/// Whether this is an open gRPC response: only its headers can be held.
pub(super) fn can_be_held(head: &response::Parts) -> bool {
    let of_grpc = head.headers.get(http::header::CONTENT_TYPE).is_some_and(|value| {
        let suffix = value.as_bytes().strip_prefix(b"application/grpc");
        // Not `application/grpc-web`, which encodes trailers as a message.
        suffix.is_some_and(|suffix| matches!(suffix.first(), None | Some(b'+' | b';')))
    });
    of_grpc
        && head.status == http::StatusCode::OK
        && !head.headers.contains_key(Status::GRPC_STATUS)
}

/// Whether these trailers end a call with an error.
pub(super) fn is_error(trailers: &HeaderMap) -> bool {
    trailers.get(Status::GRPC_STATUS).is_some_and(|code| code != "0")
}

/// Merges the trailers into the headers, or returns them if the result would be too large.
///
/// For a name that gRPC itself defines, the value of the trailers replaces that of the headers.
/// Other metadata keeps both values.
pub(super) fn merge(headers: &mut HeaderMap, trailers: HeaderMap) -> Result<(), HeaderMap> {
    let size = size(headers.iter()).saturating_add(size(trailers.iter()));
    if size > HEADER_LIST_MAX {
        return Err(trailers);
    }
    for name in MESSAGE_HEADERS {
        headers.remove(name);
    }
    for name in trailers.keys().filter(|name| is_reserved(name)) {
        headers.remove(name);
    }
    let mut current = None;
    for (name, value) in trailers {
        // The iterator returns the name only with its first value.
        current = name.or(current);
        if let Some(name) = &current
            && *name != http::header::CONTENT_TYPE
        {
            headers.append(name, value);
        }
    }
    Ok(())
}

fn is_reserved(name: &HeaderName) -> bool {
    name.as_str().starts_with("grpc-")
}

fn size<'a>(headers: impl Iterator<Item = (&'a HeaderName, &'a http::HeaderValue)>) -> usize {
    headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD).sum()
}

#[cfg(test)]
mod tests {
    //! Merging keeps all information, up to the size limit.

    use http::Response;

    use super::*;

    fn map(entries: &[(&'static str, &str)]) -> HeaderMap {
        let entries = entries.iter();
        entries
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn head(code: u16, entries: &[(&'static str, &str)]) -> response::Parts {
        let mut response = Response::new(());
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
        for (name, value) in entries {
            response.headers_mut().append(*name, value.parse().unwrap());
        }
        response.into_parts().0
    }

    #[test]
    fn hold_applies_only_to_open_grpc_responses() {
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=1"] {
            assert!(can_be_held(&head(200, &[("content-type", kind)])), "{kind}");
            assert!(!can_be_held(&head(503, &[("content-type", kind)])), "{kind}");
            let ended = [("content-type", kind), ("grpc-status", "14")];
            assert!(!can_be_held(&head(200, &ended)), "{kind}");
        }
        for kind in ["application/grpc-web", "application/grpc-web+proto", "text/plain", ""] {
            assert!(!can_be_held(&head(200, &[("content-type", kind)])), "{kind}");
        }
        assert!(!can_be_held(&head(200, &[])));
    }

    #[test]
    fn trailers_only_error_is_any_status_but_ok() {
        assert!(!is_error(&map(&[("grpc-status", "0")])));
        assert!(!is_error(&map(&[("key", "value")])));
        for code in ["1", "14", "16", "99", "00", ""] {
            assert!(is_error(&map(&[("grpc-status", code)])), "{code}");
        }
    }

    #[test]
    fn trailers_only_keeps_metadata_of_headers_and_trailers() {
        let mut headers =
            map(&[("content-type", "application/grpc"), ("early", "1"), ("both", "1")]);
        let trailers = map(&[
            ("grpc-status", "14"),
            ("grpc-message", "text"),
            ("both", "2"),
            ("late", "1"),
            ("late", "2"),
        ]);
        merge(&mut headers, trailers).unwrap();
        let expected = map(&[
            ("content-type", "application/grpc"),
            ("early", "1"),
            ("both", "1"),
            ("both", "2"),
            ("grpc-status", "14"),
            ("grpc-message", "text"),
            ("late", "1"),
            ("late", "2"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn trailers_only_drops_message_headers_and_duplicate_grpc_names() {
        let mut headers = map(&[
            ("content-type", "application/grpc"),
            ("content-length", "5"),
            ("grpc-encoding", "gzip"),
            ("grpc-accept-encoding", "gzip"),
            ("grpc-retry-pushback-ms", "1"),
        ]);
        let trailers = map(&[
            ("content-type", "text/plain"),
            ("grpc-status", "14"),
            ("grpc-retry-pushback-ms", "250"),
        ]);
        merge(&mut headers, trailers).unwrap();
        let expected = map(&[
            ("content-type", "application/grpc"),
            ("grpc-status", "14"),
            ("grpc-retry-pushback-ms", "250"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn trailers_only_merge_is_bounded_by_the_header_limit() {
        let headers = map(&[("content-type", "application/grpc")]);
        let rest = size(headers.iter())
            + "grpc-status".len()
            + "14".len()
            + 2 * HEADER_OVERHEAD
            + "k".len();
        let filling = |bytes: usize| map(&[("grpc-status", "14"), ("k", &"x".repeat(bytes))]);

        let mut at_limit = headers.clone();
        assert_eq!(merge(&mut at_limit, filling(HEADER_LIST_MAX - rest)), Ok(()));
        assert_eq!(size(at_limit.iter()), HEADER_LIST_MAX);

        let mut beyond = headers.clone();
        let trailers = filling(HEADER_LIST_MAX - rest + 1);
        assert_eq!(merge(&mut beyond, trailers.clone()), Err(trailers));
        assert_eq!(beyond, headers);
    }
}
