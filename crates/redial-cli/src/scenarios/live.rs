//! The live level: runs scenarios through the async driver, or through a real gRPC client and
//! server.
//!
//! Nothing here depends on a policy. The result is what the application, the server and the call
//! log show.

mod clock;
pub(super) mod couchbase;
mod driver;
mod grpc;
mod milvus;

use std::io;

use redial::time::Ns;

use super::compare::Difference;
use super::designs::Plan;
use super::model::Scenario;
use super::play::Actual;

pub(super) use grpc::{
    ATTEMPTS_MAX, PREFIX_BYTES, Sizes, TCP_TOLERANCE, TimeScale, answer, answer_text, path,
};

/// The tolerance on the paused clock: 1 ms of scenario time.
pub(super) const TOLERANCE: Ns = 1_000_000;
/// The slowdown of the paused clock where a millisecond is too coarse.
pub(super) const SLOWDOWN: Ns = 1_000;
/// The scenario time after which an open call counts as never ending, at that slowdown: ten days.
pub(super) const HORIZON: Ns = 10 * 86_400 * 1_000_000_000;

/// The result of a live run, and inconsistencies in it that no scenario allows.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) actual: Actual,
    pub(super) differences: Vec<Difference>,
}

/// Runs a scenario; `core` is the result of the core level.
pub(super) fn play(scenario: &Scenario, core: Actual) -> Live {
    match &scenario.plan {
        Plan::Grpc(plan) if !scenario.refused => {
            grpc::play(scenario, plan.text(), plan.client(), &core)
        }
        Plan::Couchbase(plan) if !scenario.refused => couchbase::play(scenario, plan, core),
        Plan::Milvus(plan) if !scenario.refused => milvus::play(scenario, plan.options(), &core),
        _ => {
            let mut actual = driver::play(scenario);
            // The call log of the core level explains differences.
            for (live, core) in actual.calls.iter_mut().zip(core.calls) {
                live.call_log = core.call_log;
            }
            Live { actual, differences: Vec::new() }
        }
    }
}

/// Runs a gRPC scenario in real time over loopback TCP.
///
/// # Errors
/// It is not a gRPC scenario, no socket is available, or TCP cannot reproduce it.
pub(super) fn play_over_tcp(scenario: &Scenario, core: &Actual) -> io::Result<Live> {
    match &scenario.plan {
        Plan::Grpc(plan) if !scenario.refused => {
            grpc::play_over_tcp(scenario, plan.text(), plan.client(), core)
        }
        _ => Err(io::Error::other("only calls of gRPC are played over TCP")),
    }
}
