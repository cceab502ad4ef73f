//! The async, the borrowing and the blocking driver behave alike for the same script, and each keeps
//! its own guarantees: a dropped call leaks nothing, a retry loop yields to other tasks, the fast path
//! reads no clock and arms no timer, and every executor works.
//!
//! The operations are scripted. They run on tokio's paused clock, on a clock that the test moves while
//! it polls the future itself, or, where a thread blocks, with delays of at most a millisecond. Values
//! that an operation owns count their instances, so a test knows which ones are still alive.
#![cfg(feature = "tokio")]

mod call_options;
mod cancellation;
mod equivalence;
mod executors;
mod futures;
mod hedging;
mod latency_estimator;
mod manual_clock;
mod notify;
mod operation;
mod overhead;
mod overrides;
mod panics;
