//! How a call ends that belongs to no attempt: with what its last attempt brought, or with a status
//! that was made here.

use std::time::Duration;

use http::Response;
use redial_core::StopReason;
use redial_service_config::Code;

use crate::answer::{self, Head};
use crate::body::{ResponseBody, request_too_large};
use crate::evidence::{self, Evidence};
use crate::report::{CallReport, CallReports};
use crate::tape::Failure;
use crate::template::{PREVIOUS, previous};
use crate::wrap::{ClientAdapter, Ended};
use crate::{Attempts, BoxError};

/// The result of a call.
pub(crate) type Answer<R> = Result<Response<ResponseBody<R>>, BoxError>;

/// How a call ended without a response.
pub(crate) enum Finish {
    /// With a status that was made here.
    Ended(Ended),
    /// With an error that is not of a connection, for the application knows what it means, after so
    /// many attempts.
    Error(BoxError, u32),
}

impl Finish {
    /// With the error of an attempt's connection, and what it means.
    pub(crate) fn of_connection(
        error: BoxError,
        evidence: Evidence,
        code: Code,
        number: u32,
    ) -> Self {
        if evidence == Evidence::None && code == Code::Unknown {
            Finish::Error(error, number)
        } else {
            Finish::Ended(Ended::because(code, error, number))
        }
    }

    pub(crate) fn hand_on<B, R>(
        self,
        report: Option<CallReport>,
        bodies: &impl ClientAdapter<B>,
    ) -> Answer<R> {
        match self {
            Finish::Ended(ended) => {
                let ended = Ended { report, ..ended };
                Ok(bodies.ended(ended)?.map(|()| ResponseBody::none()))
            }
            Finish::Error(error, attempts) => Err(bodies.failed(error, attempts)),
        }
    }
}

/// A failed response, with its report where that is to go.
pub(crate) fn failed_response<B, R>(
    mut response: Response<ResponseBody<R>>,
    report: Option<(CallReport, CallReports)>,
    bodies: &impl ClientAdapter<B>,
) -> Answer<R> {
    let Some((report, reports)) = report else { return Ok(response) };
    if reports == CallReports::StatusSource
        && let Some(error) = bodies.failed_response(response.headers(), &report)
    {
        return Err(error);
    }
    response.extensions_mut().insert(report);
    Ok(response)
}

/// What an attempt that failed brought, and its number.
pub(crate) struct Failed {
    pub(crate) number: u32,
    pub(crate) outcome: Brought,
    /// Whether it is the server's answer.
    pub(crate) is_answered: bool,
}

/// What an attempt that failed brought.
pub(crate) enum Brought {
    /// A response whose headers have a status. Its body is dropped: a stream that is not read would
    /// stay open.
    Head(Response<()>),
    Nothing(Finish),
}

impl Brought {
    /// The message of its status, or the error of its connection.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Brought::Head(head) => answer::message(head.headers()),
            Brought::Nothing(Finish::Ended(ended)) => Some(ended.message.clone()),
            Brought::Nothing(Finish::Error(error, _)) => Some(evidence::text(&**error)),
        }
    }

    pub(crate) fn head<R>(response: Response<R>) -> Self {
        let mut response = response.map(drop);
        answer::drop_invalid_details(response.headers_mut());
        Brought::Head(response)
    }
}

/// The end of a call that no attempt's outcome ended.
pub(crate) fn out_of_time(
    stop_reason: StopReason,
    attempts: u32,
    last: Option<Failed>,
    waited: Option<String>,
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
        Some(Brought::Head(head)) => {
            if let Head::Status(code, _) = answer::head(&head) {
                text.push_str(&format!("; the last that ended did so with {code}"));
            }
        }
        Some(Brought::Nothing(Finish::Ended(ended))) => {
            text.push_str(&format!(
                "; the last that ended did so with {}: {}",
                ended.code, ended.message
            ));
            source = ended.source;
        }
        Some(Brought::Nothing(Finish::Error(error, _))) => source = Some(error),
        None => {}
    }
    if let Some(waited) = waited {
        text.push_str("; ");
        text.push_str(&waited);
    }
    let mut ended = Ended::new(Code::DeadlineExceeded, text, attempts);
    ended.source = source;
    ended
}

/// The failure of an attempt that ran into its own timeout.
pub(crate) fn attempt_timed_out(after: Duration, number: u32) -> Finish {
    let text = format!("the attempt timed out after {after:?}");
    Finish::Ended(Ended::new(Code::DeadlineExceeded, text, number))
}

/// The end of a call whose own body failed.
pub(crate) fn of_body(failure: Failure, attempts: u32) -> Finish {
    match failure {
        Failure::TooLarge(too_large) => {
            let (code, message) = request_too_large(too_large);
            Finish::Ended(Ended::new(code, message, attempts))
        }
        Failure::Body(error) => Finish::Error(error, attempts),
    }
}

/// Tells the application how many attempts came before the one that it hears of (G30).
pub(crate) fn numbered<R>(mut response: Response<R>, number: u32) -> Response<R> {
    if let Some(previous) = previous(number) {
        response.headers_mut().insert(PREVIOUS, previous);
        response.extensions_mut().insert(Attempts(number));
    }
    response
}
