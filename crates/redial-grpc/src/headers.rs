//! The header scanner: what the layer reads of a request's headers, a response's headers or trailers.
//!
//! One pass over all headers is cheaper than a lookup for each name: there are few headers, and hashing
//! a name costs more than comparing it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use redial_service_config::{Code, PUSHBACK_HEADER};

use crate::timeout;

pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static(PUSHBACK_HEADER);
pub(crate) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// Number of previous attempts, sent by gRPC clients and read by servers (decision G30).
pub(crate) const PREVIOUS_ATTEMPTS: HeaderName =
    HeaderName::from_static("grpc-previous-rpc-attempts");

/// The content type of gRPC; a suffix may follow.
pub(crate) const GRPC: &[u8] = b"application/grpc";

/// The headers or trailers that matter to this layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrpcHeaders<'h> {
    pub(crate) te: Option<&'h HeaderValue>,
    pub(crate) content_type: Option<&'h HeaderValue>,
    /// Whether a content type is that of gRPC.
    pub(crate) is_grpc: bool,
    /// The first `grpc-timeout` that can be parsed.
    pub(crate) timeout: Option<Duration>,
    pub(crate) has_previous_attempts: bool,
    /// The first `grpc-status`.
    pub(crate) status: Option<Code>,
    pub(crate) has_pushback: bool,
    pub(crate) has_details: bool,
}

impl<'h> GrpcHeaders<'h> {
    pub(crate) fn scan(headers: &'h HeaderMap) -> Self {
        let mut found = GrpcHeaders::default();
        for (name, value) in headers {
            match name.as_str() {
                "te" => found.te = Some(value),
                "content-type" => {
                    found.content_type = Some(value);
                    found.is_grpc |= is_grpc(value.as_bytes());
                }
                "grpc-timeout" => found.timeout = found.timeout.or_else(|| timeout::parse(value)),
                "grpc-previous-rpc-attempts" => found.has_previous_attempts = true,
                "grpc-status" => {
                    found.status = found.status.or_else(|| Some(status(value.as_bytes())));
                }
                PUSHBACK_HEADER => found.has_pushback = true,
                "grpc-status-details-bin" => found.has_details = true,
                _ => {}
            }
        }
        found
    }
}

/// Whether this is a gRPC content type. Media types are case-insensitive (RFC 9110, 8.3.1).
fn is_grpc(kind: &[u8]) -> bool {
    kind.get(..GRPC.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC))
}

/// Parses `grpc-status`; a malformed value is UNKNOWN.
fn status(text: &[u8]) -> Code {
    let number = match text {
        [digit @ b'0'..=b'9'] => Some(i64::from(digit - b'0')),
        [b'1', digit @ b'0'..=b'9'] => Some(10 + i64::from(digit - b'0')),
        _ => None,
    };
    number.and_then(Code::from_number).unwrap_or(Code::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_scan_takes_the_first_of_repeated_values() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("grpc-timeout", "soon"),
            ("grpc-timeout", "2S"),
            ("grpc-timeout", "1S"),
            ("grpc-status", "14"),
            ("grpc-status", "0"),
            ("content-type", "text/html"),
            ("content-type", "application/grpc"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let found = GrpcHeaders::scan(&headers);
        assert_eq!(found.timeout, Some(Duration::from_secs(2)), "the first that can be parsed");
        assert_eq!(found.status, Some(Code::Unavailable));
        assert!(found.is_grpc, "any of them");
        assert!(!found.has_previous_attempts && !found.has_pushback && !found.has_details);
        assert!(found.te.is_none());
    }

    #[test]
    fn headers_scan_finds_every_name() {
        let mut headers = HeaderMap::new();
        for name in [PREVIOUS_ATTEMPTS, PUSHBACK, DETAILS, STATUS, http::header::TE] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        let found = GrpcHeaders::scan(&headers);
        assert!(found.has_previous_attempts && found.has_pushback && found.has_details);
        assert_eq!((found.status, found.te.is_some()), (Some(Code::Cancelled), true));
    }
}
