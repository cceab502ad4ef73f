//! Properties of scenarios that a client of another language cannot reproduce.

use redial::rules::DeadlineAction;
use redial_service_config::Retries;

use super::SkipReason;
use crate::scenarios::designs::Plan;
use crate::scenarios::model::{Proof, Scenario};
use crate::scenarios::play::Actual;

pub(in crate::scenarios) static DESIGN: SkipReason = SkipReason {
    name: "with another language: not gRPC",
    reason: "only gRPC clients are tested",
    applies: |scenario, _| !matches!(scenario.plan, Plan::Grpc(_)),
};
static OPTION: SkipReason = SkipReason {
    name: "with another language: an option that only our client has",
    reason: "late: early, pushback_max and retries: \"transparent\" are ours",
    applies: has_option,
};
static NO_CONNECTION: SkipReason = SkipReason {
    name: "with another language: an attempt that finds no connection, or loses it before sending",
    reason: "a listening server cannot do that to a single attempt",
    applies: has_failing_connection,
};
pub(in crate::scenarios) static NONDETERMINISTIC: SkipReason = SkipReason {
    name: "with another language: the behaviour depends on random draws, or on 150 ms of real time",
    reason: "the result would be a race",
    // Set by the test case after a run through the core.
    applies: |_, _| false,
};

pub(in crate::scenarios) static LONG: SkipReason = SkipReason {
    name: "with another language: longer than 60 s",
    reason: "it runs in real time, and slower than written",
    // Set by the test case after a run through the core.
    applies: |_, _| false,
};

/// All of them.
pub(in crate::scenarios) static ALL: [&SkipReason; 5] =
    [&DESIGN, &OPTION, &NO_CONNECTION, &NONDETERMINISTIC, &LONG];

/// Why clients of other languages skip this scenario, if they do; `actual` is the result of the
/// core level.
pub(in crate::scenarios) fn skips(
    scenario: &Scenario,
    actual: &Actual,
) -> Option<&'static SkipReason> {
    let found = ALL.into_iter().find(|listed| (listed.applies)(scenario, actual));
    found.or_else(|| super::skips(scenario, actual))
}

fn has_option(scenario: &Scenario, _actual: &Actual) -> bool {
    let Plan::Grpc(plan) = &scenario.plan else { return false };
    let client = plan.client();
    client.deadline_action == DeadlineAction::FailFast
        || client.pushback_max.is_some()
        || client.retries == Retries::Transparent
}

fn has_failing_connection(scenario: &Scenario, _actual: &Actual) -> bool {
    let mut attempts = scenario.calls.iter().flat_map(|call| &call.attempts);
    attempts.any(|attempt| {
        let seen = attempt.grpc.as_ref().and_then(|grpc| grpc.seen);
        matches!(seen, Some(Proof::Unsent | Proof::Unconnected))
    })
}
