//! The entries of a service config's `methodConfig`.

use std::fmt;
use std::time::Duration;

use crate::Codes;

/// One entry of `methodConfig`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MethodConfig {
    /// The methods that the entry applies to; an entry without names applies to none.
    pub names: Vec<MethodName>,
    /// The deadline of a call; a shorter deadline of the call itself takes precedence.
    pub timeout: Option<Duration>,
    /// Whether calls wait for a connection; the call's own option takes precedence.
    pub wait_for_ready: Option<bool>,
    /// The maximum size of a request message; a smaller limit of the client takes precedence.
    pub max_request_message_bytes: Option<u32>,
    /// The maximum size of a response message; a smaller limit of the client takes precedence.
    pub max_response_message_bytes: Option<u32>,
    /// The retry or hedging policy.
    pub policy: Option<MethodPolicy>,
}

/// A name of an entry: all methods, the methods of a service, or one method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MethodName {
    /// The service with its package; `None` for all services (the default entry).
    pub service: Option<Box<str>>,
    /// The method; `None` for all methods of the service.
    pub method: Option<Box<str>>,
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.service, &self.method) {
            (Some(service), Some(method)) => write!(f, "/{service}/{method}"),
            (Some(service), None) => write!(f, "/{service}/"),
            (None, _) => f.write_str("/"),
        }
    }
}

/// The policy of an entry: retries or hedging, never both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MethodPolicy {
    /// `retryPolicy`: a failed attempt is retried after a backoff.
    Retry(RetryPolicy),
    /// `hedgingPolicy`: several attempts of the same call run concurrently.
    Hedging(HedgingPolicy),
}

impl MethodPolicy {
    /// The maximum number of attempts, including the first, before the client's cap.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        match self {
            MethodPolicy::Retry(policy) => policy.max_attempts,
            MethodPolicy::Hedging(policy) => policy.max_attempts,
        }
    }

    /// The retryable or non-fatal status codes.
    #[must_use]
    pub const fn codes(&self) -> Codes {
        match self {
            MethodPolicy::Retry(policy) => policy.retryable_status_codes,
            MethodPolicy::Hedging(policy) => policy.non_fatal_status_codes,
        }
    }
}

/// A validated `retryPolicy`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The maximum number of attempts, including the first; at least 2. Saturates at `u32::MAX`.
    pub max_attempts: u32,
    /// The delay before the first retry, before jitter; above 0.
    pub initial_backoff: Duration,
    /// The maximum delay before jitter; above 0.
    pub max_backoff: Duration,
    /// The factor between consecutive delays; above 0 and finite.
    pub backoff_multiplier: f64,
    /// The status codes that are retried; at least one.
    pub retryable_status_codes: Codes,
}

/// A validated `hedgingPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgingPolicy {
    /// The maximum number of attempts, including the first; at least 2. Saturates at `u32::MAX`.
    pub max_attempts: u32,
    /// The delay between consecutive attempts; zero sends all of them at once.
    pub hedging_delay: Duration,
    /// The status codes after which the other attempts continue.
    pub non_fatal_status_codes: Codes,
}
