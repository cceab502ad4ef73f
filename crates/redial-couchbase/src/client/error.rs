//! The error of an attempt of the client.

use std::fmt;
use std::io;
use std::sync::Arc;

use redial::{Failure, Reason};

use super::frame::VALUE_BYTES_MAX;
use crate::reason;
use crate::response::Response;
use crate::retryable_error::RetryableError;
use crate::terminal_state::TerminalReason;

/// Why an attempt of the client failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// The server's response.
    Response(Response),
    /// A response that the application gave a reason of its own
    /// ([`Request::retry_status`](super::Request::retry_status)).
    Application {
        /// The reason of the application.
        reason: Reason,
        /// The response.
        response: Response,
    },
    /// The request was not sent.
    NotSent(Reason),
    /// The request was not sent, and the state of the connections says why.
    Terminal(TerminalReason),
    /// The connection was lost.
    ConnectionLost {
        /// `SOCKET_CLOSED_WHILE_IN_FLIGHT`, or `SOCKET_NOT_AVAILABLE` if the request was not written.
        reason: Reason,
        /// The error of the socket; `None` if the server closed it.
        cause: Option<Arc<io::Error>>,
    },
    /// The server responded with something that is not a response to this request. The reason is
    /// `UNKNOWN`: the request may have been executed.
    Protocol(&'static str),
    /// The request is invalid, so it was not sent.
    Invalid(InvalidRequest),
    /// More requests wait for a retry than the client allows. The cause is the failure that would have
    /// been retried.
    TooManyRequestsInRetry(Box<RequestError>),
}

/// Why a request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The key is empty.
    KeyEmpty,
    /// The key is longer than [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX), or outside of the default
    /// collection than [`COLLECTION_KEY_BYTES_MAX`](super::COLLECTION_KEY_BYTES_MAX).
    KeyTooLong {
        /// The length of the key.
        bytes: usize,
        /// The maximum in its collection.
        max: usize,
    },
    /// The value is longer than [`VALUE_BYTES_MAX`](super::VALUE_BYTES_MAX).
    ValueTooLong(usize),
    /// The command has no expiry.
    NoExpiry,
    /// The expiry is later than the protocol can express.
    ExpiryTooLong,
    /// A sub-document request without paths, or with more than 16.
    PathCount(usize),
    /// A sub-document path is longer than 1024 bytes.
    PathTooLong(usize),
    /// The server has no collections, and the request names one.
    NoCollections,
}

impl RequestError {
    /// The status of the server's response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.response()? {
            Response::Kv { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl RetryableError for RequestError {
    fn failure(&self) -> Option<Failure> {
        match self {
            RequestError::Response(response) => response.failure(),
            RequestError::Application { reason, .. }
            | RequestError::NotSent(reason)
            | RequestError::ConnectionLost { reason, .. } => Some(reason::failure(*reason)),
            RequestError::Terminal(terminal) => terminal.failure(),
            RequestError::Protocol(_) => Some(reason::failure(reason::UNKNOWN)),
            RequestError::Invalid(_) | RequestError::TooManyRequestsInRetry(_) => None,
        }
    }

    fn response(&self) -> Option<&Response> {
        match self {
            RequestError::Response(response) | RequestError::Application { response, .. } => {
                Some(response)
            }
            _ => None,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Response(response) => response.fmt(f),
            RequestError::Application { reason, response } => write!(f, "{reason}, {response}"),
            RequestError::NotSent(reason) => write!(f, "not sent, {reason}"),
            RequestError::Terminal(terminal) => write!(f, "not sent, {terminal}"),
            RequestError::ConnectionLost { reason, .. } => write!(f, "connection lost, {reason}"),
            RequestError::Protocol(problem) => write!(f, "invalid response: {problem}"),
            RequestError::Invalid(problem) => problem.fmt(f),
            RequestError::TooManyRequestsInRetry(_) => {
                f.write_str("too many requests wait for a retry")
            }
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RequestError::Terminal(terminal) => std::error::Error::source(terminal),
            RequestError::ConnectionLost { cause: Some(cause), .. } => Some(&**cause),
            RequestError::TooManyRequestsInRetry(cause) => Some(&**cause),
            _ => None,
        }
    }
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRequest::KeyEmpty => f.write_str("the key is empty"),
            InvalidRequest::KeyTooLong { bytes, max } => {
                write!(f, "the key has {bytes} bytes; at most {max} are allowed")
            }
            InvalidRequest::ValueTooLong(bytes) => {
                write!(f, "the value has {bytes} bytes; at most {VALUE_BYTES_MAX} are allowed")
            }
            InvalidRequest::NoExpiry => f.write_str("this command has no expiry; use touch"),
            InvalidRequest::ExpiryTooLong => {
                f.write_str("the expiry is after the year 2106; leave it out to keep the document")
            }
            InvalidRequest::PathCount(paths) => write!(f, "{paths} paths; 1 to 16 are allowed"),
            InvalidRequest::PathTooLong(bytes) => {
                write!(f, "a path has {bytes} bytes; at most 1024 are allowed")
            }
            InvalidRequest::NoCollections => {
                f.write_str("the server has no collections; use the default collection")
            }
        }
    }
}

impl std::error::Error for InvalidRequest {}
