//! Retry and hedge any call, async or blocking: exponential backoff with full jitter, a retry budget,
//! deadlines, and errors that state what happened.
//!
//! # When to use it
//!
//! Use it around a call with transient failures: a connection that was refused, a server that answered
//! 503, a lock that another client holds. The crate decides whether and when to try again, and it stops
//! before retries make an outage worse.
//!
//! - An **operation** is a closure that returns a `Result`, or a future of one.
//! - A **policy** is an immutable value, usually a `static`: attempts, backoff, jitter, deadline and
//!   throttle. A mistake in it, such as zero attempts, is a compile error if the policy is a `static`. For
//!   values known at run time, [`try_build`](Builder::try_build) returns an error; [`build`](Builder::build)
//!   panics.
//! - The **classification** states which errors are worth a retry. Nothing is retried without it.
//!
//! Related crates:
//!
//! - gRPC: `redial-grpc` is a tower layer with service configs, transparent retries and hedging as gRPC
//!   defines them.
//! - AWS: `redial-aws` runs policies inside the clients of the AWS SDK; `redial-smithy` applies the standard
//!   retry mode of the AWS SDKs to your own calls.
//! - HTTP: `redial-http` is a tower layer for reqwest, hyper and any HTTP service, with `Retry-After`,
//!   idempotency rules and a retry budget per host.
//! - Couchbase: `redial-couchbase` implements RFC 49, and `redial-couchbase-sdk` runs policies inside the
//!   official SDK.
//! - Milvus: `redial-milvus` is the retry interceptor of its Node.js client as a tower layer.
//!
//! If you know another library or system, [`docs/coming-from.md`][coming-from] has the names of its options here.
//!
//! # A tour
//!
//! Write a policy as a `static`, pass it the operation, state which errors are worth a retry, and `.await`:
//!
//! ```
//! use redial::{Policy, ms, s};
//! use std::io;
//!
//! // Random delays of up to 100 ms, 200 ms, 400 ms and 500 ms (full jitter) between five attempts, within 10 s.
//! static FETCH: Policy = Policy::exponential(ms(100)).cap(ms(500)).attempts(5).deadline(s(10)).build();
//!
//! fn is_transient(error: &io::Error) -> bool {
//!     matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut)
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> io::Result<()> {
//! # let mut tries = 0;
//! # let mut fetch = |_url: &str| {
//! #     tries += 1;
//! #     std::future::ready(if tries < 3 { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok("the page") })
//! # };
//! let page = FETCH.retry(|| fetch("https://a.example")).when(is_transient).await?;
//! assert_eq!(page, "the page");
//! # Ok(())
//! # }
//! ```
//!
//! If the call fails, its [`Error`] prints what happened, and has the operation's error and the same facts as
//! data. `?` converts it to `io::Error`, `anyhow::Error`, `Box<dyn Error>` and others:
//!
//! ```
//! # use redial::{Policy, StopReason, Throttle, ms};
//! # use std::io;
//! # static FETCH: Policy = Policy::constant(ms(1)).throttle(Throttle::none()).build();
//! # fn fetch() -> io::Result<u32> { Err(io::ErrorKind::ConnectionRefused.into()) }
//! let error = FETCH.retry(fetch).when(|_| true).call().unwrap_err();
//! assert!(error.to_string().starts_with("connection refused (3 attempts in "));
//! assert_eq!(error.stop_reason(), StopReason::AttemptsExhausted);
//! assert_eq!(error.last().unwrap().kind(), io::ErrorKind::ConnectionRefused);
//! ```
//!
//! The operation above returns a `Result` and no future, so the call ends with `.call()` instead of `.await`
//! and runs in the calling thread. Everything else is the same.
//!
//! A call can say more about its failures, and change parts of its policy:
//!
//! ```
//! use redial::{Failure, Policy, Stage, ms};
//! use std::time::Duration;
//!
//! #[derive(Debug)]
//! enum ApiError { Refused, Busy { retry_after: Duration }, NotFound }
//!
//! /// How far the request got, and how long the server asked to wait.
//! fn failure(error: &ApiError) -> Option<Failure> {
//!     match error {
//!         ApiError::Refused => Some(Failure::client().at(Stage::Unsent)),
//!         ApiError::Busy { retry_after } => Some(Failure::throttling().retry_after(*retry_after)),
//!         ApiError::NotFound => None,
//!     }
//! }
//!
//! static SEND: Policy = Policy::exponential(ms(10)).name("send").build();
//!
//! # let mut answers = [Err(ApiError::Refused), Ok(7), Err(ApiError::NotFound)].into_iter();
//! # let mut send = || answers.next().unwrap();
//! let receipt = SEND
//!     .retry(|| send())
//!     .when(failure)
//!     .not_idempotent() // retries only what provably did not run: here Refused, and not Busy
//!     .attempts(4)
//!     .notify(|error, delay| eprintln!("{error:?}, next attempt in {delay:?}"))
//!     .call();
//! assert_eq!(receipt.ok(), Some(7));
//! # let _ = ApiError::Busy { retry_after: ms(1) };
//! ```
//!
//! To cut tail latency, hedge: [`Policy::hedged`] starts another attempt when the first is slow, and the first
//! success wins.
//!
//! The [cookbook] has more tasks with their code: HTTP, connecting to a database, polling, reconnecting,
//! budgets per tenant, testing, logging, shutting down and other executors. There are guides for moving from
//! [backon], [tokio-retry] and [`tower::retry`][tower-retry].
//!
//! # Where to find it
//!
//! | to | use |
//! | --- | --- |
//! | retry with the default policy | [`retry`] |
//! | state which errors are retried, at the call | [`Retry::when`] |
//! | state it once for an error type | [`Transient`] |
//! | classify values and errors together, for example by HTTP status | [`Retry::classify`] |
//! | run in the calling thread instead of `.await` | [`Retry::call`] |
//! | know the attempt's number and the remaining time | [`Policy::retry_with`] |
//! | borrow mutably in an async operation | [`Policy::retry_on`], or [`Policy::retry_with_context`] where the future is spawned |
//! | wait until a value is ready | [`Retry::until`] |
//! | mark a call as not idempotent | [`Retry::not_idempotent`], with a `when` that returns a [`Failure`] and its [`Stage`] |
//! | start another attempt when the first is slow (hedging), to cut tail latency | [`Policy::hedged`]; [`Retry::latency_estimator`] sets its delay from the observed latency |
//! | compute the delay in code, or stop, after each retryable failure | [`strategy`] |
//! | log each retried error | [`Retry::notify`] |
//! | have error texts in `tracing` events, reports, hooks and the call log | [`Retry::record_errors`] |
//! | see every event of a call | [`Retry::on_event`] |
//! | find your error in a chain of errors | [`find_error`] |
//! | know what a call did | [`Error::report`], [`Retry::with_report`], [`Retry::history`] |
//! | change name, attempts, deadline, attempt timeout or throttle for one call | [`Retry::name`], [`Retry::attempts`], [`Retry::deadline`], [`Retry::attempt_timeout`], [`Retry::throttle`], [`Retry::with_budget`] |
//! | share a retry budget | [`Throttle::budget`] |
//! | retry or hedge the requests of a tower service | `tower` (feature `tower`) |
//! | have a retry budget per host or tenant | [`throttle::KeyedBudgets`] |
//! | run on another executor than tokio | [`Policy::sleeping_on`], [`time::sleep_fn`] |
//! | retry attempts that time out | [`Builder::retry_timeouts`] |
//! | reconnect without end | [`Builder::forever`], [`Builder::reset_after`] |
//! | use the delays in a loop of your own | [`Policy::delays`] |
//! | let a client library that has its own retry loop ask a policy for each decision | [`external`] |
//! | read a policy from JSON or TOML | `config` (feature `serde`) |
//! | count calls, retries and stop reasons for a dashboard | `metrics` (feature `metrics`) |
//! | record everything that a call did, and replay it | [`CallLog`] |
//! | test policies and programs on virtual time | [`testing`] |
//!
//! # Defaults
//!
//! | setting | default | reason |
//! | --- | --- | --- |
//! | attempts | 3, including the first | covers a dropped connection or a brief overload: the two delays add up to at most 300 ms. Raise it to outlast a restart |
//! | backoff | exponential: 100 ms, doubled, at most 20 s | fast at first, and soon gentle to the server |
//! | jitter | full; none for [`Policy::constant`] and [`Policy::table`] | spreads out clients that failed at the same time (thundering herd) |
//! | retry budget | a reserve of 10 retries; it earns back 1 per second, and 1 per 10 successful calls. One budget per `static` policy, or per line that calls [`retry`] | prevents retry storms against an overloaded server |
//! | deadline, attempt timeout, limits | none | only the caller knows them |
//! | attempts that [`attempt_timeout`](Builder::attempt_timeout) cuts off | end the call | they have no error that `when` could judge, and may have run: [`Builder::retry_timeouts`] retries them. A timeout error that the operation returns is judged by `when` like any other |
//! | longest delay that a server may ask for (`retry_after`) | 60 s; a longer one ends the call | a server must not hold a caller for hours: see [`Builder::hint_max`] |
//! | idempotency | the operation is taken as idempotent | mark the others with [`Retry::not_idempotent`] |
//! | retried errors | none | a retry that is not safe must not happen by default: use [`Retry::when`] |
//!
//! # What can go wrong
//!
//! - **A call gives up with "the retry budget is spent" ([`StopReason::Throttled`], `throttled` in logs)
//!   although the server has recovered.** The retry budget is empty:
//!   many calls failed before this one. It refills with successes and by one per second; [`throttle`]
//!   explains how to size it.
//! - **A call with many attempts and short delays ends that way.** The default budget allows 10 retries at
//!   once and one per second after that. Use longer delays, a larger budget, or [`Throttle::none`] where a
//!   deadline and the delays bound the load: a pool that connects at start-up, a poller. Waiting for a value
//!   ([`Retry::until`]) does not use the budget, and [`Builder::forever`] has none.
//! - **Tests fail with `throttled` although each of them passes alone.** They share the budget of a `static`
//!   policy: use [`testing::fresh_budgets`].
//! - **An operation ran twice.** It was retried after a failure that left open whether the server had
//!   processed it. Use [`Retry::not_idempotent`], and state the [`Stage`] of a failure.
//! - **A call that is not idempotent is never retried.** Its `when` returns `true`, which does not say
//!   how far the attempt got. Return `Failure::client().at(Stage::Unsent)` for a request that was not sent.
//! - **A call ends before its deadline.** The next attempt could not have started in time, so the call
//!   fails at once instead of sleeping first; see [`rules::DeadlineAction`].
//! - **A blocking attempt runs past the deadline or its `attempt_timeout`.** A thread cannot be cancelled.
//!   Give the operation a timeout: [`Policy::retry_with`] passes it the remaining time, which is all that an
//!   `attempt_timeout` changes in a blocking call.
//!
//! [`Error`] has the number of attempts, the elapsed time, the [`StopReason`] and the last error of the
//! operation. [`Report`] has the same for a success.
//!
//! # When it does not compile
//!
//! | the compiler reports | cause and fix |
//! | --- | --- |
//! | `Retry<'_, NeedsWhen, ..>` or `RetryOn<'_, NeedsWhen<...>, ..>` is not a future | no classification: add `.when(..)`, in `retry_on` as the last call |
//! | `Retry<.., Blocking, ..>` is not a future | the closure returns a `Result` and no future: use `.call()`, or make it `async` |
//! | no method `call` for `Retry<.., Async, ..>` | the closure returns a future: use `.await` |
//! | a blocking call waits in its thread | the call would ignore its sleeper: remove `.sleeping_on(..)` |
//! | the call is classified already | a second `.when(..)`, or one after `.classify(..)`: combine them into one rule |
//! | expected `Policy`, found `Builder<Policy>` | end the builder with `.build()`, or with `.try_build()?` for values known at run time |
//! | expected `Policy`, found `Hedged` | hedged policies have their own type |
//! | a hedged call runs its operation more than once; a hedged call has no strategy | `not_idempotent`, `retry_timeouts` and `strategy` are options of retries: use a [`Policy`] |
//! | expected a closure that implements `FnMut`, found one that only implements `FnOnce` | the closure moves a captured value into the first attempt: clone it inside the closure, before the `async move` block |
//! | async closure does not implement `FnMut` because it captures state | an attempt borrows a value that the closure changes: pass it with [`Policy::retry_on`] |
//! | captured variable cannot escape `FnMut` closure body | an attempt borrows from the closure mutably, as in `P.retry(\|\| self.query(sql))`: use [`Policy::retry_on`] or [`Policy::retry_with_context`] |
//! | implementation of `Send`, `FnOnce` or `AsyncFnMut` is not general enough; one type is more general than the other | the closure of `retry_on` captures a reference: use [`Policy::retry_with_context`] |
//! | implementation of `Origin`, `Future` or `FnOnce` is not general enough, at a `join!` in a spawned task | the error of a call has a lifetime, as `&'static str` does: wrap the call in `async { .. .await }` |
//! | `Result<..>` is not a future, in `retry_on` | a blocking closure can borrow by itself: use [`Policy::retry`] |
//! | expected `Result<_, E>`, found `Result<_, Error<E>>` | a call returns [`Error`] around the operation's error: use `?` or `map_err` |
//! | expected `Error<_, NoValue>`, found `Error<_, T>` | a call with `until` or `classify` keeps the last value: the type of its error is `redial::Error<E, T>` |
//! | `?` couldn't convert the error to `MyError` | implement `From<redial::Error<..>>`: see [`Error`] |
//! | expected `Box<dyn Error ..>`, found `Error<AnyError>`; the size of `dyn Error + Send + Sync` cannot be known, at `map_err(Into::into)` | `Ok(call.await.map_err(redial::Error::boxed)?)` |
//! | `?` couldn't convert the error: `std::error::Error` is not satisfied, or `dyn Error + Send + Sync: Sized` is not | the operation's error does not implement it: use `.map_err(redial::Error::boxed)` |
//! | the method `context` (`with_context`) exists for `Result<.., redial::Error<anyhow::Error>>`, but its trait bounds were not satisfied | the same: `.map_err(redial::Error::boxed)` before `.context(..)` |
//! | type annotations needed: cannot infer type of the type parameter `E` declared on the enum `Result`, at `Ok(())` | after an `impl From<redial::Error<..>>` for your error, `?` has two conversions: write `Ok::<_, MyError>(())` |
//! | `match` arms have incompatible types, `bool` and `Option<Failure>`, in `when` | all arms return `Option<Failure>`, `None` for an error that is not retried. Do not use `is_some`: it loses the server's delay |
//! | `?` couldn't convert the error: `..: Send` or `..: Sync` is not satisfied | the error holds a value that `classify` rejected, and that value is not `Send` or `Sync`: use [`Error::map_value`] |
//! | `spawn`, `JoinSet`, `join_all`, `FuturesUnordered`, `pin!`, or a function that returns `impl Future`: `Retry<..>` is not a future | only `.await`, `join!`, `select!` and `timeout` convert it: pass `.into_future()` |
//! | borrowed data escapes outside of method, or `policy` does not live long enough, in `spawn` | the call borrows a policy in a field or a variable: clone the policy (its clones share the budget), and make the call inside `async move { .. }` |
//! | cannot call non-const function in statics | the policy has values that are known at run time: a `LazyLock<Policy>`, or a field that is built once with `.try_build()?` |
//! | cannot borrow as mutable more than once at a time, at `when` or `notify` | the operation and this closure change the same variable: make it a `Cell`, a `RefCell` or an atomic |
//! | temporary value dropped while borrowed, in `spawn` or `select!` | the policy is a `const`: make it a `static`, or a `LazyLock<Policy>` for run-time values |
//! | no method `notify` found for opaque type `impl Future` | in `retry_on`, options come before `.when(..)` |
//! | type annotations needed, at `\|conn\|` in `retry_on` | the closure is not `async`: write `async \|conn\| ..` |
//! | no method `retry` for a closure; `&Policy` is not an iterator | that is backon's order: here the policy comes first, `POLICY.retry(operation)` |
//! | no method `adjust`, `max_times`, `max_delay`, .. | the [names of other libraries][coming-from] and their counterparts |
//! | no method `with_budget` for `Builder<..>`; expected `Throttle`, found `&RetryBudget` | a builder takes `.throttle(Throttle::budget(&BUDGET))`, a built policy `.with_budget(..)` |
//! | expected a future that resolves to `(.., Result<_, _>)`, in `retry_with_context` | the closure returns the context with its result: `(context, result)` |
//! | no method `cap` (`attempts`, ..) for `Policy`, or no method `retry` for `Builder<..>` | settings belong to the builder, calls to the policy: `.build()` lies between |
//! | the trait `Sleeper` is not implemented for a closure or function | wrap it: [`time::sleep_fn`] |
//! | no method `call` for `Retry<'_, Chain<{closure}>, ..>`, or it is not a future | the closure of `classify` needs its types: `\|result: &Result<T, E>\| ..` |
//! | type annotations needed for `&_`, at `when` | the operation does not fix its error type: write `Ok::<_, MyError>(..)`. In a tower layer, annotate the closure: `\|error: &MyError\| ..` |
//! | the method `oneshot`, `ready` or `call` exists for `RetryService<..>`, but its trait bounds were not satisfied | if the types have `NeedsWhen`: a tower layer without `.when(..)`. If not: the request is not `Clone`, so add `.clone_request(..)`, or a closure of the layer takes another type than the service's error or response |
//! | `..: Clone` is not satisfied, required for `RetryLayer<..>` to implement `Layer<..>` | a retry runs on a clone of the service: derive `Clone`, or put a `.buffer(..)` between the layer and the service |
//! | type mismatch in closure arguments, at `when` or `notify` | the closure takes `&E`, the error that the operation returns; `notify` also takes the `Duration` |
//! | `E` doesn't implement `std::fmt::Display`, at `record_errors` | the text of the error is recorded: implement `Display`, or use [`Retry::notify`] |
//! | constant of non-structural type `Reason` in a pattern | compare with `==`: `Some(reason) if reason == LOCKED` |
//! | any other `Retry<..>` is not a future | the feature `tokio` is off: name a sleeper with [`Retry::sleeping_on`] |
//! | evaluation panicked: `attempts: 0 would never try` | the policy contradicts itself; the text names the field and the fix |
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `tokio` | yes | the tokio timer for delays. Without it, use `.call()` for blocking code, or name your own timer with [`Policy::sleeping_on`] |
//! | `metrics` | no | counters, histograms and budget gauges for the `metrics` facade (module `metrics`) |
//! | `serde` | no | policies in JSON, TOML and other formats (module `config`), and call logs as JSON lines |
//! | `tower` | no | a layer that retries or hedges the requests of a tower service (module `tower`) |
//! | `tracing` | no | an event for every step of a call, under the target `redial` ([`trace`]) |
//!
//! # Performance
//!
//! An async call of [`retry`] or [`Policy::retry`] that succeeds at its first poll allocates nothing, takes no
//! lock, arms no timer and reads no clock. A deadline adds a clock read, and one allocation and one timer if
//! the call waits for I/O. Call logs, reports, `tracing` subscribers and metrics cost extra. Nothing is spawned:
//! dropping the future cancels the call.
//!
//! # Decisions
//!
//! The rules come from five public designs: gRPC A6, the standard retry strategy of the AWS SDKs, Couchbase's
//! RFC 49, the Milvus client's interceptor and an architecture decision record on bounded retry time. References
//! such as `decision P9` point to [`docs/decisions.md`][decisions], which lists what these designs leave open,
//! what this crate does, and the test for it.
//!
//! [backon]: https://github.com/redial-rs/redial/blob/main/docs/moving/backon.md
//! [cookbook]: https://github.com/redial-rs/redial/blob/main/docs/cookbook.md
//! [tokio-retry]: https://github.com/redial-rs/redial/blob/main/docs/moving/tokio-retry.md
//! [tower-retry]: https://github.com/redial-rs/redial/blob/main/docs/moving/tower-retry.md
//! [coming-from]: https://github.com/redial-rs/redial/blob/main/docs/coming-from.md
//! [decisions]: https://github.com/redial-rs/redial/blob/main/docs/decisions.md
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod any_policy;
mod attempt;
mod blocking;
mod borrowing;
mod builder;
pub mod call_log;
mod call_phase;
pub mod classify;
mod clock;
#[cfg(feature = "serde")]
pub mod config;
mod cost_bucket_options;
mod delays;
mod draws;
mod driver;
mod engine;
mod error;
mod error_hook;
mod event_context;
pub mod external;
mod future;
mod keyed_budgets;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "noop_metrics.rs"]
mod metrics;
mod mistakes;
mod options;
mod owned_policy;
mod plain_call;
mod policy;
mod policy_name;
mod policy_ref;
pub mod presets;
pub mod report;
mod retry;
mod sleeper;
mod sleeping_on;
pub mod strategy;
pub mod testing;
pub mod throttle;
#[cfg(feature = "tower")]
pub mod tower;
pub mod trace;
mod with_budget;

