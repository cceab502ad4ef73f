//! The notes of a call: what happened, when, and why, in order.
//!
//! Errors, traces, statistics, timelines and scenario results are derived from them. They hold
//! every input of the machine, grants and draws included, so that a diary can be replayed.

use crate::time::Ns;
use crate::{Advice, Failure, Grant, Judgement, Proof, Why};

/// One thing that happened in a call. Attempts are named by the order in which they started,
/// from 1; a transparent replacement starts one too.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// The call began.
    Began {
        /// When it must end; `None`: no deadline.
        deadline: Option<Ns>,
        /// Whether it may run twice.
        idempotent: bool,
    },
    /// An attempt started.
    Started {
        /// Its place in the order of starts.
        attempt: u32,
        /// Its number as the policy counts: a replacement keeps that of what it replaces.
        number: u32,
    },
    /// An attempt's outcome came.
    Outcome {
        /// The attempt.
        attempt: u32,
        /// How it was judged.
        judgement: Judgement,
    },
    /// An attempt took longer than its own timeout.
    TimedOut {
        /// The attempt.
        attempt: u32,
    },
    /// The machine cancelled a running attempt.
    Cancelled {
        /// The attempt.
        attempt: u32,
    },
    /// A draw was used.
    Drew(f64),
    /// The throttle was asked, and answered.
    Granted(Grant),
    /// The strategy was asked about this failure.
    Asked(Failure),
    /// The strategy answered.
    Answered(Advice),
    /// A retry will follow after this long.
    Retrying {
        /// How long until it may start; what the throttle still adds is not in it.
        after: Ns,
        /// What it answers.
        failure: Failure,
    },
    /// What the machine will repeat because it provably did not run.
    Replacing {
        /// The attempt that is replaced.
        attempt: u32,
        /// After how long.
        after: Ns,
        /// The proof.
        proof: Proof,
    },
    /// The call belongs to this attempt from now on.
    Committed {
        /// The attempt.
        attempt: u32,
    },
    /// What was written can no longer be kept: the next attempt to start is the last.
    Sealed,
    /// The call ended.
    Ended {
        /// Why.
        why: Why,
        /// The attempt whose outcome is handed on, if there is one.
        attempt: Option<u32>,
    },
}
