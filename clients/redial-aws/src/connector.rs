//! Retries below signing: an HTTP client of the SDK around another one.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_runtime::retries::classifiers::{THROTTLING_ERRORS, TRANSIENT_ERRORS};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::{
    RuntimeComponents, RuntimeComponentsBuilder,
};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::config_bag::ConfigBag;
use redial::classify::ClassifyRule;
use redial::parts::{Operation, OwnedPolicy};
use redial::rules::ChargeAt;
use redial::{Attempt, Directive, Failure, Last, Policy, Report, StopReason};

use crate::sdk_error::{connector_failure, hint, is_retryable_status};

/// The header with the error code of services whose protocol has one.
const ERROR_TYPE: &str = "x-amzn-errortype";

/// Retries the requests of a client below signing, as an HTTP client around that of the SDK. Use it for what
/// [`RetryInterceptor`](crate::RetryInterceptor) cannot wait for, without a change of the call sites:
/// strategies and throttles that answer later, and Smithy's order, backoff and then tokens.
///
/// The client's own retries must be off, or attempts multiply.
/// ```
/// use aws_sdk_dynamodb::Client;
/// use aws_sdk_dynamodb::config::retry::RetryConfig;
/// use aws_sdk_dynamodb::config::{BehaviorVersion, Config};
/// use aws_smithy_http_client::Builder;
/// use redial_aws::RetryHttpClient;
/// use redial_smithy::StandardRetryStrategy;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // With TLS: `Builder::new().tls_provider(..).build_https()`.
/// let http = Builder::new().build_http();
/// let config = Config::builder()
///     .behavior_version(BehaviorVersion::latest())
///     .retry_config(RetryConfig::disabled())
///     .http_client(RetryHttpClient::new(http, StandardRetryStrategy::standard().policy()?))
///     .build();
/// let client = Client::from_conf(config);
/// # drop(client);
/// # Ok(())
/// # }
/// ```
///
/// # What is retried
/// | outcome | failure |
/// | --- | --- |
/// | status 429, or a throttling code in the header `x-amzn-errortype` | throttling |
/// | a timeout code in that header | timeout |
/// | status 500, 502, 503 or 504 | server |
/// | the connection failed | client; not sent if it was refused |
/// | a timeout of the connection | timeout |
/// | any other | none: it is returned |
///
/// Error codes in bodies are not read, so the throttling errors of DynamoDB, which have status 400, are
/// returned. A request whose body is a stream gets one attempt.
///
/// # What can go wrong
/// - **Attempts have one signature,** which is valid for some minutes: keep the policy's deadline below.
/// - **The SDK's `operation_attempt_timeout` is for all attempts together,** since the SDK sees one. Connect
///   and read timeouts are for each attempt.
/// - **A response that is retried is dropped before the delay.** Its connection is used again if its body has
///   arrived, and closed otherwise. A policy that withdraws tokens after the backoff keeps it for longer,
///   because the throttle may still refuse the retry.
/// - **The deadline may end a later attempt.** Then the error is a timeout that names the status of the
///   response before, which is not returned.
#[derive(Clone)]
pub struct RetryHttpClient {
    client: SharedHttpClient,
    policy: OwnedPolicy,
}

impl RetryHttpClient {
    /// Retries by this policy. Clones of the policy, in other clients and other calls of the process, share
    /// its throttle.
    #[must_use]
    pub fn new(client: impl HttpClient + 'static, policy: Policy) -> Self {
        RetryHttpClient { client: SharedHttpClient::new(client), policy: OwnedPolicy::new(policy) }
    }
}

impl fmt::Debug for RetryHttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryHttpClient").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl HttpClient for RetryHttpClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let connector = self.client.http_connector(settings, components);
        SharedHttpConnector::new(RetryConnector { connector, policy: self.policy.clone() })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        cfg: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.client.validate_base_client_config(components, cfg)
    }

    fn validate_final_config(
        &self,
        components: &RuntimeComponents,
        cfg: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.client.validate_final_config(components, cfg)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.client.connector_metadata()
    }
}

#[derive(Debug)]
struct RetryConnector {
    connector: SharedHttpConnector,
    policy: OwnedPolicy,
}

impl HttpConnector for RetryConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = SignedRequest { connector: self.connector.clone(), request: Some(request) };
        // After the backoff, the throttle may refuse the retry, and the response is returned.
        let releases = self.policy.rules().charge_at != ChargeAt::AfterBackoff;
        let call = self.policy.retry(operation).classify(Classify { releases });
        HttpConnectorFuture::new(async move {
            let error = match call.await {
                Ok(answer) => return answer.into_response(None),
                Err(error) => error,
            };
            match error.into_parts() {
                (Some(Last::Value(answer)), report) => answer.into_response(Some(&report)),
                (Some(Last::Error(error)), _) => Err(error),
                (None, report) => Err(no_response(None, report.stop_reason)),
            }
        })
    }
}

