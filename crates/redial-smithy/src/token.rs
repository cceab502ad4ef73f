//! Retry tokens for custom retry loops (decisions S3 and S4). The drivers of `redial` handle tokens by
//! themselves.
//!
//! Invariant: every method that resolves a token consumes it, so resolving one twice does not compile.

use std::fmt;
use std::time::Duration;

use redial_core::throttle::CostBucket;
use redial_core::{Cost, FailureKind, Grant, Ns, Permit, duration};

/// The token of the current attempt: none withdrawn for the first attempt, then the tokens of its retry.
///
/// Dropping it counts as failure.
///
/// ```
/// use redial::FailureKind;
/// use redial_smithy::{StandardRetryStrategy, RetryToken};
/// use redial::throttle::Bucket as _;
///
/// let bucket = StandardRetryStrategy::aws_2026().costs()?;
/// let token = RetryToken::acquire(&bucket);
/// let retry = token.schedule_retry(FailureKind::Server, 0).ok_or("empty")?;
/// assert_eq!(bucket.tokens(0), Some(486.0));
/// let token = retry.start(); // once `retry.after()` has passed
/// token.notify_success(); // refunds the tokens of this retry
/// assert_eq!(bucket.tokens(0), Some(500.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A token can be resolved only once:
/// ```compile_fail
/// # use redial_smithy::{StandardRetryStrategy, RetryToken};
/// # let bucket = StandardRetryStrategy::aws_2026().costs().unwrap();
/// let token = RetryToken::acquire(&bucket);
/// token.notify_failure();
/// token.notify_success();
/// ```
#[must_use = "dropping a token counts as a failure"]
pub struct RetryToken<'b> {
    permit: Permit<&'b CostBucket>,
}

impl<'b> RetryToken<'b> {
    /// The token of a first attempt, which is free (decision P10).
    pub const fn acquire(bucket: &'b CostBucket) -> Self {
        RetryToken { permit: Permit::new(bucket) }
    }

    /// The attempt succeeded: a retry refunds its tokens; a first attempt adds the bucket's `success`.
    pub fn notify_success(mut self) {
        self.permit.succeeded();
    }

    /// The attempt failed and is not retried: no refund.
    pub fn notify_failure(mut self) {
        self.permit.call_failed();
    }

    /// The attempt failed with this kind of failure and is to be retried. `now` is in nanoseconds since
    /// an arbitrary origin, the same for all users of the bucket.
    ///
    /// Returns `None` if the bucket is empty and does not wait; the token then counts as a failure.
    pub fn schedule_retry(mut self, kind: FailureKind, now: Ns) -> Option<ScheduledRetry<'b>> {
        match self.permit.withdraw(Cost { kind }, now) {
            Grant::Now(_) => Some(ScheduledRetry { permit: self.permit, after: 0 }),
            Grant::After(after, _) => Some(ScheduledRetry { permit: self.permit, after }),
            // `CostBucket` never defers its answer.
            Grant::Later | Grant::Refused => None,
        }
    }
}

/// A retry whose tokens are withdrawn and that has not started. Dropping it refunds them (decision P6).
#[must_use = "a retry does nothing until it is started"]
pub struct ScheduledRetry<'b> {
    permit: Permit<&'b CostBucket>,
    after: Ns,
}

impl<'b> ScheduledRetry<'b> {
    /// The wait until the refill covers the tokens; zero if they were available.
    #[must_use]
    pub const fn after(&self) -> Duration {
        duration(self.after)
    }

    /// Starts the retry; the tokens of the previous retry are spent.
    pub fn start(mut self) -> RetryToken<'b> {
        self.permit.started();
        RetryToken { permit: self.permit }
    }
}

impl fmt::Debug for RetryToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryToken").finish_non_exhaustive()
    }
}

impl fmt::Debug for ScheduledRetry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledRetry").field("after", &self.after()).finish_non_exhaustive()
    }
}
