//! The error of a request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial::{Reason, Report, StopReason};

use crate::context::RequestContext;
use crate::response::Response;
use crate::retryable_error::RetryableError;
use crate::strategy::TerminalError;

/// Whether a request that timed out may have changed data (SDK RFC 58).
///
/// A timeout is ambiguous if a non-idempotent request was sent and got no response. It is unambiguous if
/// the request was not sent, if the server confirmed that nothing changed, or if the request is
/// idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// The request is not idempotent, and the server may have executed it.
    Ambiguous,
    /// The server did not execute the request, or it is idempotent.
    Unambiguous,
}

/// The error of a failed request. `E` is the error type of its attempts.
///
/// It prints operation, label, outcome and statistics: `kv.get airline_10: unambiguous timeout, kv status 0x86 (12 attempts
/// in 2.5 s; gave up: no time left before the deadline)`.
pub struct Error<E>(Box<Inner<E>>);

struct Inner<E> {
    call: redial::Error<E>,
    context: Arc<RequestContext>,
    reasons: Vec<Reason>,
    last: Option<Reason>,
    timeout: Option<TimeoutKind>,
    cas_mismatch: Option<CasMismatch>,
}

/// The document was unlocked with the wrong CAS, or is not locked any more: the server responds LOCKED to
/// `unlock`, which is never retried (decision C5). Returned by
/// [`Error::cas_mismatch`](crate::Error::cas_mismatch).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CasMismatch;

impl fmt::Display for CasMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CAS mismatch")
    }
}

impl std::error::Error for CasMismatch {}

/// The data of a call that the orchestrator collects for its error.
pub(crate) struct CallSummary {
    pub(crate) reasons: Vec<Reason>,
    pub(crate) last: Option<Reason>,
    pub(crate) may_have_run: bool,
}

impl<E> Error<E> {
    pub(crate) fn new(
        call: redial::Error<E>,
        context: Arc<RequestContext>,
        summary: CallSummary,
    ) -> Self {
        let CallSummary { reasons, last, may_have_run } = summary;
        let timeout = call.is_timeout().then(|| {
            let ambiguous = may_have_run && !context.operation().is_idempotent();
            if ambiguous { TimeoutKind::Ambiguous } else { TimeoutKind::Unambiguous }
        });
        let mismatch = context.last_response().is_some_and(|response| response.is_cas_mismatch());
        let cas_mismatch =
            (mismatch && call.stop_reason() == StopReason::NotRetryable).then_some(CasMismatch);
        Error(Box::new(Inner { call, context, reasons, last, timeout, cas_mismatch }))
    }

    /// Converts the last error of an attempt.
    #[cfg(feature = "client")]
    pub(crate) fn map_last(self, change: impl FnOnce(E) -> E) -> Self {
        let inner = *self.0;
        Error(Box::new(Inner { call: inner.call.map_last(change), ..inner }))
    }

    /// The reason why the request ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.call.stop_reason()
    }

    /// The retry reason of the last failure; `None` if the last outcome was final, or if there was none.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.0.last
    }

    /// The distinct retry reasons of all failures, in order of first occurrence.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.0.reasons
    }

    /// The terminal error that the strategy failed with, if any.
    #[must_use]
    pub fn terminal(&self) -> Option<TerminalError> {
        self.0.call.strategy_error().and_then(|error| error.downcast_ref()).copied()
    }

    /// The CAS mismatch that ended the request, if any.
    ///
    /// ```
    /// use redial::s;
    /// use redial_couchbase::{AttemptError, Orchestrator, Response, operation};
    ///
    /// let request = Orchestrator::new();
    /// let request = request.request(operation::KV_UNLOCK, s(2)).label("airline_10");
    /// let error = request.call(|_| Err::<(), _>(AttemptError::from(Response::kv(0x09)))).unwrap_err();
    /// assert!(error.cas_mismatch().is_some());
    /// assert_eq!(error.attempts(), 1);
    /// ```
    #[must_use]
    pub fn cas_mismatch(&self) -> Option<CasMismatch> {
        self.0.cas_mismatch
    }

    /// The last error of an attempt; `None` if the request timed out before any attempt failed.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        self.0.call.last()
    }

    /// The last error of an attempt, by value.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        self.0.call.into_last()
    }

    /// The number of attempts.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.call.attempts()
    }

    /// The duration of the request.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.call.elapsed()
    }

    /// Attempts, elapsed time and stop reason as data.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.0.call.report()
    }

    /// The context of the request.
    #[must_use]
    pub fn context(&self) -> &RequestContext {
        &self.0.context
    }

    /// The kind of timeout, if the request timed out.
    #[must_use]
    pub fn timeout(&self) -> Option<TimeoutKind> {
        self.0.timeout
    }

    /// Whether the request timed out.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.0.timeout.is_some()
    }

    /// Whether the request timed out ambiguously: not idempotent and possibly executed.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.0.timeout == Some(TimeoutKind::Ambiguous)
    }
}

impl<E: RetryableError> Error<E> {
    /// The response of the last attempt, if it got one.
    #[must_use]
    pub fn response(&self) -> Option<&Response> {
        self.last().and_then(RetryableError::response)
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.0.context)?;
        match self.0.timeout {
            Some(TimeoutKind::Ambiguous) => f.write_str("ambiguous timeout, ")?,
            Some(TimeoutKind::Unambiguous) => f.write_str("unambiguous timeout, ")?,
            None => {}
        }
        if let (Some(_), Some(reason)) = (self.terminal(), self.reason()) {
            write!(f, "{reason}, ")?;
        }
        if let Some(mismatch) = self.0.cas_mismatch {
            write!(f, "{mismatch}, ")?;
        }
        self.0.call.fmt(f)
    }
}

impl<E: fmt::Debug> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("request", &self.0.context.to_string())
            .field("call", &self.0.call)
            .field("reasons", &self.0.reasons)
            .field("terminal", &self.terminal())
            .field("timeout", &self.0.timeout)
            .field("cas_mismatch", &self.0.cas_mismatch)
            .finish()
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    /// The error of the strategy, or the last error of an attempt. For a terminal error this is the
    /// attempt's error that caused it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match (self.terminal(), self.0.call.strategy_error(), self.last()) {
            (Some(_), _, Some(cause)) | (_, None, Some(cause)) => Some(cause),
            (_, Some(error), _) => Some(error),
            (_, None, None) => None,
        }
    }
}
