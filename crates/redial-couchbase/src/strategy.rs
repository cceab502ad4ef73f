//! Retry strategies: RFC 49, "Retry Strategies" (decisions C2, C3, C9, C13, C14).
//!
//! A strategy is a [`redial::strategy::Strategy`]; a closure is enough. It decides immediately or
//! asynchronously. It is not called for reasons that are always retried, and it does not have to check
//! idempotency: a non-idempotent request that the server may have executed is never retried, whatever
//! the strategy returns.

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

/// Computes the delays of best effort from the number of retries so far (RFC 49's backoff calculator).
///
/// As in RFC 49, delays have no jitter.
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

    /// The delays of a backoff.
    ///
    /// # Errors
    /// The backoff is invalid. [`Backoff::Own`] is not supported: use [`BackoffCalculator::from_table`] or
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

    /// The delays that a function returns.
    pub fn from_fn(function: impl Fn(&Request<'_>) -> Duration + Send + Sync + 'static) -> Self {
        BackoffCalculator(Series::Function(Arc::new(function)))
    }

    /// The delay before the next retry of this request.
    #[must_use]
    pub fn delay(&self, request: &Request<'_>) -> Duration {
        // RFC 49 reads the counter before this retry increments it (decision C7).
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

/// Retries until the request succeeds or times out.
///
/// The reason `UNKNOWN` is never retried, not even for idempotent requests (decision C3).
///
/// ```
/// use redial::{ms, rules::Backoff};
/// use redial_couchbase::{BestEffort, BackoffCalculator};
///
/// let standard = BestEffort::new();
/// let controlled = BestEffort::with(BackoffCalculator::CONTROLLED);
/// let constant = BestEffort::with(BackoffCalculator::from_backoff(Backoff::Constant(ms(20)))?);
/// let linear = BestEffort::with(BackoffCalculator::from_fn(|request| ms(5) * (request.retry_attempts() + 1)));
/// # Ok::<(), redial::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct BestEffort {
    delays: BackoffCalculator,
}

impl BestEffort {
    /// With the delays of RFC 49.
    #[must_use]
    pub const fn new() -> Self {
        BestEffort { delays: BackoffCalculator::BEST_EFFORT }
    }

    /// With custom delays.
    #[must_use]
    pub const fn with(delays: BackoffCalculator) -> Self {
        BestEffort { delays }
    }
}

impl Strategy for BestEffort {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        // RFC 49 checks idempotency here. The core does that for every strategy, after the strategy
        // has decided, and reports the stop reason `unsafe` instead of `strategy` (C3).
        match request.reason() {
            Some(reason) if reason != reason::UNKNOWN => {
                Decision::Retry(self.delays.delay(request))
            }
            // A failure without a reason counts as UNKNOWN.
            _ => Decision::Decline,
        }
    }
}

/// Fails immediately with a specific error where retrying until the timeout would not help: wrong
/// credentials, TLS failures, no access to the bucket, an unknown scope or collection. Otherwise like
/// [`BestEffort`]. The default strategy of a new client (decision C14).
///
/// # Stability
/// The set of terminal reasons and their errors is volatile: it may grow in any release. For a fixed
/// set, write your own strategy from [`TerminalError::of`] and [`BestEffort`].
#[derive(Clone, Debug, Default)]
pub struct FastFailOnTerminalError {
    best_effort: BestEffort,
}

impl FastFailOnTerminalError {
    /// With the delays of RFC 49 for reasons that are not terminal.
    #[must_use]
    pub const fn new() -> Self {
        FastFailOnTerminalError { best_effort: BestEffort::new() }
    }

    /// With custom delays for reasons that are not terminal.
    #[must_use]
    pub const fn with(delays: BackoffCalculator) -> Self {
        FastFailOnTerminalError { best_effort: BestEffort::with(delays) }
    }
}

impl Strategy for FastFailOnTerminalError {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        match request.reason().and_then(TerminalError::of) {
            Some(error) => Decision::Fail(Box::new(error)),
            None => self.best_effort.retry_after(request),
        }
    }
}

/// An error that retries are unlikely to resolve. The attempt's error is available as
/// [`Error::last`](crate::Error::last).
///
/// Volatile, like [`FastFailOnTerminalError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TerminalError {
    /// The credentials were rejected.
    AuthenticationFailure,
    /// TLS failed, or access to the bucket was denied.
    Couchbase,
    /// The scope does not exist.
    ScopeNotFound,
    /// The collection does not exist.
    CollectionNotFound,
}

impl TerminalError {
    /// The error of a terminal reason; `None` for other reasons.
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

    /// RFC 49's name of the error, without the suffix `Exception`.
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

/// Never retries. Internal, as RFC 49 requires: for polling the cluster configuration, and for scenarios
/// (decision C13).
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

    /// The strategy with this name.
    ///
    /// # Errors
    /// There is no such strategy; the error suggests the closest name.
    pub fn parse(name: &str) -> Result<Self, UnknownName> {
        names::find("strategy", name, &Self::ALL, StrategyName::name)
    }

    /// The name in scenario files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            StrategyName::BestEffort => "best-effort",
            StrategyName::FailFast => "fail-fast",
            StrategyName::FastFailOnTerminalError => "fast-fail-on-terminal-error",
        }
    }

    /// Builds the strategy, with these delays where it has any.
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

/// A strategy built from its name.
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
