//! Errors of attempts, as the orchestrator sees them.

use std::fmt;

use redial_core::{Failure, Reason};

use crate::reason;
use crate::response::Response;
use crate::terminal_state::TerminalReason;

/// An attempt's error that the orchestrator can classify. Implement it for the client's error type.
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
    /// The failure, if the request may be retried; `None` if the error is final.
    fn failure(&self) -> Option<Failure>;

    /// The server's response, which strategies can read
    /// ([`RequestContext::last_response`](crate::RequestContext::last_response)). A KV response without a
    /// command belongs to the request's operation. If it is final for that operation, it overrides
    /// [`failure`](RetryableError::failure) (decision C5).
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

/// A ready-made error of an attempt, for clients without an error type of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptError {
    /// An error response of the server.
    Response(Response),
    /// A failure that the client detected.
    Reason(Reason),
    /// A terminal reason that prevents sending the request.
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
