//! Reads the gRPC status from response headers and trailers (decision G6).

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use percent_encoding::percent_decode;
use redial_service_config::{Code, PUSHBACK_HEADER, Pushback};

use crate::client_adapter;
use crate::header_scanner::{
    DETAILS, GrpcHeader, MESSAGE, PUSHBACK, STATUS, is_grpc, parse_status, scan,
};

/// The kind of response, determined from its headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Head {
    /// Response headers without a status: the call commits to this attempt.
    Headers,
    /// Trailers-Only: a status, with the server's pushback.
    Status(Code, Pushback),
    /// Not a gRPC response: the status derived from its HTTP status. Pushback is respected if present,
    /// since only a server that knows the header sends it.
    NotGrpc(Code, Pushback),
}

/// Classifies a response by its headers.
pub fn head<B>(response: &Response<B>) -> Head {
    let found = StatusHeaders::of(response.headers());
    // A status in the headers means Trailers-Only, with or without END_STREAM.
    match found.status {
        Some(code) => Head::Status(code, found.pushback(response.headers())),
        None if response.status() == StatusCode::OK && found.is_grpc => Head::Headers,
        None => {
            Head::NotGrpc(code_from_http(response.status()), found.pushback(response.headers()))
        }
    }
}

/// Whether it is certainly a gRPC response, which the client can interpret itself.
pub(crate) fn is_plain<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::OK
        && scan(response.headers())
            .any(|(header, value)| header == GrpcHeader::ContentType && is_grpc(value))
}

/// Writes the derived status into a non-gRPC response. Otherwise a client would try to decode its body
/// as messages.
pub(crate) fn write_status<B>(response: &mut Response<B>, code: Code) {
    let kind =
        response.headers().get(CONTENT_TYPE).map(|it| String::from_utf8_lossy(it.as_bytes()));
    let kind = kind.map_or("no content type".to_owned(), |it| format!("content type {it}"));
    let text = format!("not a gRPC response: HTTP {} with {kind}", response.status().as_u16());
    let headers = response.headers_mut();
    headers.insert(STATUS, HeaderValue::from(u16::from(code.number())));
    headers.insert(MESSAGE, client_adapter::encode_message(&text));
}

/// The status message as shown in logs. A malformed pushback is mentioned, since it silently means "do
/// not retry".
pub(crate) fn message(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(MESSAGE).map(|value| percent_decode(value.as_bytes()));
    match (text, malformed_pushback(headers)) {
        (None, None) => None,
        (Some(text), None) => Some(text.decode_utf8_lossy().into_owned()),
        (None, Some(pushback)) => Some(pushback),
        (Some(text), Some(pushback)) => Some(format!("{} ({pushback})", text.decode_utf8_lossy())),
    }
}

/// Describes a malformed pushback, which means "do not retry".
fn malformed_pushback(headers: &HeaderMap) -> Option<String> {
    let values: Vec<_> = headers.get_all(PUSHBACK).iter().map(HeaderValue::as_bytes).collect();
    if Pushback::parse(values.iter().copied()) != Pushback::Stop {
        return None;
    }
    let negative = |value: &[u8]| {
        let text = std::str::from_utf8(value).unwrap_or_default();
        matches!(value, [b'-', b'1'..=b'9', ..]) && text.parse::<i32>().is_ok()
    };
    match &*values {
        [value] if negative(value) => None,
        [value] => {
            let value = String::from_utf8_lossy(value);
            Some(format!("malformed {PUSHBACK_HEADER} {value:?}: not retried"))
        }
        _ => Some(format!("{} values of {PUSHBACK_HEADER}: not retried", values.len())),
    }
}

/// Contents of response trailers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trailers {
    pub(crate) code: Code,
    pub(crate) pushback: Pushback,
    /// Whether there are status details, which have to be validated.
    pub(crate) details: bool,
}

/// Reads trailers, with a default for a missing status.
pub(crate) fn trailers_with_default(trailers: &HeaderMap, default: Code) -> Trailers {
    let found = StatusHeaders::of(trailers);
    let code = found.status.unwrap_or(default);
    Trailers { code, pushback: found.pushback(trailers), details: found.has_details }
}

/// Reads trailers; a missing status is UNKNOWN.
pub fn trailers(trailers: &HeaderMap) -> (Code, Pushback) {
    let Trailers { code, pushback, .. } = trailers_with_default(trailers, Code::Unknown);
    (code, pushback)
}

/// Removes status details that are not valid base64: tonic panics on them.
pub(crate) fn drop_invalid_details(headers: &mut HeaderMap) {
    if headers.get_all(DETAILS).iter().any(|details| !is_base64(details.as_bytes())) {
        headers.remove(DETAILS);
    }
}

/// Whether this is base64 as in binary headers, with optional padding.
fn is_base64(text: &[u8]) -> bool {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = &text[..text.len() - padding];
    let mut last = 0;
    for digit in digits {
        last = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return false,
        };
    }
    // The unused bits of the last digit must be zero.
    match digits.len() % 4 {
        0 => padding == 0,
        2 => padding <= 2 && last & 0b1111 == 0,
        3 => padding <= 1 && last & 0b11 == 0,
        _ => false,
    }
}

/// What response headers or trailers say about the status.
#[derive(Default)]
struct StatusHeaders {
    /// The first status.
    status: Option<Code>,
    has_pushback: bool,
    has_details: bool,
    is_grpc: bool,
}

