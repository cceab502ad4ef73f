//! The presets of this workspace's crates, by name.

use std::time::Duration;

use redial::presets::Preset as RedialPreset;
use redial::throttle::CostBucketConfig;
use redial::{Policy, PolicyError};
use redial_milvus::Options;
use redial_sim::{CallPolicy, ThrottleSpec};
use redial_smithy::StandardRetryStrategy;

/// A policy by name: the presets of [`redial::presets::Preset`] and those of the other crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// [`redial_smithy::presets::smithy_standard`].
    SmithyStandard,
    /// [`redial_smithy::presets::aws_2026`].
    Aws2026,
    /// [`redial_smithy::presets::aws_2026_dynamodb`].
    Aws2026Dynamodb,
    /// [`redial_milvus::presets::milvus`].
    Milvus,
    /// [`redial_couchbase::presets::couchbase_best_effort`].
    CouchbaseBestEffort,
    /// [`redial::presets::limits`].
    Limits,
}

/// The preset with this name.
///
/// ```
/// use redial::s;
/// use redial_cli::presets;
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
            Preset::Limits => RedialPreset::Limits.name(),
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
            Preset::Limits => RedialPreset::Limits.about(),
        }
    }

    /// Its throttle.
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

    /// Builds the policy; each policy has its own bucket, if it uses one.
    ///
    /// # Errors
    /// [`PolicyError::Unlimited`]: Couchbase's best effort needs a deadline
    /// ([`Preset::policy_within`]).
    pub fn policy(self) -> Result<Policy, PolicyError> {
        self.make(None)
    }

    /// The policy, with a deadline for each call.
    ///
    /// # Errors
    /// The deadline contradicts the preset.
    pub fn policy_within(self, deadline: Duration) -> Result<Policy, PolicyError> {
        self.make(Some(deadline))
    }

    /// The policy as `redial plan` shows it, with the throttle of the preset.
    ///
    /// # Errors
    /// Couchbase's best effort needs a deadline, and a deadline can contradict the preset.
    pub fn call_policy(self, deadline: Option<Duration>) -> Result<CallPolicy, PolicyError> {
        let throttle = match self {
            Preset::SmithyStandard => ThrottleSpec::Cost(CostBucketConfig::STANDARD),
            Preset::Aws2026 | Preset::Aws2026Dynamodb => {
                ThrottleSpec::Cost(CostBucketConfig::AWS_2026)
            }
            Preset::Milvus | Preset::CouchbaseBestEffort | Preset::Limits => ThrottleSpec::None,
        };
        let policy = self.make(deadline)?;
        Ok(CallPolicy::new(policy.as_ref().clone(), throttle)
            .unwrap_or_else(|_| unreachable!("no preset asks a strategy")))
    }

    fn make(self, deadline: Option<Duration>) -> Result<Policy, PolicyError> {
        let standard = match self {
            Preset::SmithyStandard => redial_smithy::presets::smithy_standard(),
            Preset::Aws2026 => redial_smithy::presets::aws_2026(),
            Preset::Aws2026Dynamodb => redial_smithy::presets::aws_2026_dynamodb(),
            Preset::Milvus => return Options { deadline, ..Options::DEFAULT }.policy(),
            Preset::CouchbaseBestEffort => {
                let deadline = deadline.ok_or(PolicyError::Unlimited)?;
                return redial_couchbase::presets::couchbase_best_effort(deadline).try_build();
            }
            Preset::Limits => {
                return match deadline {
                    Some(deadline) => RedialPreset::Limits.policy_within(deadline),
                    None => RedialPreset::Limits.policy(),
                };
            }
        };
        StandardRetryStrategy { time_max: deadline, ..standard }.policy()
    }
}
