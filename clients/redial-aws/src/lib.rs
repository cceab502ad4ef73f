//! Redial's retry policies inside the clients of the AWS SDK for Rust: exact token buckets, retry budgets that
//! other calls of the process share, your own strategies, reports of what each call did, and waiters.
//!
//! # When to use it
//!
//! Use it in place of the SDK's standard retry mode
//!
//! - to share one retry budget between AWS calls and other calls to the same dependency;
//! - for the AWS SDKs' rules of 2026 with a quota that is exact under concurrent calls (the SDK's is not:
//!   [`docs/aws.md`][page]);
//! - for another policy: other delays, more attempts, a strategy of your own;
//! - to see why a call stopped, and what each attempt did.
//!
//! ```
//! use aws_sdk_dynamodb::Client;
//! use aws_sdk_dynamodb::config::{BehaviorVersion, Config};
//! use redial_aws::{RetryInterceptor, with_retries};
//!
//! # fn main() {
//! let builder = Config::builder().behavior_version(BehaviorVersion::latest());
//! let config = with_retries!(builder, RetryInterceptor::aws_2026_dynamodb()).build();
//! let client = Client::from_conf(config);
//! # drop(client);
//! # }
//! ```
//! With `aws-config`, the builder is `aws_sdk_dynamodb::config::Builder::from(&sdk_config)`. Everything else of
//! the client stays as it is: operations, signing, the header with the attempt number, sending bodies again
//! from their start, correction of clock skew, timeouts, connection reuse.
//!
//! Any policy works. Here AWS calls and other calls share a budget:
//! ```
//! use redial::throttle::RetryBudget;
//! use redial::{Policy, Throttle, ms, s};
//! use redial_aws::{RetryInterceptor, SetupError};
//!
//! static ORDERS: RetryBudget = RetryBudget::standard();
//! static POLICY: Policy =
//!     Policy::exponential(ms(50)).attempts(4).deadline(s(5)).throttle(Throttle::budget(&ORDERS)).build();
//!
//! # fn main() -> Result<(), SetupError> {
//! let retries = RetryInterceptor::new(POLICY.clone())?;
//! # drop(retries);
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | retry inside a client by a policy | [`RetryInterceptor::new`], [`with_retries!`] |
//! | the presets of the AWS SDKs and of Smithy | [`RetryInterceptor::aws_2026`], [`aws_2026_dynamodb`](RetryInterceptor::aws_2026_dynamodb), [`smithy_standard`](RetryInterceptor::smithy_standard), [`standard`](RetryInterceptor::standard) |
//! | another policy for one operation | `customize().config_override(with_retries!(Config::builder(), other))` |
//! | mark an operation as not idempotent, or read its report | [`CallOptions`] |
//! | log the end of every call | [`RetryInterceptor::on_end`] |
//! | retry around an operation: Smithy's order, strategies and throttles that answer later | [`sdk_failure`] |
//! | the same without a change of the call sites, below signing | [`RetryHttpClient`] |
//! | wait until a table is active or an object exists | [`wait`] |
//!
//! # Defaults
//!
//! | setting | default | reason |
//! | --- | --- | --- |
//! | which errors are retried | those that the SDK's classifiers accept, and the application's | they know the service's error codes |
//! | attempts, delays, throttle | those of the policy | |
//! | `RetryConfig` of the client | `max_attempts` of the policy | the SDK sends it in `amz-sdk-request`; a smaller one, of the client or an operation, still limits the attempts |
//! | deadline | the smaller of the policy's and the SDK's `operation_timeout` | the SDK cancels the call, and no delay ends after the deadline |
//! | attempt timeout | the smaller of the policy's and the SDK's | |
//! | idempotency | operations are taken as idempotent, as the SDK does | mark the others with [`CallOptions::not_idempotent`] |
//! | bodies | sent again from their start if they are in memory or a file; a stream gets one attempt | a partial body must never be sent as a complete one |
//!
//! # What can go wrong
//!
//! - **A call is retried by the SDK's own delays.** The client has the classifier and not the interceptor: use
//!   [`with_retries!`].
//! - **Fewer attempts than the policy has.** `retry_config` was set again after [`with_retries!`], or for the
//!   operation.
//! - **A strategy ends every call.** It answers later, which the SDK cannot wait for: retry around the
//!   operation.
//! - **An output that a classifier of the application rejects is returned.** An output is a success here: use
//!   [`wait`].
//! - **Attempts multiply.** A retry around an operation whose client retries too: set `RetryConfig::disabled()`
//!   and install no interceptor.
//! - **A long-polling operation returns its error at once when the token bucket is empty.** The AWS SDKs' rules of
//!   2026 wait for the backoff first.
//!
//! `decision S6` and the like are entries of [`docs/decisions.md`][decisions].
//!
//! [page]: https://github.com/redial-rs/redial/blob/main/docs/aws.md
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod call;
mod call_options;
mod classifier;
mod connector;
mod error;
mod failure;
mod handover;
mod interceptor;
mod sdk_error;
mod waiter;

pub use call_options::{CallOptions, ReportSlot};
pub use connector::RetryHttpClient;
pub use error::SetupError;
pub use interceptor::{CallEnd, RetryInterceptor, SDK_ATTEMPTS_MAX};
pub use sdk_error::sdk_failure;
pub use waiter::{Wait, WaitRule, is_not_found, wait};

/// Installs a [`RetryInterceptor`] in the config builder of a client, or of one operation: the interceptor, the
/// retry classifier and the retry config. It returns the builder.
///
/// A macro, because each service has a builder type of its own. Without it:
/// ```
/// # use aws_sdk_s3::config::{BehaviorVersion, Config};
/// # let retries = redial_aws::RetryInterceptor::aws_2026();
/// let config = Config::builder()
///     .behavior_version(BehaviorVersion::latest())
///     .retry_config(retries.retry_config())
///     .interceptor(retries.clone())
///     .retry_classifier(retries);
/// # let _ = config;
/// ```
#[macro_export]
macro_rules! with_retries {
    ($builder:expr, $retries:expr $(,)?) => {{
        let retries: $crate::RetryInterceptor = $retries;
        let mut builder = $builder.retry_config(retries.retry_config());
        builder.push_interceptor(retries.interceptor());
        builder.retry_classifier(retries)
    }};
}

/// The examples of the README are compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the page about this crate, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/aws.md")]
struct Page;
