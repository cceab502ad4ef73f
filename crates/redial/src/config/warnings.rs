//! Likely mistakes in a configuration that is valid.

use std::fmt;
use std::time::Duration;

use super::{BackoffConfig, PolicyConfig, ThrottleConfig};

/// A likely mistake: a setting that has another effect than it says. In code, the builder refuses most of them.
/// Written policies may have them on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PolicyWarning {
    /// The first delay is above the cap, which cuts it.
    FirstDelayAboveCap {
        /// The first delay.
        first: Duration,
        /// The longest delay.
        cap: Duration,
    },
    /// A full budget cannot pay for all retries of one call, and it has no refill.
    AttemptsAboveReserve {
        /// The number of attempts.
        attempts: u32,
        /// The reserve of the budget.
        reserve: f64,
    },
    /// Attempts without end, with a budget that has no refill: while no call succeeds nothing fills it, so
    /// an outage ends the call that was to outlast it.
    ForeverWithoutRefill {
        /// The reserve of the budget.
        reserve: f64,
    },
    /// An attempt timeout of zero cancels every attempt that is not ready at once.
    AttemptTimeoutZero,
}

impl PolicyWarning {
    /// The key of the configuration.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            PolicyWarning::FirstDelayAboveCap { .. } => "backoff",
            PolicyWarning::AttemptsAboveReserve { .. } => "attempts",
            PolicyWarning::ForeverWithoutRefill { .. } => "throttle",
            PolicyWarning::AttemptTimeoutZero => "attempt_timeout",
        }
    }

    /// What to write instead.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        match self {
            PolicyWarning::FirstDelayAboveCap { .. } => "write a cap above the first delay",
            PolicyWarning::AttemptsAboveReserve { .. } => {
                "add per_second, raise the reserve or lower the attempts"
            }
            PolicyWarning::ForeverWithoutRefill { .. } => {
                "add per_second to the budget, or leave out throttle: the backoff then limits the retries"
            }
            PolicyWarning::AttemptTimeoutZero => {
                "write how long an attempt may take, or leave it out"
            }
        }
    }
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyWarning::FirstDelayAboveCap { first, cap } => write!(
                f,
                "the first delay of {first:?} is above the cap, so every delay is {cap:?} at most"
            ),
            PolicyWarning::AttemptsAboveReserve { attempts, reserve } => write!(
                f,
                "{attempts} attempts, but a full budget pays for {} retries and has no refill",
                reserve.floor()
            ),
            PolicyWarning::ForeverWithoutRefill { reserve } => write!(
                f,
                "attempts without end, but the budget pays for {} retries and has no refill while calls fail",
                reserve.floor()
            ),
            PolicyWarning::AttemptTimeoutZero => f.write_str(
                "an attempt timeout of zero cancels every attempt that is not ready at once",
            ),
        }
    }
}

impl PolicyConfig {
    /// The likely mistakes. Loading a policy emits each of them as a `tracing` event, and `redial check` shows them
    /// with their place in the file.
    ///
    /// ```
    /// use redial::config::PolicyConfig;
    ///
    /// let text = r#"{ "backoff": { "exponential": { "first": "60s", "factor": 2, "cap": "20s" } } }"#;
    /// let config: PolicyConfig = serde_json::from_str(text)?;
    /// assert_eq!(
    ///     config.warnings()[0].to_string(),
    ///     "the first delay of 60s is above the cap, so every delay is 20s at most"
    /// );
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn warnings(&self) -> Vec<PolicyWarning> {
        let zero = self.attempt_timeout == Some(Duration::ZERO);
        [
            self.attempts_above_reserve(),
            self.first_delay_above_cap(),
            self.forever_without_refill(),
            zero.then_some(PolicyWarning::AttemptTimeoutZero),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn forever_without_refill(&self) -> Option<PolicyWarning> {
        match (self.attempts, self.throttle) {
            (None, Some(ThrottleConfig::Budget { reserve, per_second, .. }))
                if self.forever && per_second == 0.0 =>
            {
                Some(PolicyWarning::ForeverWithoutRefill { reserve })
            }
            _ => None,
        }
    }

    fn attempts_above_reserve(&self) -> Option<PolicyWarning> {
        match (self.attempts, self.throttle) {
            (Some(attempts), Some(ThrottleConfig::Budget { reserve, per_second, .. }))
                if per_second == 0.0 && f64::from(attempts) - 1.0 > reserve =>
            {
                Some(PolicyWarning::AttemptsAboveReserve { attempts, reserve })
            }
            _ => None,
        }
    }

    fn first_delay_above_cap(&self) -> Option<PolicyWarning> {
        let (first, cap) = match self.backoff {
            BackoffConfig::Arithmetic { first, cap, .. }
            | BackoffConfig::Exponential { first, cap, .. }
            | BackoffConfig::Fibonacci { first, cap } => (first, cap?),
            BackoffConfig::Constant(_) | BackoffConfig::Table(_) => return None,
        };
        // Backoff is ignored beside `hedge`.
        (self.hedge.is_none() && cap < first)
            .then_some(PolicyWarning::FirstDelayAboveCap { first, cap })
    }
}
