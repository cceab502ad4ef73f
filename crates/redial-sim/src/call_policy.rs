//! The policy of a caller: rules of the core, the throttle, and the classification of failures.

use redial::config::{CostConfig, LoadError, PolicyConfig, ThrottleConfig};
use redial_core::throttle::{CostBucketConfig, RetryBudget, WhenEmpty};
use redial_core::{Classification, Directive, Failure, Policy, PolicyError, Rules, Stage};
use redial_service_config::{ClientOptions, Code, Pushback, ServiceConfig};

/// A policy as a caller uses it in a simulation or a plan.
#[derive(Clone, Debug)]
pub struct CallPolicy {
    policy: Policy,
    throttle: ThrottleSpec,
    failures: Failures,
}

/// The parameters of a throttle, from which each caller gets its own bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThrottleSpec {
    /// None: every retry is allowed.
    None,
    /// A retry budget.
    Budget {
        /// The number of retries in reserve.
        reserve: f64,
        /// The tokens that a success adds.
        ratio: f64,
        /// The tokens that each second adds.
        per_second: f64,
    },
    /// gRPC's retry throttling.
    Tokens {
        /// The capacity.
        max: f64,
        /// The tokens that a success adds.
        ratio: f64,
    },
    /// Smithy's cost bucket.
    Cost(CostBucketConfig),
}

impl ThrottleSpec {
    /// The default retry budget of `redial`.
    pub const STANDARD: ThrottleSpec = ThrottleSpec::Budget {
        reserve: RetryBudget::RESERVE,
        ratio: RetryBudget::RATIO,
        per_second: RetryBudget::PER_SECOND,
    };
}

/// How the failures of a simulation are classified under a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Failures {
    /// A server processed the request and failed.
    pub(crate) failed: Classification,
    /// A server rejected the request because its queue was full.
    pub(crate) rejected: Classification,
    /// The connection was refused.
    pub(crate) refused: Classification,
}

impl Failures {
    fn retryable() -> Failures {
        let retry = |failure| Directive::Retry(failure).into();
        Failures {
            failed: retry(Failure::server()),
            rejected: retry(Failure::throttling()),
            refused: retry(Failure::client().at(Stage::Unsent)),
        }
    }
}

impl Default for CallPolicy {
    /// The defaults of `redial`: 3 attempts, full jitter, a retry budget.
    fn default() -> Self {
        CallPolicy::new(Policy::new(Rules::DEFAULT), ThrottleSpec::STANDARD)
            .unwrap_or_else(|_| unreachable!("the default rules use no strategy"))
    }
}

impl CallPolicy {
    /// A policy of validated rules; all failures are retryable.
    ///
    /// # Errors
    /// The policy asks a strategy, whose code a simulation does not have.
    pub fn new(policy: Policy, throttle: ThrottleSpec) -> Result<CallPolicy, UsesStrategy> {
        if policy.rules().uses_strategy {
            return Err(UsesStrategy);
        }
        Ok(CallPolicy { policy, throttle, failures: Failures::retryable() })
    }

    /// The policy of a configuration ([`redial::config`]).
    ///
    /// ```
    /// use redial::config::PolicyConfig;
    /// use redial_sim::CallPolicy;
    ///
    /// let config: PolicyConfig = serde_json::from_str(r#"{ "attempts": 4 }"#)?;
    /// let policy = CallPolicy::from_config(&config)?;
    /// assert_eq!(policy.policy().rules().attempts, Some(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn from_config(config: &PolicyConfig) -> Result<CallPolicy, LoadError> {
        let loaded = config.load()?;
        let throttle = match config.throttle {
            None => ThrottleSpec::STANDARD,
            Some(ThrottleConfig::None) => ThrottleSpec::None,
            Some(ThrottleConfig::Tokens { max, ratio }) => ThrottleSpec::Tokens { max, ratio },
            Some(ThrottleConfig::Budget { reserve, ratio, per_second }) => {
                ThrottleSpec::Budget { reserve, ratio, per_second }
            }
            Some(ThrottleConfig::Cost(cost)) => {
                ThrottleSpec::Cost(cost_bucket(cost).map_err(LoadError::PolicyError)?)
            }
        };
        let policy = loaded.as_ref().clone();
        Ok(CallPolicy { policy, throttle, failures: Failures::retryable() })
    }

    /// The policy of a method in a gRPC service config. A failed request is UNAVAILABLE, a rejected one
    /// `RESOURCE_EXHAUSTED`: they are retried if the config lists them.
    ///
    /// ```
    /// use redial_service_config::ServiceConfig;
    /// use redial_sim::CallPolicy;
    ///
    /// let config = ServiceConfig::parse(r#"{ "methodConfig": [{ "name": [{}],
    ///     "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s",
    ///         "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#)?;
    /// let policy = CallPolicy::from_service_config(&config, "/a.B/Get");
    /// assert_eq!(policy.policy().rules().attempts, Some(4));
    /// # Ok::<(), redial_service_config::Problems>(())
    /// ```
    #[must_use]
    pub fn from_service_config(config: &ServiceConfig, method: &str) -> CallPolicy {
        let plan = ClientOptions::default().plan(config.method(method));
        let throttle = match config.retry_throttling() {
            None => ThrottleSpec::None,
            Some(throttling) => ThrottleSpec::Tokens {
                max: f64::from(throttling.max_tokens()),
                ratio: f64::from(throttling.token_ratio()) / 1000.0,
            },
        };
        let failures = Failures {
            failed: plan.classify(Code::Unavailable, Pushback::None),
            rejected: plan.classify(Code::ResourceExhausted, Pushback::None),
            refused: plan.classify(Code::Unavailable, Pushback::None),
        };
        CallPolicy { policy: plan.policy().clone(), throttle, failures }
    }

    /// The rules.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The throttle.
    #[must_use]
    pub const fn throttle(&self) -> &ThrottleSpec {
        &self.throttle
    }

    pub(crate) const fn failures(&self) -> &Failures {
        &self.failures
    }
}

/// The bucket of a written cost throttle, as `PolicyConfig::load` builds it (decision S9).
fn cost_bucket(cost: CostConfig) -> Result<CostBucketConfig, PolicyError> {
    let options = redial::throttle::BucketOptions {
        capacity: cost.capacity,
        costs: cost.costs,
        success: cost.success,
        refill_per_second: cost.refill_per_second,
        empty: Some(WhenEmpty::Fail),
    };
    options.apply_to(CostBucketConfig::STANDARD)
}

/// The policy asks a strategy, whose code a simulation does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsesStrategy;

impl std::fmt::Display for UsesStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the policy asks a strategy, which is code; use a policy with a backoff")
    }
}

impl std::error::Error for UsesStrategy {}
