//! Why a call failed, and what each of its attempts did.
//!
//! Without it a failed call shows its last status alone: a call that the throttle stopped looks like
//! one that has no retry policy. The report is recorded from the notes of the machine, costs one
//! clock read for a call that succeeds, and is built only when a call fails.

mod history;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial_core::StopReason;
use redial_service_config::Code;

use crate::BoxError;
pub(crate) use history::{AttemptHistory, MessageFilter, end_without_outcome};

/// How many attempts a [`CallReport`] lists; of more it keeps the first and the most recent ones.
pub const ATTEMPTS_REPORTED_MAX: usize = 16;

/// The longest message in a [`CallReport`], a call log or a log line, in bytes; a longer one is cut
/// off. The status that the application gets is never cut.
pub const LOGGED_MESSAGE_MAX: usize = 256;

/// Where the [`CallReport`] of a failed call goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallReports {
    /// Into the `source` of the `tonic::Status`: a failed response becomes an error that holds the
    /// status. With clients other than tonic's, the same as [`CallReports::ResponseExtension`].
    #[default]
    StatusSource,
    /// Into the extensions of the failed response, which is passed on as it came: Trailers-Only
    /// stays Trailers-Only. For layers around this one that read responses. A call that ended
    /// without a response is still an error with the report as its source.
    ResponseExtension,
    /// Nowhere: nothing is recorded.
    Off,
}

/// Which policy a call was made under.
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

/// What a report says.
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
    /// Whether the server answered with the status that the call ended with.
    pub(crate) is_answered: bool,
    pub(crate) source: Option<BoxError>,
}

impl From<ReportData> for CallReport {
    fn from(content: ReportData) -> Self {
        CallReport(Arc::new(content))
    }
}

impl CallReport {
    /// The report of a failed call, from the status that it returned.
    ///
    /// `None` if reports are off or go into responses; if the call failed after response headers had
    /// arrived (then the call log has it); if no attempt was made, since the request itself failed; if
    /// the error is the application's own, which is returned unchanged; and with retries disabled,
    /// where calls pass through.
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

    /// The name of the server ([`RetryLayerBuilder::for_server`](crate::RetryLayerBuilder)).
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.0.target.as_deref()
    }

    /// Which policy the call was made under: tells a throttled call from one without a policy.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        self.0.policy
    }

    /// Why there was no further attempt.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.stop_reason
    }

    /// How many attempts were made, the first included, transparent retries not.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// How many attempts replaced one that provably did not run; they do not count as attempts.
    #[must_use]
    pub fn transparent_retries(&self) -> u32 {
        let started = self.0.history.len() as u32 + self.0.omitted;
        started.saturating_sub(self.0.attempts)
    }

    /// How long the call took, waits included.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed
    }

    /// The attempts in the order in which they started, transparent retries included; at most
    /// [`ATTEMPTS_REPORTED_MAX`].
    #[must_use]
    pub fn history(&self) -> &[AttemptReport] {
        &self.0.history
    }

    /// How many attempts are not in [`CallReport::history`], all of them after the first.
    #[must_use]
    pub fn omitted(&self) -> u32 {
        self.0.omitted
    }

    /// The same with the error behind it; the report has no other owner yet.
    pub(crate) fn with_source(mut self, source: Option<BoxError>) -> Self {
        if let Some(content) = Arc::get_mut(&mut self.0) {
            content.source = source;
        }
        self
    }

    /// Whether the status is the server's answer, and not one that was made on this side: of a lost
    /// connection, a deadline, a request that could not be sent.
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
            // After response headers there is no report, so the request itself is the reason.
            (StopReason::Committed, _) => {
                f.write_str("the request did not fit into the retry buffer")?;
            }
            (StopReason::NotRetryable, PolicyKind::None) => {
                f.write_str("no retry policy for this method")?
            }
            (StopReason::NotRetryable, PolicyKind::Disabled) => {
                f.write_str("retries are disabled")?
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
    /// The error of the connection, if the last attempt ended with one.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

/// What one attempt of a call did.
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
    /// Its place in the order of starts, from 1, transparent retries included.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Its number as the policy counts, from 1: a transparent retry has that of the attempt which it
    /// replaces.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether it is a transparent retry: it replaces an attempt that provably did not run.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.is_transparent
    }

    /// The backend that it went to, where the channel below names its backends, as the balanced
    /// channel does.
    #[must_use]
    pub fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    /// When it started, since the call began.
    #[must_use]
    pub fn started(&self) -> Duration {
        self.started
    }

    /// How long it took.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The status that it ended with; `None` if it was cancelled, by another attempt that ended the
    /// call or by the deadline.
    #[must_use]
    pub fn status(&self) -> Option<Code> {
        self.status
    }

    /// The message of its status, or the error of its connection; redacted and cut off at
    /// [`LOGGED_MESSAGE_MAX`].
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
