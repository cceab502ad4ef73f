//! gRPC service configs (A6): text to checked policies, or every problem with its place.
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
//! let told: Vec<_> = problems.iter().map(|it| (it.line, it.column, it.rule.name())).collect();
//! assert_eq!(told, [(4, 37, "max-attempts"), (4, 58, "backoff"), (5, 71, "code")]);
//! assert_eq!(problems.as_slice()[2].hint.as_deref(), Some("did you mean \"UNAVAILABLE\"?"));
//! ```
//!
//! - [`ServiceConfig`] is a config that was checked; [`ServiceConfig::lookup`] finds a method's
//!   entry without allocating.
//! - [`ChoiceSelector`] takes one config from a list of choices, as DNS has it (A2).
//! - [`ClientOptions`] is what the client says besides; together they make a [`Plan`]: rules for the core,
//!   and how statuses are judged.
//! - [`Pushback`] reads what a server says about the next attempt.
//! - [`StatisticsRecorder`] and [`StatisticsCounters`] are the statistics of A6.
//!
//! `decision G15` and the like name entries of [`docs/decisions.md`][decisions]: what A6 leaves open, how
//! it is decided, and which test shows it.
//!
//! Invariant: nothing here retries or decides about a retry; that is `redial-core`.
//!
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod choice;
mod client_options;
pub mod code;
mod codes;
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

pub use choice::{
    CHOICES_MAX, CHOICES_TEXT_MAX, CLIENT_LANGUAGE, ChoiceSelector, RECORD_ATTRIBUTE,
    RECORD_NAME_PREFIX, SelectedChoice,
};
pub use client_options::{
    ATTEMPTS_CAP, AttemptTimeout, ClientOptions, ClientOptionsBuilder, PER_RPC_BUFFER_LIMIT,
    RETRY_BUFFER_SIZE, Retries,
};
pub use code::Code;
pub use codes::Codes;
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
