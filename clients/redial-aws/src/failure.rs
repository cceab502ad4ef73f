//! Translates the SDK's classification of an attempt.

use std::time::Duration;

use aws_smithy_runtime_api::client::interceptors::context::{Error, InterceptorContext};
use aws_smithy_runtime_api::client::orchestrator::OrchestratorError;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::retries::classifiers::{RetryAction, RetryReason};
use aws_smithy_types::retry::ErrorKind;
use redial::classify::Hint;
use redial::{Directive, Failure, FailureKind, Stage};
use redial_smithy::io_failure;

/// The header with which a service asks for a delay, in milliseconds.
pub(crate) const RETRY_AFTER: &str = "x-amz-retry-after";

/// How the attempt ended, given what the classifiers of the SDK and of the application say about it.
pub(crate) fn directive(context: &InterceptorContext, action: &RetryAction) -> Directive {
    match action {
        RetryAction::RetryIndicated(RetryReason::RetryableError { kind, retry_after }) => {
            let hint = retry_after.or_else(|| retry_after_header(context));
            let hint = hint.map_or(Hint::None, Hint::After);
            Directive::Retry(failure(context, *kind).hint(hint))
        }
        _ if context.is_failed() => Directive::Fail,
        _ => Directive::Succeed,
    }
}

/// Whether the SDK cancelled the attempt because it took too long.
pub(crate) fn is_timeout(context: &InterceptorContext) -> bool {
    matches!(context.output_or_error(), Some(Err(error)) if error.is_timeout_error())
}

/// The kind and the stage of a retryable failure. The SDK's "transient" covers statuses, timeouts and
/// connections; their costs differ in the standard strategy.
fn failure(context: &InterceptorContext, kind: ErrorKind) -> Failure {
    let error = context.output_or_error().and_then(Result::err);
    match kind {
        ErrorKind::ThrottlingError => Failure::throttling(),
        ErrorKind::ServerError => Failure::server(),
        ErrorKind::ClientError => error.map_or(Failure::client(), |error| of_error(context, error)),
        _ => error.map_or(Failure::server(), |error| of_error(context, error)),
    }
}

fn of_error(context: &InterceptorContext, error: &OrchestratorError<Error>) -> Failure {
    if error.is_timeout_error() {
        Failure::timeout()
    } else if let Some(error) = error.as_connector_error() {
        of_connector(error)
    } else if error.is_operation_error() {
        Failure::server()
    } else if error.is_response_error() || context.response().is_some() {
        // The response began and could not be read to its end, or an interceptor rejected it.
        Failure::client().at(Stage::InFlight)
    } else {
        // Nothing was sent: credentials, an endpoint or an interceptor failed.
        Failure::client().at(Stage::Unsent)
    }
}

/// The failure of a connection: a timeout, or an I/O error that may prove that nothing was sent.
pub(crate) fn of_connector(error: &ConnectorError) -> Failure {
    if error.is_timeout() {
        return Failure::timeout();
    }
    let unknown = Failure::new(FailureKind::Client).at(Stage::InFlight);
    io_failure(error).unwrap_or(unknown)
}

fn retry_after_header(context: &InterceptorContext) -> Option<Duration> {
    parse_retry_after(context.response()?.headers().get(RETRY_AFTER)?)
}

/// Whole milliseconds; anything else is ignored, as the SDK does.
pub(crate) fn parse_retry_after(value: &str) -> Option<Duration> {
    value.parse().ok().map(Duration::from_millis)
}
