//! The policies of the designs, by name and as values.
//!
//! Each keeps its design's own throttle, or none, and never the default budget (section B of the
//! rulings); each can be given one.
//!
//! | name | in code | attempts | backoff | ends by | throttle |
//! | --- | --- | --- | --- | --- | --- |
//! | `smithy-standard` | [`smithy_standard`] | 3 | 10 ms × 1.5, at most 20 s, full jitter | attempts | its bucket: 500 tokens, 10 per second come back, waits when empty |
//! | `aws-2026` | [`aws_2026`] | 3 | 50 ms × 2, at most 20 s, full jitter; 1 s × 2 after throttling | attempts | its bucket: 500 tokens, no refill, fails when empty |
//! | `aws-2026-dynamodb` | [`aws_2026_dynamodb`] | 4 | 25 ms × 2, at most 20 s, full jitter; 1 s × 2 after throttling | attempts | as `aws-2026` |
//! | `milvus` | [`milvus`] | 4 | 20, 40, 80 ms, no jitter | attempts; each has 15 s | none |
//! | `couchbase-best-effort` | [`couchbase_best_effort`] | unlimited | 1 ms × 2, at most 500 ms, no jitter | the deadline that you name | none |
//! | `limits` | [`limits`] | 6 | 100 ms × 2, up to half more | soft limit 1 s, hard limit 2 s | none |
//!
//! # Adding a budget
//! To a preset without a throttle, in a `static`:
//! ```
//! use redial::{Policy, Throttle, presets};
//!
//! static FETCH: Policy = presets::limits().throttle(Throttle::here()).checked();
//! ```
//! To one that has a bucket, beside it:
//! ```
//! use std::sync::Arc;
//! use redial::presets;
//! use redial::throttles::{Budget, Funded};
//!
//! let preset = presets::aws_2026();
//! let both = Funded::new(Arc::new(preset.costs()?), Arc::new(Budget::standard()));
//! let policy = preset.policy()?.sharing(Arc::new(both));
//! # Ok::<(), redial::Problem>(())
//! ```

use std::time::Duration;

use redial_core::{Backoff, CONTROLLED, Jitter, Late, Limits, Numbering, Problem, Rules, ms, s};

use crate::builder::Builder;
use crate::milvus::Options;
use crate::policy::Policy;
use crate::smithy::Standard;
use crate::throttle::Throttle;

/// Smithy's standard strategy (ruling S1). It keeps its own bucket, which waits when empty; see
/// [`smithy`](crate::smithy).
#[must_use]
pub const fn smithy_standard() -> Standard {
    Standard::standard()
}

/// The AWS SDKs' rules of 2026 (ruling S6). It keeps its own bucket, which refuses when empty.
#[must_use]
pub const fn aws_2026() -> Standard {
    Standard::aws_2026()
}

/// The AWS SDKs' rules of 2026, as they are for `DynamoDB` (ruling S6). It keeps its own bucket,
/// which refuses when empty.
#[must_use]
pub const fn aws_2026_dynamodb() -> Standard {
    Standard::aws_2026_dynamodb()
}

/// The Milvus client's interceptor (section M). It has no throttle; the builder takes one. Which
/// statuses are repeated is [`milvus::Interceptor`](crate::milvus::Interceptor)'s.
pub const fn milvus() -> Builder<Policy> {
    unthrottled(Options::DEFAULT.rules())
}

/// Couchbase's best effort (ruling C2): 1 ms × 2 up to 500 ms until the deadline, which it waits
/// for; reasons that are always retried get the controlled backoff. It has no throttle; the builder
/// takes one.
pub const fn couchbase_best_effort(deadline: Duration) -> Builder<Policy> {
    unthrottled(Rules { deadline: Some(deadline), ..COUCHBASE_BEST_EFFORT })
}

/// The decision record's policy (section L): five retries, 100 ms × 2 with up to half more, a soft
/// limit of 1 s and a hard one of 2 s. It has no throttle; the builder takes one.
pub const fn limits() -> Builder<Policy> {
    unthrottled(LIMITS)
}

const COUCHBASE_BEST_EFFORT: Rules = Rules {
    attempts: None,
    backoff: Backoff::Exponential { first: ms(1), factor: 2.0, cap: Some(ms(500)) },
    jitter: Jitter::None,
    late: Late::Wait,
    numbering: Numbering::Attempts,
    always: CONTROLLED,
    ..Rules::DEFAULT
};

const LIMITS: Rules = Rules {
    // Five retries (L5).
    attempts: Some(6),
    backoff: Backoff::Exponential { first: ms(100), factor: 2.0, cap: None },
    jitter: Jitter::Half,
    limits: Limits { soft: Some(s(1)), hard: Some(s(2)), ..Limits::NONE },
    ..Rules::DEFAULT
};

