//! The retry options of the client and the policy that they describe (decisions M1 to M4).

use std::time::Duration;

use redial::{Policy, Throttle};
use redial_core::{AttemptTimeoutAction, Backoff, HintRule, Jitter, PolicyError, Rules, ms, s};

use crate::call::Interceptor;

/// The client's retry options. With the feature `serde` the first three deserialize from the client's
/// JSON: `{"maxRetries": 3, "retryDelay": 10, "timeout": 15000}`, in milliseconds.
///
/// | option | default | meaning |
/// | --- | --- | --- |
/// | `max_retries` | 3 | retries after the first attempt |
/// | `retry_delay` | 10 ms | retry n waits 2ⁿ × `retry_delay`: 20, 40, 80 ms |
/// | `timeout` | 15 s | applies to each attempt; an attempt that times out ends the call |
/// | `jitter`, `delay_max`, `deadline` | none | extensions of this crate |
/// | `write_retries` | `Always` | as in the Milvus client |
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "camelCase"))]
pub struct Options {
    /// The maximum number of retries after the first attempt.
    pub max_retries: u32,
    /// The base delay, which is doubled before each retry including the first.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "millis"))]
    pub retry_delay: Duration,
    /// The timeout of each attempt.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "millis"))]
    pub timeout: Duration,
    /// The jitter of delays.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub jitter: Jitter,
    /// The maximum delay.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub delay_max: Option<Duration>,
    /// The deadline of the whole call.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub deadline: Option<Duration>,
    /// Whether inserts, upserts and deletes are retried although the server may have executed them.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub write_retries: WriteRetries,
}

/// Retries of inserts, upserts and deletes (decision M3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteRetries {
    /// Writes are retried like reads. A retried insert may create duplicate rows.
    #[default]
    Always,
    /// A write is retried only if the server provably did not execute it.
    OnlyIfNotRun,
}

impl Options {
    /// The client's defaults (decision M2).
    pub const DEFAULT: Options = Options {
        max_retries: 3,
        retry_delay: ms(10),
        timeout: s(15),
        jitter: Jitter::None,
        delay_max: None,
        deadline: None,
        write_retries: WriteRetries::Always,
    };

    /// The maximum number of retries after the first attempt.
    #[must_use]
    pub const fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// The base delay, which is doubled before each retry including the first.
    #[must_use]
    pub const fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = delay;
        self
    }

    /// The timeout of each attempt.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The jitter of delays.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The maximum delay.
    #[must_use]
    pub const fn delay_max(mut self, most: Duration) -> Self {
        self.delay_max = Some(most);
        self
    }

    /// The deadline of the whole call.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Whether inserts, upserts and deletes are retried although the server may have executed them.
    #[must_use]
    pub const fn write_retries(mut self, write_retries: WriteRetries) -> Self {
        self.write_retries = write_retries;
        self
    }

    /// The rules, before validation.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        // The Milvus client waits 2^n × delay, with n = 1 at the first retry (M1).
        let first = self.retry_delay.saturating_mul(2);
        // A call deadline that is not later than the attempt timeout makes the latter redundant.
        let attempt_timeout = match self.deadline {
            Some(deadline) if deadline.as_nanos() <= self.timeout.as_nanos() => None,
            _ => Some(self.timeout),
        };
        Rules {
            attempts: Some(self.max_retries.saturating_add(1)),
            backoff: Backoff::Exponential { first, factor: 2.0, cap: self.delay_max },
            jitter: self.jitter,
            deadline: self.deadline,
            attempt_timeout,
            attempt_timeout_action: AttemptTimeoutAction::EndCall,
            hint: HintRule::Exact(None),
            ..Rules::DEFAULT
        }
    }

    /// The policy of these options, without a throttle.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        Policy::from_rules(self.rules()).throttle(Throttle::none()).try_build()
    }

    /// An interceptor with these options.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn interceptor(self) -> Result<Interceptor, PolicyError> {
        Interceptor::new(self)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::DEFAULT
    }
}

/// Whether a method (`Insert`, or with the service as a prefix) inserts, upserts or deletes rows.
#[must_use]
pub fn is_write(method: &str) -> bool {
    let name = method.rsplit('/').next().unwrap_or(method);
    ["Insert", "Upsert", "Delete"].iter().any(|write| name.eq_ignore_ascii_case(write))
}

/// Deserializes a number of milliseconds. Fractions are rounded to nanoseconds, and numbers beyond the
/// range of [`Duration`] saturate (decision P2).
#[cfg(feature = "serde")]
fn millis<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    use serde::Deserialize;
    use serde::de::{Error, Unexpected};

    let millis = f64::deserialize(deserializer)?;
    match Duration::try_from_secs_f64(millis / 1000.0) {
        Ok(span) => Ok(span),
        Err(_) if millis > 0.0 => Ok(Duration::MAX),
        Err(_) => {
            let expected = &"a non-negative number of milliseconds";
            Err(D::Error::invalid_value(Unexpected::Float(millis), expected))
        }
    }
}
