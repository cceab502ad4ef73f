//! The result of a call that ended before commit: the last attempt's failure or a local status.

use std::time::Duration;

use http::Response;
use redial_core::StopReason;
use redial_service_config::Code;

use crate::body::{ResponseBody, request_too_large};
use crate::client_adapter::{ClientAdapter, LocalStatus};
use crate::replay_buffer::Failure;
use crate::report::{CallReport, CallReports};
use crate::request_head::{PREVIOUS_ATTEMPTS, previous_attempts_header};
use crate::response_status::{self, Head};
use crate::transport_error::{self, TransportFailure};
use crate::{Attempts, BoxError};

pub(crate) type CallResult<R> = Result<Response<ResponseBody<R>>, BoxError>;

/// A call that failed without a response.
pub(crate) enum CallFailure {
    /// With a locally generated status.
    Status(LocalStatus),
    /// With the application's own error, passed through unchanged, and the number of attempts made.
    Error(BoxError, u32),
}

impl CallFailure {
    /// From the transport error of an attempt and its classification.
    pub(crate) fn from_connection_error(
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

    pub(crate) fn into_result<B, R>(
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
pub(crate) fn failed_response<B, R>(
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
pub(crate) struct FailedAttempt {
    pub(crate) number: u32,
    pub(crate) outcome: AttemptFailure,
    /// Whether the server answered.
    pub(crate) is_answered: bool,
}

/// How an attempt failed.
pub(crate) enum AttemptFailure {
    /// With a Trailers-Only response. Its body has been dropped, because an unread stream would stay
    /// open.
    Response(Response<()>),
    NoResponse(CallFailure),
}

impl AttemptFailure {
    /// The message of its status, or the text of its transport error.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            AttemptFailure::Response(head) => response_status::message(head.headers()),
            AttemptFailure::NoResponse(CallFailure::Status(local)) => Some(local.message.clone()),
            AttemptFailure::NoResponse(CallFailure::Error(error, _)) => {
                Some(transport_error::chain_text(&**error))
            }
        }
    }

    pub(crate) fn response<R>(response: Response<R>) -> Self {
        let mut response = response.map(drop);
        response_status::drop_invalid_details(response.headers_mut());
        AttemptFailure::Response(response)
    }
}

/// The status of a call that the deadline ended without an outcome.
pub(crate) fn deadline_exceeded(
    stop_reason: StopReason,
    attempts: u32,
    last: Option<FailedAttempt>,
    wait_reason: Option<String>,
) -> LocalStatus {
    debug_assert!(
        stop_reason == StopReason::Deadline,
        "only the deadline ends a call without an outcome"
    );
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

/// The failure of an attempt that exceeded the attempt timeout.
pub(crate) fn attempt_timed_out(after: Duration, number: u32) -> CallFailure {
    let text = format!("the attempt timed out after {after:?}");
    CallFailure::Status(LocalStatus::new(Code::DeadlineExceeded, text, number))
}

/// The failure of a call whose request body failed.
pub(crate) fn request_body_failed(failure: Failure, attempts: u32) -> CallFailure {
    match failure {
        Failure::TooLarge(too_large) => {
            let (code, message) = request_too_large(too_large);
            CallFailure::Status(LocalStatus::new(code, message, attempts))
        }
        Failure::Body(error) => CallFailure::Error(error, attempts),
    }
}

/// Adds the number of previous attempts to the response (G30).
pub(crate) fn with_attempt_count<R>(mut response: Response<R>, number: u32) -> Response<R> {
    if let Some(previous) = previous_attempts_header(number) {
        response.headers_mut().insert(PREVIOUS_ATTEMPTS, previous);
        response.extensions_mut().insert(Attempts(number));
    }
    response
}
