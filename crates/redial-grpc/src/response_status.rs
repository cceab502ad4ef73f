//! What the head of a response says: a status, or that a response begins (decision G6).

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use percent_encoding::percent_decode;
use redial_service_config::Code;
use redial_service_config::{PUSHBACK_HEADER, Pushback};

use crate::client_adapter;

pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static(PUSHBACK_HEADER);
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Head {
    /// Response headers: the call belongs to this attempt.
    Headers,
    /// A status, and what the server wants of a retry.
    Status(Code, Pushback),
    /// The answer of somebody who does not speak gRPC, the status that it means, and what is wanted of
    /// a retry: who knows that header means it.
    NotGrpc(Code, Pushback),
}

impl Head {
    pub(crate) fn is_ok(self) -> bool {
        matches!(self, Head::Status(Code::Ok, _))
    }
}

/// What the head of a response says.
pub fn head<B>(response: &Response<B>) -> Head {
    let headers_found = StatusHeaders::from_headers(response.headers());
    // In the headers it is Trailers-Only, END_STREAM or not.
    match headers_found.status {
        Some(code) => Head::Status(code, headers_found.pushback(response.headers())),
        None if response.status() == StatusCode::OK && headers_found.grpc => Head::Headers,
        None => Head::NotGrpc(
            code_from_http(response.status()),
            headers_found.pushback(response.headers()),
        ),
    }
}

/// Whether it is plainly gRPC's, so that the client can be left to read it.
#[inline]
pub(crate) fn is_plain<B>(response: &Response<B>) -> bool {
    let is_grpc = |(name, value): (&HeaderName, &HeaderValue)| {
        *name == CONTENT_TYPE && is_grpc(value.as_bytes())
    };
    response.status() == StatusCode::OK && response.headers().iter().any(is_grpc)
}

/// Writes into an answer that is not gRPC's what it means, so that the application sees the status
/// that it was judged by. A client would look for messages in its body.
pub(crate) fn write_status<B>(response: &mut Response<B>, code: Code) {
    let kind =
        response.headers().get(CONTENT_TYPE).map(|it| String::from_utf8_lossy(it.as_bytes()));
    let kind = kind.map_or("no content type".to_owned(), |it| format!("content type {it}"));
    let text = format!("the answer is not gRPC: HTTP {} with {kind}", response.status().as_u16());
    let headers = response.headers_mut();
    headers.insert(STATUS, HeaderValue::from(u16::from(code.number())));
    headers.insert(MESSAGE, client_adapter::encode_message(&text));
}

/// The message of a status, as a log shows it; a pushback that cannot be read is added, since it
/// means "do not retry" without saying so.
pub(crate) fn message(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(MESSAGE).map(|value| percent_decode(value.as_bytes()));
    match (text, malformed_pushback(headers)) {
        (None, None) => None,
        (Some(text), None) => Some(text.decode_utf8_lossy().into_owned()),
        (None, Some(pushback)) => Some(pushback),
        (Some(text), Some(pushback)) => Some(format!("{} ({pushback})", text.decode_utf8_lossy())),
    }
}

/// What is wrong with the pushback, if it means "do not retry" only because it cannot be read.
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

/// What the trailers of a response say.
pub(crate) struct Trailers {
    pub(crate) code: Code,
    pub(crate) pushback: Pushback,
    /// Whether there are details to be checked.
    pub(crate) details: bool,
}

/// What the trailers of a response say; without a status it is this one.
#[inline]
pub(crate) fn trailers_with_default(trailers: &HeaderMap, missing: Code) -> Trailers {
    let headers_found = StatusHeaders::from_headers(trailers);
    let code = headers_found.status.unwrap_or(missing);
    Trailers { code, pushback: headers_found.pushback(trailers), details: headers_found.details }
}

/// What the trailers of a response say; without a status it is UNKNOWN.
pub fn trailers(trailers: &HeaderMap) -> (Code, Pushback) {
    let Trailers { code, pushback, .. } = trailers_with_default(trailers, Code::Unknown);
    (code, pushback)
}

/// Removes details that are not base64: tonic panics on them.
#[cold]
pub(crate) fn drop_invalid_details(headers: &mut HeaderMap) {
    if headers.get_all(DETAILS).iter().any(|details| !is_base64(details.as_bytes())) {
        headers.remove(DETAILS);
    }
}

