//! What the client can be told, and the policy that it makes (decisions M1 to M4).

use std::time::Duration;

use redial::{Policy, Throttle};
use redial_core::{AttemptTimeoutAction, Backoff, Jitter, PolicyError, Rules, ms, s};

use crate::call::Interceptor;

/// The client's options. With the feature `serde` the first three are read as the client writes
/// them: `{"maxRetries": 3, "retryDelay": 10, "timeout": 15000}`, in milliseconds.
///
/// | what | default | |
/// | --- | --- | --- |
/// | `max_retries` | 3 | |
/// | `retry_delay` | 10 ms | retry n waits 2ⁿ times as long: 20, 40, 80 ms |
/// | `timeout` | 15 s | given to each attempt anew; when it passes, the call ends |
/// | `jitter`, `delay_max`, `deadline` | none | not in the design, for those who ask |
/// | `write_retries` | repeated | as the design has it |
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "camelCase"))]
pub struct Options {
    /// How many retries; the attempts are one more.
    pub max_retries: u32,
    /// The delay that is doubled before each retry, the first included.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "millis"))]
    pub retry_delay: Duration,
    /// How long each attempt may take.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "millis"))]
    pub timeout: Duration,
    /// The randomness in a delay.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub jitter: Jitter,
    /// No delay exceeds it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub delay_max: Option<Duration>,
    /// After how long the whole call must end.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub deadline: Option<Duration>,
    /// Whether inserts, upserts and deletes are repeated although they may have run.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub write_retries: WriteRetries,
}

/// What becomes of a failed insert, upsert or delete (decision M3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteRetries {
    /// It is repeated like everything else: rows may be there twice.
    #[default]
    Always,
    /// It is repeated only with proof that it did not run.
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

    /// How many retries; the attempts are one more.
    #[must_use]
    pub const fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// The delay that is doubled before each retry, the first included.
    #[must_use]
    pub const fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = delay;
        self
    }

    /// How long each attempt may take.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The randomness in a delay.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// No delay exceeds it.
    #[must_use]
    pub const fn delay_max(mut self, most: Duration) -> Self {
        self.delay_max = Some(most);
        self
    }

    /// After how long the whole call must end.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Whether inserts, upserts and deletes are repeated although they may have run.
    #[must_use]
    pub const fn write_retries(mut self, write_retries: WriteRetries) -> Self {
        self.write_retries = write_retries;
        self
    }

    /// Its rules, before they are checked.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        // The design's 2^n × delay with n = 1 at the first retry (M1).
        let first = self.retry_delay.saturating_mul(2);
        // A deadline that comes first ends an attempt as its own timeout would.
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
            ..Rules::DEFAULT
        }
    }

    /// The policy, without a throttle.
    ///
    /// # Errors
    /// The values contradict each other.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        Policy::from_rules(self.rules()).throttle(Throttle::none()).try_build()
    }

    /// What runs calls with these options.
    ///
    /// # Errors
    /// The values contradict each other.
    pub fn interceptor(self) -> Result<Interceptor, PolicyError> {
        Interceptor::new(self)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::DEFAULT
    }
}

/// Whether a method (`Insert`, or with its service before it) inserts, upserts or deletes rows.
#[must_use]
pub fn is_write(method: &str) -> bool {
    let name = method.rsplit('/').next().unwrap_or(method);
    ["Insert", "Upsert", "Delete"].iter().any(|write| name.eq_ignore_ascii_case(write))
}

/// A number of milliseconds; fractions are allowed, to the nearest nanosecond, and what no [`Duration`]
/// holds is the longest one (decision P2).
#[cfg(feature = "serde")]
fn millis<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    use serde::Deserialize;
    use serde::de::{Error, Unexpected};

    let millis = f64::deserialize(deserializer)?;
    match Duration::try_from_secs_f64(millis / 1000.0) {
        Ok(span) => Ok(span),
        Err(_) if millis > 0.0 => Ok(Duration::MAX),
        Err(_) => {
            let expected = &"a number of milliseconds that is not negative";
            Err(D::Error::invalid_value(Unexpected::Float(millis), expected))
        }
    }
}
