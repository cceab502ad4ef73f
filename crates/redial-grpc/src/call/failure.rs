//! The result of a call that ended before commit: the last attempt's failure or a local status.

use std::time::Duration;

use http::Response;
use redial_core::StopReason;
use redial_service_config::Code;

use super::responding::request_too_large;
use super::response_body::ResponseBody;
use crate::BoxError;
use crate::client_adapter::{ClientAdapter, LocalStatus};
use crate::replay_buffer::Failure;
use crate::report::{CallReport, CallReports};
use crate::response_status::{self, Head};
use crate::transport_error::{self, TransportFailure};

pub(super) type CallResult<R> = Result<Response<ResponseBody<R>>, BoxError>;

/// A call that failed without a response.
pub(crate) enum CallFailure {
    /// With a locally generated status.
    Status(LocalStatus),
    /// With the application's own error, passed through unchanged, and the number of attempts made.
    Error(BoxError, u32),
}

impl CallFailure {
    /// From the transport error of an attempt and its classification.
    pub(super) fn from_connection_error(
        error: BoxError,
        failure: TransportFailure,
        code: Code,
        number: u32,
    ) -> Self {
        if failure == TransportFailure::MaybeProcessed && code == Code::Unknown {
            CallFailure::Error(error, number)
        } else {
            CallFailure::Status(LocalStatus::from_error(code, error, number))
        }
    }

    /// The status code of the call.
    pub(super) fn code(&self) -> Code {
        match self {
            CallFailure::Status(local) => local.code,
            CallFailure::Error(error, _) => transport_error::application_code(&**error),
        }
    }

    pub(super) fn into_result<B, R>(
        self,
        report: Option<CallReport>,
        adapter: &impl ClientAdapter<B>,
    ) -> CallResult<R> {
        match self {
            CallFailure::Status(local) => {
                let local = LocalStatus { report, ..local };
                Ok(adapter.local_status(local)?.map(|()| ResponseBody::none()))
            }
            CallFailure::Error(error, attempts) => Err(adapter.failed(error, attempts)),
        }
    }
}

/// A failed response, with its report attached as configured.
pub(super) fn failed_response<B, R>(
    mut response: Response<ResponseBody<R>>,
    report: Option<(CallReport, CallReports)>,
    adapter: &impl ClientAdapter<B>,
) -> CallResult<R> {
    let Some((report, reports)) = report else { return Ok(response) };
    if reports == CallReports::StatusSource
        && let Some(error) = adapter.failed_response(response.headers(), &report)
    {
        return Err(error);
    }
    response.extensions_mut().insert(report);
    Ok(response)
}

/// A failed attempt.
pub(super) struct FailedAttempt {
    pub(super) number: u32,
    pub(super) outcome: AttemptFailure,
    /// Whether the server answered.
    pub(super) is_answered: bool,
}

/// How an attempt failed.
pub(super) enum AttemptFailure {
    /// With a Trailers-Only response. Its body has been dropped, because an unread stream would stay
    /// open.
    Response(Response<()>),
    NoResponse(CallFailure),
}

impl AttemptFailure {
    /// The message of its status, or the text of its transport error.
    pub(super) fn message(&self) -> Option<String> {
        match self {
            AttemptFailure::Response(head) => response_status::message(head.headers()),
            AttemptFailure::NoResponse(CallFailure::Status(local)) => Some(local.message.clone()),
            AttemptFailure::NoResponse(CallFailure::Error(error, _)) => {
                Some(transport_error::chain_text(&**error))
            }
        }
    }

    pub(super) fn response<R>(response: Response<R>) -> Self {
        let mut response = response.map(drop);
        response_status::drop_invalid_details(response.headers_mut());
        AttemptFailure::Response(response)
    }
}

/// The status of a call that ended without an outcome: its deadline passed.
pub(super) fn ended_without_outcome(
    stop_reason: StopReason,
    attempts: u32,
    last: Option<FailedAttempt>,
    wait_reason: Option<String>,
) -> LocalStatus {
    if stop_reason != StopReason::Deadline {
        return internal(&format!("the call ended without a result: {stop_reason}"), attempts);
    }
    let made = match attempts {
        1 => "1 attempt".to_owned(),
        more => format!("{more} attempts"),
    };
    let mut text = format!("the deadline passed ({made})");
    let mut source = None;
    match last.map(|last| last.outcome) {
        Some(AttemptFailure::Response(head)) => {
            if let Head::Status(code, _) = response_status::head(&head) {
                text.push_str(&format!("; last failed attempt: {code}"));
            }
        }
        Some(AttemptFailure::NoResponse(CallFailure::Status(local))) => {
            text.push_str(&format!("; last failed attempt: {}: {}", local.code, local.message));
            source = local.source;
        }
        Some(AttemptFailure::NoResponse(CallFailure::Error(error, _))) => source = Some(error),
        None => {}
    }
    if let Some(wait_reason) = wait_reason {
        text.push_str("; ");
        text.push_str(&wait_reason);
    }
    let mut local = LocalStatus::new(Code::DeadlineExceeded, text, attempts);
    local.source = source;
    local
}

/// The status of a call that cannot go on because of a bug in this crate. A wrong guess could send a
/// wrong request instead.
pub(super) fn internal(text: &str, attempts: u32) -> LocalStatus {
    LocalStatus::new(Code::Internal, format!("{text} (a bug in redial-grpc)"), attempts)
}

/// The failure of an attempt that exceeded the attempt timeout.
pub(super) fn attempt_timed_out(after: Duration, number: u32) -> CallFailure {
    let text = format!("the attempt timed out after {after:?}");
    CallFailure::Status(LocalStatus::new(Code::DeadlineExceeded, text, number))
}

/// The failure of a call whose request body failed.
pub(super) fn request_body_failed(failure: Failure, attempts: u32) -> CallFailure {
    match failure {
        Failure::TooLarge(too_large) => {
            let (code, message) = request_too_large(too_large);
            CallFailure::Status(LocalStatus::new(code, message, attempts))
        }
        Failure::Body(error) => CallFailure::Error(error, attempts),
        Failure::Internal => {
            CallFailure::Status(LocalStatus::new(failure.code(), failure.text(), attempts))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the deadline ends a call without an outcome. Anything else is a bug, and not the server's status.
    #[test]
    fn failure_without_an_outcome_is_internal_unless_the_deadline_passed() {
        let ended = |stop_reason| ended_without_outcome(stop_reason, 2, None, None);
        let deadline = ended(StopReason::Deadline);
        assert_eq!(deadline.code, Code::DeadlineExceeded);
        assert_eq!(deadline.message, "the deadline passed (2 attempts)");
        let bug = ended(StopReason::Throttled);
        assert_eq!((bug.code, bug.attempts), (Code::Internal, 2));
        assert!(bug.message.ends_with("(a bug in redial-grpc)"), "{}", bug.message);
    }
}