/// Whether these bytes are base64 as binary headers have it, where padding may be left out.
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
    // The bits of the last digit that belong to no byte are zero.
    match digits.len() % 4 {
        0 => padding == 0,
        2 => padding <= 2 && last & 0b1111 == 0,
        3 => padding <= 1 && last & 0b11 == 0,
        _ => false,
    }
}

/// The same names for comparing: a constant would be made and dropped each time.
static STATUS_NAME: HeaderName = STATUS;
static PUSHBACK_NAME: HeaderName = PUSHBACK;
static DETAILS_NAME: HeaderName = DETAILS;

/// What headers or trailers say to this layer. One look at each is cheaper than looking for any:
/// there are few, and hashing a name costs more than comparing it.
#[derive(Default)]
struct StatusHeaders {
    status: Option<Code>,
    pushback: bool,
    details: bool,
    grpc: bool,
}

impl StatusHeaders {
    #[inline]
    fn from_headers(headers: &HeaderMap) -> Self {
        let mut headers_found = StatusHeaders::default();
        for (name, value) in headers {
            match *name {
                CONTENT_TYPE => headers_found.grpc |= is_grpc(value.as_bytes()),
                ref name if *name == STATUS_NAME => {
                    headers_found.status =
                        headers_found.status.or_else(|| Some(status(value.as_bytes())));
                }
                ref name if *name == PUSHBACK_NAME => headers_found.pushback = true,
                ref name if *name == DETAILS_NAME => headers_found.details = true,
                _ => {}
            }
        }
        headers_found
    }

    #[inline]
    fn pushback(&self, headers: &HeaderMap) -> Pushback {
        if self.pushback { parse_pushback(headers) } else { Pushback::None }
    }
}

/// Whether a content type is one of gRPC's. Types are the same in any case (RFC 9110, 8.3.1).
fn is_grpc(kind: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    // Nearly all are written so.
    kind.starts_with(GRPC)
        || kind.get(..GRPC.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC))
}

#[cold]
fn parse_pushback(headers: &HeaderMap) -> Pushback {
    Pushback::parse(headers.get_all(PUSHBACK).iter().map(HeaderValue::as_bytes))
}

/// A status as headers carry it; what cannot be read is UNKNOWN.
fn status(text: &[u8]) -> Code {
    let number = match text {
        [digit @ b'0'..=b'9'] => Some(i64::from(digit - b'0')),
        [b'1', digit @ b'0'..=b'9'] => Some(10 + i64::from(digit - b'0')),
        _ => None,
    };
    number.and_then(Code::from_number).unwrap_or(Code::Unknown)
}

/// The table of gRPC's "HTTP to gRPC Status Code Mapping": what a proxy's answer means.
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
        let from_headers =
            |headers: &[(&'static str, &'static str)]| message(response(200, headers).headers());
        assert_eq!(from_headers(&[]), None);
        assert_eq!(from_headers(&[("grpc-message", "100%25 busy")]).as_deref(), Some("100% busy"));
        for value in ["-1", "-2147483648", "0", "250"] {
            assert_eq!(from_headers(&[("grpc-retry-pushback-ms", value)]), None, "{value}");
        }
        let busy = ("grpc-message", "busy");
        assert_eq!(
            from_headers(&[busy, ("grpc-retry-pushback-ms", "soon")]).as_deref(),
            Some("busy (malformed grpc-retry-pushback-ms \"soon\": not retried)")
        );
        for value in ["-0", "-2147483649", "050", ""] {
            assert!(from_headers(&[("grpc-retry-pushback-ms", value)]).is_some(), "{value}");
        }
        let twice = [("grpc-retry-pushback-ms", "1"), ("grpc-retry-pushback-ms", "1")];
        let text = "2 values of grpc-retry-pushback-ms: not retried";
        assert_eq!(from_headers(&twice).as_deref(), Some(text));
    }

    #[test]
    fn response_headers_without_status_start_a_response() {
        let kinds = ["application/grpc", "application/grpc+proto", "application/grpc;charset=x"];
        // Red: leave out the second condition of `is_grpc`.
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
            let text = format!("the answer is not gRPC: HTTP {status} with content type text/html");
            assert_eq!(answer.headers()["grpc-message"], text);
        }
    }

    /// Every short text of some digits, padding and bytes that are neither.
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