pub use any_policy::AnyPolicy;
pub use attempt::Attempt;
pub use builder::Builder;
pub use call_log::CallLog;
pub use classify::{Last, Transient};
pub use error::{BoxError, Error, find_error};
pub use policy::{Hedged, Policy};
pub use redial_core::{
    Directive, Event, Failure, FailureKind, Jitter, PolicyError, Reason, Stage, StopReason, ms, s,
};
pub use report::Report;
pub use retry::{Retry, retry, retry_with};
pub use throttle::Throttle;

/// The rules of a policy as plain data, for [`Policy::from_rules`].
pub mod rules {
    pub use redial_core::{
        AttemptTimeoutAction, Backoff, ChargeAt, DeadlineAction, ExpiredDeadlineAction, HintRule,
        LastDelayAction, LimitBasis, Limits, Numbering, OverLimitAction, Rules, Step,
    };
}

/// Hedging: delays that follow the observed latency.
///
/// A hedged call starts a second attempt when the first one is slow, which cuts tail latency. A fixed
/// delay is wrong as soon as the latency of the operation changes. A
/// [`LatencyEstimator`](hedging::LatencyEstimator) follows the calls that it observes, and stops hedges
/// that do not win. See [`Retry::latency_estimator`].
pub mod hedging {
    pub use redial_core::{HedgeAt, HedgeAtBuilder, HedgeDelay, LatencyEstimate, LatencyEstimator};
}

