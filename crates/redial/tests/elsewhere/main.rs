//! Goal: what other retry libraries were found to get wrong is right here, and stays so.
//!
//! Method: each defect is a test that says in a comment what was found elsewhere and which one-line
//! change here would bring it back (`Red:`); each was seen red with that change. The calls run
//! through the real drivers on virtual time. Two kinds are elsewhere: what a call costs
//! (`allocations.rs`, `drivers/thrift.rs`) and what must not compile (`compile.rs`: hedging what
//! must not run twice).

mod backoff;
mod budgets;
mod deadlines;
mod errors;
mod hedging;
mod hints;
mod idempotency;
mod lifetime;
mod stage;
