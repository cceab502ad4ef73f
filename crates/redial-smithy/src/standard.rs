//! The options of the standard strategy: a preset and overrides of its values (decisions S1, S2, S7,
//! S9).

use std::sync::Arc;
use std::time::Duration;

use redial::throttle::{BucketOptions, CostOptions};
use redial::{Policy, Throttle};
use redial_core::throttle::{CostBucket, WhenEmpty};
use redial_core::{Backoff, ChargeAt, FailureKind, HintRule, Jitter, PolicyError, Rules, Step};

use crate::options::{MaxAttempts, RetryAfterRule, TokenOrder};
use crate::preset_values::{RETRY_AFTER_MARGIN, StandardPreset};

/// The standard strategy: a [`StandardPreset`] and overrides. Each option overrides only its own value, also
/// inside the bucket and its costs.
///
/// ```
/// use redial_smithy::StandardRetryStrategy;
/// use redial::{FailureKind, ms, s};
///
/// let policy = StandardRetryStrategy::standard()
///     .attempts(5)
///     .time_max(s(30))
///     .backoff_first(ms(20))
///     .cost(FailureKind::Throttling, 20.0)
///     .policy()?;
/// assert_eq!(policy.rules().attempts, Some(5));
/// # Ok::<(), redial::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct StandardRetryStrategy {
    /// The source of all values that are not overridden.
    pub preset: StandardPreset,
    /// The maximum number of attempts, including the first.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attempts: Option<MaxAttempts>,
    /// The deadline of the call, over attempts, backoff and waiting for tokens.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub time_max: Option<Duration>,
    /// The delay before the first retry, before jitter.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub backoff_first: Option<Duration>,
    /// The factor between consecutive delays.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub backoff_factor: Option<f64>,
    /// The maximum delay.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub backoff_cap: Option<Duration>,
    /// The jitter of delays.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::jitter", skip_serializing_if = "Option::is_none")
    )]
    pub jitter: Option<Jitter>,
    /// The base delay after a throttling error.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub throttling_first: Option<Duration>,
    /// Whether a retry waits for its backoff before or after it withdraws tokens.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub order: Option<TokenOrder>,
    /// How a server's retry-after hint affects the delay.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub hint: Option<RetryAfterRule>,
    /// The token bucket.
    pub bucket: BucketOptions,
}

impl StandardRetryStrategy {
    /// Smithy's standard values (decision S1).
    #[must_use]
    pub const fn standard() -> Self {
        StandardRetryStrategy::of(StandardPreset::Standard)
    }

    /// The AWS SDKs' rules of 2026 (decision S6).
    #[must_use]
    pub const fn aws_2026() -> Self {
        StandardRetryStrategy::of(StandardPreset::Aws2026)
    }

    /// The AWS SDKs' rules of 2026 for `DynamoDB` (decision S6).
    #[must_use]
    pub const fn aws_2026_dynamodb() -> Self {
        StandardRetryStrategy::of(StandardPreset::Aws2026Dynamodb)
    }

    /// The values of a preset, without overrides.
    #[must_use]
    pub const fn of(preset: StandardPreset) -> Self {
        StandardRetryStrategy {
            preset,
            attempts: None,
            time_max: None,
            backoff_first: None,
            backoff_factor: None,
            backoff_cap: None,
            jitter: None,
            throttling_first: None,
            order: None,
            hint: None,
            bucket: BucketOptions {
                capacity: None,
                costs: CostOptions { server: None, client: None, throttling: None, timeout: None },
                success: None,
                refill_per_second: None,
                empty: None,
            },
        }
    }

