//! The standard strategy as plain data: a preset, and what is given in place of its values (decisions
//! S1, S2, S7, S9).

use std::sync::Arc;
use std::time::Duration;

use redial::throttle::{BucketOptions, CostOptions};
use redial::{Policy, Throttle};
use redial_core::throttle::{CostBucket, WhenEmpty};
use redial_core::{Backoff, ChargeAt, HintRule, Jitter, Kind, PolicyError, Rules, Step};

use crate::options::{MaxAttempts, RetryAfterRule, TokenOrder};
use crate::preset::{HINT_ROOM, Preset};

/// The standard strategy: a [`Preset`], and what is given in place of its values. A value that is
/// given replaces only itself, inside the bucket and its costs too.
///
/// ```
/// use redial_smithy::StandardRetryStrategy;
/// use redial::{Kind, ms, s};
///
/// let policy = StandardRetryStrategy::standard()
///     .attempts(5)
///     .time_max(s(30))
///     .backoff_first(ms(20))
///     .cost(Kind::Throttling, 20.0)
///     .policy()?;
/// assert_eq!(policy.rules().attempts, Some(5));
/// # Ok::<(), redial::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct StandardRetryStrategy {
    /// Where the values come from that are not given.
    pub preset: Preset,
    /// How many attempts, the first included.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attempts: Option<MaxAttempts>,
    /// After how long the call must end: attempts, backoff and waiting for the bucket together.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub time_max: Option<Duration>,
    /// The delay after the first attempt.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub backoff_first: Option<Duration>,
    /// What each further delay is multiplied by.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub backoff_factor: Option<f64>,
    /// No delay exceeds it.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub backoff_cap: Option<Duration>,
    /// The randomness in a delay.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::jitter", skip_serializing_if = "Option::is_none")
    )]
    pub jitter: Option<Jitter>,
    /// The first delay after throttling.
    #[cfg_attr(
        feature = "serde",
        serde(with = "redial::config::fields::span", skip_serializing_if = "Option::is_none")
    )]
    pub throttling_first: Option<Duration>,
    /// Whether a retry waits for its backoff first or asks the bucket first.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub order: Option<TokenOrder>,
    /// What a server's wish for a delay does.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub hint: Option<RetryAfterRule>,
    /// The bucket.
    pub bucket: BucketOptions,
}

impl StandardRetryStrategy {
    /// The design's numbers (decision S1).
    // The preset's own name, beside `aws_2026`.
    #[allow(clippy::self_named_constructors)]
    #[must_use]
    pub const fn standard() -> Self {
        StandardRetryStrategy::of(Preset::Standard)
    }

    /// The AWS SDKs' rules of 2026 (decision S6).
    #[must_use]
    pub const fn aws_2026() -> Self {
        StandardRetryStrategy::of(Preset::Aws2026)
    }

    /// The AWS SDKs' rules of 2026, as they are for `DynamoDB` (decision S6).
    #[must_use]
    pub const fn aws_2026_dynamodb() -> Self {
        StandardRetryStrategy::of(Preset::Aws2026Dynamodb)
    }

    /// All values of a preset.
    #[must_use]
    pub const fn of(preset: Preset) -> Self {
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

    /// How many attempts, the first included.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(MaxAttempts::Limited(attempts));
        self
    }

    /// As many attempts as fit into `time_max`, which must be given then.
    #[must_use]
    pub const fn unlimited(mut self) -> Self {
        self.attempts = Some(MaxAttempts::Unlimited);
        self
    }

    /// After how long the call must end: attempts, backoff and waiting for the bucket together.
    #[must_use]
    pub const fn time_max(mut self, time_max: Duration) -> Self {
        self.time_max = Some(time_max);
        self
    }

    /// The delay after the first attempt.
    #[must_use]
    pub const fn backoff_first(mut self, first: Duration) -> Self {
        self.backoff_first = Some(first);
        self
    }

    /// What each further delay is multiplied by.
    #[must_use]
    pub const fn backoff_factor(mut self, factor: f64) -> Self {
        self.backoff_factor = Some(factor);
        self
    }

    /// No delay exceeds it.
    #[must_use]
    pub const fn backoff_cap(mut self, cap: Duration) -> Self {
        self.backoff_cap = Some(cap);
        self
    }

    /// The randomness in a delay.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// The first delay after throttling.
    #[must_use]
    pub const fn throttling_first(mut self, first: Duration) -> Self {
        self.throttling_first = Some(first);
        self
    }

    /// Whether a retry waits for its backoff first or asks the bucket first.
    #[must_use]
    pub const fn order(mut self, order: TokenOrder) -> Self {
        self.order = Some(order);
        self
    }

    /// What a server's wish for a delay does.
    #[must_use]
    pub const fn hint(mut self, hint: RetryAfterRule) -> Self {
        self.hint = Some(hint);
        self
    }

    /// How many tokens the bucket holds.
    #[must_use]
    pub const fn capacity(mut self, tokens: f64) -> Self {
        self.bucket.capacity = Some(tokens);
        self
    }

    /// What a retry costs after this kind of failure.
    #[must_use]
    pub const fn cost(mut self, kind: Kind, tokens: f64) -> Self {
        let costs = &mut self.bucket.costs;
        match kind {
            Kind::Server => costs.server = Some(tokens),
            Kind::Client => costs.client = Some(tokens),
            Kind::Throttling => costs.throttling = Some(tokens),
            Kind::Timeout => costs.timeout = Some(tokens),
        }
        self
    }

    /// What a success at the first try adds to the bucket.
    #[must_use]
    pub const fn success(mut self, tokens: f64) -> Self {
        self.bucket.success = Some(tokens);
        self
    }

    /// How many tokens come back per second.
    #[must_use]
    pub const fn refill_per_second(mut self, tokens: f64) -> Self {
        self.bucket.refill_per_second = Some(tokens);
        self
    }

    /// What an empty bucket does.
    #[must_use]
    pub const fn empty(mut self, empty: WhenEmpty) -> Self {
        self.bucket.empty = Some(empty);
        self
    }

    /// Its rules, before they are checked.
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
            Some(RetryAfterRule::Within5s) => rules.hint = HintRule::Within(HINT_ROOM),
        }
        rules
    }

    /// A full bucket, to be shared by several policies ([`Policy::sharing`]) or used by hand
    /// ([`RetryToken`](crate::Token)). With a refill, all who share it run on the same clock
    /// ([`Sleeper`](redial::Sleeper)).
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
    /// The bucket's numbers contradict each other.
    pub fn costs(&self) -> Result<CostBucket, PolicyError> {
        CostBucket::new(self.bucket.over(self.preset.bucket())?)
    }

    /// The policy, with a bucket of its own that its clones share.
    ///
    /// # Errors
    /// The values contradict each other.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        let policy = Policy::from_rules(self.rules()).throttle(Throttle::none()).try_build()?;
        Ok(policy.sharing(Arc::new(self.costs()?)))
    }

    /// The policy, with a function of your own that says each delay before jitter (the design's
    /// `BackoffDelayer`). Neither the cap nor the first delay after throttling applies to it: it
    /// sees the failure.
    ///
    /// # Errors
    /// The values contradict each other.
    pub fn policy_with(
        &self,
        delay: impl Fn(Step<'_>) -> Duration + Send + Sync + 'static,
    ) -> Result<Policy, PolicyError> {
        let builder = Policy::from_rules(self.rules()).throttle(Throttle::none());
        Ok(builder.try_build_with(delay)?.sharing(Arc::new(self.costs()?)))
    }
}