/// Clocks, timers and the unit of time.
pub mod time {
    #[cfg(feature = "tokio")]
    pub use crate::sleeper::Tokio;
    pub use crate::sleeper::{DefaultSleeper, FnSleep, SleepFn, Sleeper, sleep_fn};
    pub use crate::sleeping_on::SleepingOn;
    pub use redial_core::{Ns, duration, ms, ns, s};
}

/// Types that appear in signatures. Programs rarely name them.
pub mod parts {
    pub use crate::attempt::{
        Answer, Async, Blocking, ContextAttempt, Operation, WithAttempt, WithContext,
    };
    pub use crate::borrowing::{AcceptedValue, EveryValue, RetryOn};
    pub use crate::classify::{
        AddHook, ByTransient, Chain, IntoDirective, NeedsWhen, Or, Until, When,
    };
    pub use crate::delays::Delays;
    pub use crate::draws::draw;
    pub use crate::error::AnyError;
    pub use crate::error_hook::{ErrorHook, Hooked, NoHook, Notify, RecordErrors};
    pub use crate::future::{HedgeList, Hedges, NoHedges, Output, Retrying, Value, WithReport};
    pub use crate::owned_policy::{OwnedHedged, OwnedPolicy};
    pub use crate::policy::{MayBeSequential, Origin, OriginKind, Sequential, Site};
    pub use crate::sleeper::UnsetSleeper;
}

