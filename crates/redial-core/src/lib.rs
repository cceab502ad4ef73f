//! Retry and hedging decisions without I/O.
//!
//! Time, randomness, grants and outcomes come in as arguments; verdicts, commands and the next
//! wake-up come out. Nothing here reads a clock, opens a socket or spawns a task, so the same code
//! decides for an async driver, a blocking thread, a tower layer, a simulator and a scenario file.
//!
//! - [`Rules`] say what a policy does; a [`Policy`] is rules that were checked.
//! - [`decide`] is the heart: one failure in, one [`Verdict`] out, in the order of decision P9.
//! - [`CallCounters`] is what a plain call remembers; [`Call`] is the machine for everything that needs
//!   more: attempts that race, timers, commit, replacement, questions to a strategy; [`FirstAttempt`] is a
//!   call that has not needed it yet.
//! - [`Environment`] is what the outside grants: draws and throttle tokens; [`CallEnvironment`] make one.
//! - [`estimator`] follows how long attempts take, for hedges that follow it.
//! - [`throttle`] holds what calls share to keep retries back.
//!
//! `decision P9` and the like name entries of [`docs/decisions.md`][decisions]: what the designs leave open,
//! how it is decided, and which test shows it.
//!
//! Invariant: no dependency, no `unsafe`, no `std`; with the same inputs the same decisions, for ever.
//!
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

mod backoff;
mod call;
mod counters;
mod decide;
mod environment;
mod error;
mod event;
mod failure;
mod jitter;
pub mod latency;
mod limits;
mod permit;
mod policy;
mod random;
mod rules;
mod stop_reason;
mod sync;
pub mod throttle;
mod time;

pub use backoff::{Backoff, CONTROLLED, Step};
pub use call::{Call, CallParams, Command, End, FirstAttempt, HedgeDelay, LIVE_MAX, Start};
pub use counters::CallCounters;
pub use decide::{Advice, Verdict, decide};
pub use environment::{CallEnvironment, Cost, DriverContext, Environment, Grant, Withdrawal};
pub use error::PolicyError;
pub use event::Event;
pub use failure::{Classification, Directive, Failure, Hint, Kind, Proof, Reason, Stage};
pub use jitter::Jitter;
pub use latency::{CallLatency, HedgeAt, HedgeAtBuilder, LatencyEstimate, LatencyEstimator};
pub use limits::{LastDelayAction, LimitBasis, Limits, OverLimitAction};
pub use permit::Permit;
pub use policy::Policy;
pub use random::Random;
pub use rules::{
    AttemptTimeoutAction, ChargeAt, DeadlineAction, ExpiredDeadlineAction, HintRule, Numbering,
    Rules,
};
pub use stop_reason::StopReason;
pub use throttle::Bucket;
pub use time::{NEVER, Ns, duration, ms, ns, s};
