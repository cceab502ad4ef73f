//! Smithy's and the AWS SDKs' policies as ready-made values.
//!
//! Each preset keeps its own token bucket in place of the default retry budget (section B of the
//! decisions); a budget can be added.
//!
//! | name | in code | attempts | backoff | ends by | throttle |
//! | --- | --- | --- | --- | --- | --- |
//! | `smithy-standard` | [`smithy_standard`] | 3 | 10 ms × 1.5, at most 20 s, full jitter | attempts | token bucket: 500 tokens, refill of 10 per second, waits when empty |
//! | `aws-2026` | [`aws_2026`] | 3 | 50 ms × 2, at most 20 s, full jitter; 1 s × 2 after throttling | attempts | token bucket: 500 tokens, no refill, fails when empty |
//! | `aws-2026-dynamodb` | [`aws_2026_dynamodb`] | 4 | 25 ms × 2, at most 20 s, full jitter; 1 s × 2 after throttling | attempts | as `aws-2026` |
//!
//! # Adding a retry budget
//! In addition to the token bucket:
//! ```
//! use std::sync::Arc;
//! use redial::throttle::{RetryBudget, WithBudget};
//! use redial_smithy::presets;
//!
//! let preset = presets::aws_2026();
//! let both = WithBudget::new(Arc::new(preset.costs()?), Arc::new(RetryBudget::standard()));
//! let policy = preset.policy()?.sharing(Arc::new(both));
//! # Ok::<(), redial::PolicyError>(())
//! ```

use crate::standard::StandardRetryStrategy;

/// Smithy's standard strategy (decision S1). Its token bucket waits when empty.
#[must_use]
pub const fn smithy_standard() -> StandardRetryStrategy {
    StandardRetryStrategy::standard()
}

/// The AWS SDKs' rules of 2026 (decision S6). Its token bucket fails when empty.
#[must_use]
pub const fn aws_2026() -> StandardRetryStrategy {
    StandardRetryStrategy::aws_2026()
}

/// The AWS SDKs' rules of 2026 for `DynamoDB` (decision S6). Its token bucket fails when empty.
#[must_use]
pub const fn aws_2026_dynamodb() -> StandardRetryStrategy {
    StandardRetryStrategy::aws_2026_dynamodb()
}
