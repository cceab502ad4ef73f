//! What a service config says about methods.

use std::fmt;
use std::time::Duration;

use crate::Codes;

/// One entry of `methodConfig`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MethodConfig {
    /// The methods that it is for; an entry without names is for none.
    pub names: Vec<MethodName>,
    /// After how long a call must end; the smaller of this and the call's own counts.
    pub timeout: Option<Duration>,
    /// Whether calls wait until there is a connection; a call's own word beats it.
    pub wait_for_ready: Option<bool>,
    /// The largest request message; the smaller of this and the client's counts.
    pub max_request_message_bytes: Option<u32>,
    /// The largest response message; the smaller of this and the client's counts.
    pub max_response_message_bytes: Option<u32>,
    /// What is done about calls that fail or are slow.
    pub policy: Option<MethodPolicy>,
}

/// What an entry is for: everything, a service, or one method of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MethodName {
    /// The service with its package; `None`: every service, the default.
    pub service: Option<Box<str>>,
    /// The method; `None`: every method of the service.
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

/// What is done about calls that fail or are slow: one of the two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MethodPolicy {
    /// `retryPolicy`: what fails is tried again.
    Retry(RetryPolicy),
    /// `hedgingPolicy`: the same call is sent several times.
    Hedging(HedgingPolicy),
}

impl MethodPolicy {
    /// How many attempts, the first included, before the client's cap.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        match self {
            MethodPolicy::Retry(policy) => policy.max_attempts,
            MethodPolicy::Hedging(policy) => policy.max_attempts,
        }
    }

    /// The codes after which another attempt may succeed.
    #[must_use]
    pub const fn codes(&self) -> Codes {
        match self {
            MethodPolicy::Retry(policy) => policy.retryable_status_codes,
            MethodPolicy::Hedging(policy) => policy.non_fatal_status_codes,
        }
    }
}

/// `retryPolicy`, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// How many attempts, the first included; at least 2. What does not fit is the largest number.
    pub max_attempts: u32,
    /// The delay before the first retry, before jitter; above 0.
    pub initial_backoff: Duration,
    /// No delay is longer than this before jitter; above 0.
    pub max_backoff: Duration,
    /// What each further delay is multiplied by; above 0 and finite.
    pub backoff_multiplier: f64,
    /// The codes that are retried; at least one.
    pub retryable_status_codes: Codes,
}

/// `hedgingPolicy`, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgingPolicy {
    /// How many attempts, the first included; at least 2. What does not fit is the largest number.
    pub max_attempts: u32,
    /// How long after the one before it each is sent; zero: all at once.
    pub hedging_delay: Duration,
    /// The codes after which others may still succeed.
    pub non_fatal_status_codes: Codes,
}
