//! Retry and hedging decisions without I/O.
//!
//! Time, randomness, grants and outcomes come in as arguments; verdicts, commands and the next
//! wake-up come out. Nothing here reads a clock, opens a socket or spawns a task, so the same code
//! decides for an async driver, a blocking thread, a tower layer, a simulator and a scenario file.
//!
//! - [`Rules`] say what a policy does; a [`Policy`] is rules that were checked.
//! - [`decide`] is the heart: one failure in, one [`Verdict`] out, in the order of ruling P9.
//! - [`Ledger`] is what a plain call remembers; [`Call`] is the machine for everything that needs
//!   more: attempts that race, timers, commit, replacement, questions to a strategy; [`First`] is a
//!   call that has not needed it yet.
//! - [`World`] is what the outside grants: draws and throttle tokens; [`Dealings`] make one.
//! - [`pace`] follows how long attempts take, for hedges that follow it.
//! - [`throttle`] holds what calls share to keep retries back.
//!
//! `ruling P9` and the like name entries of [`docs/rulings.md`][rulings]: what the designs leave open,
//! how it is decided, and which test shows it.
//!
//! Invariant: no dependency, no `unsafe`, no `std`; with the same inputs the same decisions, for ever.
//!
//! [rulings]: https://github.com/redial-rs/redial/blob/main/docs/rulings.md
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

mod backoff;
mod call;
mod decide;
mod diary;
mod failure;
mod jitter;
mod ledger;
mod limits;
pub mod pace;
mod policy;
mod problem;
mod purse;
mod random;
mod rules;
mod sync;
pub mod throttle;
mod time;
mod why;
mod world;

pub use backoff::{Backoff, CONTROLLED, Step};
pub use call::{Call, Command, End, First, HedgeDelay, LIVE_MAX, Start, Terms};
pub use decide::{Advice, Verdict, decide};
pub use diary::Note;
pub use failure::{Directive, Failure, Hint, Judgement, Kind, Proof, Reason, Stage};
pub use jitter::Jitter;
pub use ledger::Ledger;
pub use limits::{Limits, Measure, Over, Under};
pub use pace::{HedgeAt, HedgeAtBuilder, Lap, Pace, PaceReading};
pub use policy::Policy;
pub use problem::Problem;
pub use purse::Purse;
pub use random::Random;
pub use rules::{Expired, HintRule, Late, Numbering, Pay, Rules, TimedOut};
pub use throttle::Bucket;
pub use time::{NEVER, Ns, duration, ms, ns, s};
pub use why::Why;
pub use world::{Cost, Dealings, Grant, Outside, Taken, World};
