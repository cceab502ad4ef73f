//! The outcome of an attempt: a response that was read, or a failure that keeps all of it.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header, response};
use http_body::Body;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use redial_core::Failure;
use redial_grpc::BoxError;
use redial_grpc::balancing::transport_error::{TransportFailure, chain_text};
use redial_grpc::balancing::{Head, head, trailers};
use redial_service_config::Code;

use super::LayerRules;
use super::answer::Answer;
use super::body::{BufferedBody, Read, read};
use crate::call::ResponseCheck;
use crate::error::DEADLINE_EXCEEDED;
use crate::status::{GrpcStatus, RATE_LIMIT, inner_status, invalid_message};
use crate::transport_error::{classify, proves_unsent};

const GRPC_STATUS: &str = "grpc-status";
const GRPC_MESSAGE: &str = "grpc-message";
const GRPC_DETAILS: &str = "grpc-status-details-bin";
/// What a status message must not contain, as gRPC writes it.
const MESSAGE_SET: &AsciiSet = &CONTROLS.add(b'%');

/// A response without an error status.
#[derive(Debug)]
pub(super) struct Collected<R> {
    head: response::Parts,
    body: Read<R>,
}

impl<R> Collected<R> {
    pub(super) fn into_response(self) -> Response<BufferedBody<R>> {
        let body = match self.body {
            Read::Whole(bytes, trailers) => BufferedBody::whole(bytes, trailers),
            Read::TooLong(start, rest) => BufferedBody::streamed(start, rest),
        };
        Response::from_parts(self.head, body)
    }

    /// The bytes of the response, if it was read as a whole.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        match &self.body {
            Read::Whole(bytes, _) => Some(bytes),
            Read::TooLong(..) => None,
        }
    }
}

/// The failure of an attempt.
pub(super) struct AttemptStatus {
    code: Code,
    message: String,
    unsent: bool,
    kind: StatusKind,
    /// Whether the message was replaced.
    changed: bool,
}

enum StatusKind {
    /// From the server: the head of its response, its body and its trailers.
    Response(Box<(response::Parts, Bytes, Option<HeaderMap>)>),
    /// From the channel.
    Error(BoxError),
}

impl fmt::Debug for AttemptStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptStatus")
            .field("code", &self.code)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

impl GrpcStatus for AttemptStatus {
    fn code(&self) -> Code {
        self.code
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self.changed = true;
        self
    }

    fn is_unsent(&self) -> bool {
        self.unsent
    }
}

impl AttemptStatus {
    /// An error of the channel. `late`: the attempt's timeout has passed.
    pub(super) fn of_error(error: BoxError, late: bool) -> Self {
        let (failure, code) = classify(&*error);
        let local_timeout = late || failure == TransportFailure::LocalTimeout;
        let code = if local_timeout { Code::DeadlineExceeded } else { code };
        // The same text, whichever timer was first.
        let message =
            if local_timeout { DEADLINE_EXCEEDED.to_owned() } else { chain_text(&*error) };
        let unsent = proves_unsent(failure);
        AttemptStatus { code, message, unsent, kind: StatusKind::Error(error), changed: false }
    }

    fn of_response(
        code: Code,
        head: response::Parts,
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    ) -> Self {
        let fields = trailers.as_ref().unwrap_or(&head.headers);
        let text = fields.get(GRPC_MESSAGE).or_else(|| head.headers.get(GRPC_MESSAGE));
        let message = match text {
            Some(text) => percent_decode(text.as_bytes()).decode_utf8_lossy().into_owned(),
            None if head.status != http::StatusCode::OK => {
                format!("HTTP status {}", head.status)
            }
            None => String::new(),
        };
        let kind = StatusKind::Response(Box::new((head, bytes, trailers)));
        AttemptStatus { code, message, unsent: false, kind, changed: false }
    }

    /// The result of the call: the server's response or the channel's error, unchanged unless the
    /// message was replaced.
    pub(super) fn into_result<R>(self) -> Result<Response<BufferedBody<R>>, BoxError> {
        let AttemptStatus { code, message, kind, changed, .. } = self;
        match kind {
            StatusKind::Error(error) if !changed && code != Code::DeadlineExceeded => Err(error),
            StatusKind::Error(_) => Ok(status_response(code, &message, None)),
            StatusKind::Response(response) => {
                let (mut head, bytes, mut trailers) = *response;
                if changed {
                    let fields = trailers.as_mut().unwrap_or(&mut head.headers);
                    fields.insert(GRPC_MESSAGE, encode(&message));
                    if !fields.contains_key(GRPC_STATUS) {
                        // Not a gRPC response: the client must not derive a status of its own.
                        fields.insert(GRPC_STATUS, HeaderValue::from(u16::from(code.number())));
                    }
                }
                Ok(Response::from_parts(head, BufferedBody::whole(bytes, trailers)))
            }
        }
    }
}

