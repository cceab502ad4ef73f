//! Policies in JSON, TOML and every other format of serde (feature `serde`).
//!
//! The format is the policy `generic` of `docs/scenarios.md`. It is stable: a release may add keys and
//! values, and does not rename or remove any before 2.0.
//!
//! ```
//! use redial::Policy;
//!
//! let text = r#"{ "attempts": 4, "backoff": { "constant": "250ms" }, "deadline": "5s" }"#;
//! let policy: Policy = serde_json::from_str(text)?;
//! assert_eq!(policy.rules().attempts, Some(4));
//!
//! let mistake = serde_json::from_str::<Policy>(r#"{ "attempts": 0 }"#).unwrap_err();
//! assert_eq!(
//!     mistake.to_string(),
//!     "attempts: 0 would never try; write 1 for a single attempt at line 1 column 17"
//! );
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! [`Policy`] and [`Hedged`] can be fields of your own configuration:
//!
//! ```
//! #[derive(serde::Deserialize)]
//! struct Config {
//!     fetch: redial::Policy,
//!     read: redial::Hedged,
//! }
//!
//! let config: Config = toml::from_str(
//!     r#"
//!     [fetch]
//!     attempts = 5
//!     backoff.exponential = { first = "100ms", factor = 2, cap = "5s" }
//!
//!     [read]
//!     hedge.delay = "20ms"
//!     "#,
//! )?;
//! assert_eq!(config.fetch.rules().attempts, Some(5));
//! # Ok::<(), toml::de::Error>(())
//! ```
//!
//! | absent key | default |
//! | --- | --- |
//! | `attempts` | 3, including the first |
//! | `backoff` | exponential, 100 ms doubled up to 20 s |
//! | `jitter` | `full`; `none` for the backoffs `constant` and `table` |
//! | `late` | `early` |
//! | `throttle` | a retry budget of this policy, which its clones share |
//! | `limits`, `deadline`, `attempt_timeout`, `hedge` | none |
//!
//! `hedge` makes the policy a hedged one. `backoff` and `jitter` are then ignored, so that one line
//! switches a policy between retries and hedging; `limits` are an error.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::{
    Bucket, CostBucket, CostBucketConfig, RetryBudget, TokenBucket, WhenEmpty,
};
use redial_core::{DeadlineAction, Jitter, Limits, PolicyError, Rules};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

pub use crate::any_policy::AnyPolicy;
use crate::bucket_options::{BucketOptions, CostOptions};
use crate::policy::{Hedged, Policy};
use crate::throttle::Handle;

mod attempts;
mod choice;
// Public for the crates of other designs, whose configuration has the same fields.
#[doc(hidden)]
pub mod fields;
mod limits;
pub(crate) mod span;
pub(crate) mod when_empty;

/// The configuration of a policy. It is validated when it becomes a [`Policy`] or a [`Hedged`] policy.
#[derive(Clone, Debug, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PolicyConfig {
    /// The maximum number of attempts, including the first; `None` is written as `"unlimited"`.
    #[serde(with = "attempts")]
    pub attempts: Option<u32>,
    /// The backoff.
    #[serde(deserialize_with = "choice::backoff")]
    pub backoff: BackoffConfig,
    /// The jitter; `None`: [`BackoffConfig::default_jitter`].
    #[serde(
        deserialize_with = "choice::some_jitter",
        serialize_with = "fields::jitter::serialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub jitter: Option<Jitter>,
    /// Soft and hard limits on the total time of retries.
    #[serde(with = "limits", skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The deadline of the whole call, from its start.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// The timeout of each attempt.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Duration>,
    /// Whether the call fails at once or waits for the deadline when the next retry could not start
    /// before it.
    #[serde(rename = "late", with = "DeadlineActionForm")]
    pub deadline_action: DeadlineAction,
    /// The throttle; `None`: a retry budget of this policy with the default parameters.
    #[serde(deserialize_with = "choice::throttle", skip_serializing_if = "Option::is_none")]
    pub throttle: Option<ThrottleConfig>,
    /// Makes the policy a hedged one; backoff and jitter are then ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<HedgeConfig>,
}

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
    /// A list of delays; the last one repeats.
    Table(#[serde(with = "span::list")] Vec<Duration>),
}

