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
/// use redial_smithy::{Standard, Token};
/// use redial::throttle::Bucket as _;
///
/// let bucket = Standard::aws_2026().costs()?;
/// let token = Token::acquire(&bucket);
/// let retry = token.retry(Kind::Server, 0).ok_or("empty")?;
/// assert_eq!(bucket.tokens(0), Some(486.0));
/// let token = retry.start(); // once `retry.after()` has passed
/// token.success(); // gives back what this retry took
/// assert_eq!(bucket.tokens(0), Some(500.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A token that is resolved is gone:
/// ```compile_fail
/// # use redial_smithy::{Standard, Token};
/// # let bucket = Standard::aws_2026().costs().unwrap();
/// let token = Token::acquire(&bucket);
/// token.failure();
/// token.success();
/// ```
#[must_use = "a token that is dropped counts as a failure"]
pub struct Token<'b> {
    permit: Permit<&'b CostBucket>,
}

impl<'b> Token<'b> {
    /// The token of a first try; it costs nothing (decision P10).
    pub const fn acquire(bucket: &'b CostBucket) -> Self {
        Token { permit: Permit::new(bucket) }
    }

    /// The try succeeded: what its retry took goes back; a first try adds the bucket's `success`.
    pub fn success(mut self) {
        self.permit.succeeded();
    }

    /// The try failed, and no other follows: nothing goes back.
    pub fn failure(mut self) {
        self.permit.call_failed();
    }

    /// The try failed with this kind of failure, and another is wanted. `now` is in nanoseconds
    /// since any origin, the same for all users of the bucket.
    ///
    /// `None`: the bucket is empty and refuses; the token is resolved as a failure.
    pub fn retry(mut self, kind: Kind, now: Ns) -> Option<Scheduled<'b>> {
        match self.permit.withdraw(Cost { kind }, now) {
            Grant::Now(_) => Some(Scheduled { permit: self.permit, after: 0 }),
            Grant::After(after, _) => Some(Scheduled { permit: self.permit, after }),
            // This bucket never answers later.
            Grant::Later | Grant::Refused => None,
        }
    }
}

/// A retry that is paid for and has not started. Dropping it gives back what it took (decision P6).
#[must_use = "a retry that is dropped never starts"]
pub struct Scheduled<'b> {
    permit: Permit<&'b CostBucket>,
    after: Ns,
}

impl<'b> Scheduled<'b> {
    /// How long to wait until the refill has paid for it; zero if it is paid already.
    #[must_use]
    pub const fn after(&self) -> Duration {
        duration(self.after)
    }

    /// The retry starts; what the one before it took is spent.
    pub fn start(mut self) -> Token<'b> {
        self.permit.started();
        Token { permit: self.permit }
    }
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl fmt::Debug for Scheduled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduled").field("after", &self.after()).finish_non_exhaustive()
    }
}
