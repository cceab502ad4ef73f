//! Strategies: application code that decides about each failure.
//!
//! A strategy replaces the backoff of the policy. For each retryable failure it returns a delay, declines,
//! or fails the call; it may also decide later, for example after asking another system. Attempts,
//! deadline and throttle of the policy still apply (decision C9; the model is Couchbase's retry strategy).

pub use redial_core::Advice;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use redial_core::{Failure, Reason};

use crate::error::BoxError;

/// The call and its failure, as a strategy sees them.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub(crate) idempotent: bool,
    pub(crate) attempts: u32,
    pub(crate) reasons: &'a [Reason],
    pub(crate) failure: Failure,
    pub(crate) elapsed: Duration,
    pub(crate) remaining: Option<Duration>,
    pub(crate) data: &'a [Box<dyn Any + Send + Sync>],
}

impl Request<'_> {
    /// Whether the operation is idempotent.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// The number of retries so far.
    #[must_use]
    pub const fn retry_attempts(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }

    /// The distinct reasons of the earlier retries, in order. The current one is
    /// [`reason`](Request::reason); it is in this list only if it also caused an earlier retry.
    #[must_use]
    pub const fn reasons(&self) -> &[Reason] {
        self.reasons
    }

    /// The current failure.
    #[must_use]
    pub const fn failure(&self) -> &Failure {
        &self.failure
    }

    /// The reason of the current failure.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        self.failure.reason
    }

    /// The time since the start of the call; zero if a library reports single failures
    /// ([`StatelessPolicy`](crate::external::StatelessPolicy)).
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The time until the deadline; `None` without a deadline.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Data of this type that was attached to the call with [`Retry::data`](crate::Retry::data); the last
    /// one if there are several.
    #[must_use]
    pub fn data<T: Any>(&self) -> Option<&T> {
        self.data.iter().rev().find_map(|data| data.downcast_ref())
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("idempotent", &self.idempotent)
            .field("attempts", &self.attempts)
            .field("reasons", &self.reasons)
            .field("failure", &self.failure)
            .field("elapsed", &self.elapsed)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

/// The reasons of a call's failures, including those for which the strategy is not asked (decisions C9,
/// C10).
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    earlier: Vec<Reason>,
    current: Option<Reason>,
}

impl Reasons {
    /// Records a failure. The previous one was retried.
    pub(crate) fn record(&mut self, reason: Option<Reason>) {
        if let Some(earlier) = std::mem::replace(&mut self.current, reason)
            && !self.earlier.contains(&earlier)
        {
            self.earlier.push(earlier);
        }
    }

    /// The reasons of the earlier retries.
    pub(crate) fn earlier(&self) -> &[Reason] {
        &self.earlier
    }
}

/// The decision of a strategy about a failed attempt.
#[non_exhaustive]
pub enum Decision {
    /// Retry after this delay; zero: at once.
    Retry(Duration),
    /// Do not retry.
    Decline,
    /// Fail the call, with this error as its source.
    Fail(BoxError),
    /// The decision comes later, for example from another system; see [`Decision::later`].
    Later(Pin<Box<dyn Future<Output = Decision> + Send>>),
}

impl Decision {
    /// A decision that takes time. The output of the future is a decision, or an optional delay: `None`
    /// declines, zero retries at once, and an error fails the call with that error as its source.
    ///
    /// ```
    /// use redial::{ms, strategy::{Decision, Request}};
    /// # async fn ask_operator(_attempts: u32) -> bool { true }
    ///
    /// let strategy = |request: &Request<'_>| {
    ///     let retries = request.retry_attempts();
    ///     Decision::later(async move { ask_operator(retries).await.then_some(ms(20)) })
    /// };
    /// # let _: &dyn redial::strategy::Strategy = &strategy;
    /// ```
    pub fn later<F>(decision: F) -> Self
    where
        F: Future<Output: Into<Decision>> + Send + 'static,
    {
        Decision::Later(Box::pin(async move { decision.await.into() }))
    }
}

/// `None` declines.
impl From<Option<Duration>> for Decision {
    fn from(delay: Option<Duration>) -> Self {
        delay.map_or(Decision::Decline, Decision::Retry)
    }
}

/// An error fails the call.
impl From<Result<Option<Duration>, BoxError>> for Decision {
    fn from(answer: Result<Option<Duration>, BoxError>) -> Self {
        answer.map_or_else(Decision::Fail, Decision::from)
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Retry(delay) => f.debug_tuple("Retry").field(delay).finish(),
            Decision::Decline => f.write_str("Decline"),
            Decision::Fail(error) => f.debug_tuple("Fail").field(error).finish(),
            Decision::Later(_) => f.write_str("Later"),
        }
    }
}

/// Decides whether and when a failed attempt is retried. A closure implements it:
///
/// ```
/// use redial::{Policy, ms, s, strategy::{Decision, Request}};
/// # #[derive(Debug)] struct Busy;
/// struct Robot;
///
/// static POLICY: Policy = Policy::constant(ms(10)).unlimited().deadline(s(2)).build();
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let result = POLICY
///     .retry(async || Err::<(), _>(Busy))
///     .when(|_: &Busy| true)
///     .data(Robot)
///     .strategy(|request: &Request<'_>| match request.data::<Robot>() {
///         Some(Robot) => Decision::Decline,
///         None => Decision::Retry(ms(5)),
///     })
///     .await;
/// assert_eq!(result.unwrap_err().attempts(), 1);
/// # }
/// ```
pub trait Strategy: Send + Sync {
    /// Decides about a failure. It must not block; use [`Decision::later`] for a decision that takes time.
    fn retry_after(&self, request: &Request<'_>) -> Decision;
}

impl<F: Fn(&Request<'_>) -> Decision + Send + Sync> Strategy for F {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        self(request)
    }
}