/// The throttle of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(
    rename_all = "lowercase",
    deny_unknown_fields,
    expecting = r#"a throttle like {"budget": {"reserve": 10}}"#
)]
pub enum ThrottleConfig {
    /// No throttle.
    None,
    /// gRPC's retry throttling: a token bucket that failures drain.
    Tokens {
        /// The capacity in tokens.
        max: f64,
        /// The tokens that a success adds.
        ratio: f64,
    },
    /// Smithy's cost bucket. An empty bucket refuses the retry and never delays it (decision S9).
    Cost(CostConfig),
    /// A retry budget that successes refill.
    Budget {
        /// The number of retries in reserve.
        #[serde(default = "standard_reserve")]
        reserve: f64,
        /// The tokens that a success adds.
        #[serde(default = "standard_ratio")]
        ratio: f64,
    },
}

const fn standard_reserve() -> f64 {
    RetryBudget::RESERVE
}

const fn standard_ratio() -> f64 {
    RetryBudget::RATIO
}

/// A cost bucket: the cost of a retry depends on the kind of failure. Absent values are those of
/// smithy's standard mode (decision S1).
#[derive(Clone, Copy, Debug, Default, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(deny_unknown_fields, default, expecting = "a bucket like {\"capacity\": 500}")]
pub struct CostConfig {
    /// The capacity in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// The cost of a retry by kind of failure.
    pub costs: CostOptions,
    /// The tokens that a success at the first attempt adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    /// The tokens that are added per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill_per_second: Option<f64>,
}

/// The hedging of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, DeriveSerialize, DeriveDeserialize)]
#[serde(deny_unknown_fields, expecting = "a hedge like {\"delay\": \"20ms\"}")]
pub struct HedgeConfig {
    /// The delay between the starts of two attempts; if it is absent, all attempts start at once.
    #[serde(with = "span", default)]
    pub delay: Duration,
}

/// A configuration cannot be loaded as the requested policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The configuration contradicts itself.
    PolicyError(PolicyError),
    /// The configuration hedges, and a [`Policy`] was requested.
    IsHedged,
    /// The configuration does not hedge, and a [`Hedged`] policy was requested.
    IsNotHedged,
}

impl PolicyConfig {
    /// Loads the policy, retrying or hedged.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn load(&self) -> Result<AnyPolicy, LoadError> {
        let policy = self.build().map_err(LoadError::PolicyError)?;
        Ok(match self.hedge {
            None => AnyPolicy::Policy(policy),
            Some(_) => AnyPolicy::Hedged(Hedged(policy)),
        })
    }

    /// Loads a policy that retries.
    ///
    /// # Errors
    /// The configuration contradicts itself, or it hedges.
    pub fn policy(&self) -> Result<Policy, LoadError> {
        match self.load()? {
            AnyPolicy::Policy(policy) => Ok(policy),
            AnyPolicy::Hedged(_) => Err(LoadError::IsHedged),
        }
    }

    /// Loads a hedged policy.
    ///
    /// # Errors
    /// The configuration contradicts itself, or it does not hedge.
    pub fn hedged(&self) -> Result<Hedged, LoadError> {
        match self.load()? {
            AnyPolicy::Hedged(policy) => Ok(policy),
            AnyPolicy::Policy(_) => Err(LoadError::IsNotHedged),
        }
    }

    fn build(&self) -> Result<Policy, PolicyError> {
        // Backoff and jitter are ignored beside `hedge`: in scenario files, one line switches a policy
        // between retries and hedging. Limits state a guarantee that hedging cannot keep, so they are
        // an error, even empty ones.
        if self.hedge.is_some() && self.limits.is_some() {
            return Err(PolicyError::HedgeWithLimits);
        }
        let rules = Rules {
            attempts: self.attempts,
            jitter: self.jitter.unwrap_or_else(|| self.backoff.default_jitter()),
            limits: self.limits.unwrap_or(Limits::NONE),
            deadline: self.deadline,
            attempt_timeout: self.attempt_timeout,
            deadline_action: self.deadline_action,
            hedge: self.hedge.map(|hedge| hedge.delay),
            ..Rules::DEFAULT
        };
        let core = self.backoff.policy(rules)?;
        let handle = match self.throttle {
            None => Handle::Own(Arc::new(RetryBudget::standard())),
            Some(throttle) => throttle.handle()?,
        };
        Ok(Policy { core, handle, strategy: None })
    }
}

