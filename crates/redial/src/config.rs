//! The written form of policies: JSON, TOML, whatever serde reads (docs/scenarios.md, `generic`).
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
//! Inside a file of your own, [`Policy`] and [`Hedged`] are fields like any other:
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
//! | left out | means |
//! | --- | --- |
//! | `attempts` | 3, the first included |
//! | `backoff` | exponential, 100 ms doubled up to 20 s |
//! | `jitter` | `full`; `none` for the backoffs `constant` and `table` |
//! | `late` | `early` |
//! | `throttle` | a budget of the policy's own, which its clones share |
//! | `limits`, `deadline`, `attempt_timeout`, `hedge` | none |
//!
//! `hedge` turns the same policy into a hedged one: `backoff` and `jitter` may stand beside it and have
//! no effect until it is taken out, `limits` are refused.

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
/// Public for the crates of other designs, whose written forms have the same fields.
#[doc(hidden)]
pub mod fields;
mod limits;
pub(crate) mod span;
pub(crate) mod when_empty;

/// A policy as it is written. What it says is checked when it becomes a [`Policy`] or a [`Hedged`]
/// one.
#[derive(Clone, Debug, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PolicyConfig {
    /// How many attempts, the first included; `None` is written `"unlimited"`.
    #[serde(with = "attempts")]
    pub attempts: Option<u32>,
    /// The series of delays.
    #[serde(deserialize_with = "choice::backoff")]
    pub backoff: Backoff,
    /// The randomness in a delay; `None`: [`Backoff::default_jitter`].
    #[serde(
        deserialize_with = "choice::some_jitter",
        serialize_with = "fields::jitter::serialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub jitter: Option<Jitter>,
    /// Soft and hard limits on the time that retrying takes.
    #[serde(with = "limits", skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// After how long the call must end.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// After how long an attempt is cancelled.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Duration>,
    /// What happens when the next retry cannot start before the deadline.
    #[serde(rename = "late", with = "DeadlineActionForm")]
    pub deadline_action: DeadlineAction,
    /// What holds retries back; `None`: a standard budget of the policy's own.
    #[serde(deserialize_with = "choice::throttle", skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// Turns the same policy into a hedged one; its backoff and jitter wait until it is taken out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
}

/// The series of delays, as it is written.
#[derive(Clone, Debug, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(
    rename_all = "lowercase",
    deny_unknown_fields,
    expecting = r#"a backoff like {"exponential": {"first": "100ms", "factor": 2}}"#
)]
pub enum Backoff {
    /// The same delay each time.
    Constant(#[serde(with = "span")] Duration),
    /// Each delay is longer than the one before it by the same step.
    Arithmetic {
        /// The delay before the first retry.
        #[serde(with = "span")]
        first: Duration,
        /// What each further delay adds.
        #[serde(with = "span")]
        step: Duration,
        /// No delay exceeds it.
        #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
        cap: Option<Duration>,
    },
    /// Each delay is the one before it times the same factor.
    Exponential {
        /// The delay before the first retry.
        #[serde(with = "span")]
        first: Duration,
        /// What each further delay is multiplied by.
        factor: f64,
        /// No delay exceeds it.
        #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
        cap: Option<Duration>,
    },
    /// The delays are listed; the last one repeats.
    Table(#[serde(with = "span::list")] Vec<Duration>),
}

/// What holds retries back, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(
    rename_all = "lowercase",
    deny_unknown_fields,
    expecting = r#"a throttle like {"budget": {"reserve": 10}}"#
)]
pub enum Throttle {
    /// Nothing.
    None,
    /// gRPC's bucket, which failures drain.
    Tokens {
        /// How many it holds.
        max: f64,
        /// What a success adds.
        ratio: f64,
    },
    /// Smithy's bucket of costs, as a breaker: it never waits (decision S9).
    Cost(Cost),
    /// The budget that successes fund.
    Budget {
        /// How many retries it holds in reserve.
        #[serde(default = "standard_reserve")]
        reserve: f64,
        /// What a success adds.
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

/// A bucket whose retries cost by the kind of failure; what is left out is smithy's standard (S1).
#[derive(Clone, Copy, Debug, Default, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(deny_unknown_fields, default, expecting = "a bucket like {\"capacity\": 500}")]
pub struct Cost {
    /// How many tokens it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// What a retry costs, by the failure that it answers.
    pub costs: CostOptions,
    /// What a success at the first try adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    /// How many tokens come back per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill_per_second: Option<f64>,
}

/// The rhythm of hedges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, DeriveSerialize, DeriveDeserialize)]
#[serde(deny_unknown_fields, expecting = "a hedge like {\"delay\": \"20ms\"}")]
pub struct Hedge {
    /// How long after the attempt before it the next one starts; all start at once if it is left out.
    #[serde(with = "span", default)]
    pub delay: Duration,
}

/// Why a written policy cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It contradicts itself.
    PolicyError(PolicyError),
    /// It hedges, and a policy that retries was asked for.
    IsHedged,
    /// It does not hedge, and a policy that does was asked for.
    IsNotHedged,
}

impl PolicyConfig {
    /// The policy that it describes, whichever kind that is.
    ///
    /// # Errors
    /// It contradicts itself.
    pub fn load(&self) -> Result<AnyPolicy, LoadError> {
        let policy = self.build().map_err(LoadError::PolicyError)?;
        Ok(match self.hedge {
            None => AnyPolicy::Policy(policy),
            Some(_) => AnyPolicy::Hedged(Hedged(policy)),
        })
    }

