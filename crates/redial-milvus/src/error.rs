//! The error of a call, and its text (decisions M4 to M6).

use std::fmt;

use std::time::Duration;

use redial::Report;
use redial_core::StopReason;
use redial_service_config::Code;

use crate::status::GrpcStatus;

/// What the text of an error depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorText<'a> {
    /// Why the call ended.
    pub stop_reason: StopReason,
    /// How many retries were made.
    pub retries: u32,
    /// How long the call took.
    pub elapsed: Duration,
    /// The server's text.
    pub message: &'a str,
    /// Whether the last answer was an invalid message.
    pub invalid: bool,
}

impl ErrorText<'_> {
    /// The error's text: the server's, or `invalid message`, and ` (retried N times, Mms)` where
    /// retries ran out.
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
        let message = if invalid { INVALID } else { message };
        if stop_reason == StopReason::AttemptsExhausted && retries > 0 {
            format!("{message} (retried {retries} times, {}ms)", elapsed.as_millis())
        } else {
            message.to_owned()
        }
    }
}

const INVALID: &str = "invalid message";
/// The text of a timeout that this side found.
pub(crate) const TOO_LATE: &str = "deadline exceeded";

/// A call that failed. `S` is the status of the client, `T` its answers.
pub struct Error<S, T>(Box<Inner<S, T>>);

struct Inner<S, T> {
    cause: ErrorCause<S, T>,
    report: Report,
}

/// What a call failed with.
pub(crate) enum ErrorCause<S, T> {
    /// A status, whose text says what needs saying.
    Status(S),
    /// An answer that is not a valid message.
    Invalid { text: String, response: T },
    /// The timeout passed; the last status before, if there was one.
    TooLate { before: Option<S> },
}

impl<S: GrpcStatus, T> Error<S, T> {
    pub(crate) fn new(cause: ErrorCause<S, T>, report: Report) -> Self {
        Error(Box::new(Inner { cause, report }))
    }

    /// Its code: the server's, `DEADLINE_EXCEEDED` if the timeout passed here, and OK for an answer
    /// that is not a valid message.
    #[must_use]
    pub fn code(&self) -> Code {
        match &self.0.cause {
            ErrorCause::Status(status) => status.code(),
            ErrorCause::Invalid { .. } => Code::Ok,
            ErrorCause::TooLate { .. } => Code::DeadlineExceeded,
        }
    }

    /// Its text.
    #[must_use]
    pub fn message(&self) -> &str {
        match &self.0.cause {
            ErrorCause::Status(status) => status.message(),
            ErrorCause::Invalid { text, .. } => text,
            ErrorCause::TooLate { .. } => TOO_LATE,
        }
    }
}

impl<S, T> Error<S, T> {
    /// The last status: what the call failed with, or what came before the timeout. There may be
    /// none.
    #[must_use]
    pub fn status(&self) -> Option<&S> {
        match &self.0.cause {
            ErrorCause::Status(status) => Some(status),
            ErrorCause::Invalid { .. } => None,
            ErrorCause::TooLate { before } => before.as_ref(),
        }
    }

    /// The last status, as [`Error::status`] says.
    #[must_use]
    pub fn into_status(self) -> Option<S> {
        match self.0.cause {
            ErrorCause::Status(status) => Some(status),
            ErrorCause::Invalid { .. } => None,
            ErrorCause::TooLate { before } => before,
        }
    }

    /// The last answer, where that is not a valid message.
    #[must_use]
    pub fn response(&self) -> Option<&T> {
        match &self.0.cause {
            ErrorCause::Invalid { response, .. } => Some(response),
            _ => None,
        }
    }

    /// The last answer, where that is not a valid message.
    #[must_use]
    pub fn into_response(self) -> Option<T> {
        match self.0.cause {
            ErrorCause::Invalid { response, .. } => Some(response),
            _ => None,
        }
    }

    /// Why the call ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.report.stop_reason
    }

    /// How often, how long and why.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.0.report
    }

    /// Whether time ended it here.
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