impl BackoffConfig {
    /// The jitter of a configuration without `jitter`: none for `constant` and `table`, whose delays are
    /// chosen one by one, and full for the others.
    #[must_use]
    pub const fn default_jitter(&self) -> Jitter {
        match self {
            BackoffConfig::Constant(_) | BackoffConfig::Table(_) => Jitter::None,
            BackoffConfig::Arithmetic { .. } | BackoffConfig::Exponential { .. } => Jitter::Full,
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
            BackoffConfig::Table(ref table) => {
                return redial_core::Policy::with_table(rules, table.as_slice());
            }
        };
        redial_core::Policy::try_new(Rules { backoff, ..rules })
    }
}

impl ThrottleConfig {
    fn handle(self) -> Result<Handle, PolicyError> {
        let shared: Arc<dyn Bucket + Send + Sync> = match self {
            ThrottleConfig::None => return Ok(Handle::None),
            ThrottleConfig::Budget { reserve, ratio } => {
                return Ok(Handle::Own(Arc::new(RetryBudget::try_new(reserve, ratio)?)));
            }
            ThrottleConfig::Tokens { max, ratio } => Arc::new(TokenBucket::new(max, ratio)?),
            ThrottleConfig::Cost(cost) => Arc::new(CostBucket::new(cost.spec()?)?),
        };
        Ok(Handle::Shared(shared))
    }
}

impl CostConfig {
    fn spec(self) -> Result<CostBucketConfig, PolicyError> {
        let CostConfig { capacity, costs, success, refill_per_second } = self;
        let empty = Some(WhenEmpty::Fail);
        let options = BucketOptions { capacity, costs, success, refill_per_second, empty };
        options.apply_to(CostBucketConfig::STANDARD)
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let cap = Some(Duration::from_secs(20));
        PolicyConfig {
            attempts: Rules::DEFAULT.attempts,
            backoff: BackoffConfig::Exponential {
                first: Duration::from_millis(100),
                factor: 2.0,
                cap,
            },
            jitter: None,
            limits: None,
            deadline: None,
            attempt_timeout: None,
            deadline_action: DeadlineAction::FailFast,
            throttle: None,
            hedge: None,
        }
    }
}

impl LoadError {
    /// The path of the field, as the configuration names it.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            LoadError::PolicyError(problem) => with_config_path(problem.field()),
            LoadError::IsHedged | LoadError::IsNotHedged => "hedge".to_owned(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::PolicyError(problem) => f.write_str(&with_config_path(problem.text())),
            LoadError::IsHedged => {
                f.write_str("hedge: makes this a hedged policy; load it as `redial::Hedged`")
            }
            LoadError::IsNotHedged => f.write_str(
                "hedge: a hedged policy needs hedge.delay; add it, or load this as `redial::Policy`",
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// Replaces the core's names of throttle fields by their paths in the configuration.
fn with_config_path(text: &str) -> String {
    let text = text.replace("bucket.", "throttle.cost.");
    let named = ["budget.", "tokens."].iter().any(|name| text.starts_with(name));
    if named { format!("throttle.{text}") } else { text }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PolicyVisitor(PolicyConfig::policy))
    }
}

impl<'de> Deserialize<'de> for Hedged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PolicyVisitor(PolicyConfig::hedged))
    }
}

/// Validates a policy while the deserializer still knows its position, so that the error of a
/// contradiction has a line and a column.
struct PolicyVisitor<P>(fn(&PolicyConfig) -> Result<P, LoadError>);

impl<'de, P> Visitor<'de> for PolicyVisitor<P> {
    type Value = P;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<P, A::Error> {
        let config = PolicyConfig::deserialize(MapAccessDeserializer::new(map))?;
        (self.0)(&config).map_err(A::Error::custom)
    }
}

#[derive(DeriveSerialize, DeriveDeserialize)]
#[serde(remote = "Jitter", rename_all = "lowercase")]
pub(crate) enum JitterForm {
    None,
    Full,
    Half,
    Equal,
    Proportional(f64),
    Decorrelated,
}

#[derive(DeriveSerialize, DeriveDeserialize)]
#[serde(remote = "DeadlineAction", rename_all = "lowercase")]
enum DeadlineActionForm {
    #[serde(rename = "early")]
    FailFast,
    #[serde(rename = "wait")]
    WaitForDeadline,
}
