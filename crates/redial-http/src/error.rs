//! The error of a request without a response.

use std::fmt;

use http::StatusCode;
use redial::{Last, Report, StopReason};

use crate::call::{Answered, Kept};
use crate::response::ResponseHead;

/// The error of a request: its last attempt had no response.
///
/// It prints as `connection refused (3 attempts in 1.2 s; gave up: no attempt left)` and has the same as
/// data. Without a deadline the elapsed time is a lower bound, and prints as `in at least 1.2 s`
/// ([`Report::elapsed_exact`]). Its `source()` is the source of the last error, so that each cause is printed once; the error
/// itself is [`Error::last`]. A last attempt with a response is no error, whatever its status: the response is returned.
pub struct Error<E> {
    last: Option<E>,
    last_status: Option<StatusCode>,
    report: Box<Report>,
}

impl<E> Error<E> {
    pub(crate) fn new(last: Option<E>, last_status: Option<StatusCode>, report: Report) -> Self {
        Error { last, last_status, report: Box::new(report) }
    }

    /// The last error of the client; `None` if time ended the request before there was one.
    #[must_use]
    pub const fn last(&self) -> Option<&E> {
        self.last.as_ref()
    }

    /// The last error of the client.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        self.last
    }

    /// The status of an earlier attempt, if time ended the attempt after it.
    #[must_use]
    pub const fn last_status(&self) -> Option<StatusCode> {
        self.last_status
    }

    /// The number of attempts.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.report.attempts
    }

    /// Why the request ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.report.stop_reason
    }

    /// The attempts, the elapsed time and the stop reason.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Whether a deadline or a timeout of the policy ended the request.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.stop_reason(), StopReason::Deadline | StopReason::AttemptTimeout)
            || self.last.is_none()
    }

    /// Whether the retry budget ended the request.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.stop_reason() == StopReason::Throttled
    }

    /// Converts the error of the client.
    #[must_use]
    pub fn map_last<F>(self, change: impl FnOnce(E) -> F) -> Error<F> {
        let Error { last, last_status, report } = self;
        Error { last: last.map(change), last_status, report }
    }
}

/// The result of a call: the last response if the last attempt had one.
pub(crate) fn from_call<T: ResponseHead, E>(
    error: redial::Error<E, Answered<T>>,
) -> Result<T, Error<E>> {
    let (last, report) = error.into_parts();
    match last {
        Some(Last::Value(answer)) => {
            match (is_of_last_attempt(&answer, &report), answer.response) {
                (true, Kept::Response(mut response)) => {
                    response.extensions_mut().insert(report);
                    Ok(response)
                }
                (false, Kept::Response(response)) => {
                    Err(Error::new(None, Some(response.status()), report))
                }
                (_, Kept::Status(status)) => Err(Error::new(None, Some(status), report)),
            }
        }
        Some(Last::Error(error)) => Err(Error::new(Some(error), None, report)),
        None => Err(Error::new(None, None, report)),
    }
}

/// Whether the response belongs to the last attempt that ended by itself, and no later one was cut off.
fn is_of_last_attempt<T>(answer: &Answered<T>, report: &Report) -> bool {
    use redial::report::AttemptEnd::{Cancelled, Running, TimedOut};
    let later = report.history.iter().filter(|attempt| attempt.attempt > answer.attempt);
    !later.into_iter().any(|attempt| matches!(attempt.end, Cancelled | Running | TimedOut))
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.last, self.last_status) {
            (Some(error), _) => error.fmt(f)?,
            (None, Some(status)) => write!(f, "no response after {status}")?,
            (None, None) => f.write_str("no response")?,
        }
        write!(f, " ({})", self.report)
    }
}

impl<E: fmt::Debug> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("last", &self.last)
            .field("last_status", &self.last_status)
            .field("report", &self.report)
            .finish()
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.last.as_ref().and_then(std::error::Error::source)
    }
}