    /// The policy that it describes.
    ///
    /// # Errors
    /// It contradicts itself, or it hedges.
    pub fn policy(&self) -> Result<Policy, LoadError> {
        match self.load()? {
            AnyPolicy::Policy(policy) => Ok(policy),
            AnyPolicy::Hedged(_) => Err(LoadError::IsHedged),
        }
    }

    /// The hedged policy that it describes.
    ///
    /// # Errors
    /// It contradicts itself, or it does not hedge.
    pub fn hedged(&self) -> Result<Hedged, LoadError> {
        match self.load()? {
            AnyPolicy::Hedged(policy) => Ok(policy),
            AnyPolicy::Policy(_) => Err(LoadError::IsNotHedged),
        }
    }

    fn build(&self) -> Result<Policy, PolicyError> {
        // Backoff and jitter may stand beside `hedge`, and nothing is done with them: scenario files
        // are read here, and there one line turns a policy into a hedged one and back. A builder
        // has neither word once it hedges. Limits would promise something, so they are refused, and
        // those of any kind: one that says nothing is not silently ignored.
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

impl Backoff {
    /// The jitter of a policy that leaves it out: none where the delays are chosen one by one
    /// (`constant` and `table`), full for the others.
    #[must_use]
    pub const fn default_jitter(&self) -> Jitter {
        match self {
            Backoff::Constant(_) | Backoff::Table(_) => Jitter::None,
            Backoff::Arithmetic { .. } | Backoff::Exponential { .. } => Jitter::Full,
        }
    }

    /// The rules with this series, checked. A table is the policy's own.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn policy(&self, rules: Rules) -> Result<redial_core::Policy, PolicyError> {
        use redial_core::Backoff as Core;
        let backoff = match *self {
            Backoff::Constant(delay) => Core::Constant(delay),
            Backoff::Arithmetic { first, step, cap } => Core::Arithmetic { first, step, cap },
            Backoff::Exponential { first, factor, cap } => Core::Exponential { first, factor, cap },
            Backoff::Table(ref table) => {
                return redial_core::Policy::with_table(rules, table.as_slice());
            }
        };
        redial_core::Policy::try_new(Rules { backoff, ..rules })
    }
}

impl Throttle {
    fn handle(self) -> Result<Handle, PolicyError> {
        let shared: Arc<dyn Bucket + Send + Sync> = match self {
            Throttle::None => return Ok(Handle::None),
            Throttle::Budget { reserve, ratio } => {
                return Ok(Handle::Own(Arc::new(RetryBudget::try_new(reserve, ratio)?)));
            }
            Throttle::Tokens { max, ratio } => Arc::new(TokenBucket::new(max, ratio)?),
            Throttle::Cost(cost) => Arc::new(CostBucket::new(cost.spec()?)?),
        };
        Ok(Handle::Shared(shared))
    }
}

impl Cost {
    fn spec(self) -> Result<CostBucketConfig, PolicyError> {
        let Cost { capacity, costs, success, refill_per_second } = self;
        let empty = Some(WhenEmpty::Fail);
        let options = BucketOptions { capacity, costs, success, refill_per_second, empty };
        options.over(CostBucketConfig::STANDARD)
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let cap = Some(Duration::from_secs(20));
        PolicyConfig {
            attempts: Rules::DEFAULT.attempts,
            backoff: Backoff::Exponential { first: Duration::from_millis(100), factor: 2.0, cap },
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
    /// The field that is wrong, as the written form names it.
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

/// The core names throttles by what they are; in this form they have a place.
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

/// Checks a policy while its reader still knows where it is, so that a contradiction has a place.
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
