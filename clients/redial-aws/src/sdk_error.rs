//! Classification of `SdkError`, for retries around an operation.

use std::error::Error;

use aws_runtime::retries::classifiers::{THROTTLING_ERRORS, TRANSIENT_ERRORS};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use aws_smithy_types::retry::{ErrorKind, ProvideErrorKind};
use redial::classify::Hint;
use redial::{Failure, FailureKind, Stage};

use crate::failure::{RETRY_AFTER, of_connector, parse_retry_after};

/// The statuses that the SDK retries.
const RETRYABLE_STATUSES: [u16; 4] = [500, 502, 503, 504];

/// The failure of an operation, if a retry makes sense: for `when`, in retries around an operation whose
/// client does not retry.
///
/// ```
/// use aws_sdk_dynamodb::Client;
/// use aws_sdk_dynamodb::config::{BehaviorVersion, Config, retry::RetryConfig};
/// use redial_aws::sdk_failure;
/// use redial_smithy::StandardRetryStrategy;
///
/// # async fn list(config: Config) -> Result<(), Box<dyn std::error::Error>> {
/// let config = config.to_builder().retry_config(RetryConfig::disabled()).build();
/// let client = Client::from_conf(config);
/// // Smithy's order: backoff, then tokens, for which a retry may have to wait.
/// let policy = StandardRetryStrategy::standard().policy()?;
/// let tables = policy.retry(|| client.list_tables().send()).when(sdk_failure).await?;
/// # let _ = tables;
/// # Ok(())
/// # }
/// ```
///
/// The first rule that applies decides, as in the SDK:
///
/// | error | failure |
/// | --- | --- |
/// | an error code for throttling | throttling |
/// | the error code of a request timeout | timeout |
/// | an error that the service's model marks as retryable | as the model says |
/// | status 500, 502, 503 or 504 | server |
/// | the connection failed | client; not sent if it was refused |
/// | a timeout | timeout |
/// | a response that could not be read | client |
/// | any other | none: it is not retried |
///
/// The header `x-amz-retry-after` becomes the hint of the failure.
#[must_use]
pub fn sdk_failure<E>(error: &SdkError<E, HttpResponse>) -> Option<Failure>
where
    E: ProvideErrorKind + Error + 'static,
{
    match error {
        SdkError::TimeoutError(_) => Some(Failure::timeout()),
        SdkError::DispatchFailure(failure) => connector_failure(failure.as_connector_error()?),
        SdkError::ResponseError(error) => {
            Some(Failure::client().at(Stage::InFlight).hint(hint(error.raw())))
        }
        SdkError::ServiceError(error) => {
            let kind = service_failure(error.err(), error.raw().status().as_u16())?;
            Some(Failure::new(kind).hint(hint(error.raw())))
        }
        _ => None,
    }
}

/// The failure of a request without a response, if a retry makes sense.
pub(crate) fn connector_failure(error: &ConnectorError) -> Option<Failure> {
    let is_transient = error.is_timeout() || error.is_io();
    let kind = error.as_other().map(kind_of);
    is_transient.then(|| of_connector(error)).or_else(|| kind.map(Failure::new))
}

pub(crate) fn is_retryable_status(status: u16) -> bool {
    RETRYABLE_STATUSES.contains(&status)
}

fn service_failure<E: ProvideErrorKind>(error: &E, status: u16) -> Option<FailureKind> {
    let is_listed = |codes: &[&str]| error.code().is_some_and(|code| codes.contains(&code));
    if is_listed(THROTTLING_ERRORS) {
        Some(FailureKind::Throttling)
    } else if is_listed(TRANSIENT_ERRORS) {
        Some(FailureKind::Timeout)
    } else if let Some(kind) = error.retryable_error_kind() {
        Some(kind_of(kind))
    } else {
        is_retryable_status(status).then_some(FailureKind::Server)
    }
}

const fn kind_of(kind: ErrorKind) -> FailureKind {
    match kind {
        ErrorKind::ThrottlingError => FailureKind::Throttling,
        ErrorKind::ClientError => FailureKind::Client,
        _ => FailureKind::Server,
    }
}

pub(crate) fn hint(response: &HttpResponse) -> Hint {
    let header = response.headers().get(RETRY_AFTER);
    header.and_then(parse_retry_after).map_or(Hint::None, Hint::After)
}
