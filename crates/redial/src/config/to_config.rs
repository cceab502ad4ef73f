//! Policies back to their written form.

use std::fmt;

use redial_core::throttle::RetryBudget;
use redial_core::{AttemptTimeoutAction, Backoff, HintRule, Limits, Rules};
use serde::ser::{Error, Serialize, Serializer};

use super::{
    BackoffConfig, HedgeConfig, HintMaxConfig, PolicyConfig, ThrottleConfig,
    retries_timeouts_by_default,
};
use crate::any_policy::AnyPolicy;
use crate::policy::{Hedged, Policy};
use crate::throttle::Handle;

/// A policy has a part that the written form cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotWritableError {
    /// The backoff is a function.
    BackoffFunction,
    /// A strategy decides.
    Strategy,
    /// The throttle is neither a retry budget nor none.
    Throttle,
    /// A rule of another design, such as gRPC's numbering of delays.
    Rules,
}

impl fmt::Display for NotWritableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotWritableError::BackoffFunction => "backoff: a function cannot be written",
            NotWritableError::Strategy => "a strategy cannot be written",
            NotWritableError::Throttle => {
                "throttle: only a retry budget or none can be written back"
            }
            NotWritableError::Rules => "a rule of another design cannot be written",
        })
    }
}

impl std::error::Error for NotWritableError {}

impl PolicyConfig {
    /// The configuration of a policy. A policy that is loaded from it has the same rules, and a full
    /// budget with the same parameters.
    ///
    /// ```
    /// use redial::config::PolicyConfig;
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::fibonacci(ms(100)).attempts(5).name("fetch").build();
    ///
    /// let config = PolicyConfig::of(&FETCH)?;
    /// assert_eq!((config.attempts, config.name.as_deref()), (Some(5), Some("fetch")));
    /// assert_eq!(config.policy()?.rules(), FETCH.rules());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The policy has a function, a strategy, a throttle or a rule that the written form lacks.
    pub fn of(policy: &Policy) -> Result<PolicyConfig, NotWritableError> {
        let rules = policy.rules();
        if policy.strategy.is_some() || rules.uses_strategy {
            return Err(NotWritableError::Strategy);
        }
        let config = PolicyConfig {
            name: policy.name().custom().map(str::to_owned),
            attempts: rules.attempts,
            forever: rules.never_gives_up(),
            backoff: backoff(policy)?,
            jitter: Some(rules.jitter),
            limits: (rules.limits != Limits::NONE).then_some(rules.limits),
            deadline: rules.deadline,
            attempt_timeout: rules.attempt_timeout,
            retry_timeouts: retry_timeouts(rules),
            deadline_action: rules.deadline_action,
            hint_max: match rules.hint {
                HintRule::UpTo(most) if most == Rules::HINT_MAX => None,
                HintRule::UpTo(most) => Some(HintMaxConfig::Stop(most)),
                HintRule::Exact(Some(most)) => Some(HintMaxConfig::Clamp(most)),
                HintRule::Exact(None) => Some(HintMaxConfig::Unlimited),
                HintRule::Within(_) | HintRule::AtLeast(_) => return Err(NotWritableError::Rules),
            },
            hint_jitter: rules.hint_jitter,
            reset_after: rules.reset_after,
            throttle: throttle(policy)?,
            hedge: rules.hedge.map(|delay| HedgeConfig { delay }),
        };
        match config.build() {
            // What the written form has no key for must be as a loaded policy has it.
            Ok(loaded) if comparable(loaded.rules()) == comparable(rules) => Ok(config),
            _ => Err(NotWritableError::Rules),
        }
    }
}

/// The rules without the parts that the same policy can express in several ways.
fn comparable(rules: &Rules) -> Rules {
    let attempt_timeout_action = match rules.attempt_timeout {
        None => AttemptTimeoutAction::Stop,
        Some(_) => rules.attempt_timeout_action,
    };
    let forever = rules.never_gives_up();
    Rules { backoff: Rules::DEFAULT.backoff, forever, attempt_timeout_action, ..*rules }
}

/// Whether timed-out attempts are retried, unless it is the default. It counts without a timeout too: a call may
/// set one.
fn retry_timeouts(rules: &Rules) -> Option<bool> {
    let retries = rules.attempt_timeout_action == AttemptTimeoutAction::Retry;
    let default = retries_timeouts_by_default(rules.attempt_timeout, rules.hedge.is_some());
    (retries != default).then_some(retries)
}

fn backoff(policy: &Policy) -> Result<BackoffConfig, NotWritableError> {
    Ok(match policy.rules().backoff {
        Backoff::Constant(delay) => BackoffConfig::Constant(delay),
        Backoff::Arithmetic { first, step, cap } => BackoffConfig::Arithmetic { first, step, cap },
        Backoff::Exponential { first, factor, cap } => {
            BackoffConfig::Exponential { first, factor, cap }
        }
        Backoff::Fibonacci { first, cap } => BackoffConfig::Fibonacci { first, cap },
        Backoff::Table(_) | Backoff::Own => {
            let table = policy.core().table().ok_or(NotWritableError::BackoffFunction)?;
            BackoffConfig::Table(table.to_vec())
        }
    })
}

/// The throttle, unless it is the one that a loaded policy has by default.
fn throttle(policy: &Policy) -> Result<Option<ThrottleConfig>, NotWritableError> {
    const STANDARD: (f64, f64, f64) =
        (RetryBudget::RESERVE, RetryBudget::RATIO, RetryBudget::PER_SECOND);
    let never_gives_up = policy.rules().never_gives_up();
    let (reserve, ratio, per_second) = match &policy.handle {
        // A call that never gives up has none by default.
        Handle::None if never_gives_up && policy.has_default_throttle => return Ok(None),
        Handle::None => return Ok(Some(ThrottleConfig::None)),
        Handle::CallSite(_) => STANDARD,
        Handle::Budget(budget) => budget.parameters(),
        Handle::Own(budget) => budget.parameters(),
        Handle::Static(_) | Handle::Shared(_) => return Err(NotWritableError::Throttle),
    };
    let is_default = (reserve, ratio, per_second) == STANDARD && !never_gives_up;
    Ok((!is_default).then_some(ThrottleConfig::Budget { reserve, ratio, per_second }))
}

/// Writes the policy as [`PolicyConfig::of`] describes it.
///
/// ```
/// use redial::{Policy, ms};
///
/// static POLL: Policy = Policy::constant(ms(250)).attempts(4).build();
/// assert_eq!(
///     serde_json::to_string(&POLL)?,
///     r#"{"attempts":4,"backoff":{"constant":"250ms"},"jitter":"none","late":"early"}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PolicyConfig::of(self).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Writes the policy as [`PolicyConfig::of`] describes it, with its hedging delay.
impl Serialize for Hedged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Writes the policy of either kind.
impl Serialize for AnyPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AnyPolicy::Policy(policy) => policy.serialize(serializer),
            AnyPolicy::Hedged(policy) => policy.serialize(serializer),
        }
    }
}
