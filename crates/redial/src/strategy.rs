//! Strategies in Couchbase's sense: the application decides about each failure (decision C9).

pub use redial_core::Advice;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use redial_core::{Failure, Reason};

use crate::error::BoxError;

/// What a strategy sees of a call.
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
    /// Whether the call may run twice.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// How many retries were made so far.
    #[must_use]
    pub const fn retry_attempts(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }

    /// The different reasons of the retries before, in order. The present one is
    /// [`reason`](Request::reason), and is among them only if it caused a retry before.
    #[must_use]
    pub const fn reasons(&self) -> &[Reason] {
        self.reasons
    }

    /// The failure in question.
    #[must_use]
    pub const fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Why the attempt failed.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        self.failure.reason
    }

    /// The time since the call began.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The time until its deadline; `None` without one.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// The user's own data, if the call was given some of this type; of several the last.
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

/// The reasons of a call's failures, for its strategy: even those about which no strategy is asked
/// (decisions C9, C10).
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    earlier: Vec<Reason>,
    current: Option<Reason>,
}

impl Reasons {
    /// An attempt failed. The failure before it was retried.
    pub(crate) fn record(&mut self, reason: Option<Reason>) {
        if let Some(earlier) = std::mem::replace(&mut self.current, reason)
            && !self.earlier.contains(&earlier)
        {
            self.earlier.push(earlier);
        }
    }

    /// The reasons of the retries before.
    pub(crate) fn earlier(&self) -> &[Reason] {
        &self.earlier
    }
}

/// What a strategy decides about a failed attempt. More kinds of decisions may be added.
#[non_exhaustive]
pub enum Decision {
    /// Try again after this long; zero: at once.
    Retry(Duration),
    /// Do not try again.
    Decline,
    /// Fail the call, with this as the source.
    Fail(BoxError),
    /// The decision comes later, for instance from another system; made by [`Decision::later`].
    Later(Pin<Box<dyn Future<Output = Decision> + Send>>),
}

impl Decision {
    /// A decision that takes time. The future may bring a decision, or just the delay: none declines,
    /// zero retries at once, and an error fails the call with that error as its source.
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

/// Decides whether a failed attempt is tried again, and when. A closure is enough:
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
    /// Decides. It must not block: what takes time returns [`Decision::later`].
    fn retry_after(&self, request: &Request<'_>) -> Decision;
}

impl<F: Fn(&Request<'_>) -> Decision + Send + Sync> Strategy for F {
    fn retry_after(&self, request: &Request<'_>) -> Decision {
        self(request)
    }
}
