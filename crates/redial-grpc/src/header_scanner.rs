//! The header scanner: what the layer reads of a request's headers, a response's headers or trailers.
//!
//! One pass over all headers is cheaper than a lookup for each name: there are few headers, and hashing
//! a name costs more than comparing it.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use redial_service_config::{Code, PUSHBACK_HEADER};

pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static(PUSHBACK_HEADER);
pub(crate) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// Number of previous attempts, sent by gRPC clients and read by servers (decision G30).
pub(crate) const PREVIOUS_ATTEMPTS: HeaderName =
    HeaderName::from_static("grpc-previous-rpc-attempts");

/// The content type of gRPC; a suffix may follow.
pub(crate) const GRPC: &[u8] = b"application/grpc";

/// A header or trailer that matters to this layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcHeader {
    Te,
    ContentType,
    Timeout,
    PreviousAttempts,
    Status,
    Pushback,
    Details,
}

impl GrpcHeader {
    fn named(name: &HeaderName) -> Option<Self> {
        match *name {
            header::TE => return Some(GrpcHeader::Te),
            header::CONTENT_TYPE => return Some(GrpcHeader::ContentType),
            _ => {}
        }
        Some(match name.as_str().strip_prefix("grpc-")? {
            "status" => GrpcHeader::Status,
            "timeout" => GrpcHeader::Timeout,
            "previous-rpc-attempts" => GrpcHeader::PreviousAttempts,
            "retry-pushback-ms" => GrpcHeader::Pushback,
            "status-details-bin" => GrpcHeader::Details,
            _ => return None,
        })
    }
}

/// The headers or trailers that matter to this layer, in their order.
pub(crate) fn scan(headers: &HeaderMap) -> impl Iterator<Item = (GrpcHeader, &HeaderValue)> {
    headers.iter().filter_map(|(name, value)| Some((GrpcHeader::named(name)?, value)))
}

/// Whether this is a gRPC content type. Media types are case-insensitive (RFC 9110, 8.3.1).
pub(crate) fn is_grpc(content_type: &HeaderValue) -> bool {
    let kind = content_type.as_bytes().get(..GRPC.len());
    kind.is_some_and(|kind| kind == GRPC || kind.eq_ignore_ascii_case(GRPC))
}

/// Parses `grpc-status`; a malformed value is UNKNOWN.
pub(crate) fn parse_status(value: &HeaderValue) -> Code {
    let number = match value.as_bytes() {
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
    fn headers_scan_finds_every_name_and_nothing_else() {
        let named = [
            (header::TE, GrpcHeader::Te),
            (header::CONTENT_TYPE, GrpcHeader::ContentType),
            (crate::timeout::TIMEOUT, GrpcHeader::Timeout),
            (PREVIOUS_ATTEMPTS, GrpcHeader::PreviousAttempts),
            (STATUS, GrpcHeader::Status),
            (PUSHBACK, GrpcHeader::Pushback),
            (DETAILS, GrpcHeader::Details),
        ];
        for (name, header) in named {
            let mut headers = HeaderMap::new();
            headers.append(name.clone(), HeaderValue::from_static("1"));
            headers.append(header::DATE, HeaderValue::from_static("2"));
            headers.append("grpc-encoding", HeaderValue::from_static("3"));
            headers.append(name, HeaderValue::from_static("4"));
            let found: Vec<_> = scan(&headers).map(|(it, value)| (it, value.as_bytes())).collect();
            assert_eq!(found, [(header, &b"1"[..]), (header, &b"4"[..])]);
        }
    }
}
