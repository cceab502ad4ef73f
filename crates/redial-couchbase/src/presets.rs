//! Best effort as a policy, for calls that name no strategy.
//!
//! | name | in code | attempts | backoff | ends by | throttle |
//! | --- | --- | --- | --- | --- | --- |
//! | `couchbase-best-effort` | [`couchbase_best_effort`] | unlimited | 1 ms × 2, at most 500 ms, no jitter | the deadline that you name | none |

use std::time::Duration;

use redial::{
    Builder, Jitter, Policy, Throttle,
    rules::{DeadlineAction, Rules},
};
use redial_core::{CONTROLLED, Numbering};

use crate::strategy;

/// Couchbase's best effort (decision C2): 1 ms × 2 up to 500 ms until the deadline, which it waits
/// for; reasons that are always retried get the controlled backoff. It has no throttle; the builder
/// takes one.
pub const fn couchbase_best_effort(deadline: Duration) -> Builder<Policy> {
    Policy::from_rules(Rules { deadline: Some(deadline), ..RULES }).throttle(Throttle::none())
}

/// The rules of best effort, which need a deadline.
pub(crate) const RULES: Rules = Rules {
    attempts: None,
    backoff: strategy::BEST_EFFORT,
    jitter: Jitter::None,
    deadline_action: DeadlineAction::WaitForDeadline,
    numbering: Numbering::Attempts,
    always: CONTROLLED,
    ..Rules::DEFAULT
};
