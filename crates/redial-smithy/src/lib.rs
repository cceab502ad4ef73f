//! Smithy's standard retry strategy: three attempts, a bucket in which retries cost by the kind of
//! failure, and a classification in a fixed order (section S of the decisions).
//!
//! ```
//! use std::io;
//! use redial_smithy::{StandardRetryStrategy, classifier};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Made once and cloned: the clones share the bucket.
//! let policy = StandardRetryStrategy::aws_2026().attempts(5).policy()?;
//! # let mut tries = 0;
//! # let mut get = || { tries += 1; let n = tries; async move { if n < 3 { Err(io::ErrorKind::ConnectionReset.into()) } else { io::Result::Ok("object") } } };
//! let object = policy.retry(|| get()).classify(classifier()).await?;
//! assert_eq!(object, "object");
//! # Ok(())
//! # }
//! ```
//!
//! # Throttle
//! The policy keeps the strategy's own bucket ([`CostBucket`](redial::throttle::Costs)), which its clones
//! share. Several policies share one with [`Policy::sharing`](redial::Policy::sharing), and
//! [`WithBudget`](redial::throttle::Funded) adds a budget to it.
//!
//! # Words
//! | the design | here |
//! | --- | --- |
//! | `RetryStrategy.retry(policy, block)` | `policy.retry(block).classify(rules).await` |
//! | `StandardRetryStrategy`, its options (`maxAttempts`, `maxTimeMs`) | [`StandardRetryStrategy`] (`attempts`, `time_max`) |
//! | `RetryPolicy.evaluate(result)` | [`ClassifyRule::judge`](redial::Judge::judge) |
//! | `StandardRetryPolicy` | [`Classifier`] |
//! | `evaluateOtherExceptions` | [`Classifier::hook`] |
//! | `SdkBaseException`, `ServiceException`, `ClientException` | [`ServiceError`] |
//! | `TerminateAndSucceed` | [`Directive::Succeed`](redial::Directive::Succeed) |
//! | `TerminateAndFail` | [`Directive::Fail`](redial::Directive::Fail) |
//! | `RetryError(reason)` | [`Directive::Retry`](redial::Directive::Retry) with a [`Failure`](redial::Failure) |
//! | `RetryErrorType`: `ServerSide`, `ClientSide`, `Throttling`, `Timeout` | [`Kind`](redial::Kind): `Server`, `Client`, `Throttling`, `Timeout` |
//! | `RetryTokenBucket`, one of your own | [`Bucket`](redial::throttle::Bucket), with [`Policy::sharing`](redial::Policy::sharing): `call_started` is `acquireToken`, `take` is `scheduleRetry`, `succeeded` and `call_failed` are `notifySuccess` and `notifyFailure` |
//! | `RetryTokenBucket.acquireToken`, in a loop of your own | [`RetryToken::acquire`] on a [`CostBucket`](redial::throttle::Costs) |
//! | `RetryToken`: `notifySuccess`, `notifyFailure`, `scheduleRetry` | [`RetryToken`]: `success`, `failure`, `retry` |
//! | `BackoffDelayer` | `backoff_first`, `backoff_factor`, `backoff_cap`, `jitter`; one of your own: [`StandardRetryStrategy::policy_with`] |
#![forbid(unsafe_code)]

mod classifier;
#[cfg(feature = "serde")]
mod config;
mod io;
mod options;
mod preset;
pub mod presets;
mod standard;
mod token;

pub use classifier::{Classifier, ClientErrors, Fault, ServiceError, WithHook, classifier};
pub use io::{CHAIN_MAX, IoErrors, io_errors, io_failure};
pub use options::{MaxAttempts, RetryAfterRule, TokenOrder};
pub use preset::Preset;
pub use standard::StandardRetryStrategy;
pub use token::{RetryToken, ScheduledRetry};

/// The options of the bucket.
pub use redial::throttle::{BucketOptions, CostOptions};