const fn unthrottled(rules: Rules) -> Builder<Policy> {
    Policy::from_rules(rules).throttle(Throttle::none())
}

/// A policy that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// [`smithy_standard`].
    SmithyStandard,
    /// [`aws_2026`].
    Aws2026,
    /// [`aws_2026_dynamodb`].
    Aws2026Dynamodb,
    /// [`milvus`].
    Milvus,
    /// [`couchbase_best_effort`].
    CouchbaseBestEffort,
    /// [`limits`].
    Limits,
}

/// The preset with this name.
///
/// ```
/// use redial::{presets, s};
///
/// let policy = presets::by_name("aws-2026").ok_or("unknown")?.policy()?;
/// assert_eq!(policy.rules().attempts, Some(3));
/// let preset = presets::by_name("couchbase-best-effort").ok_or("unknown")?;
/// assert_eq!(preset.policy_within(s(2))?.rules().deadline, Some(s(2)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn by_name(name: &str) -> Option<Preset> {
    Preset::ALL.into_iter().find(|preset| preset.name() == name)
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 6] = [
        Preset::SmithyStandard,
        Preset::Aws2026,
        Preset::Aws2026Dynamodb,
        Preset::Milvus,
        Preset::CouchbaseBestEffort,
        Preset::Limits,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Preset::SmithyStandard => "smithy-standard",
            Preset::Aws2026 => "aws-2026",
            Preset::Aws2026Dynamodb => "aws-2026-dynamodb",
            Preset::Milvus => "milvus",
            Preset::CouchbaseBestEffort => "couchbase-best-effort",
            Preset::Limits => "limits",
        }
    }

    /// What it does, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Preset::SmithyStandard => {
                "smithy's standard strategy: 3 attempts, 10 ms × 1.5 up to 20 s, full jitter"
            }
            Preset::Aws2026 => {
                "the AWS SDKs' rules of 2026: 3 attempts, 50 ms × 2 up to 20 s, 1 s × 2 after throttling, full jitter"
            }
            Preset::Aws2026Dynamodb => {
                "the AWS SDKs' rules of 2026 for DynamoDB: 4 attempts, 25 ms × 2 up to 20 s, 1 s × 2 after throttling, full jitter"
            }
            Preset::Milvus => {
                "the Milvus client's interceptor: 3 retries after 20, 40 and 80 ms, 15 s for each attempt"
            }
            Preset::CouchbaseBestEffort => {
                "Couchbase's best effort: 1 ms × 2 up to 500 ms until the deadline"
            }
            Preset::Limits => {
                "the decision record's limits: 5 retries, 100 ms × 2 and up to half more, soft limit 1 s, hard limit 2 s"
            }
        }
    }

    /// Which throttle it keeps.
    #[must_use]
    pub const fn throttle(self) -> &'static str {
        match self {
            Preset::SmithyStandard => {
                "its own bucket: 500 tokens, 10 per second come back, waits when empty"
            }
            Preset::Aws2026 | Preset::Aws2026Dynamodb => {
                "its own bucket: 500 tokens, no refill, fails when empty"
            }
            Preset::Milvus | Preset::CouchbaseBestEffort | Preset::Limits => {
                "none; add a budget with `sharing`"
            }
        }
    }

    /// The policy; each one that is made here has a bucket of its own, if it has one.
    ///
    /// # Errors
    /// [`Problem::Unlimited`]: Couchbase's best effort needs a deadline
    /// ([`Preset::policy_within`]).
    pub fn policy(self) -> Result<Policy, Problem> {
        self.make(None)
    }

    /// The policy, with a deadline for each call.
    ///
    /// # Errors
    /// The deadline contradicts the preset.
    pub fn policy_within(self, deadline: Duration) -> Result<Policy, Problem> {
        self.make(Some(deadline))
    }

    fn make(self, deadline: Option<Duration>) -> Result<Policy, Problem> {
        let standard = match self {
            Preset::SmithyStandard => Standard::standard(),
            Preset::Aws2026 => Standard::aws_2026(),
            Preset::Aws2026Dynamodb => Standard::aws_2026_dynamodb(),
            Preset::Milvus => return Options { deadline, ..Options::DEFAULT }.policy(),
            Preset::CouchbaseBestEffort => {
                return unthrottled(Rules { deadline, ..COUCHBASE_BEST_EFFORT }).build();
            }
            Preset::Limits => return unthrottled(Rules { deadline, ..LIMITS }).build(),
        };
        Standard { time_max: deadline, ..standard }.policy()
    }
}
