//! The error of a call and its message (decisions M4 to M6).

use std::fmt;

use std::time::Duration;

use redial::Report;
use redial_core::StopReason;
use redial_service_config::Code;

use crate::status::GrpcStatus;

/// The inputs of an error's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorText<'a> {
    /// The reason why the call ended.
    pub stop_reason: StopReason,
    /// The number of retries that were made.
    pub retries: u32,
    /// The duration of the call.
    pub elapsed: Duration,
    /// The server's error message.
    pub message: &'a str,
    /// Whether the last response was an invalid message.
    pub invalid: bool,
}

impl ErrorText<'_> {
    /// The message: the server's, or `invalid message`, with the suffix ` (retried N times, Mms)` if the
    /// retries were exhausted.
    ///
    /// ```
    /// use redial_milvus::ErrorText;
    /// use redial::{StopReason, ms};
    ///
    /// let stop_reason = StopReason::AttemptsExhausted;
    /// let text = ErrorText { stop_reason, retries: 3, elapsed: ms(180), message: "boom", invalid: false };
    /// assert_eq!(text.render(), "boom (retried 3 times, 180ms)");
    /// ```
    #[must_use]
    pub fn render(&self) -> String {
        let ErrorText { stop_reason, retries, elapsed, message, invalid } = *self;
        let message = if invalid { INVALID_MESSAGE } else { message };
        if stop_reason == StopReason::AttemptsExhausted && retries > 0 {
            format!("{message} (retried {retries} times, {}ms)", elapsed.as_millis())
        } else {
            message.to_owned()
        }
    }
}

const INVALID_MESSAGE: &str = "invalid message";
/// The message of a timeout on the client side.
pub(crate) const DEADLINE_EXCEEDED: &str = "deadline exceeded";

/// The error of a failed call. `S` is the client library's status type, `T` the response type.
pub struct Error<S, T>(Box<Inner<S, T>>);

struct Inner<S, T> {
    cause: ErrorCause<S, T>,
    report: Report,
}

/// The outcome that ended the call.
pub(crate) enum ErrorCause<S, T> {
    /// A status; its message already has the suffix.
    Status(S),
    /// An invalid message.
    Invalid { text: String, response: T },
    /// The timeout expired; the last status before it, if any.
    Timeout { last_status: Option<S> },
}

/// What the caller of a layer gets.
#[cfg(feature = "layer")]
pub(crate) enum ErrorOutcome<S, T> {
    Status(S),
    Invalid { text: String, response: T },
    Timeout,
}

#[cfg(feature = "layer")]
impl<S, T> Error<S, T> {
    pub(crate) fn into_outcome(self) -> ErrorOutcome<S, T> {
        match self.0.cause {
            ErrorCause::Status(status) => ErrorOutcome::Status(status),
            ErrorCause::Invalid { text, response } => ErrorOutcome::Invalid { text, response },
            ErrorCause::Timeout { .. } => ErrorOutcome::Timeout,
        }
    }
}

impl<S: GrpcStatus, T> Error<S, T> {
    pub(crate) fn new(cause: ErrorCause<S, T>, report: Report) -> Self {
        Error(Box::new(Inner { cause, report }))
    }

    /// The status code: the server's, `DEADLINE_EXCEEDED` for a timeout on the client side, and OK for an
    /// invalid message.
    #[must_use]
    pub fn code(&self) -> Code {
        match &self.0.cause {
            ErrorCause::Status(status) => status.code(),
            ErrorCause::Invalid { .. } => Code::Ok,
            ErrorCause::Timeout { .. } => Code::DeadlineExceeded,
        }
    }

    /// The error message.
    #[must_use]
    pub fn message(&self) -> &str {
        match &self.0.cause {
            ErrorCause::Status(status) => status.message(),
            ErrorCause::Invalid { text, .. } => text,
            ErrorCause::Timeout { .. } => DEADLINE_EXCEEDED,
        }
    }
}

impl<S, T> Error<S, T> {
    /// The last status: of the failure, or before the timeout, if any.
    #[must_use]
    pub fn status(&self) -> Option<&S> {
        match &self.0.cause {
            ErrorCause::Status(status) => Some(status),
            ErrorCause::Invalid { .. } => None,
            ErrorCause::Timeout { last_status } => last_status.as_ref(),
        }
    }

    /// The last status, as [`Error::status`] returns it.
    #[must_use]
    pub fn into_status(self) -> Option<S> {
        match self.0.cause {
            ErrorCause::Status(status) => Some(status),
            ErrorCause::Invalid { .. } => None,
            ErrorCause::Timeout { last_status } => last_status,
        }
    }

    /// The last response, if the call ended with an invalid message.
    #[must_use]
    pub fn response(&self) -> Option<&T> {
        match &self.0.cause {
            ErrorCause::Invalid { response, .. } => Some(response),
            _ => None,
        }
    }

    /// The last response, if the call ended with an invalid message.
    #[must_use]
    pub fn into_response(self) -> Option<T> {
        match self.0.cause {
            ErrorCause::Invalid { response, .. } => Some(response),
            _ => None,
        }
    }

    /// The reason why the call ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.report.stop_reason
    }

    /// Attempts, elapsed time and stop reason.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.0.report
    }

    /// Whether a timeout or deadline on the client side ended the call.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.stop_reason() == StopReason::Deadline
    }
}

impl<S: GrpcStatus, T> fmt::Display for Error<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

impl<S: GrpcStatus, T> fmt::Debug for Error<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.code())
            .field("message", &self.message())
            .field("report", &self.0.report)
            .finish()
    }
}

impl<S: GrpcStatus + std::error::Error + 'static, T> std::error::Error for Error<S, T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.status().map(|status| status as &(dyn std::error::Error + 'static))
    }
}
