//! The policy of a run: that of a file, or the defaults, with the options on top.

use std::sync::Arc;
use std::time::Duration;

use redial::config::{BackoffConfig, PolicyConfig, ThrottleConfig};
use redial::throttle::{
    Bucket, BucketOptions, CostBucket, CostBucketConfig, RetryBudget, TokenBucket, WhenEmpty,
};
use redial::{Policy, PolicyError};

use super::arguments::{Arguments, Attempts, BackoffKind};
use super::budget::FileBudget;
use crate::policy_file;

/// The defaults of `redial run`: a command is slower, and run less often, than a call in a program.
const ATTEMPTS: u32 = 5;
const FIRST: Duration = Duration::from_secs(1);
const FACTOR: f64 = 2.0;
const CAP: Duration = Duration::from_secs(60);

/// The throttle of a policy.
pub(super) type Throttle = Option<Arc<dyn Bucket + Send + Sync>>;

/// The policy, and its throttle.
///
/// # Errors
/// What is wrong, and what to write instead.
pub(super) fn build(
    arguments: &Arguments,
    config: &PolicyConfig,
) -> Result<(Policy, Throttle), String> {
    if config.hedge.is_some() {
        return Err("hedge: a command is not run twice at the same time; remove it from the \
                    policy file"
            .to_owned());
    }
    let policy = config.policy().map_err(|error| error.to_string())?;
    let throttle = match &arguments.budget {
        None => throttle(config)?,
        Some(name) => {
            let parameters = RetryBudget::try_new(arguments.budget_reserve, arguments.budget_ratio)
                .and_then(|budget| budget.try_per_second(arguments.budget_per_second))
                .map_err(|error| error.text().replace("budget.", "--budget-"))?;
            let budget = FileBudget::open(name, parameters)
                .map_err(|error| format!("--budget {name}: {error}"))?;
            Some(Arc::new(budget) as Arc<dyn Bucket + Send + Sync>)
        }
    };
    Ok((policy, throttle))
}

/// The policy as data.
///
/// # Errors
/// What is wrong, and what to write instead.
pub(super) fn config(arguments: &Arguments) -> Result<PolicyConfig, String> {
    let mut config = match &arguments.policy {
        Some(path) => policy_file::open(path)?,
        None => {
            let mut config = PolicyConfig::default();
            config.attempts = Some(ATTEMPTS);
            config.backoff =
                BackoffConfig::Exponential { first: FIRST, factor: FACTOR, cap: Some(CAP) };
            // The attempts of one command are bounded by their number.
            config.throttle = Some(ThrottleConfig::None);
            config
        }
    };
    match arguments.attempts {
        None => {}
        Some(Attempts::Count(count)) => config.attempts = Some(count),
        Some(Attempts::Unlimited) => (config.attempts, config.forever) = (None, true),
    }
    config.backoff = backoff(arguments, &config.backoff)?;
    config.jitter = arguments.jitter.or(config.jitter);
    config.attempt_timeout = arguments.timeout.or(config.attempt_timeout);
    config.deadline = arguments.deadline.or(config.deadline);
    Ok(config)
}

/// The backoff of the policy with the options on top.
fn backoff(arguments: &Arguments, policy: &BackoffConfig) -> Result<BackoffConfig, String> {
    let Arguments { first, factor, step, cap, .. } = *arguments;
    let (old_first, old_cap) = match *policy {
        BackoffConfig::Constant(delay) => (Some(delay), None),
        BackoffConfig::Arithmetic { first, cap, .. }
        | BackoffConfig::Exponential { first, cap, .. }
        | BackoffConfig::Fibonacci { first, cap } => (Some(first), cap),
        BackoffConfig::Table(_) => (None, None),
    };
    let kind = arguments.backoff.clone().unwrap_or(match policy {
        BackoffConfig::Constant(_) => BackoffKind::Constant,
        BackoffConfig::Arithmetic { .. } => BackoffKind::Arithmetic,
        BackoffConfig::Exponential { .. } => BackoffKind::Exponential,
        BackoffConfig::Fibonacci { .. } => BackoffKind::Fibonacci,
        BackoffConfig::Table(table) => BackoffKind::Table(table.clone()),
    });
    let new_first = first.or(old_first).unwrap_or(FIRST);
    // A first delay beyond the default cap is meant.
    let new_cap = cap.or(old_cap.map(|cap| cap.max(first.unwrap_or_default())));
    let unused = |option: &str, given: bool, name: &str| match given {
        true => Err(format!("{option} has no effect: the backoff is {name}")),
        false => Ok(()),
    };
    let name = match kind {
        BackoffKind::Exponential => "exponential",
        BackoffKind::Constant => "constant",
        BackoffKind::Arithmetic => "arithmetic",
        BackoffKind::Fibonacci => "fibonacci",
        BackoffKind::Table(_) => "a list of delays",
    };
    unused("--factor", factor.is_some() && kind != BackoffKind::Exponential, name)?;
    unused("--step", step.is_some() && kind != BackoffKind::Arithmetic, name)?;
    let grows = !matches!(kind, BackoffKind::Constant | BackoffKind::Table(_));
    unused("--cap", cap.is_some() && !grows, name)?;
    let table = matches!(kind, BackoffKind::Table(_));
    unused("--first", first.is_some() && table, name)?;
    Ok(match kind {
        BackoffKind::Constant => BackoffConfig::Constant(new_first),
        BackoffKind::Exponential => {
            let old = match *policy {
                BackoffConfig::Exponential { factor, .. } => factor,
                _ => FACTOR,
            };
            let factor = factor.unwrap_or(old);
            BackoffConfig::Exponential { first: new_first, factor, cap: new_cap }
        }
        BackoffKind::Arithmetic => {
            let old = match *policy {
                BackoffConfig::Arithmetic { step, .. } => step,
                _ => new_first,
            };
            let step = step.unwrap_or(old);
            BackoffConfig::Arithmetic { first: new_first, step, cap: new_cap }
        }
        BackoffKind::Fibonacci => BackoffConfig::Fibonacci { first: new_first, cap: new_cap },
        BackoffKind::Table(table) => BackoffConfig::Table(table),
    })
}

/// The throttle of a policy file. The run waits for processes before it asks it, so it needs the
/// bucket itself.
fn throttle(config: &PolicyConfig) -> Result<Throttle, String> {
    let text = |error: PolicyError| error.text().to_owned();
    Ok(Some(match config.throttle {
        Some(ThrottleConfig::None) => return Ok(None),
        None => Arc::new(RetryBudget::standard()),
        Some(ThrottleConfig::Budget { reserve, ratio, per_second }) => {
            let budget = RetryBudget::try_new(reserve, ratio)
                .and_then(|budget| budget.try_per_second(per_second));
            Arc::new(budget.map_err(text)?)
        }
        Some(ThrottleConfig::Tokens { max, ratio }) => {
            Arc::new(TokenBucket::new(max, ratio).map_err(text)?)
        }
        Some(ThrottleConfig::Cost(cost)) => {
            let options = BucketOptions {
                capacity: cost.capacity,
                costs: cost.costs,
                success: cost.success,
                refill_per_second: cost.refill_per_second,
                empty: Some(WhenEmpty::Fail),
            };
            let bucket = options.apply_to(CostBucketConfig::STANDARD).and_then(CostBucket::new);
            Arc::new(bucket.map_err(text)?)
        }
    }))
}
