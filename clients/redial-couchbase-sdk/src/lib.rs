//! Redial's retry policies and strategies in the official Couchbase SDK for Rust (the crate `couchbase`):
//! attempt limits, retry budgets that other calls of the process share, your own strategies, and deadlines.
//!
//! # When to use it
//!
//! The SDK retries with a backoff of 1 ms, doubled up to 1 s, until the caller drops the operation. Use this
//! crate
//!
//! - to limit the attempts of operations, for a cluster or for one operation;
//! - to share one retry budget between the SDK and other calls to the same cluster, so that retries do not add
//!   to an outage;
//! - for RFC 49's strategies of `redial-couchbase`, or a strategy of your own;
//! - for deadlines, and to know why an operation was not retried.
//!
//! ```
//! use std::sync::Arc;
//!
//! use couchbase::authenticator::PasswordAuthenticator;
//! use couchbase::cluster::Cluster;
//! use couchbase::options::cluster_options::ClusterOptions;
//! use redial::{Policy, ms};
//! use redial_couchbase_sdk::SdkStrategy;
//!
//! # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::exponential(ms(1)).cap(ms(500)).attempts(8).build();
//! let retries = Arc::new(SdkStrategy::new(policy)?);
//! let authenticator = PasswordAuthenticator::new("app", "secret").into();
//! let options = ClusterOptions::new(authenticator).default_retry_strategy(retries);
//! let cluster = Cluster::connect("couchbase://db1.example.com", options).await?;
//! # drop(cluster);
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | retry all operations by a policy | [`SdkStrategy::new`] and `ClusterOptions::default_retry_strategy` |
//! | retry by a strategy alone, as RFC 49 has it | [`SdkStrategy::of`] |
//! | another policy for one operation | `GetOptions::retry_strategy`, and the same of all other options |
//! | log each decision | [`SdkStrategy::on_decision`] |
//! | deadlines, attempt timeouts, asynchronous strategies, reports | [`attempt`] in [`Policy::retry`](redial::Policy::retry) |
//! | user data and RFC 49's timeouts | [`attempt`] in [`Orchestrator`](redial_couchbase::Orchestrator) |
//!
//! # What the SDK's interface cannot carry
//!
//! The SDK asks a strategy at once after a failure, and reports nothing else. An [`SdkStrategy`] therefore
//!
//! - has no deadline, attempt timeout, limits on time or decorrelated jitter: such a policy is refused;
//! - does not see successes, so they do not refill a retry budget, and does not see that an operation was dropped,
//!   so the token of a retry that it has allowed stays spent;
//! - is not asked about `NOT_MY_VBUCKET` and outdated collections, which the SDK retries without a limit;
//! - declines if its strategy answers later.
//!
//! With [`attempt`], Redial drives the attempts and has all of that; the always-retried reasons stay inside an
//! attempt. [`docs/couchbase-sdk.md`][page] has the whole table, and what can go wrong.
//!
//! [page]: https://github.com/redial-rs/redial/blob/main/docs/couchbase-sdk.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod attempt;
mod reason;
mod strategy;

pub use attempt::{SdkError, attempt};
pub use reason::{KV_INVALID_VBUCKET_MAP, NOT_READY, rfc_reason};
/// Why a policy cannot be an [`SdkStrategy`].
pub use redial::external::NeedsCallState;
pub use strategy::{SdkDecision, SdkStrategy};

/// The examples of the README are compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the page about this crate, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/couchbase-sdk.md")]
struct Page;
