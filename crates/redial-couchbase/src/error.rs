//! The error of a request: why it ended, with everything that is known.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial::{Reason, Report, StopReason};

use crate::context::RequestContext;
use crate::response::Response;
use crate::retryable_error::RetryableError;
use crate::strategy::TerminalError;

/// Whether a request that timed out may have changed something.
///
/// SDK RFC 58 has the two words: ambiguous is what was sent and never answered. What was never sent,
/// what the server answered with proof that nothing changed, and what may run twice anyway is
/// unambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// It must not run twice, and it may have run.
    Ambiguous,
    /// It did not run, or may run again.
    Unambiguous,
}

/// A request that did not get what it asked for. `E` is what its attempts ended with.
///
/// It prints what a person needs: `kv.get airline_10: unambiguous timeout, kv status 0x86 (12 attempts
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

/// The document was unlocked with the wrong CAS, or is not locked any more: the server answers
/// LOCKED to `unlock`, which is never retried (decision C5). Found with
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

/// What the orchestrator saw of a call, besides its result.
pub(crate) struct Seen {
    pub(crate) reasons: Vec<Reason>,
    pub(crate) last: Option<Reason>,
    pub(crate) may_have_run: bool,
}

impl<E> Error<E> {
    pub(crate) fn new(call: redial::Error<E>, context: Arc<RequestContext>, seen: Seen) -> Self {
        let Seen { reasons, last, may_have_run } = seen;
        let timeout = call.is_timeout().then(|| {
            let ambiguous = may_have_run && !context.operation().is_idempotent();
            if ambiguous { TimeoutKind::Ambiguous } else { TimeoutKind::Unambiguous }
        });
        let mismatch = context.last_response().is_some_and(|response| response.is_cas_mismatch());
        let cas_mismatch =
            (mismatch && call.stop_reason() == StopReason::NotRetryable).then_some(CasMismatch);
        Error(Box::new(Inner { call, context, reasons, last, timeout, cas_mismatch }))
    }

    /// Why it ended.
    #[must_use]
    pub fn stop_reason(&self) -> StopReason {
        self.0.call.stop_reason()
    }

    /// The reason of the last failure that reached the orchestrator; `None` if the last outcome was
    /// final, or if there was none.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.0.last
    }

    /// The different reasons of all failures, in the order in which they came.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.0.reasons
    }

    /// The terminal error that the strategy made of the reason, if it did.
    #[must_use]
    pub fn terminal(&self) -> Option<TerminalError> {
        self.0.call.strategy_error().and_then(|error| error.downcast_ref()).copied()
    }

    /// The CAS mismatch that ended the request, if one did.
    ///
    /// ```
    /// use redial::s;
    /// use redial_couchbase::{AttemptError, Orchestrator, Response, operation};
    ///
    /// let request = Orchestrator::new();
    /// let request = request.request(operation::KV_UNLOCK, s(2)).about("airline_10");
    /// let error = request.call(|_| Err::<(), _>(AttemptError::from(Response::kv(0x09)))).unwrap_err();
    /// assert!(error.cas_mismatch().is_some());
    /// assert_eq!(error.attempts(), 1);
    /// ```
    #[must_use]
    pub fn cas_mismatch(&self) -> Option<CasMismatch> {
        self.0.cas_mismatch
    }

    /// The last error of an attempt: the cause. There may be none: the timeout can come first.
    #[must_use]
    pub fn last(&self) -> Option<&E> {
        self.0.call.last()
    }

    /// The last error of an attempt.
    #[must_use]
    pub fn into_last(self) -> Option<E> {
        self.0.call.into_last()
    }

    /// How many attempts were made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.call.attempts()
    }

    /// How long the request took.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.call.elapsed()
    }

    /// Attempts, time and why, as data.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.0.call.report()
    }

    /// The request.
    #[must_use]
    pub fn context(&self) -> &RequestContext {
        &self.0.context
    }

    /// Whether the request timed out, and if it did, whether it may have run.
    #[must_use]
    pub fn timeout(&self) -> Option<TimeoutKind> {
        self.0.timeout
    }

    /// Whether the request timed out.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.0.timeout.is_some()
    }

    /// Whether the request timed out, must not run twice, and may have run.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.0.timeout == Some(TimeoutKind::Ambiguous)
    }
}

impl<E: RetryableError> Error<E> {
    /// The last response, if the last attempt got one.
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
    /// What a strategy failed with, or the last error of an attempt. Below a terminal error lies
    /// what it came from.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match (self.terminal(), self.last()) {
            (Some(_), Some(cause)) => Some(cause),
            _ => std::error::Error::source(&self.0.call),
        }
    }
}
