//! The written form of a backoff.

use std::time::Duration;

use redial_core::{Jitter, PolicyError, Rules};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::span;

/// The backoff of a configuration.
#[derive(Clone, Debug, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(
    rename_all = "lowercase",
    deny_unknown_fields,
    expecting = r#"a backoff like {"exponential": {"first": "100ms", "factor": 2}}"#
)]
pub enum BackoffConfig {
    /// The same delay before each retry.
    Constant(#[serde(with = "span")] Duration),
    /// Each delay is longer than the previous one by the same step.
    Arithmetic {
        /// The delay before the first retry.
        #[serde(with = "span")]
        first: Duration,
        /// The difference between two delays.
        #[serde(with = "span")]
        step: Duration,
        /// The longest delay.
        #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
        cap: Option<Duration>,
    },
    /// Each delay is the previous one times the same factor.
    Exponential {
        /// The delay before the first retry.
        #[serde(with = "span")]
        first: Duration,
        /// The factor between two delays.
        factor: f64,
        /// The longest delay.
        #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
        cap: Option<Duration>,
    },
    /// The first delay times the Fibonacci numbers 1, 1, 2, 3, 5 and so on.
    Fibonacci {
        /// The delay before the first retry.
        #[serde(with = "span")]
        first: Duration,
        /// The longest delay.
        #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
        cap: Option<Duration>,
    },
    /// A list of delays; the last one repeats.
    Table(#[serde(with = "span::list")] Vec<Duration>),
}

impl BackoffConfig {
    /// The jitter of a configuration without `jitter`: none for `constant` and `table`, whose delays are
    /// chosen one by one, and full for the others.
    #[must_use]
    pub const fn default_jitter(&self) -> Jitter {
        match self {
            BackoffConfig::Constant(_) | BackoffConfig::Table(_) => Jitter::None,
            BackoffConfig::Arithmetic { .. }
            | BackoffConfig::Exponential { .. }
            | BackoffConfig::Fibonacci { .. } => Jitter::Full,
        }
    }

    /// Validates the rules with this backoff. The policy owns a table.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn policy(&self, rules: Rules) -> Result<redial_core::Policy, PolicyError> {
        use redial_core::Backoff as Core;
        let backoff = match *self {
            BackoffConfig::Constant(delay) => Core::Constant(delay),
            BackoffConfig::Arithmetic { first, step, cap } => Core::Arithmetic { first, step, cap },
            BackoffConfig::Exponential { first, factor, cap } => {
                Core::Exponential { first, factor, cap }
            }
            BackoffConfig::Fibonacci { first, cap } => Core::Fibonacci { first, cap },
            BackoffConfig::Table(ref table) => {
                return redial_core::Policy::with_table(rules, table.as_slice());
            }
        };
        redial_core::Policy::try_new(Rules { backoff, ..rules })
    }
}
