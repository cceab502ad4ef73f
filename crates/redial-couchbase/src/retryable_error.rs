//! What an attempt ends with in place of success, as the orchestrator sees it.

use std::fmt;

use redial_core::{Failure, Reason};

use crate::reason;
use crate::response::Response;
use crate::terminal::Terminal;

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
    /// ([`Context::last_response`](crate::Context::last_response)). A response of the KV service that
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
pub enum Cause {
    /// The server's response.
    Response(Response),
    /// What the client found.
    Reason(Reason),
    /// What cannot be sent now.
    Terminal(Terminal),
}

impl RetryableError for Cause {
    fn failure(&self) -> Option<Failure> {
        match self {
            Cause::Response(response) => response.failure(),
            Cause::Reason(reason) => Some(reason::failure(*reason)),
            Cause::Terminal(terminal) => terminal.failure(),
        }
    }

    fn response(&self) -> Option<&Response> {
        match self {
            Cause::Response(response) => Some(response),
            Cause::Reason(_) | Cause::Terminal(_) => None,
        }
    }
}

impl From<Response> for Cause {
    fn from(response: Response) -> Self {
        Cause::Response(response)
    }
}

impl From<Terminal> for Cause {
    fn from(terminal: Terminal) -> Self {
        Cause::Terminal(terminal)
    }
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        Cause::Reason(reason)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Response(response) => response.fmt(f),
            Cause::Reason(reason) => reason.fmt(f),
            Cause::Terminal(terminal) => terminal.fmt(f),
        }
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Cause::Terminal(terminal) => std::error::Error::source(terminal),
            Cause::Response(_) | Cause::Reason(_) => None,
        }
    }
}
