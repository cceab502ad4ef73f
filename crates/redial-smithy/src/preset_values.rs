//! The values of the standard strategy: Smithy's and those of the AWS SDKs (decisions S1, S5, S6).

use std::time::Duration;

use redial_core::throttle::CostBucketConfig;
use redial_core::{
    AttemptTimeoutAction, Backoff, ChargeAt, DeadlineAction, HintRule, Jitter, Numbering, Rules,
    ms, s,
};

/// The named values of the [standard strategy](crate::StandardRetryStrategy), for all options that are
/// not overridden.
///
/// | | `standard` (S1) | `aws-2026` (S6) | `aws-2026-dynamodb` |
/// | --- | --- | --- | --- |
/// | attempts | 3 | 3 | 4 |
/// | backoff, cap, jitter | 10 ms × 1.5, 20 s, full | 50 ms × 2, 20 s, full | 25 ms × 2, 20 s, full |
/// | base delay after throttling | as usual | 1 s | 1 s |
/// | bucket | 500 | 500 | 500 |
/// | costs: server, client, throttling, timeout | 5, 5, 10, 10 | 14, 14, 5, 14 | 14, 14, 5, 14 |
/// | tokens added by a success at the first attempt | 1 | 1 | 1 |
/// | refill per second | 10 | none | none |
/// | an empty bucket | waits | fails | fails |
/// | order | backoff, then bucket | bucket, then backoff | bucket, then backoff |
/// | retry-after hint | exact | within 5 s of the backoff | within 5 s of the backoff |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StandardPreset {
    /// Smithy's standard values.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "standard"))]
    Standard,
    /// The AWS SDKs' rules of 2026.
    #[cfg_attr(feature = "serde", serde(rename = "aws-2026"))]
    Aws2026,
    /// The AWS SDKs' rules of 2026 for `DynamoDB`.
    #[cfg_attr(feature = "serde", serde(rename = "aws-2026-dynamodb"))]
    Aws2026Dynamodb,
}

impl StandardPreset {
    /// All presets.
    pub const ALL: [StandardPreset; 3] =
        [StandardPreset::Standard, StandardPreset::Aws2026, StandardPreset::Aws2026Dynamodb];

    /// The name in configs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            StandardPreset::Standard => "standard",
            StandardPreset::Aws2026 => "aws-2026",
            StandardPreset::Aws2026Dynamodb => "aws-2026-dynamodb",
        }
    }

    pub(crate) const fn rules(self) -> Rules {
        let standard = Rules {
            attempts: Some(3),
            backoff: exponential(ms(10), 1.5, s(20)),
            jitter: Jitter::Full,
            deadline_action: DeadlineAction::WaitForDeadline,
            numbering: Numbering::Attempts,
            hint: HintRule::Exact(None),
            attempt_timeout_action: AttemptTimeoutAction::Retry,
            charge_at: ChargeAt::AfterBackoff,
            ..Rules::DEFAULT
        };
        let aws_2026 = Rules {
            backoff: exponential(ms(50), 2.0, s(20)),
            throttling_first: Some(s(1)),
            hint: HintRule::Within(RETRY_AFTER_MARGIN),
            charge_at: ChargeAt::Decision,
            ..standard
        };
        match self {
            StandardPreset::Standard => standard,
            StandardPreset::Aws2026 => aws_2026,
            StandardPreset::Aws2026Dynamodb => {
                Rules { attempts: Some(4), backoff: exponential(ms(25), 2.0, s(20)), ..aws_2026 }
            }
        }
    }

    pub(crate) const fn bucket(self) -> CostBucketConfig {
        match self {
            StandardPreset::Standard => CostBucketConfig::STANDARD,
            StandardPreset::Aws2026 | StandardPreset::Aws2026Dynamodb => CostBucketConfig::AWS_2026,
        }
    }
}

/// How far a retry-after hint may exceed the computed delay (decision S6).
pub(crate) const RETRY_AFTER_MARGIN: Duration = s(5);

const fn exponential(first: Duration, factor: f64, cap: Duration) -> Backoff {
    Backoff::Exponential { first, factor, cap: Some(cap) }
}
