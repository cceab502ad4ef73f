//! Retry and hedge any call: safe defaults, a budget, a deadline, and an error that explains
//! itself.
//!
//! ```
//! use redial::{Policy, ms, s};
//! # #[derive(Debug)] struct Busy;
//! # impl std::fmt::Display for Busy { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("busy") } }
//! # impl std::error::Error for Busy {}
//!
//! static FETCH: Policy = Policy::exponential(ms(100)).cap(s(5)).attempts(5).deadline(s(10)).build();
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), redial::Error<Busy>> {
//! let mut tries = 0;
//! let page = FETCH
//!     .retry(|| {
//!         tries += 1;
//!         let busy = tries < 3;
//!         async move { if busy { Err(Busy) } else { Ok("the page") } }
//!     })
//!     .when(|_error: &Busy| true)
//!     .await?;
//! assert_eq!((page, tries), ("the page", 3));
//! # Ok(())
//! # }
//! ```
//!
//! - [`retry`] is the shortest form, with safe defaults; a [`Policy`] says more.
//! - `.when(..)` says which errors may be repeated: nothing else is. See [`Retry`].
//!   An error type of your own says it once and for all with [`Transient`].
//! - `.await` runs it on an async executor, `.call()` in the calling thread.
//! - [`Policy::retry_with`] is for attempts that know their number and the time that remains,
//!   [`Policy::retry_on`] for operations that borrow mutably, [`Retry::until`] waits for a value.
//! - [`Hedged`] policies ([`Policy::hedged`]) start another attempt when the first is slow; with a
//!   [`LatencyEstimator`], slower than most.
//! - [`Error`] says how often, how long and why it ended, and gives the last real error back. A
//!   [`Report`] has it as data, a [`CallLog`] everything that happened, in order.
//! - [`testing`] plays policies, and programs that use them, on virtual time.
//!
//! # When it does not compile
//!
//! | the compiler says | because |
//! | --- | --- |
//! | `Retry<.., CallWhenToSayWhichErrorsAreRetried>` is not a future | nothing says which errors may be repeated: add `.when(..)` |
//! | `Retry<.., Blocking, ..>` is not a future | the closure returns a `Result` and no future: `.call()` it, or make it `async` |
//! | no method `call` for `Retry<.., Async, ..>` | the closure returns a future: `.await` it |
//! | expected `Policy`, found `Builder<Policy>` | a builder ends with `.build()`, at run time with `.try_build()?` |
//! | expected `Policy`, found `Hedged` | hedged policies have a type of their own |
//! | expected a closure that implements `FnMut`, found one that only implements `FnOnce` | each attempt needs what the closure gives away: clone it inside, before an `async move` block |
//! | async closure does not implement `FnMut` because it captures state | an attempt borrows what the closure changes: lend it with [`Policy::retry_on`] |
//! | `Result<..>` is not a future, in `retry_on` | what blocks borrows by itself: [`Policy::retry`] |
//! | expected `Result<_, E>`, found `Result<_, Error<E>>` | a call's error says more than the operation's: `?`, or `map_err` |
//! | `?` couldn't convert the error to `MyError` | one `From` is yours to write: see [`Error`] |
//! | `?` couldn't convert the error: `std::error::Error` is not satisfied | the operation's error is none: [`Error::boxed`] makes it one |
//! | `tokio::spawn`: `Retry<..>` is not a future | only `.await` makes it one by itself: hand over `.into_future()` |
//! | any other `Retry<..>` is not a future | the feature `tokio` is off, and no sleeper is named: [`Retry::sleeping_on`] |
//! | evaluation panicked: `attempts: 0 would never try` | the rules contradict each other, and the text says how |
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `tokio` | yes | `Tokio`, the sleeper of calls that name none; without it they name one with [`Retry::sleeping_on`], or block |
//! | `serde` | no | the written form of policies (the module `written`), and diaries as JSON lines |
//! | `tracing` | no | events of every call under the target `redial` ([`trace`]) |
//!
//! # What a call costs
//!
//! A call that succeeds at its first poll allocates nothing, takes no lock, arms no timer and reads
//! no clock, unless it has a deadline, a diary or asks for the time.
//!
//! # Decisions
//!
//! `decision P9` and the like name entries of [`docs/decisions.md`][decisions]: what the designs behind
//! this crate leave open, how it is decided, and which test shows it.
//!
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod any_policy;
mod attempt;
mod blocking;
mod borrowing;
mod bucket_options;
mod builder;
pub mod call_log;
#[allow(unsafe_code)]
mod cell;
pub mod classify;
mod clock;
#[cfg(feature = "serde")]
pub mod config;
mod draws;
mod engine;
mod error;
mod future;
mod options;
mod policy;
pub mod presets;
mod report;
mod retry;
mod sleeper;
pub mod strategy;
pub mod testing;
pub mod throttle;
pub mod trace;
mod with_budget;

pub use any_policy::AnyPolicy;
pub use attempt::Attempt;
pub use builder::Builder;
pub use call_log::CallLog;
pub use classify::{Last, Transient};
pub use error::{AnyError, BoxError, Error};
pub use policy::{Hedged, Policy};
pub use redial_core::{
    Directive, Event, Failure, Hint, Jitter, Kind, PolicyError, Reason, Stage, StopReason, ms, s,
};
pub use report::{AttemptEnd, AttemptRecord, Report};
pub use retry::{Retry, retry};
pub use sleeper::Sleeper;
#[cfg(feature = "tokio")]
pub use sleeper::Tokio;
pub use throttle::Throttle;

/// Every rule that a policy can have, as plain data.
pub mod rules {
    pub use redial_core::{
        AttemptTimeoutAction, Backoff, ChargeAt, DeadlineAction, ExpiredDeadlineAction, HintRule,
        LastDelayAction, LimitBasis, Limits, Numbering, OverLimitAction, Rules, Step,
    };
}

/// Hedge delays that follow the observed latency.
pub mod hedging {
    pub use redial_core::{HedgeAt, HedgeAtBuilder, HedgeDelay, LatencyEstimate, LatencyEstimator};
}

/// Sleepers, and the unit of time.
pub mod time {
    #[cfg(feature = "tokio")]
    pub use crate::sleeper::Tokio;
    pub use crate::sleeper::{DefaultSleeper, Moment, Sleeper};
    pub use redial_core::{Ns, duration, ms, ns, s};
}

/// The types that calls are made of. Signatures name them; programs rarely do.
pub mod parts {
    pub use crate::attempt::{Answer, Async, Blocking, Operation, WithAttempt};
    pub use crate::borrowing::BorrowingRetry;
    pub use crate::cell::{Drive, Retrying};
    pub use crate::classify::{
        CallWhenToSayWhichErrorsAreRetried, Chain, IntoDirective, Or, Until, When,
    };
    pub use crate::draws::draw;
    pub use crate::future::{Driver, Output, Value, WithReport};
    pub use crate::policy::{Origin, Site};
}

/// The first example of the README is compiled and run with the other examples.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
