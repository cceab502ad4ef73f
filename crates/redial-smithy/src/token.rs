//! What a try holds of the bucket, for loops of your own: resolved exactly once, in the types
//! (decisions S3 and S4).
//!
//! The drivers of this crate do all this by themselves. Invariant: every way out of a token
//! consumes it, so resolving one twice does not compile.

use std::fmt;
use std::time::Duration;

use redial_core::throttle::CostBucket;
use redial_core::{Cost, Grant, Kind, Ns, Permit, duration};

/// What the try that runs now holds of a bucket: nothing at first, then what its retry took.
///
/// Dropping it counts as failure.
///
/// ```
/// use redial::Kind;
/// use redial_smithy::{StandardRetryStrategy, RetryToken};
/// use redial::throttle::Bucket as _;
///
/// let bucket = StandardRetryStrategy::aws_2026().costs()?;
/// let token = RetryToken::acquire(&bucket);
/// let retry = token.schedule_retry(Kind::Server, 0).ok_or("empty")?;
/// assert_eq!(bucket.tokens(0), Some(486.0));
/// let token = retry.start(); // once `retry.after()` has passed
/// token.notify_success(); // gives back what this retry took
/// assert_eq!(bucket.tokens(0), Some(500.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A token that is resolved is gone:
/// ```compile_fail
/// # use redial_smithy::{StandardRetryStrategy, RetryToken};
/// # let bucket = StandardRetryStrategy::aws_2026().costs().unwrap();
/// let token = RetryToken::acquire(&bucket);
/// token.notify_failure();
/// token.notify_success();
/// ```
#[must_use = "a token that is dropped counts as a failure"]
pub struct RetryToken<'b> {
    permit: Permit<&'b CostBucket>,
}

impl<'b> RetryToken<'b> {
    /// The token of a first try; it costs nothing (decision P10).
    pub const fn acquire(bucket: &'b CostBucket) -> Self {
        RetryToken { permit: Permit::new(bucket) }
    }

    /// The try succeeded: what its retry took goes back; a first try adds the bucket's `success`.
    pub fn notify_success(mut self) {
        self.permit.succeeded();
    }

    /// The try failed, and no other follows: nothing goes back.
    pub fn notify_failure(mut self) {
        self.permit.call_failed();
    }

    /// The try failed with this kind of failure, and another is wanted. `now` is in nanoseconds
    /// since any origin, the same for all users of the bucket.
    ///
    /// `None`: the bucket is empty and refuses; the token is resolved as a failure.
    pub fn schedule_retry(mut self, kind: Kind, now: Ns) -> Option<ScheduledRetry<'b>> {
        match self.permit.withdraw(Cost { kind }, now) {
            Grant::Now(_) => Some(ScheduledRetry { permit: self.permit, after: 0 }),
            Grant::After(after, _) => Some(ScheduledRetry { permit: self.permit, after }),
            // This bucket never answers later.
            Grant::Later | Grant::Refused => None,
        }
    }
}

/// A retry that is paid for and has not started. Dropping it gives back what it took (decision P6).
#[must_use = "a retry that is dropped never starts"]
pub struct ScheduledRetry<'b> {
    permit: Permit<&'b CostBucket>,
    after: Ns,
}

impl<'b> ScheduledRetry<'b> {
    /// How long to wait until the refill has paid for it; zero if it is paid already.
    #[must_use]
    pub const fn after(&self) -> Duration {
        duration(self.after)
    }

    /// The retry starts; what the one before it took is spent.
    pub fn start(mut self) -> RetryToken<'b> {
        self.permit.started();
        RetryToken { permit: self.permit }
    }
}

impl fmt::Debug for RetryToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl fmt::Debug for ScheduledRetry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduled").field("after", &self.after()).finish_non_exhaustive()
    }
}
