//! Reasons to skip a scenario of `milvus` at the live level.

use super::super::designs::Plan;
use super::super::model::Scenario;
use super::super::play::Actual;

/// Whether an answer comes at the moment of the attempt's timeout.
pub(super) fn answer_at_timeout(scenario: &Scenario, _actual: &Actual) -> bool {
    let Plan::Milvus(plan) = &scenario.plan else { return false };
    let timeout = plan.options().timeout.as_nanos();
    let mut answers = scenario.calls.iter().flat_map(|call| &call.attempts);
    timeout == 0 || answers.any(|attempt| u128::from(attempt.after) == timeout)
}
