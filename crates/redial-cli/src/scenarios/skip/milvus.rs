//! Reasons to skip a scenario of `milvus` at the live level.

use redial::time::Ns;

use super::super::designs::Plan;
use super::super::model::Scenario;
use super::super::play::{Actual, ActualCall};

const MILLISECOND: Ns = 1_000_000;

/// Whether an event is not at a whole millisecond.
pub(super) fn has_fractions(scenario: &Scenario, actual: &Actual) -> bool {
    let Plan::Milvus(_) = scenario.plan else { return false };
    let answers = scenario.calls.iter().flat_map(|call| call.attempts.iter().map(|it| it.after));
    let mut moments = actual.calls.iter().flat_map(ActualCall::moments).chain(answers);
    moments.any(|at| at % MILLISECOND != 0)
}

/// Whether an answer comes at the moment of the attempt's timeout.
pub(super) fn answer_at_timeout(scenario: &Scenario, _actual: &Actual) -> bool {
    let Plan::Milvus(plan) = &scenario.plan else { return false };
    let timeout = plan.options().timeout.as_nanos();
    let mut answers = scenario.calls.iter().flat_map(|call| &call.attempts);
    timeout == 0 || answers.any(|attempt| u128::from(attempt.after) == timeout)
}
