//! Client-specific types: how an attempt's body becomes the client's body type, and how a locally
//! generated status reaches the application.

#[cfg(feature = "tonic")]
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body;
use redial_service_config::Code;

use crate::header_scanner::{MESSAGE, STATUS};
use crate::previous_attempts_stamp;
use crate::replay_buffer::Replay;
use crate::report::CallReport;
use crate::{BoxError, transport_error};

/// Adapts the layer to a gRPC client library. [`Tonic`] is the adapter for tonic; for another version
/// of tonic or another client see [`RetryLayer::adapter`](crate::RetryLayer::adapter).
pub trait ClientAdapter<B>: Clone {
    /// Wraps the body of an attempt in the channel's body type.
    fn wrap(&self, body: Replay<B>) -> B;

    /// The result of a call that ended on the client side. By default a Trailers-Only response, which
    /// every gRPC client understands.
    ///
    /// # Errors
    /// The error that the application receives instead.
    fn local_status(&self, local: LocalStatus) -> Result<Response<()>, BoxError> {
        Ok(local.into_response())
    }

    /// Converts a failed response and its report into an error, given the headers of the response. By
    /// default `None`: the response is returned with the report in its extensions.
    fn failed_response(&self, headers: &HeaderMap, report: &CallReport) -> Option<BoxError> {
        let (_, _) = (headers, report);
        None
    }

    /// An error from the application's own code, after this number of attempts. Returned unchanged by
    /// default.
    fn failed(&self, error: BoxError, attempts: u32) -> BoxError {
        let _ = attempts;
        error
    }
}

/// The status of a call that ended on the client side, without a status from the server: for
/// example by a deadline, a lost connection or a message over the size limit.
#[derive(Debug)]
#[non_exhaustive]
pub struct LocalStatus {
    /// The status code.
    pub code: Code,
    /// The status message.
    pub message: String,
    /// Number of attempts, including the first; 0 if none started.
    pub attempts: u32,
    /// The underlying error, if any.
    pub source: Option<BoxError>,
    /// Why there was no further attempt, with the history of attempts; `None` if reports are off.
    pub report: Option<CallReport>,
}

impl LocalStatus {
    pub(crate) fn new(code: Code, message: String, attempts: u32) -> Self {
        LocalStatus { code, message, attempts, source: None, report: None }
    }

    /// The status for an error; the message contains its whole source chain.
    pub(crate) fn from_error(code: Code, error: BoxError, attempts: u32) -> Self {
        let message = transport_error::chain_text(&*error);
        LocalStatus { code, message, attempts, source: Some(error), report: None }
    }

    /// A Trailers-Only response with the report in its extensions.
    #[must_use]
    pub fn into_response(mut self) -> Response<()> {
        let mut response = Response::new(());
        if let Some(report) = self.report.take() {
            response.extensions_mut().insert(report.with_source(self.source.take()));
        }
        *response.headers_mut() = self.into_trailers();
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, grpc);
        response
    }

    /// The trailers of a response that has started.
    pub(crate) fn into_trailers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(STATUS, HeaderValue::from(u16::from(self.code.number())));
        headers.insert(MESSAGE, encode_message(&self.message));
        previous_attempts_stamp::stamp_headers(&mut headers, self.attempts);
        headers
    }
}

/// Percent-encodes a message for `grpc-message`.
pub(crate) fn encode_message(text: &str) -> HeaderValue {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    // Printable ASCII is always a valid header value.
    HeaderValue::try_from(out).unwrap_or(HeaderValue::from_static(""))
}

/// The adapter for clients of tonic 0.14 (feature `tonic`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tonic;

#[cfg(feature = "tonic")]
impl ClientAdapter<tonic::body::Body> for Tonic {
    fn wrap(&self, body: Replay<tonic::body::Body>) -> tonic::body::Body {
        tonic::body::Body::new(body)
    }

    /// Returns an error with a [`tonic::Status`], so that the application can read its source.
    fn local_status(&self, local: LocalStatus) -> Result<Response<()>, BoxError> {
        let code = tonic::Code::from_i32(i32::from(local.code.number()));
        // A status made by another layer keeps its message, metadata and details (G3).
        let own_status =
            local.source.as_ref().and_then(|source| source.downcast_ref::<tonic::Status>());
        let own_status = own_status.filter(|status| status.code() == code).cloned();
        let is_own_status = own_status.is_some();
        let mut status = own_status.unwrap_or_else(|| tonic::Status::new(code, local.message));
        match (local.report, local.source) {
            (Some(report), source) => status.set_source(Arc::new(report.with_source(source))),
            (None, Some(source)) if !is_own_status => status.set_source(source.into()),
            (None, _) => &mut status,
        };
        Err(previous_attempts_stamp::stamp_error(status.into(), local.attempts))
    }

    /// The [`tonic::Status`] read from these headers, with the report as its source.
    fn failed_response(&self, headers: &HeaderMap, report: &CallReport) -> Option<BoxError> {
        let mut status = tonic::Status::from_header_map(headers)?;
        status.set_source(Arc::new(report.clone()));
        Some(Box::new(status))
    }

    /// After one attempt the same error. After several, the [`tonic::Status`] that tonic derives from it,
    /// with the number of attempts in its metadata.
    fn failed(&self, error: BoxError, attempts: u32) -> BoxError {
        if attempts > 1 {
            previous_attempts_stamp::stamp_error(tonic::Status::from_error(error).into(), attempts)
        } else {
            error
        }
    }
}

/// An adapter that wraps bodies with a function.
#[derive(Clone, Copy, Debug)]
pub struct AdapterFn<F>(pub(crate) F);

impl<B, F> ClientAdapter<B> for AdapterFn<F>
where
    B: Body<Data = Bytes>,
    F: Fn(Replay<B>) -> B + Clone,
{
    fn wrap(&self, body: Replay<B>) -> B {
        (self.0)(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_message_is_percent_encoded_to_ascii() {
        assert_eq!(encode_message("tcp: 100% lost\n\u{e9}"), "tcp: 100%25 lost%0A%C3%A9");
    }

    #[test]
    fn local_status_is_a_trailers_only_response() {
        let local = LocalStatus::new(Code::DeadlineExceeded, "too late".into(), 3);
        let response = local.into_response();
        assert_eq!(response.headers()["grpc-status"], "4");
        assert_eq!(response.headers()["grpc-message"], "too late");
        assert_eq!(response.headers()["grpc-previous-rpc-attempts"], "2");
        let first = LocalStatus::new(Code::Unavailable, String::new(), 1).into_response();
        assert!(!first.headers().contains_key("grpc-previous-rpc-attempts"));
    }
}
