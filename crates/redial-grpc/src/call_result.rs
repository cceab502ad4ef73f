//! How a call ends that belongs to no attempt: with what its last attempt brought, or with a status
//! that was made here.

use std::time::Duration;

use http::Response;
use redial_core::StopReason;
use redial_service_config::Code;

use crate::body::{ResponseBody, request_too_large};
use crate::client_adapter::{ClientAdapter, Ended};
use crate::replay_buffer::Failure;
use crate::report::{CallReport, CallReports};
use crate::request_head::{PREVIOUS_ATTEMPTS, previous_attempts_header};
use crate::response_status::{self, Head};
use crate::transport_error::{self, TransportFailure};
use crate::{Attempts, BoxError};

/// The result of a call.
pub(crate) type CallResult<R> = Result<Response<ResponseBody<R>>, BoxError>;

/// How a call ended without a response.
pub(crate) enum CallFailure {
    /// With a status that was made here.
    Status(Ended),
    /// With an error that is not of a connection, for the application knows what it means, after so
    /// many attempts.
    Error(BoxError, u32),
}

impl CallFailure {
    /// With the error of an attempt's connection, and what it means.
    pub(crate) fn from_connection_error(
        error: BoxError,
        failure: TransportFailure,
        code: Code,
        number: u32,
    ) -> Self {
        if failure == TransportFailure::MaybeProcessed && code == Code::Unknown {
            CallFailure::Error(error, number)
        } else {
            CallFailure::Status(Ended::from_error(code, error, number))
        }
    }

    pub(crate) fn into_result<B, R>(
        self,
        report: Option<CallReport>,
        adapter: &impl ClientAdapter<B>,
    ) -> CallResult<R> {
        match self {
            CallFailure::Status(ended) => {
                let ended = Ended { report, ..ended };
                Ok(adapter.ended(ended)?.map(|()| ResponseBody::none()))
            }
            CallFailure::Error(error, attempts) => Err(adapter.failed(error, attempts)),
        }
    }
}

/// A failed response, with its report where that is to go.
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

/// What an attempt that failed brought, and its number.
pub(crate) struct FailedAttempt {
    pub(crate) number: u32,
    pub(crate) outcome: AttemptFailure,
    /// Whether it is the server's answer.
    pub(crate) is_answered: bool,
}

/// What an attempt that failed brought.
pub(crate) enum AttemptFailure {
    /// A response whose headers have a status. Its body is dropped: a stream that is not read would
    /// stay open.
    Response(Response<()>),
    NoResponse(CallFailure),
}

impl AttemptFailure {
    /// The message of its status, or the error of its connection.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            AttemptFailure::Response(head) => response_status::message(head.headers()),
            AttemptFailure::NoResponse(CallFailure::Status(ended)) => Some(ended.message.clone()),
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

/// The end of a call that no attempt's outcome ended.
pub(crate) fn deadline_exceeded(
    stop_reason: StopReason,
    attempts: u32,
    last: Option<FailedAttempt>,
    wait_reason: Option<String>,
) -> Ended {
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
                text.push_str(&format!("; the last that ended did so with {code}"));
            }
        }
        Some(AttemptFailure::NoResponse(CallFailure::Status(ended))) => {
            text.push_str(&format!(
                "; the last that ended did so with {}: {}",
                ended.code, ended.message
            ));
            source = ended.source;
        }
        Some(AttemptFailure::NoResponse(CallFailure::Error(error, _))) => source = Some(error),
        None => {}
    }
    if let Some(wait_reason) = wait_reason {
        text.push_str("; ");
        text.push_str(&wait_reason);
    }
    let mut ended = Ended::new(Code::DeadlineExceeded, text, attempts);
    ended.source = source;
    ended
}

/// The failure of an attempt that ran into its own timeout.
pub(crate) fn attempt_timed_out(after: Duration, number: u32) -> CallFailure {
    let text = format!("the attempt timed out after {after:?}");
    CallFailure::Status(Ended::new(Code::DeadlineExceeded, text, number))
}

/// The end of a call whose own body failed.
pub(crate) fn request_body_failed(failure: Failure, attempts: u32) -> CallFailure {
    match failure {
        Failure::TooLarge(too_large) => {
            let (code, message) = request_too_large(too_large);
            CallFailure::Status(Ended::new(code, message, attempts))
        }
        Failure::Body(error) => CallFailure::Error(error, attempts),
    }
}

/// Tells the application how many attempts came before the one that it hears of (G30).
pub(crate) fn with_attempt_count<R>(mut response: Response<R>, number: u32) -> Response<R> {
    if let Some(previous) = previous_attempts_header(number) {
        response.headers_mut().insert(PREVIOUS_ATTEMPTS, previous);
        response.extensions_mut().insert(Attempts(number));
    }
    response
}
