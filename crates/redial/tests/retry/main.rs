//! Regression tests for defects that were found in other retry libraries.
//!
//! Each test names the defect in a comment. The calls run through the real drivers on virtual time.
//! Related tests are in `allocations.rs` and `drivers/overhead.rs` (cost of a call) and in
//! `compile.rs` (hedging an operation that is not idempotent must not compile).
#![cfg(feature = "tokio")]

mod attempts;
mod backoff;
mod budget;
mod common;
mod deadline;
mod error;
mod hedging;
mod hint;
mod idempotency;