    /// The maximum number of attempts, including the first.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(MaxAttempts::Limited(attempts));
        self
    }

    /// Unlimited attempts; requires `time_max`.
    #[must_use]
    pub const fn unlimited(mut self) -> Self {
        self.attempts = Some(MaxAttempts::Unlimited);
        self
    }

    /// The deadline of the call, over attempts, backoff and waiting for tokens.
    #[must_use]
    pub const fn time_max(mut self, time_max: Duration) -> Self {
        self.time_max = Some(time_max);
        self
    }

    /// The delay before the first retry, before jitter.
    #[must_use]
    pub const fn backoff_first(mut self, first: Duration) -> Self {
        self.backoff_first = Some(first);
        self
    }

    /// The factor between consecutive delays.
    #[must_use]
    pub const fn backoff_factor(mut self, factor: f64) -> Self {
        self.backoff_factor = Some(factor);
        self
    }

    /// The maximum delay.
    #[must_use]
    pub const fn backoff_cap(mut self, cap: Duration) -> Self {
        self.backoff_cap = Some(cap);
        self
    }

    /// The jitter of delays.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// The base delay after a throttling error.
    #[must_use]
    pub const fn throttling_first(mut self, first: Duration) -> Self {
        self.throttling_first = Some(first);
        self
    }

    /// Whether a retry waits for its backoff before or after it withdraws tokens.
    #[must_use]
    pub const fn order(mut self, order: TokenOrder) -> Self {
        self.order = Some(order);
        self
    }

    /// How a server's retry-after hint affects the delay.
    #[must_use]
    pub const fn hint(mut self, hint: RetryAfterRule) -> Self {
        self.hint = Some(hint);
        self
    }

    /// The capacity of the token bucket.
    #[must_use]
    pub const fn capacity(mut self, tokens: f64) -> Self {
        self.bucket.capacity = Some(tokens);
        self
    }

    /// The cost of a retry after this kind of failure, in tokens.
    #[must_use]
    pub const fn cost(mut self, kind: FailureKind, tokens: f64) -> Self {
        let costs = &mut self.bucket.costs;
        match kind {
            FailureKind::Server => costs.server = Some(tokens),
            FailureKind::Client => costs.client = Some(tokens),
            FailureKind::Throttling => costs.throttling = Some(tokens),
            FailureKind::Timeout => costs.timeout = Some(tokens),
            // Waiting for a value is free.
            FailureKind::NotReady => {}
        }
        self
    }

    /// The tokens that a success at the first attempt adds.
    #[must_use]
    pub const fn success(mut self, tokens: f64) -> Self {
        self.bucket.success = Some(tokens);
        self
    }

    /// The refill rate in tokens per second.
    #[must_use]
    pub const fn refill_per_second(mut self, tokens: f64) -> Self {
        self.bucket.refill_per_second = Some(tokens);
        self
    }

    /// Whether a retry waits or fails when the bucket is empty.
    #[must_use]
    pub const fn empty(mut self, empty: WhenEmpty) -> Self {
        self.bucket.empty = Some(empty);
        self
    }

    /// The rules, before validation.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let mut rules = self.preset.rules();
        if let Backoff::Exponential { first, factor, cap } = &mut rules.backoff {
            *first = self.backoff_first.unwrap_or(*first);
            *factor = self.backoff_factor.unwrap_or(*factor);
            *cap = self.backoff_cap.or(*cap);
        }
        match self.attempts {
            None => {}
            Some(MaxAttempts::Limited(attempts)) => rules.attempts = Some(attempts),
            Some(MaxAttempts::Unlimited) => rules.attempts = None,
        }
        rules.deadline = self.time_max;
        rules.jitter = self.jitter.unwrap_or(rules.jitter);
        rules.throttling_first = self.throttling_first.or(rules.throttling_first);
        match self.order {
            None => {}
            Some(TokenOrder::BackoffFirst) => rules.charge_at = ChargeAt::AfterBackoff,
            Some(TokenOrder::TokenFirst) => rules.charge_at = ChargeAt::Decision,
        }
        match self.hint {
            None => {}
            Some(RetryAfterRule::Exact) => rules.hint = HintRule::Exact(None),
            Some(RetryAfterRule::Within5s) => rules.hint = HintRule::Within(RETRY_AFTER_MARGIN),
        }
        rules
    }

    /// A full token bucket, to share between policies ([`Policy::sharing`]) or to use in a custom loop
    /// ([`RetryToken`](crate::RetryToken)). With a refill, all users of a bucket must run on the same clock
    /// ([`Sleeper`](redial::time::Sleeper)).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use redial_smithy::StandardRetryStrategy;
    ///
    /// let bucket = Arc::new(StandardRetryStrategy::aws_2026().costs()?);
    /// let tables = StandardRetryStrategy::aws_2026_dynamodb().policy()?.sharing(bucket.clone());
    /// let objects = StandardRetryStrategy::aws_2026().policy()?.sharing(bucket);
    /// assert_eq!(tables.tokens(0), objects.tokens(0));
    /// # Ok::<(), redial::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// The bucket's options contradict each other.
    pub fn costs(&self) -> Result<CostBucket, PolicyError> {
        CostBucket::new(self.bucket.apply_to(self.preset.bucket())?)
    }

    /// The policy, with a token bucket of its own that its clones share.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        let policy = Policy::from_rules(self.rules()).throttle(Throttle::none()).try_build()?;
        Ok(policy.sharing(Arc::new(self.costs()?)))
    }

    /// The policy, with a custom function for the delay before jitter (Smithy's `BackoffDelayer`).
    /// `backoff_cap` and `throttling_first` do not apply: the function sees the failure and can handle
    /// throttling itself.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn policy_with(
        &self,
        delay: impl Fn(Step<'_>) -> Duration + Send + Sync + 'static,
    ) -> Result<Policy, PolicyError> {
        let builder = Policy::from_rules(self.rules()).throttle(Throttle::none());
        Ok(builder.try_build_with(delay)?.sharing(Arc::new(self.costs()?)))
    }
}
