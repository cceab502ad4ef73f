//! Call reports: why a call failed and what each of its attempts did.
//!
//! Without a report a failed call shows only its last status: a throttled call looks like a call
//! without a retry policy. Reports are recorded from the events of the state machine. A successful
//! call pays one clock read; the report itself is built only when a call fails.

mod history;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial_core::StopReason;
use redial_service_config::Code;

use crate::BoxError;
pub(crate) use history::{AttemptHistory, MessageFilter, end_without_outcome};

/// Maximum number of attempts in a [`CallReport`]: the first and the most recent ones.
pub const ATTEMPTS_REPORTED_MAX: usize = 16;

/// Maximum length in bytes of a message in a [`CallReport`], a call log or a log line; longer ones are
/// truncated. The status returned to the application is never truncated.
pub const LOGGED_MESSAGE_MAX: usize = 256;

/// Destination of the [`CallReport`] of a failed call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallReports {
    /// The `source` of the `tonic::Status`: a failed response becomes an error that holds the status.
    /// For clients other than tonic, the same as [`CallReports::ResponseExtension`].
    #[default]
    StatusSource,
    /// The extensions of the failed response, which is otherwise unchanged: Trailers-Only stays
    /// Trailers-Only. For layers around this one that read responses. A call that ended without a
    /// response is still an error with the report as its source.
    ResponseExtension,
    /// No reports: nothing is recorded.
    Off,
}

/// The policy that applied to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyKind {
    /// The service config has no policy for the method.
    None,
    /// A `retryPolicy`.
    Retry,
    /// A `hedgingPolicy`.
    Hedging,
    /// Retries are disabled, for the layer or for this call.
    Disabled,
}

/// Why a call failed, and what each of its attempts did.
///
/// Through tonic it is the `source` of the status; see [`CallReports`].
///
/// ```
/// # use redial_echo::echo_client::EchoClient;
/// # use redial_echo::echo_server::EchoServer;
/// # use redial_echo::{EchoRequest, Responder};
/// # use tower::ServiceBuilder;
/// use redial_grpc::{CallReport, Code, RetryLayer, StopReason};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let layer = RetryLayer::from_json(r#"{ "methodConfig": [{ "name": [{}],
/// #     "retryPolicy": { "maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "1s",
/// #                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#)?;
/// # let server = EchoServer::new(Responder);
/// # let mut client = EchoClient::new(ServiceBuilder::new().layer(layer).service(server));
/// # let request = EchoRequest { failures: 9, ..EchoRequest::default() };
/// let status = client.unary(request).await.unwrap_err();
/// let report = CallReport::of_status(&status).expect("a failed call has a report");
/// assert_eq!(report.stop_reason(), StopReason::AttemptsExhausted);
/// assert_eq!(report.attempts(), 3);
/// assert_eq!(report.history()[0].status(), Some(Code::Unavailable));
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CallReport(Arc<ReportData>);

/// Contents of a report.
#[derive(Debug)]
pub(crate) struct ReportData {
    pub(crate) method: Box<str>,
    pub(crate) target: Option<Arc<str>>,
    pub(crate) policy: PolicyKind,
    pub(crate) stop_reason: StopReason,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Duration,
    pub(crate) history: Vec<AttemptReport>,
    pub(crate) omitted: u32,
    /// Whether the final status came from the server.
    pub(crate) is_answered: bool,
    pub(crate) source: Option<BoxError>,
}

impl From<ReportData> for CallReport {
    fn from(content: ReportData) -> Self {
        CallReport(Arc::new(content))
    }
}

impl CallReport {
    /// The report of a failed call, from the returned status.
    ///
    /// `None` in these cases: reports are off or go into responses; the call failed after response
    /// headers had arrived (see its call log); no attempt was made because the request itself failed; the
    /// error is the application's own, which is returned unchanged; retries are disabled, so that calls
    /// pass through.
    #[cfg(feature = "tonic")]
    #[must_use]
    pub fn of_status(status: &tonic::Status) -> Option<&CallReport> {
        status.source()?.downcast_ref()
    }

