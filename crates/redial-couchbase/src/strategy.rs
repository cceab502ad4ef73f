//! Who decides about a request that could be retried: RFC 49, "Retry Strategies" (decisions C2, C3,
//! C9, C13, C14).
//!
//! A strategy is a [`redial::strategy::Strategy`]; a closure is enough. It answers at once or later. It is never
//! asked about reasons that are always retried, and it need not ask whether the request is
//! idempotent: whatever it answers, a request that may have run and must not run twice is not
//! repeated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial::{
    PolicyError, ms,
    rules::{Backoff, Rules},
    strategy::{Decision, Request, Strategy},
};
use redial_core::{CONTROLLED, Reason, duration};

use crate::names::{self, UnknownName};
use crate::reason;

/// The delays of best effort: 1 ms, doubled up to 500 ms (decision C2).
pub(crate) const BEST_EFFORT: Backoff =
    Backoff::Exponential { first: ms(1), factor: 2.0, cap: Some(ms(500)) };

/// How best effort computes its delays, from the number of retries so far.
///
/// None of them has jitter, as the document has it.
#[derive(Clone)]
pub struct BackoffCalculator(Series);

#[derive(Clone)]
enum Series {
    Backoff(Backoff),
    Table(Arc<[Duration]>),
    Function(Arc<dyn Fn(&Request<'_>) -> Duration + Send + Sync>),
}

impl BackoffCalculator {
    /// 1 ms, doubled up to 500 ms: the default.
    pub const BEST_EFFORT: BackoffCalculator = BackoffCalculator(Series::Backoff(BEST_EFFORT));

    /// 1, 10, 50, 100, 500 ms, then 1 s: the controlled backoff of reasons that are always retried.
    pub const CONTROLLED: BackoffCalculator = BackoffCalculator(Series::Backoff(CONTROLLED));

    /// The delays of this series.
    ///
    /// # Errors
    /// The series makes no sense. [`Backoff::Own`] is nobody's here: use [`BackoffCalculator::from_table`] or
    /// [`BackoffCalculator::from_fn`].
    pub fn from_backoff(backoff: Backoff) -> Result<Self, PolicyError> {
        if backoff == Backoff::Own {
            return Err(PolicyError::EmptyTable);
        }
        match (Rules { backoff, ..Rules::DEFAULT }).problem() {
            Some(problem) => Err(problem),
            None => Ok(BackoffCalculator(Series::Backoff(backoff))),
        }
    }

    /// The listed delays; the last one repeats.
    ///
    /// # Errors
    /// The list is empty.
    pub fn from_table(table: impl Into<Arc<[Duration]>>) -> Result<Self, PolicyError> {
        let table: Arc<[Duration]> = table.into();
        if table.is_empty() {
            return Err(PolicyError::EmptyTable);
        }
        Ok(BackoffCalculator(Series::Table(table)))
    }

    /// What this function says.
    pub fn from_fn(function: impl Fn(&Request<'_>) -> Duration + Send + Sync + 'static) -> Self {
        BackoffCalculator(Series::Function(Arc::new(function)))
    }

    /// The delay before the next retry of this request.
    #[must_use]
    pub fn delay(&self, request: &Request<'_>) -> Duration {
        // The counter is read before this retry increments it (decision C7).
        let retries = request.retry_attempts();
        match &self.0 {
            Series::Backoff(backoff) => duration(backoff.base(retries.saturating_add(1))),
            Series::Table(table) => {
                let last = table.len().saturating_sub(1);
                table.get((retries as usize).min(last)).copied().unwrap_or_default()
            }
            Series::Function(function) => function(request),
        }
    }
}

impl Default for BackoffCalculator {
    fn default() -> Self {
        BackoffCalculator::BEST_EFFORT
    }
}

impl fmt::Debug for BackoffCalculator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Series::Backoff(backoff) => backoff.fmt(f),
            Series::Table(table) => table.fmt(f),
            Series::Function(_) => f.write_str("a function"),
        }
    }
}

/// Retries until the request succeeds or its timeout comes.
///
/// A reason that is unknown is not retried, whether the request is idempotent or not (decision C3).
///
/// ```
/// use redial::{ms, rules::Backoff};
/// use redial_couchbase::{BestEffort, BackoffCalculator};
///
/// let usual = BestEffort::new();
/// let controlled = BestEffort::with(BackoffCalculator::CONTROLLED);
/// let constant = BestEffort::with(BackoffCalculator::from_backoff(Backoff::Constant(ms(20)))?);
/// let own = BestEffort::with(BackoffCalculator::from_fn(|request| ms(5) * (request.retry_attempts() + 1)));
/// # Ok::<(), redial::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct BestEffort {
    delays: BackoffCalculator,
}

impl BestEffort {
    /// With its usual delays.
    #[must_use]
    pub const fn new() -> Self {
        BestEffort { delays: BackoffCalculator::BEST_EFFORT }
    }

    /// With other delays.
    #[must_use]
    pub const fn with(delays: BackoffCalculator) -> Self {
        BestEffort { delays }
    }
}

impl Strategy for BestEffort {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        // The document asks here whether the request may run twice. The machine does that for every
        // strategy, after it has answered, and then says `unsafe` instead of `strategy` (C3).
        match request.reason() {
            Some(reason) if reason != reason::UNKNOWN => {
                Decision::Retry(self.delays.delay(request))
            }
            // A failure without a reason is unknown, too.
            _ => Decision::Decline,
        }
    }
}