/// The error of a call that was cut off, with the status of the response before.
fn no_response(status: Option<StatusCode>, stop_reason: StopReason) -> ConnectorError {
    let after = status.map_or_else(String::new, |status| format!(" after {}", status.as_u16()));
    ConnectorError::timeout(format!("no response{after}: {stop_reason}").into())
}

/// Sends the same signed request in each attempt.
struct SignedRequest {
    connector: SharedHttpConnector,
    /// None once a body that cannot be copied was sent.
    request: Option<HttpRequest>,
}

impl Operation for SignedRequest {
    type Answer = SentRequest;
    const READS_ATTEMPT: bool = false;

    fn start(&mut self, attempt: Attempt) -> SentRequest {
        let request = self.request.take().expect("an attempt of a request that is not replayable");
        self.request = request.try_clone();
        SentRequest { attempt: attempt.number(), response: self.connector.call(request) }
    }

    fn is_replayable(&self) -> bool {
        self.request.is_some()
    }
}

/// A running attempt.
struct SentRequest {
    attempt: u32,
    response: HttpConnectorFuture,
}

impl Future for SentRequest {
    type Output = Result<Answered, ConnectorError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(Pin::new(&mut self.response).poll(cx));
        let answered =
            |response| Answered { attempt: self.attempt, kept: Kept::Response(response) };
        Poll::Ready(response.map(answered))
    }
}

/// A response, and the number of the attempt that returned it.
struct Answered {
    attempt: u32,
    kept: Kept,
}

/// What is kept of a response.
#[expect(clippy::large_enum_variant, reason = "almost every response is kept as it is")]
enum Kept {
    Response(HttpResponse),
    /// The request is sent again: its body no longer holds the connection.
    Status(StatusCode),
}

impl Answered {
    fn status(&self) -> StatusCode {
        match &self.kept {
            Kept::Response(response) => response.status(),
            Kept::Status(status) => *status,
        }
    }

    /// The response, unless a later attempt was cut off; `report` is that of a call that failed.
    fn into_response(self, report: Option<&Report>) -> Result<HttpResponse, ConnectorError> {
        let (status, attempt) = (self.status(), self.attempt);
        let stop_reason = report.map_or(StopReason::Succeeded, |report| report.stop_reason);
        match self.kept {
            Kept::Response(response) if report.is_none_or(|report| report.attempts == attempt) => {
                Ok(response)
            }
            Kept::Response(_) | Kept::Status(_) => Err(no_response(Some(status), stop_reason)),
        }
    }
}

/// Classifies what is known below the deserializer.
struct Classify {
    /// Whether a response that is retried is dropped before the backoff.
    releases: bool,
}

impl ClassifyRule<Answered, ConnectorError> for Classify {
    const RELEASES: bool = true;

    fn classify(&mut self, result: &Result<Answered, ConnectorError>) -> Option<Directive> {
        let response = result.as_ref().map(|answer| &answer.kept);
        let failure = match response {
            Ok(Kept::Response(response)) => {
                response_failure(response).map(|failure| failure.hint(hint(response)))
            }
            // Only a response that was classified is released.
            Ok(Kept::Status(_)) => None,
            Err(error) => connector_failure(error),
        };
        // A response with an error is returned, and adds or refunds no tokens.
        let is_output = matches!(result, Ok(answer) if answer.status().is_success());
        let other = if is_output { Directive::Succeed } else { Directive::Fail };
        Some(failure.map_or(other, Directive::Retry))
    }

    fn release(&mut self, result: &mut Result<Answered, ConnectorError>) {
        if let Ok(answer) = result
            && self.releases
        {
            answer.kept = Kept::Status(answer.status());
        }
    }
}

fn response_failure(response: &HttpResponse) -> Option<Failure> {
    let status = response.status().as_u16();
    if status < 400 {
        return None;
    }
    let code = response.headers().get(ERROR_TYPE).map(error_code);
    let is_listed = |codes: &[&str]| code.is_some_and(|code| codes.contains(&code));
    if status == 429 || is_listed(THROTTLING_ERRORS) {
        Some(Failure::throttling())
    } else if is_listed(TRANSIENT_ERRORS) {
        Some(Failure::timeout())
    } else {
        is_retryable_status(status).then(Failure::server)
    }
}

/// The code in `namespace#Code:http://address`.
fn error_code(value: &str) -> &str {
    let code = value.split(':').next().unwrap_or(value);
    code.rsplit('#').next().unwrap_or(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connector_error_code_has_no_namespace_and_no_address() {
        for value in ["Code", "space#Code", "Code:http://example.com/#x", "a.b#Code:http://c/"] {
            assert_eq!(error_code(value), "Code", "{value}");
        }
        assert_eq!(error_code(""), "");
    }
}
