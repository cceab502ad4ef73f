//! Parses and validates gRPC service configs (gRFC A6): retry and hedging policies per method, retry
//! throttling, or every problem of the config with line, column and a suggested correction.
//!
//! ```
//! use redial_service_config::ServiceConfig;
//!
//! let text = r#"{
//!   "methodConfig": [{
//!     "name": [{ "service": "echo.Echo" }],
//!     "retryPolicy": { "maxAttempts": 1, "initialBackoff": "100ms", "maxBackoff": "1s",
//!                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABEL"] }
//!   }]
//! }"#;
//! let problems = ServiceConfig::parse(text).unwrap_err();
//! let found: Vec<_> = problems.iter().map(|it| (it.line, it.column, it.rule.name())).collect();
//! assert_eq!(found, [(4, 37, "max-attempts"), (4, 58, "backoff"), (5, 71, "code")]);
//! assert_eq!(problems.as_slice()[2].hint.as_deref(), Some("did you mean \"UNAVAILABLE\"?"));
//! ```
//!
//! - [`ServiceConfig`] is a validated config; [`ServiceConfig::lookup`] finds a method's entry without
//!   allocating.
//! - [`ChoiceSelector`] selects a client's config from a list of service config choices, as DNS TXT
//!   records publish it (gRFC A2, canarying).
//! - [`ClientOptions`] are the client's own settings. Config and options together make a [`Plan`]: the
//!   rules of a method's calls and the classification of their statuses.
//! - [`Pushback`] parses the server pushback header `grpc-retry-pushback-ms`.
//! - [`StatisticsRecorder`] and [`StatisticsCounters`] collect A6's retry statistics.
//!
//! References such as `decision G15` point to [`docs/decisions.md`][decisions], which lists the open
//! points of A6, the decision for each and the test that covers it.
//!
//! Invariant: this crate performs no retries and makes no retry decisions; `redial-core` does.
//!
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod choice_selector;
mod client_options;
pub mod code;
mod code_set;
mod config;
mod decimal;
mod method;
mod plan;
mod problem;
mod pushback;
mod read;
mod statistics;
mod throttling;

#[doc(hidden)]
pub mod json;

pub use choice_selector::{
    CHOICES_MAX, CHOICES_TEXT_MAX, CLIENT_LANGUAGE, ChoiceSelector, RECORD_ATTRIBUTE,
    RECORD_NAME_PREFIX, SelectedChoice,
};
pub use client_options::{
    ATTEMPTS_CAP_DEFAULT, AttemptTimeout, ClientOptions, ClientOptionsBuilder,
    PER_RPC_BUFFER_LIMIT_DEFAULT, RETRY_BUFFER_SIZE_DEFAULT, Retries,
};
pub use code::Code;
pub use code_set::Codes;
pub use config::{LoadBalancing, ServiceConfig};
pub use json::DEPTH_MAX;
pub use method::{HedgingPolicy, MethodConfig, MethodName, MethodPolicy, RetryPolicy};
pub use plan::Plan;
pub use problem::{Problem, Problems, Rule, Severity};
pub use pushback::{PUSHBACK_HEADER, Pushback};
pub use read::{ENTRIES_MAX, PROBLEMS_MAX, TEXT_MAX};
pub use redial_core::{DeadlineAction, Jitter};
pub use statistics::{BUCKETS, CountedRetry, Statistics, StatisticsCounters, StatisticsRecorder};
pub use throttling::RetryThrottling;

/// The examples of the README are compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