/// Fails at once with a clear error where waiting for the timeout would not help: wrong
/// credentials, TLS, no access to the bucket, a scope or collection that does not exist. Otherwise
/// as [`BestEffort`]. The default of a new client (decision C14).
///
/// # Stability
/// Which reasons are terminal, and which error each becomes, is volatile on purpose: it may grow in
/// any release. If you need it fixed, copy this strategy: it is [`TerminalError::of`] and a
/// [`BestEffort`].
#[derive(Clone, Debug, Default)]
pub struct FastFailOnTerminalError {
    otherwise: BestEffort,
}

impl FastFailOnTerminalError {
    /// With the usual delays of best effort.
    #[must_use]
    pub const fn new() -> Self {
        FastFailOnTerminalError { otherwise: BestEffort::new() }
    }

    /// With other delays for what is not terminal.
    #[must_use]
    pub const fn with(delays: BackoffCalculator) -> Self {
        FastFailOnTerminalError { otherwise: BestEffort::with(delays) }
    }
}

impl Strategy for FastFailOnTerminalError {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        match request.reason().and_then(TerminalError::of) {
            Some(error) => Decision::Fail(Box::new(error)),
            None => self.otherwise.retry_after(request),
        }
    }
}

/// An error that trying again will not cure soon. What it came from is the error's cause
/// ([`Error::last`](crate::Error::last)).
///
/// Volatile, as [`FastFailOnTerminalError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TerminalError {
    /// The credentials were refused.
    AuthenticationFailure,
    /// TLS failed, or the bucket was refused.
    Couchbase,
    /// There is no such scope.
    ScopeNotFound,
    /// There is no such collection.
    CollectionNotFound,
}

impl TerminalError {
    /// The error that the reason becomes, if it is terminal; in the document's order.
    #[must_use]
    pub fn of(reason: Reason) -> Option<Self> {
        if reason == reason::AUTHENTICATION_ERROR {
            Some(TerminalError::AuthenticationFailure)
        } else if reason == reason::TLS_ERROR || reason == reason::BUCKET_ACCESS_ERROR {
            Some(TerminalError::Couchbase)
        } else if reason == reason::SCOPE_NOT_FOUND {
            Some(TerminalError::ScopeNotFound)
        } else if reason == reason::COLLECTION_NOT_FOUND {
            Some(TerminalError::CollectionNotFound)
        } else {
            None
        }
    }

    /// The document's name for it, without the word `Exception`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TerminalError::AuthenticationFailure => "AuthenticationFailure",
            TerminalError::Couchbase => "Couchbase",
            TerminalError::ScopeNotFound => "ScopeNotFound",
            TerminalError::CollectionNotFound => "CollectionNotFound",
        }
    }
}

impl fmt::Display for TerminalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TerminalError::AuthenticationFailure => "authentication failure",
            TerminalError::Couchbase => "couchbase error",
            TerminalError::ScopeNotFound => "scope not found",
            TerminalError::CollectionNotFound => "collection not found",
        })
    }
}

impl std::error::Error for TerminalError {}

/// Never retries. Internal, as the document wants it: for polling the cluster's configuration, and
/// for scenarios (decision C13).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FailFast;

impl Strategy for FailFast {
    fn retry_after(&self, _request: &Request<'_>) -> Decision {
        Decision::Decline
    }
}

/// A strategy by its name in scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StrategyName {
    /// `best-effort`.
    BestEffort,
    /// `fail-fast`.
    #[doc(hidden)]
    FailFast,
    /// `fast-fail-on-terminal-error`.
    FastFailOnTerminalError,
}

impl StrategyName {
    /// All names.
    pub const ALL: [StrategyName; 3] =
        [StrategyName::BestEffort, StrategyName::FailFast, StrategyName::FastFailOnTerminalError];

    /// The strategy of this name.
    ///
    /// # Errors
    /// There is none; the error has the nearest name.
    pub fn parse(name: &str) -> Result<Self, UnknownName> {
        names::find("strategy", name, &Self::ALL, StrategyName::name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            StrategyName::BestEffort => "best-effort",
            StrategyName::FailFast => "fail-fast",
            StrategyName::FastFailOnTerminalError => "fast-fail-on-terminal-error",
        }
    }

    /// The strategy, with these delays where it has any.
    #[must_use]
    pub fn strategy(self, delays: BackoffCalculator) -> impl Strategy + Clone + fmt::Debug + use<> {
        match self {
            StrategyName::BestEffort => Named::BestEffort(BestEffort::with(delays)),
            StrategyName::FailFast => Named::FailFast(FailFast),
            StrategyName::FastFailOnTerminalError => {
                Named::FastFailOnTerminalError(FastFailOnTerminalError::with(delays))
            }
        }
    }
}

/// A strategy that was built by its name.
#[derive(Clone, Debug)]
enum Named {
    BestEffort(BestEffort),
    FailFast(FailFast),
    FastFailOnTerminalError(FastFailOnTerminalError),
}

impl Strategy for Named {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        match self {
            Named::BestEffort(strategy) => strategy.retry_after(request),
            Named::FailFast(strategy) => strategy.retry_after(request),
            Named::FastFailOnTerminalError(strategy) => strategy.retry_after(request),
        }
    }
}