/// Reads a response, and finds its status.
pub(super) async fn collect<R>(
    response: Response<R>,
    max: usize,
) -> Result<Collected<R>, AttemptStatus>
where
    R: Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
{
    let kind = head(&response);
    let (head, body) = response.into_parts();
    let body = match read(body, max).await {
        Ok(body) => body,
        Err(error) => {
            // The server has answered, so it has seen the request, whatever the error says.
            return Err(AttemptStatus { unsent: false, ..AttemptStatus::of_error(error, false) });
        }
    };
    let code = match (&kind, &body) {
        (Head::Status(code, _) | Head::NotGrpc(code, _), _) => *code,
        (Head::Headers, Read::Whole(_, Some(fields))) => trailers(fields).0,
        // Without trailers, or with more than is read: the client judges it.
        (Head::Headers, _) => Code::Ok,
    };
    match (code, body) {
        (Code::Ok, body) => Ok(Collected { head, body }),
        (code, Read::Whole(bytes, trailers)) => {
            Err(AttemptStatus::of_response(code, head, bytes, trailers))
        }
        (code, Read::TooLong(..)) => {
            Err(AttemptStatus::of_response(code, head, Bytes::new(), None))
        }
    }
}

/// Finds invalid messages: by the code of the status inside, and with the layer's predicate.
pub(super) struct AnswerCheck<'a> {
    pub(super) method: &'a str,
    pub(super) rules: &'a LayerRules,
}

impl<R> ResponseCheck<Collected<R>> for AnswerCheck<'_> {
    fn check(&mut self, response: &Collected<R>, codes: &[i32]) -> Option<Failure> {
        if codes.is_empty() && self.rules.invalid.is_none() {
            return None;
        }
        let answer = Answer::new(self.method, response.bytes()?);
        let code = answer.status_code().filter(|code| codes.contains(code));
        let by_rule = || self.rules.invalid.as_ref().is_some_and(|rule| (rule.0)(&answer));
        code.map(inner_status).or_else(|| by_rule().then(invalid_message))
    }
}

/// The response for an invalid message: an error whose details are the last message.
pub(super) fn invalid_response<R>(
    method: &str,
    text: &str,
    response: &Collected<R>,
) -> Response<BufferedBody<R>> {
    let answer = response.bytes().map(|bytes| Answer::new(method, bytes));
    let code = match answer.and_then(|answer| answer.status_code()) {
        Some(RATE_LIMIT) => Code::ResourceExhausted,
        _ => Code::Unknown,
    };
    status_response(code, text, answer.and_then(|answer| answer.message()))
}

/// The response for an attempt or a call that took too long.
pub(super) fn timeout_response<R>() -> Response<BufferedBody<R>> {
    status_response(Code::DeadlineExceeded, DEADLINE_EXCEEDED, None)
}

/// A Trailers-Only response.
fn status_response<R>(
    code: Code,
    message: &str,
    details: Option<&[u8]>,
) -> Response<BufferedBody<R>> {
    let mut response = Response::new(BufferedBody::whole(Bytes::new(), None));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(code.number())));
    headers.insert(GRPC_MESSAGE, encode(message));
    if let Some(details) = details
        && let Ok(value) = HeaderValue::try_from(base64(details))
    {
        headers.insert(GRPC_DETAILS, value);
    }
    response
}

fn encode(message: &str) -> HeaderValue {
    let text = percent_encode(message.as_bytes(), MESSAGE_SET).to_string();
    // ASCII without control characters is a header value.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// Base64 without padding, as gRPC writes binary headers.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            let index = number >> (18 - 6 * digit) & 63;
            text.push(char::from(DIGITS[index as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_base64_has_no_padding() {
        let cases = [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[255, 254, 253]), "//79");
    }

    #[test]
    fn layer_message_is_percent_encoded() {
        assert_eq!(encode("100 % \u{fc}\n(x)"), "100 %25 %C3%BC%0A(x)");
    }
}
