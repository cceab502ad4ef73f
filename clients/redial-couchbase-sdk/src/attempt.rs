//! Attempts of a call that Redial drives: the SDK reports each failure instead of retrying it.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use couchbase::retry::{RetryAction, RetryReason, RetryRequest, RetryStrategy};
use redial::{Failure, Reason, Transient};
use redial_couchbase::{RetryableError, reason};

use crate::reason::rfc_reason;
use crate::strategy::poll_until_ready;

/// Runs one operation of the SDK as one attempt. The operation gets a strategy that never retries, and that
/// notes why the SDK would have asked for a retry, so that Redial can decide with everything it has:
/// deadlines, limits, asynchronous strategies, success refills, reports.
///
/// ```
/// use couchbase::collection::Collection;
/// use couchbase::options::kv_options::GetOptions;
/// use redial::{Policy, ms, s};
/// use redial_couchbase_sdk::{SdkError, attempt};
///
/// static READ: Policy = Policy::exponential(ms(5)).attempts(6).deadline(s(2)).build();
///
/// # async fn read(airlines: Collection) -> Result<(), redial::Error<SdkError>> {
/// let document = READ
///     .retry(|| attempt(|strategy| airlines.get("airline_10", GetOptions::new().retry_strategy(strategy))))
///     .await?;
/// # drop(document);
/// # Ok(())
/// # }
/// ```
///
/// Reasons that the SDK always retries (`KV_NOT_MY_VBUCKET`, `KV_COLLECTION_OUTDATED`) are retried inside the
/// attempt, without a limit: set a deadline or an attempt timeout.
///
/// # Errors
/// The operation failed; the error has its reason.
///
/// # Cancel safety
/// Dropping the future drops the operation.
pub async fn attempt<T, R>(
    operation: impl FnOnce(Arc<dyn RetryStrategy>) -> R,
) -> Result<T, SdkError>
where
    R: Future<Output = couchbase::error::Result<T>>,
{
    let observer = Arc::new(Observer::default());
    let result = operation(observer.clone()).await;
    result.map_err(|error| SdkError { error, observed: observer.observed() })
}

/// An error of the SDK, and why the SDK would have retried.
#[derive(Debug)]
pub struct SdkError {
    error: couchbase::error::Error,
    observed: Option<Observed>,
}

/// What the SDK asked its strategy.
#[derive(Clone, Copy, Debug)]
struct Observed {
    reason: Reason,
    idempotent: bool,
}

impl SdkError {
    /// The SDK's error.
    #[must_use]
    pub const fn error(&self) -> &couchbase::error::Error {
        &self.error
    }

    /// The SDK's error.
    #[must_use]
    pub fn into_error(self) -> couchbase::error::Error {
        self.error
    }

    /// The reason for which the SDK would have asked for a retry; `None` if the error is final.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.observed.map(|observed| observed.reason)
    }

    /// Whether the SDK takes the operation as idempotent; `None` if the error is final.
    #[must_use]
    pub fn is_idempotent(&self) -> Option<bool> {
        self.observed.map(|observed| observed.idempotent)
    }
}

/// For [`redial_couchbase::Orchestrator`], which knows from the operation whether it is idempotent.
impl RetryableError for SdkError {
    fn failure(&self) -> Option<Failure> {
        self.reason().map(reason::failure)
    }
}

/// For [`redial::Policy::retry`]: an operation that the SDK does not take as idempotent has a failure only if
/// the reason proves that it did not run, so that nothing runs twice by default. State other rules with
/// `when`.
impl Transient for SdkError {
    fn failure(&self) -> Option<Failure> {
        let observed = self.observed?;
        let failure = reason::failure(observed.reason);
        (observed.idempotent || failure.proves_not_run()).then_some(failure)
    }
}

impl fmt::Display for SdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for SdkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Never retries, and notes what the SDK asks.
#[derive(Debug, Default)]
struct Observer(Mutex<Option<Observed>>);

impl Observer {
    fn observed(&self) -> Option<Observed> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RetryStrategy for Observer {
    fn retry_after(&self, request: &RetryRequest, reason: &RetryReason) -> Option<RetryAction> {
        if *reason == RetryReason::NotReady {
            return poll_until_ready(request);
        }
        let mut observed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An operation of several requests is idempotent if all that failed are.
        let idempotent = observed.is_none_or(|earlier| earlier.idempotent);
        let idempotent = idempotent && request.is_idempotent();
        *observed = Some(Observed { reason: rfc_reason(*reason), idempotent });
        None
    }
}