impl StatusHeaders {
    fn of(headers: &HeaderMap) -> Self {
        let mut found = StatusHeaders::default();
        for (header, value) in scan(headers) {
            match header {
                GrpcHeader::ContentType => found.is_grpc |= is_grpc(value),
                GrpcHeader::Status => {
                    found.status = found.status.or_else(|| Some(parse_status(value)));
                }
                GrpcHeader::Pushback => found.has_pushback = true,
                GrpcHeader::Details => found.has_details = true,
                GrpcHeader::Te | GrpcHeader::Timeout | GrpcHeader::PreviousAttempts => {}
            }
        }
        found
    }

    fn pushback(&self, headers: &HeaderMap) -> Pushback {
        if !self.has_pushback {
            return Pushback::None;
        }
        Pushback::parse(headers.get_all(PUSHBACK).iter().map(HeaderValue::as_bytes))
    }
}

/// The table of gRPC's "HTTP to gRPC Status Code Mapping", for responses of proxies.
fn code_from_http(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: &[(&'static str, &'static str)]) -> Response<()> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap()
    }

    #[test]
    fn pushback_malformed_is_named_in_the_message() {
        let of =
            |headers: &[(&'static str, &'static str)]| message(response(200, headers).headers());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("grpc-message", "100%25 busy")]).as_deref(), Some("100% busy"));
        for value in ["-1", "-2147483648", "0", "250"] {
            assert_eq!(of(&[("grpc-retry-pushback-ms", value)]), None, "{value}");
        }
        let busy = ("grpc-message", "busy");
        assert_eq!(
            of(&[busy, ("grpc-retry-pushback-ms", "soon")]).as_deref(),
            Some("busy (malformed grpc-retry-pushback-ms \"soon\": not retried)")
        );
        for value in ["-0", "-2147483649", "050", ""] {
            assert!(of(&[("grpc-retry-pushback-ms", value)]).is_some(), "{value}");
        }
        let twice = [("grpc-retry-pushback-ms", "1"), ("grpc-retry-pushback-ms", "1")];
        let text = "2 values of grpc-retry-pushback-ms: not retried";
        assert_eq!(of(&twice).as_deref(), Some(text));
    }

    #[test]
    fn response_headers_without_status_start_a_response() {
        let kinds = ["application/grpc", "application/grpc+proto", "application/grpc;charset=x"];
        for kind in kinds.into_iter().chain(["Application/gRPC"]) {
            assert_eq!(head(&response(200, &[("content-type", kind)])), Head::Headers, "{kind}");
        }
        for kind in ["", "application/grp", "application/json", "text/application/grpc"] {
            let answer = response(200, &[("content-type", kind)]);
            assert_eq!(head(&answer), Head::NotGrpc(Code::Unknown, Pushback::None), "{kind}");
        }
    }

    #[test]
    fn response_headers_with_status_are_trailers_only() {
        let cases = [("0", Code::Ok), ("14", Code::Unavailable), ("16", Code::Unauthenticated)];
        for (text, code) in cases {
            let answer = response(200, &[("grpc-status", text)]);
            assert_eq!(head(&answer), Head::Status(code, Pushback::None));
            let answer = response(503, &[("grpc-status", text)]);
            assert_eq!(head(&answer), Head::Status(code, Pushback::None));
        }
        for text in ["", "17", "014", "-1", "1.0", "abc", "100"] {
            let answer = response(200, &[("grpc-status", text)]);
            assert_eq!(head(&answer), Head::Status(Code::Unknown, Pushback::None), "{text:?}");
        }
    }

    #[test]
    fn non_grpc_response_is_mapped_by_http_status() {
        let cases = [
            (200, Code::Unknown),
            (400, Code::Internal),
            (401, Code::Unauthenticated),
            (403, Code::PermissionDenied),
            (404, Code::Unimplemented),
            (429, Code::Unavailable),
            (500, Code::Unknown),
            (502, Code::Unavailable),
            (503, Code::Unavailable),
            (504, Code::Unavailable),
        ];
        for (status, code) in cases {
            let mut answer = response(status, &[("content-type", "text/html")]);
            assert_eq!(head(&answer), Head::NotGrpc(code, Pushback::None), "{status}");
            write_status(&mut answer, code);
            assert_eq!(head(&answer), Head::Status(code, Pushback::None), "{status}");
            let text = format!("not a gRPC response: HTTP {status} with content type text/html");
            assert_eq!(answer.headers()["grpc-message"], text);
        }
    }

    /// All texts of up to five characters from some digits, padding and invalid bytes.
    #[cfg(feature = "tonic")]
    #[test]
    fn status_details_are_valid_where_tonic_decodes_them() {
        let mut texts = vec![Vec::new()];
        for length in 1..=5_usize {
            let longer = texts.iter().filter(|text| text.len() + 1 == length).cloned();
            let longer = longer.flat_map(|text: Vec<u8>| {
                b"AQgw/+9=-\xff".map(|byte| [&text[..], &[byte]].concat())
            });
            let longer: Vec<_> = longer.collect();
            texts.extend(longer);
        }
        assert_eq!(texts.len(), 111_111);
        for text in texts {
            let mut headers = HeaderMap::new();
            headers.insert(DETAILS, HeaderValue::from_bytes(&text).unwrap());
            let metadata = tonic::metadata::MetadataMap::from_headers(headers);
            let decoded = metadata.get_bin("grpc-status-details-bin").unwrap().to_bytes();
            assert_eq!(is_base64(&text), decoded.is_ok(), "{text:?}");
        }
    }

    #[test]
    fn pushback_is_read_from_trailers_only_headers() {
        let answer = response(200, &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")]);
        assert_eq!(head(&answer), Head::Status(Code::Unavailable, Pushback::Stop));
    }
}
