//! Plays scenarios through what users run: the async driver, or the real client and server of their
//! design.
//!
//! Rule: nothing here knows a policy. What happened is what a user, a server or a diary tells.

mod clock;
mod driver;
mod grpc;

use std::io;

use redial::time::Ns;

use super::compare::Difference;
use super::designs::Plan;
use super::model::Scenario;
use super::play::Actual;

pub(super) use grpc::{
    ATTEMPTS_MAX, LatencyEstimator, PREFIX_BYTES, Sizes, TCP_TOLERANCE, answer, answer_text, path,
};

/// Times are compared to within this on the paused clock: 1 ms of the scenario.
pub(super) const TOLERANCE: Ns = 1_000_000;
/// How much slower the paused clock runs than the scenario, where a millisecond is too coarse.
pub(super) const SLOWER: Ns = 1_000;
/// After how long in the scenario a call that has not ended never will, at that pace: ten days.
pub(super) const HORIZON: Ns = 10 * 86_400 * 1_000_000_000;

/// What happened when a scenario was played, and what about it cannot be right whatever the scenario
/// expects.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) actual: Actual,
    pub(super) differences: Vec<Difference>,
}

/// Plays a scenario, of which `core` is what happens at the first level.
pub(super) fn play(scenario: &Scenario, core: Actual) -> Live {
    match &scenario.plan {
        Plan::Grpc(plan) if !scenario.refused => {
            grpc::play(scenario, plan.text(), plan.client(), &core)
        }
        _ => {
            let mut actual = driver::play(scenario);
            // What the machine notes of it explains a difference better than nothing.
            for (live, core) in actual.calls.iter_mut().zip(core.calls) {
                live.call_log = core.call_log;
            }
            Live { actual, differences: Vec::new() }
        }
    }
}

/// Plays a scenario of gRPC in real time, over loopback TCP.
///
/// # Errors
/// It is of another design, a socket cannot be had, or a socket cannot show it.
pub(super) fn play_over_tcp(scenario: &Scenario, core: &Actual) -> io::Result<Live> {
    match &scenario.plan {
        Plan::Grpc(plan) if !scenario.refused => {
            grpc::play_over_tcp(scenario, plan.text(), plan.client(), core)
        }
        _ => Err(io::Error::other("only calls of gRPC are played over TCP")),
    }
}