    /// The method, as `/package.Service/Method`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.0.method
    }

    /// Name of the server ([`RetryLayerBuilder::for_server`](crate::RetryLayerBuilder)).
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.0.target.as_deref()
    }

    /// The policy that applied to the call: distinguishes a throttled call from one without a policy.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        self.0.policy
    }

    /// Why there was no further attempt.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.stop_reason
    }

    /// Number of attempts, including the first, without transparent retries.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Number of transparent retries, which replace attempts that were provably not processed.
    #[must_use]
    pub fn transparent_retries(&self) -> u32 {
        let started = self.0.history.len() as u32 + self.0.omitted;
        started.saturating_sub(self.0.attempts)
    }

    /// Duration of the call, including delays.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed
    }

    /// The attempts in start order, including transparent retries; at most [`ATTEMPTS_REPORTED_MAX`].
    #[must_use]
    pub fn history(&self) -> &[AttemptReport] {
        &self.0.history
    }

    /// Number of attempts missing from [`CallReport::history`]; the first attempt is never missing.
    #[must_use]
    pub fn omitted(&self) -> u32 {
        self.0.omitted
    }

    /// Adds the underlying error. The report must not be shared yet.
    pub(crate) fn with_source(mut self, source: Option<BoxError>) -> Self {
        if let Some(content) = Arc::get_mut(&mut self.0) {
            content.source = source;
        }
        self
    }

    /// Whether the status came from the server, rather than from the client side: a lost connection, a
    /// deadline, a request that could not be sent.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.0.is_answered
    }
}

impl fmt::Display for CallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReportData { attempts, elapsed, history, omitted, .. } = &*self.0;
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        write!(f, "gave up after {attempts} attempt{}", plural(*attempts))?;
        match self.transparent_retries() {
            0 => {}
            1 => f.write_str(" and 1 transparent retry")?,
            more => write!(f, " and {more} transparent retries")?,
        }
        write!(f, " in {elapsed:.1?}: ")?;
        match (self.stop_reason(), self.policy()) {
            // A call that fails after response headers has no report, so the request was not replayable.
            (StopReason::Committed, _) => {
                f.write_str("the request did not fit into the retry buffer")?;
            }
            (StopReason::NotRetryable, PolicyKind::None) => {
                f.write_str("no retry policy for this method")?;
            }
            (StopReason::NotRetryable, PolicyKind::Disabled) => {
                f.write_str("retries are disabled")?;
            }
            (StopReason::NotRetryable, PolicyKind::Retry | PolicyKind::Hedging) => {
                f.write_str("the status is not retryable under the method's policy")?;
            }
            (reason, _) => write!(f, "{reason}")?,
        }
        for (index, attempt) in history.iter().enumerate() {
            write!(f, "; {attempt}")?;
            if index == 0 && *omitted > 0 {
                write!(f, "; {omitted} more")?;
            }
        }
        Ok(())
    }
}

impl Error for CallReport {
    /// The transport error, if the last attempt ended with one.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

/// A single attempt in a [`CallReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    attempt: u32,
    number: u32,
    is_transparent: bool,
    backend: Option<Arc<str>>,
    started: Duration,
    elapsed: Duration,
    status: Option<Code>,
    message: Option<Box<str>>,
}

impl AttemptReport {
    /// Position in start order, from 1, including transparent retries.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Number in the policy's count, from 1: a transparent retry has the number of the attempt that it
    /// replaces.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether it is a transparent retry, which replaces an attempt that was provably not processed.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.is_transparent
    }

    /// The backend of the attempt, if the channel below names its backends, as the balanced channel
    /// does.
    #[must_use]
    pub fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    /// Start time relative to the start of the call.
    #[must_use]
    pub fn started(&self) -> Duration {
        self.started
    }

    /// Duration of the attempt.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The final status; `None` if the attempt was cancelled, by the end of the call or by its deadline.
    #[must_use]
    pub fn status(&self) -> Option<Code> {
        self.status
    }

    /// The status message or transport error, redacted and truncated to [`LOGGED_MESSAGE_MAX`].
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

impl fmt::Display for AttemptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.number)?;
        if self.is_transparent {
            f.write_str(" (transparent retry)")?;
        }
        if let Some(backend) = &self.backend {
            write!(f, " to {backend}")?;
        }
        match self.status {
            Some(status) => write!(f, ": {status} after {:.1?}", self.elapsed)?,
            None => write!(f, ": cancelled after {:.1?}", self.elapsed)?,
        }
        self.message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))
    }
}
