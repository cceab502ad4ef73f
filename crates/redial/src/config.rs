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
//! [`Policy`], [`Hedged`] and [`AnyPolicy`], which is of either kind, can be fields of your own configuration:
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
//! # Keys
//!
//! | key | values | if it is absent |
//! | --- | --- | --- |
//! | `preset` | a name of [`presets`](crate::presets): `"limits"` | the defaults of this table; with a preset, the preset supplies every absent key, its throttle included |
//! | `name` | text, for logs and metrics | unnamed |
//! | `attempts` | a number that includes the first; `"unlimited"`, which needs a deadline or a limit; `"forever"`, which needs none and has no retry budget unless `throttle` names one; its delays must not be or become zero then | 3 |
//! | `backoff` | `{"constant": "100ms"}`; `{"arithmetic": {"first", "step", "cap"}}`; `{"exponential": {"first", "factor", "cap"}}`; `{"fibonacci": {"first", "cap"}}`; `{"table": ["1ms", "10ms"]}`. A `cap` is optional | exponential, 100 ms doubled up to 20 s |
//! | `jitter` | `"none"`, `"full"`, `"half"`, `"equal"`, `{"proportional": 0.2}`, `"decorrelated"` | `"full"`; `"none"` for the backoffs `constant` and `table` |
//! | `limits` | `{"soft", "hard", "over": "drop" or "truncate", "under": "leave" or "fill", "measure": "delays" or "elapsed"}` | none |
//! | `deadline` | a duration, for the whole call | none |
//! | `attempt_timeout` | a duration, for each attempt. Timed-out attempts are retried | none |
//! | `retry_timeouts` | `false`: an attempt that times out ends the call; `true`: it is retried, also after a timeout that only the call sets ([`Retry::attempt_timeout`](crate::Retry::attempt_timeout)) | `true` beside `attempt_timeout` or `hedge` |
//! | `late` | `"early"`: fail at once when the next attempt could not start before the deadline; `"wait"`: wait for the deadline | `"early"` |
//! | `hint_max` | the longest delay that is accepted from a server: `"60s"` (a longer one ends the call, and zero is none), `{"clamp": "60s"}` (a longer one is cut), `"unlimited"` | `"60s"` |
//! | `hint_jitter` | a number from 0 to 1: the share of a server's delay that is added at random | 0 |
//! | `reset_after` | a duration: an attempt that ran for so long before it failed starts the delays and the count of attempts anew | no reset |
//! | `throttle` | `"none"`; `{"budget": {"reserve", "ratio", "per_second"}}`; `{"tokens": {"max", "ratio"}}`; `{"cost": {..}}` ([`CostConfig`]) | a retry budget of this policy, which its clones share: reserve 10, ratio 0.1, 1 per second |
//! | `hedge` | `{"delay": "20ms"}` | none |
//!
//! A `budget` has no refill over time unless it has `per_second`: once it is empty, only successes fill it. A job that
//! makes few calls should have it, or it has no retries for long after an outage.
//!
//! A duration is text: numbers with units, the larger unit first, like `"250ms"`, `"1.5s"`, `"1m30s"` or
//! `"1h 30m"`. The units are `d`, `h`, `m` or `min`, `s`, `ms`, `us` or `µs`, and `ns`. It is written back as a whole
//! number of the largest unit that fits: `"90s"` for `"1m30s"`.
//!
//! `hedge` makes the policy a hedged one. `backoff`, `jitter` and `late`, which concern the delays between
//! retries, are then ignored, so that one line switches a policy between retries and hedging; `limits`,
//! `reset_after`, `hint_jitter` and `"forever"` are an error. With `"unlimited"` it makes at most 32 attempts.
//!
//! # Likely mistakes
//!
//! A first delay above the cap, attempts that the budget can never pay for, and an attempt timeout of zero are errors of
//! the builder. A written policy may have them on purpose: loading it emits a `tracing` event for each
//! ([`trace`](crate::trace)), [`PolicyConfig::warnings`] returns them, and the command `redial check` shows them in the
//! file. So it is with `"forever"` and a budget without `per_second`, which an outage empties for good.
//!
//! # Presets
//!
//! A preset supplies what the other keys do not say:
//!
//! ```
//! use redial::Policy;
//!
//! let policy: Policy = serde_json::from_str(r#"{ "preset": "limits", "attempts": 4 }"#)?;
//! assert_eq!((policy.rules().attempts, policy.rules().limits.hard), (Some(4), Some(redial::s(2))));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # Writing
//!
//! [`PolicyConfig`] and policies can be written too ([`PolicyConfig::of`]), except for backoff functions,
//! strategies, throttles other than budgets, and rules of other designs. A preset is written as the keys that it
//! supplies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::{
    Bucket, CostBucket, CostBucketConfig, RetryBudget, TokenBucket, WhenEmpty,
};
use redial_core::{
    AttemptTimeoutAction, DeadlineAction, HintRule, Jitter, Limits, PolicyError, Rules,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

pub use self::backoff::BackoffConfig;
pub use self::hint_max::HintMaxConfig;
use self::policy_fields::PolicyFields;
pub use self::to_config::NotWritableError;
pub use self::warnings::PolicyWarning;
pub use crate::any_policy::AnyPolicy;
use crate::cost_bucket_options::{BucketOptions, CostOptions};
use crate::mistakes::Mistakes;
use crate::policy::{Hedged, Policy};
use crate::policy_name::PolicyName;
use crate::throttle::Handle;

mod attempts;
mod backoff;
mod choice;
mod hint_max;
mod policy_fields;
mod preset;
mod to_config;
// Public for the crates of other designs, whose configuration has the same fields.
#[doc(hidden)]
pub mod fields;
mod limits;
pub(crate) mod span;
pub mod stop_reason;
mod warnings;
pub(crate) mod when_empty;

/// The configuration of a policy. It is validated when it becomes a [`Policy`] or a [`Hedged`] policy.
#[derive(Clone, Debug, PartialEq, DeriveSerialize, DeriveDeserialize)]
#[serde(from = "PolicyFields", into = "PolicyFields")]
#[non_exhaustive]
pub struct PolicyConfig {
    /// The name, for logs and metrics.
    pub name: Option<String>,
    /// The maximum number of attempts, including the first; `None` is written as `"unlimited"`, or as
    /// `"forever"` if no deadline or limit has to end the call.
    pub attempts: Option<u32>,
    /// Whether unlimited attempts need no deadline or limit.
    pub forever: bool,
    /// The backoff.
    pub backoff: BackoffConfig,
    /// The jitter; `None`: [`BackoffConfig::default_jitter`].
    pub jitter: Option<Jitter>,
    /// Soft and hard limits on the total time of retries.
    pub limits: Option<Limits>,
    /// The deadline of the whole call, from its start.
    pub deadline: Option<Duration>,
    /// The timeout of each attempt.
    pub attempt_timeout: Option<Duration>,
    /// Whether attempts that exceed a timeout are retried: that of the policy, or one that a call sets. `None`: they
    /// are if the configuration has an `attempt_timeout`, which says so by itself, or hedges.
    pub retry_timeouts: Option<bool>,
    /// Whether the call fails at once or waits for the deadline when the next retry could not start
    /// before it. Written as `late`.
    pub deadline_action: DeadlineAction,
    /// The longest delay that is accepted from a server; `None`: 60 s, and a longer one ends the call.
    pub hint_max: Option<HintMaxConfig>,
    /// The share of a server's delay that is added to it at random, from 0 to 1.
    pub hint_jitter: f64,
    /// How long an attempt must run before its failure starts the delays and attempts anew.
    pub reset_after: Option<Duration>,
    /// The throttle; `None`: a retry budget of this policy with the default parameters.
    pub throttle: Option<ThrottleConfig>,
    /// Makes the policy a hedged one; backoff and jitter are then ignored.
    pub hedge: Option<HedgeConfig>,
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
    /// A retry budget that successes refill and, with `per_second`, time.
    Budget {
        /// The number of retries in reserve.
        #[serde(default = "standard_reserve")]
        reserve: f64,
        /// The tokens that a success adds.
        #[serde(default = "standard_ratio")]
        ratio: f64,
        /// The tokens that each second adds; none if it is absent.
        #[serde(default, skip_serializing_if = "is_zero")]
        per_second: f64,
    },
}

// The signature that serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

const fn standard_reserve() -> f64 {
    RetryBudget::RESERVE
}

const fn standard_ratio() -> f64 {
    RetryBudget::RATIO
}

/// A cost bucket: the cost of a retry depends on the kind of failure. Absent values are those of
/// Smithy's standard mode (decision S1).
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
        for warning in self.warnings() {
            crate::trace::policy_warning(&policy.name, &warning);
        }
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
        // Backoff, jitter and `late` are ignored beside `hedge`: in scenario files, one line switches a policy
        // between retries and hedging. Limits state a guarantee that hedging cannot keep, so they are
        // an error, even empty ones.
        if self.hedge.is_some() && self.limits.is_some() {
            return Err(PolicyError::HedgeWithLimits);
        }
        let retries_timeouts = self
            .retry_timeouts
            .unwrap_or(retries_timeouts_by_default(self.attempt_timeout, self.hedge.is_some()));
        let rules = Rules {
            attempts: self.attempts,
            forever: self.forever && self.attempts.is_none(),
            jitter: self.jitter.unwrap_or_else(|| self.backoff.default_jitter()),
            limits: self.limits.unwrap_or(Limits::NONE),
            deadline: self.deadline,
            attempt_timeout: self.attempt_timeout,
            attempt_timeout_action: if retries_timeouts {
                AttemptTimeoutAction::Retry
            } else {
                AttemptTimeoutAction::Stop
            },
            deadline_action: self.deadline_action,
            hint: match self.hint_max {
                None => Rules::DEFAULT.hint,
                Some(HintMaxConfig::Stop(most)) => HintRule::UpTo(most),
                Some(HintMaxConfig::Clamp(most)) => HintRule::Exact(Some(most)),
                Some(HintMaxConfig::Unlimited) => HintRule::Exact(None),
            },
            hint_jitter: self.hint_jitter,
            reset_after: self.reset_after,
            hedge: self.hedge.map(|hedge| hedge.delay),
            ..Rules::DEFAULT
        };
        let core = self.backoff.policy(rules)?;
        let handle = match self.throttle {
            // As in the builder: an empty budget would end a call that never gives up.
            None if core.rules().never_gives_up() => Handle::None,
            None => Handle::Own(Arc::new(RetryBudget::standard())),
            Some(throttle) => throttle.handle()?,
        };
        // The other mistakes may be meant, and are warnings.
        let has_default_throttle = self.throttle.is_none();
        if Mistakes::of(&core, None, has_default_throttle).forever_without_delay {
            return Err(PolicyError::ForeverWithoutDelay);
        }
        let name = match &self.name {
            Some(name) => PolicyName::shared(name.as_str().into()),
            None => PolicyName::UNNAMED,
        };
        Ok(Policy { core, handle, has_default_throttle, strategy: None, name, shares_name: false })
    }
}

