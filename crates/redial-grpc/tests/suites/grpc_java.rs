//! After grpc-java's `RetriableStreamTest`, and `RetryTest` of its interop suite.

mod buffers;
mod cancelling;
mod hedging;
mod interop;
mod pushback;
mod replay;
mod throttle;
mod transparent;

use super::rig::{config, hedging, retry};

/// What their retry tests use: delays in seconds, two codes.
fn policy() -> String {
    retry(6, "100s", "700s", 2.0, "UNAVAILABLE DATA_LOSS")
}

fn retrying() -> String {
    config(&policy())
}

/// What their hedging tests use.
fn hedging_policy() -> String {
    hedging(6, "100s", "UNAVAILABLE DATA_LOSS")
}

fn hedged() -> String {
    config(&hedging_policy())
}