/// Whether the events of each call are observed, so that every call needs its state machine from its
/// start. Public for adapters that start a first attempt before the call.
#[doc(hidden)]
#[must_use]
pub fn is_observed() -> bool {
    trace::is_enabled() || metrics::is_enabled()
}

/// Compiles and runs the examples of both READMEs with the documentation tests.
#[cfg(all(doctest, feature = "tokio"))]
mod readmes {
    #[doc = include_str!("../../../README.md")]
    struct OfTheProject;
    #[doc = include_str!("../README.md")]
    struct OfTheCrate;
}

/// Compiles and runs the code of the cookbook and of the guides for users of other libraries.
#[cfg(all(doctest, feature = "tokio", feature = "serde", feature = "tower"))]
mod documents {
    #[doc = include_str!("../../../docs/cookbook.md")]
    struct Cookbook;
    #[doc = include_str!("../../../docs/moving/backon.md")]
    struct MovingFromBackon;
    #[doc = include_str!("../../../docs/moving/tokio-retry.md")]
    struct MovingFromTokioRetry;
    #[doc = include_str!("../../../docs/moving/tower-retry.md")]
    struct MovingFromTowerRetry;
}

#[cfg(test)]
mod tests {
    /// What most users type, and no more: the rest has a module.
    const NAMES_MAX: usize = 30;

    #[test]
    fn root_has_few_names_besides_modules() {
        let exports = include_str!("lib.rs").split("\npub use ").skip(1);
        let names: Vec<&str> = exports
            .flat_map(|export| {
                let path = export.split(';').next().expect("a path");
                let names = path.rsplit("::").next().expect("a name");
                names.trim_matches(['{', '}', '\n']).split(',').map(str::trim)
            })
            .filter(|name| !name.is_empty())
            .collect();
        assert!(names.contains(&"Policy") && names.contains(&"ms"), "{names:?}");
        assert!(names.len() <= NAMES_MAX, "{} names: {names:?}", names.len());
    }
}
