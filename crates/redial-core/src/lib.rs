//! Retry and hedging decisions as a state machine without I/O.
//!
//! Time, random numbers, throttle grants and outcomes are passed in as arguments; verdicts,
//! commands and the time of the next timer are returned. Nothing in this crate reads a clock, opens
//! a socket or spawns a task, so an async driver, a blocking thread, a tower layer, a simulator and
//! a scenario player all run the same code.
//!
//! - [`Rules`] are the settings of a policy as plain data; a [`Policy`] is a set of rules that
//!   passed validation.
//! - [`decide`] takes one failure of a retried call and returns one [`Verdict`]: retry after a delay,
//!   or stop for a reason. Decision P9 fixes the order in which reasons are checked.
//! - [`Call`] is the state machine of one call: concurrent attempts, timers, commit, transparent
//!   retries and strategies. It calls [`decide`] for retries, and decides itself about hedges,
//!   transparent retries and timers. [`CallCounters`] is the state of a call that needs none of those, and
//!   [`FirstAttempt`] is a call that has not needed its state machine yet.
//! - [`Environment`] provides random draws and throttle tokens to a call; [`CallEnvironment`] is
//!   the standard implementation.
//! - [`latency`] estimates a quantile of the attempt latency, for hedging delays that follow it.
//! - [`Delays`] is the series of delays as an iterator, for loops that are written by hand.
//! - [`throttle`] holds the retry budgets and token buckets that calls share.
//!
//! `decision P9` and the like are entries of [`docs/decisions.md`][decisions], which lists the
//! questions that the designs leave open, the answer chosen here, and the test that shows it.
//!
//! Invariant: no dependencies, no `unsafe`, no `std`. The same inputs always give the same
//! decisions.
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
mod delays;
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
pub use call::{
    Call, CallParams, CallStep, Command, Driver, End, FailureCause, FirstAttempt, HedgeDelay,
    LIVE_MAX, PollLoop, PollStep, RunCommands, Start, run_commands,
};
pub use counters::CallCounters;
pub use decide::{Advice, Verdict, decide};
pub use delays::Delays;
pub use environment::{CallEnvironment, Cost, DriverContext, Environment, Grant, Withdrawal};
pub use error::PolicyError;
pub use event::Event;
pub use failure::{Classification, Directive, Failure, FailureKind, Hint, Proof, Reason, Stage};
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

/// The examples of the README are compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
