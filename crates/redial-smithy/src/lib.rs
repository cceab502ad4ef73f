//! Smithy's standard retry strategy, as in the AWS SDKs: three attempts, a token bucket (retry quota)
//! with a cost per kind of failure, and a classification of errors in a fixed order.
//!
//! Use it for calls of your own that should be retried as the AWS SDKs do it. To change the retries of an
//! AWS SDK client, use `redial-aws`.
//!
//! ```
//! use std::io;
//! use redial_smithy::{StandardRetryStrategy, classifier};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Built once and cloned: the clones share the token bucket.
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
//! A policy has the strategy's token bucket ([`CostBucket`](redial::throttle::CostBucket)), which its
//! clones share. [`Policy::sharing`](redial::Policy::sharing) shares one bucket between policies, and
//! [`WithBudget`](redial::throttle::WithBudget) adds a retry budget.
//!
//! # Coming from Smithy
//! | Smithy | this crate |
//! | --- | --- |
//! | `RetryStrategy.retry(policy, block)` | `policy.retry(block).classify(rules).await` |
//! | `StandardRetryStrategy`, its options (`maxAttempts`, `maxTimeMs`) | [`StandardRetryStrategy`] (`attempts`, `time_max`) |
//! | `RetryPolicy.evaluate(result)` | [`ClassifyRule`](redial::classify::ClassifyRule) |
//! | `StandardRetryPolicy` | [`Classifier`] |
//! | `evaluateOtherExceptions` | [`Classifier::hook`] |
//! | `SdkBaseException`, `ServiceException`, `ClientException` | [`ServiceError`] |
//! | `TerminateAndSucceed` | [`Directive::Succeed`](redial::Directive::Succeed) |
//! | `TerminateAndFail` | [`Directive::Fail`](redial::Directive::Fail) |
//! | `RetryError(reason)` | [`Directive::Retry`](redial::Directive::Retry) with a [`Failure`](redial::Failure) |
//! | `RetryErrorType`: `ServerSide`, `ClientSide`, `Throttling`, `Timeout` | [`FailureKind`](redial::FailureKind): `Server`, `Client`, `Throttling`, `Timeout` |
//! | a custom `RetryTokenBucket` | [`Bucket`](redial::throttle::Bucket), with [`Policy::sharing`](redial::Policy::sharing): `call_started` is `acquireToken`, `withdraw` is `scheduleRetry`, `succeeded` and `call_failed` are `notifySuccess` and `notifyFailure` |
//! | `RetryTokenBucket.acquireToken`, in a custom loop | [`RetryToken::acquire`] on a [`CostBucket`](redial::throttle::CostBucket) |
//! | `RetryToken`: `notifySuccess`, `notifyFailure`, `scheduleRetry` | [`RetryToken`]: `notify_success`, `notify_failure`, `schedule_retry` |
//! | `BackoffDelayer` | `backoff_first`, `backoff_factor`, `backoff_cap`, `jitter`; a custom one: [`StandardRetryStrategy::policy_with`] |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod classifier;
#[cfg(feature = "serde")]
mod config;
mod io;
mod options;
mod preset_values;
pub mod presets;
mod standard;
mod token;

pub use classifier::{Classifier, ClientErrors, ErrorFault, ServiceError, WithHook, classifier};
pub use io::{CHAIN_MAX, IoErrors, io_errors, io_failure};
pub use options::{MaxAttempts, RetryAfterRule, TokenOrder};
pub use preset_values::StandardPreset;
pub use standard::StandardRetryStrategy;
pub use token::{RetryToken, ScheduledRetry};

/// Overrides of the token bucket's values.
pub use redial::throttle::{BucketOptions, CostOptions};