impl ThrottleConfig {
    fn handle(self) -> Result<Handle, PolicyError> {
        let shared: Arc<dyn Bucket + Send + Sync> = match self {
            ThrottleConfig::None => return Ok(Handle::None),
            ThrottleConfig::Budget { reserve, ratio, per_second } => {
                let budget = RetryBudget::try_new(reserve, ratio)?.try_per_second(per_second)?;
                return Ok(Handle::Own(Arc::new(budget)));
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

/// P13: a written attempt timeout says that timed-out attempts are retried, and a hedged operation may run more
/// than once anyway.
const fn retries_timeouts_by_default(attempt_timeout: Option<Duration>, hedges: bool) -> bool {
    attempt_timeout.is_some() || hedges
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let cap = Some(Duration::from_secs(20));
        PolicyConfig {
            name: None,
            attempts: Rules::DEFAULT.attempts,
            forever: false,
            backoff: BackoffConfig::Exponential {
                first: Duration::from_millis(100),
                factor: 2.0,
                cap,
            },
            jitter: None,
            limits: None,
            deadline: None,
            attempt_timeout: None,
            retry_timeouts: None,
            deadline_action: DeadlineAction::FailFast,
            hint_max: None,
            hint_jitter: 0.0,
            reset_after: None,
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

/// A policy of either kind: hedged if the configuration has `hedge`.
///
/// ```
/// use redial::AnyPolicy;
///
/// let policy: AnyPolicy = serde_json::from_str(r#"{ "hedge": { "delay": "20ms" } }"#)?;
/// assert!(matches!(policy, AnyPolicy::Hedged(_)));
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for AnyPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PolicyVisitor(PolicyConfig::load))
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
