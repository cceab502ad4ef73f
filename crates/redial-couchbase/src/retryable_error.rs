//! What an attempt ends with in place of success, as the orchestrator sees it.

use std::fmt;

use redial_core::{Failure, Reason};

use crate::reason;
use crate::response::Response;
use crate::terminal::TerminalReason;

/// An error of an attempt that the orchestrator can judge. Implement it for your client's error.
///
/// ```
/// use redial::Failure;
/// use redial_couchbase::{Response, RetryableError, reason};
///
/// enum MyError { Closed, Answered(Response) }
///
/// impl RetryableError for MyError {
///     fn failure(&self) -> Option<Failure> {
///         match self {
///             MyError::Closed => Some(reason::failure(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT)),
///             MyError::Answered(response) => response.failure(),
///         }
///     }
///     fn response(&self) -> Option<&Response> {
///         match self {
///             MyError::Closed => None,
///             MyError::Answered(response) => Some(response),
///         }
///     }
/// }
/// ```
pub trait RetryableError {
    /// What is known of it if the orchestrator shall decide; `None` if it is final.
    fn failure(&self) -> Option<Failure>;

    /// The response that it came with, for strategies to read
    /// ([`RequestContext::last_response`](crate::Context::last_response)). A response of the KV service that
    /// names no command is the answer to the request's operation, and what is never retried for that
    /// operation is final, whatever [`failure`](Setback::failure) says (decision C5).
    fn response(&self) -> Option<&Response> {
        None
    }
}

impl RetryableError for Response {
    fn failure(&self) -> Option<Failure> {
        self.reason().map(reason::failure)
    }

    fn response(&self) -> Option<&Response> {
        Some(self)
    }
}

/// What an attempt ended with in place of success: a response, or what the client itself found. For
/// clients that have no error of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptError {
    /// The server's response.
    Response(Response),
    /// What the client found.
    Reason(Reason),
    /// What cannot be sent now.
    Terminal(TerminalReason),
}

impl RetryableError for AttemptError {
    fn failure(&self) -> Option<Failure> {
        match self {
            AttemptError::Response(response) => response.failure(),
            AttemptError::Reason(reason) => Some(reason::failure(*reason)),
            AttemptError::Terminal(terminal) => terminal.failure(),
        }
    }

    fn response(&self) -> Option<&Response> {
        match self {
            AttemptError::Response(response) => Some(response),
            AttemptError::Reason(_) | AttemptError::Terminal(_) => None,
        }
    }
}

impl From<Response> for AttemptError {
    fn from(response: Response) -> Self {
        AttemptError::Response(response)
    }
}

impl From<TerminalReason> for AttemptError {
    fn from(terminal: TerminalReason) -> Self {
        AttemptError::Terminal(terminal)
    }
}

impl From<Reason> for AttemptError {
    fn from(reason: Reason) -> Self {
        AttemptError::Reason(reason)
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptError::Response(response) => response.fmt(f),
            AttemptError::Reason(reason) => reason.fmt(f),
            AttemptError::Terminal(terminal) => terminal.fmt(f),
        }
    }
}

impl std::error::Error for AttemptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AttemptError::Terminal(terminal) => std::error::Error::source(terminal),
            AttemptError::Response(_) | AttemptError::Reason(_) => None,
        }
    }
}
