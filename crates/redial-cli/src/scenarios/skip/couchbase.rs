//! What the live level of Couchbase cannot show.

use redial::time::Ns;

use super::super::designs::Plan;
use super::super::live::couchbase::{Service, Step, steps};
use super::super::model::Scenario;
use super::super::play::{Actual, ActualCall};

const MILLISECOND: Ns = 1_000_000;

/// The steps of each call; empty for other designs.
fn all_steps(scenario: &Scenario) -> Vec<Vec<(Ns, Step)>> {
    match scenario.plan {
        Plan::Couchbase(_) => scenario.calls.iter().map(steps).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn mixes_services(scenario: &Scenario, _actual: &Actual) -> bool {
    matches!(scenario.plan, Plan::Couchbase(_))
        && scenario.calls.iter().any(|call| Service::of(call).is_none())
}

pub(super) fn has_reason_without_source(scenario: &Scenario, _actual: &Actual) -> bool {
    all_steps(scenario).iter().flatten().any(|(_, step)| *step == Step::NoSource)
}

pub(super) fn fails_unsent_later(scenario: &Scenario, _actual: &Actual) -> bool {
    all_steps(scenario).iter().any(|steps| {
        let later = |(index, (after, step)): (usize, &(Ns, Step))| {
            matches!(step, Step::Unsent(state) if *after > 0 || (index > 0 && state.is_initial()))
        };
        steps.iter().enumerate().any(later)
    })
}

pub(super) fn answer_at_deadline(scenario: &Scenario, actual: &Actual) -> bool {
    matches!(scenario.plan, Plan::Couchbase(_))
        && scenario.calls.iter().zip(&actual.calls).any(|(call, actual)| {
            let Some(deadline) = call.deadline else { return false };
            let attempts = actual.starts.iter().zip(&call.attempts);
            attempts
                .filter(|(_, attempt)| attempt.outcome != super::super::model::Outcome::Hang)
                .any(|(start, attempt)| start.saturating_add(attempt.after) == deadline)
        })
}

pub(super) fn has_fractions(scenario: &Scenario, actual: &Actual) -> bool {
    let times = scenario.calls.iter().flat_map(|call| {
        let attempts = call.attempts.iter().map(|attempt| attempt.after);
        attempts.chain(call.deadline).chain(call.cancel)
    });
    let happens = actual.calls.iter().flat_map(ActualCall::moments);
    matches!(scenario.plan, Plan::Couchbase(_))
        && times.chain(happens).any(|at| !at.is_multiple_of(MILLISECOND))
}
