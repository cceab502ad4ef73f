//! Classifies the result of an attempt: what the state machine needs to know about it, and what the
//! application gets if it is the last one.

use http::Response;
use http_body::Body;
use redial_core::{Classification, Directive, FailureCause};
use redial_service_config::{Code, Plan, Pushback};

use super::failure::{AttemptFailure, CallFailure, FailedAttempt};
use crate::BoxError;
use crate::client_adapter::LocalStatus;
use crate::response_status::{self, Head};
use crate::transport_error::{self, TransportFailure};

/// The result of an attempt.
pub(super) enum AttemptOutcome<R> {
    /// Response headers, which commit the call (G6). `ok_in_headers`: they have the status OK already but
    /// leave the stream open, so that messages may follow and the deadline applies.
    Response { response: Response<R>, ok_in_headers: bool },
    /// A status, or a transport error.
    Ended(EndedAttempt),
}

/// An attempt that ended without a response to read, and its classification. Usually a failure; but a
/// Trailers-Only response with OK ends an attempt, too.
pub(super) struct EndedAttempt {
    pub(super) code: Code,
    pub(super) classification: Classification,
    pub(super) cause: FailureCause,
    pub(super) attempt: FailedAttempt,
}

impl<R: Body> AttemptOutcome<R> {
    /// Classifies the result of the attempt with this number.
    pub(super) fn classify(
        result: Result<Response<R>, BoxError>,
        number: u32,
        plan: &Plan,
        wait_for_ready: bool,
    ) -> Self {
        match result {
            Ok(response) => classify_response(response, number, plan),
            Err(error) => {
                AttemptOutcome::Ended(classify_error(error, number, plan, wait_for_ready))
            }
        }
    }
}

fn classify_response<R: Body>(
    mut response: Response<R>,
    number: u32,
    plan: &Plan,
) -> AttemptOutcome<R> {
    let (code, pushback) = match response_status::head(&response) {
        Head::Headers => return AttemptOutcome::Response { response, ok_in_headers: false },
        Head::Status(Code::Ok, _) if !response.body().is_end_stream() => {
            return AttemptOutcome::Response { response, ok_in_headers: true };
        }
        Head::Status(code, pushback) => (code, pushback),
        Head::NotGrpc(code, pushback) => {
            response_status::write_status(&mut response, code);
            (code, pushback)
        }
    };
    let outcome = AttemptFailure::response(response);
    AttemptOutcome::Ended(EndedAttempt {
        code,
        classification: plan.classify(code, pushback),
        cause: FailureCause::Response,
        attempt: FailedAttempt { number, outcome, is_answered: true },
    })
}

fn classify_error(error: BoxError, number: u32, plan: &Plan, wait_for_ready: bool) -> EndedAttempt {
    let answered = transport_error::server_status(&*error);
    let is_answered = answered.is_some();
    let (code, classification, cause, failure) = match answered {
        Some((code, pushback)) => {
            let local = LocalStatus::from_error(code, error, number);
            let classification = plan.classify(code, pushback);
            (code, classification, FailureCause::Response, CallFailure::Status(local))
        }
        None => {
            let (failure, code) = transport_error::classify(&*error);
            (
                code,
                classify_transport_failure(failure, code, plan, wait_for_ready),
                failure_cause(failure, code),
                CallFailure::from_connection_error(error, failure, code, number),
            )
        }
    };
    let outcome = AttemptFailure::NoResponse(failure);
    let attempt = FailedAttempt { number, outcome, is_answered };
    EndedAttempt { code, classification, cause, attempt }
}

/// Classifies a transport error.
fn classify_transport_failure(
    failure: TransportFailure,
    code: Code,
    plan: &Plan,
    wait_for_ready: bool,
) -> Classification {
    match failure {
        TransportFailure::NotSent => plan.unsent(),
        TransportFailure::Unprocessed => plan.unprocessed(),
        TransportFailure::NotConnected if wait_for_ready => plan.unsent(),
        TransportFailure::NotConnected => plan.unconnected(),
        // A timeout set by the client itself is never retried (G5).
        TransportFailure::LocalTimeout => Classification::from(Directive::Fail),
        TransportFailure::MaybeProcessed => plan.classify(code, Pushback::None),
    }
}

/// Whether a transport error comes from a timer. The timer of an unknown client library produces an
/// error that cannot be classified.
fn failure_cause(failure: TransportFailure, code: Code) -> FailureCause {
    match failure {
        TransportFailure::LocalTimeout => FailureCause::Timer,
        TransportFailure::MaybeProcessed if code == Code::Unknown => FailureCause::Unknown,
        _ => FailureCause::Response,
    }
}
