//! Couchbase's best-effort strategy as a ready-made policy.
//!
//! | name | in code | attempts | backoff | ends by | throttle |
//! | --- | --- | --- | --- | --- | --- |
//! | `couchbase-best-effort` | [`couchbase_best_effort`] | unlimited | 1 ms × 2, at most 500 ms, no jitter | the given deadline | none |

use std::time::Duration;

use redial::{
    Builder, Jitter, Policy, Throttle,
    rules::{AttemptTimeoutAction, DeadlineAction, HintRule, Rules},
};
use redial_core::{CONTROLLED, Numbering};

use crate::strategy;

/// Couchbase's best effort (decision C2): delays of 1 ms, doubled up to 500 ms, until the deadline;
/// reasons that are always retried get the controlled backoff. Without a throttle; add one with the
/// builder.
pub const fn couchbase_best_effort(deadline: Duration) -> Builder<Policy> {
    Policy::from_rules(Rules { deadline: Some(deadline), ..RULES }).throttle(Throttle::none())
}

/// The rules of best effort. A deadline must be added.
pub(crate) const RULES: Rules = Rules {
    attempts: None,
    backoff: strategy::BEST_EFFORT,
    jitter: Jitter::None,
    deadline_action: DeadlineAction::WaitForDeadline,
    numbering: Numbering::Attempts,
    always: CONTROLLED,
    attempt_timeout_action: AttemptTimeoutAction::Retry,
    hint: HintRule::Exact(None),
    ..Rules::DEFAULT
};
