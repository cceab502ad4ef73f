//! Policies: immutable values that define how calls are retried or hedged.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::{Bucket, CallSite, RetryBudget};
use redial_core::{Backoff, Cost, Jitter, Ns, PolicyError, Rules, Withdrawal};

use crate::attempt::{Answer, Async, Attempt, Operation, WithAttempt};
use crate::borrowing::BorrowingRetry;
use crate::builder::Builder;
use crate::classify::CallWhenToSayWhichErrorsAreRetried;
use crate::future::{HedgeList, Hedges, NoHedges};
use crate::retry::Retry;
use crate::strategy::Strategy;
use crate::throttle::{Handle, Throttle};

/// A retry policy: an immutable value that is cheap to clone and can be built in a `static`.
///
/// | setting | default | reason |
/// | --- | --- | --- |
/// | attempts | 3, including the first | two retries outlast most short failures |
/// | backoff | exponential: 100 ms, doubled, at most 20 s | fast at first, and soon gentle to the server |
/// | jitter | full; none for [`constant`](Policy::constant) and [`table`](Policy::table) | spreads out clients that failed at the same time (thundering herd) |
/// | throttle | a retry budget for the call site of the policy: a reserve of 10 retries, then 1 per 10 successes | prevents retry storms against an overloaded server |
/// | deadline, attempt timeout, limits | none | only the caller knows them |
/// | retried errors | none | a retry must be safe: state it with `when` |
///
/// The default budget has a reserve of 10 retries that all calls of the policy share, so a call makes at
/// most 11 attempts. A policy that retries for longer, or that waits for a value, needs another throttle:
/// [`Throttle::budget`] with a larger reserve (`RetryBudget::new(50.0, 0.1)`), or [`Throttle::none`].
#[derive(Clone)]
pub struct Policy {
    pub(crate) core: redial_core::Policy,
    pub(crate) handle: Handle,
    pub(crate) strategy: Option<Arc<dyn Strategy>>,
}

/// The source of a call's rules and throttle: a [`Policy`], a [`Hedged`] policy, or the call site of
/// [`retry`](crate::retry).
pub trait Origin<'p>: Copy + OriginKind {
    /// The rules, and a strategy if there is one.
    #[doc(hidden)]
    fn policy(self) -> &'p Policy;

    /// The throttle.
    #[doc(hidden)]
    fn handle(self) -> Handle;

    /// Whether the clock is read before the first attempt.
    #[doc(hidden)]
    #[inline(always)]
    fn needs_clock(self) -> bool {
        self.policy().needs_clock()
    }

    /// Withdraws the cost of a retry from the budget of a call without its state machine.
    #[doc(hidden)]
    fn withdraw(self, cost: Cost, now: Ns) -> Option<Withdrawal>;

    /// Reports a success to the throttle.
    #[doc(hidden)]
    fn succeeded(self);
}

/// An [`Origin`] that retries and does not hedge.
pub trait Sequential<'p>: Origin<'p> {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &super::Policy {}
    impl Sealed for &super::Hedged {}
    impl Sealed for super::Site {}
}

/// Whether an [`Origin`] hedges. A trait without a lifetime, so that the future of a call is `Send` in a
/// task.
pub trait OriginKind: sealed::Sealed {
    /// The attempts of a call beside the first.
    #[doc(hidden)]
    type Hedges<A>: Hedges<A>;
}

impl OriginKind for &Policy {
    type Hedges<A> = NoHedges;
}

impl OriginKind for &Hedged {
    type Hedges<A> = HedgeList<A>;
}

impl OriginKind for Site {
    type Hedges<A> = NoHedges;
}

impl<'p> Origin<'p> for &'p Policy {
    #[inline(always)]
    fn policy(self) -> &'p Policy {
        self
    }
    fn handle(self) -> Handle {
        self.handle.clone()
    }
    fn withdraw(self, cost: Cost, now: Ns) -> Option<Withdrawal> {
        self.handle.withdraw_from_budget(cost, now)
    }
    #[inline(always)]
    fn succeeded(self) {
        self.handle.succeeded(None);
    }
}

impl<'p> Sequential<'p> for &'p Policy {}

impl<'p> Origin<'p> for &'p Hedged {
    #[inline(always)]
    fn policy(self) -> &'p Policy {
        &self.0
    }
    fn handle(self) -> Handle {
        self.0.handle.clone()
    }
    fn withdraw(self, cost: Cost, now: Ns) -> Option<Withdrawal> {
        self.0.handle.withdraw_from_budget(cost, now)
    }
    #[inline(always)]
    fn succeeded(self) {
        self.0.handle.succeeded(None);
    }
}

/// A call site of [`retry`](crate::retry): the default rules and the budget of the call site. The rules
/// are a constant, so the compiler removes the code for settings that they do not use.
#[derive(Clone, Copy, Debug)]
pub struct Site(pub(crate) CallSite);

static DEFAULT: Policy =
    Policy::exponential(redial_core::ms(100)).throttle(Throttle::none()).build();

impl<'p> Origin<'p> for Site {
    // The default policy is a static of this crate, which the compiler does not look into elsewhere.
    #[inline(always)]
    fn needs_clock(self) -> bool {
        false
    }
    #[inline(always)]
    fn policy(self) -> &'p Policy {
        &DEFAULT
    }
    fn handle(self) -> Handle {
        Handle::CallSite(self.0)
    }
    fn withdraw(self, cost: Cost, now: Ns) -> Option<Withdrawal> {
        Handle::CallSite(self.0).withdraw_from_budget(cost, now)
    }
    #[inline(always)]
    fn succeeded(self) {
        self.0.succeeded(None);
    }
}

impl<'p> Sequential<'p> for Site {}

/// A hedged policy: another attempt starts when the earlier ones are slow or fail, and the first success
/// wins. Hedging cuts tail latency at the price of additional load, which the retry budget bounds.
///
/// It is a type of its own because blocking calls and calls that are not idempotent cannot be hedged.
///
/// ```
/// use redial::{Hedged, Policy, ms};
///
/// static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();
/// ```
///
/// A fixed delay fits the latencies of the day on which it was chosen. With a
/// [`latency_estimator`](crate::Retry::latency_estimator), the delay follows the observed latency.
///
/// Blocking calls do not compile:
/// ```compile_fail
/// # use redial::{Hedged, Policy, ms};
/// # static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();
/// READ.retry(|| std::fs::read("file")).when(|_| true).call();
/// ```
#[derive(Clone)]
pub struct Hedged(pub(crate) Policy);

impl Policy {
    /// Exponential backoff: each delay is twice the previous one, at most 20 s, with full jitter. See
    /// [`Builder::factor`], [`Builder::cap`] and [`Builder::jitter`].
    #[track_caller]
    pub const fn exponential(first: Duration) -> Builder<Policy> {
        let cap = Some(Duration::from_secs(20));
        Builder::new(Rules {
            backoff: Backoff::Exponential { first, factor: 2.0, cap },
            ..Rules::DEFAULT
        })
    }

    /// Constant backoff: every delay is the same, without jitter unless [`Builder::jitter`] sets one.
    ///
    /// ```
    /// use redial::{Jitter, Policy, ms};
    ///
    /// static POLL: Policy = Policy::constant(ms(250)).build();
    /// assert_eq!(POLL.rules().jitter, Jitter::None);
    ///
    /// // Many clients that poll the same server: spread them out.
    /// static SPREAD: Policy = Policy::constant(ms(250)).jitter(Jitter::Proportional(0.2)).build();
    /// assert_eq!(SPREAD.rules().jitter, Jitter::Proportional(0.2));
    /// ```
    #[doc(alias("fixed", "interval"))]
    #[track_caller]
    pub const fn constant(delay: Duration) -> Builder<Policy> {
        let backoff = Backoff::Constant(delay);
        Builder::new(Rules { backoff, jitter: Jitter::None, ..Rules::DEFAULT })
    }

    /// Linear backoff: each delay is longer than the previous one by `step`, with full jitter.
    #[doc(alias = "linear")]
    #[track_caller]
    pub const fn arithmetic(first: Duration, step: Duration) -> Builder<Policy> {
        let backoff = Backoff::Arithmetic { first, step, cap: None };
        Builder::new(Rules { backoff, ..Rules::DEFAULT })
    }

    /// A list of delays, of which the last one repeats, without jitter unless [`Builder::jitter`] sets
    /// one.
    #[track_caller]
    pub const fn table(delays: &'static [Duration]) -> Builder<Policy> {
        let backoff = Backoff::Table(delays);
        Builder::new(Rules { backoff, jitter: Jitter::None, ..Rules::DEFAULT })
    }

    /// Retries without a delay.
    #[track_caller]
    pub const fn immediate() -> Builder<Policy> {
        Policy::constant(Duration::ZERO)
    }

    /// Hedging: another attempt starts after `delay` without an answer, or as soon as an attempt fails.
    #[track_caller]
    pub const fn hedged(delay: Duration) -> Builder<Hedged> {
        Builder::new(Rules { hedge: Some(delay), ..Rules::DEFAULT })
    }

    /// A policy with these rules, which are plain data. Rules that hedge are an error; use
    /// [`Policy::hedged`].
    #[track_caller]
    pub const fn from_rules(rules: Rules) -> Builder<Policy> {
        Builder::from_rules(rules)
    }

    /// Replaces the throttle with one that is shared at run time.
    #[must_use]
    pub fn sharing(mut self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        self.handle = Handle::Shared(bucket);
        self
    }

    /// Lets this [strategy](crate::strategy) decide about each failure.
    ///
    /// # Errors
    /// The rules cannot be combined with a strategy.
    pub fn with_strategy(mut self, strategy: impl Strategy + 'static) -> Result<Self, PolicyError> {
        self.core = self.core.changed(|rules| rules.uses_strategy = true)?;
        self.strategy = Some(Arc::new(strategy));
        Ok(self)
    }

    /// Whether the clock is read before the first attempt, or the state machine starts with the call.
    #[inline(always)]
    pub(crate) fn needs_clock(&self) -> bool {
        self.core.rules().deadline.is_some() || self.handle.watches_calls()
    }

    /// Whether a call needs its state machine from the start: it decides whether an expired deadline allows
    /// an attempt (P10), and a throttle that watches calls is notified of their start.
    pub(crate) fn needs_machine(&self) -> bool {
        self.rules().deadline == Some(Duration::ZERO) || self.handle.watches_calls()
    }

    /// Whether counters are all the state of a call after a failure.
    pub(crate) fn needs_only_counters(&self) -> bool {
        self.core.needs_only_counters() && self.handle.is_fixed_cost()
    }

    /// The time that the first attempt has, if it is limited.
    pub(crate) fn first_attempt_timeout(&self) -> Option<Duration> {
        let rules = self.rules();
        [rules.deadline, rules.attempt_timeout].into_iter().flatten().min()
    }

    /// The rules of the policy.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        self.core.rules()
    }

    /// The policy of `redial-core`, for your own drivers.
    #[must_use]
    pub const fn core(&self) -> &redial_core::Policy {
        &self.core
    }

    /// The tokens left in the throttle; `None` without a throttle. `now` is the time of the clock that the
    /// calls use ([`Sleeper::now`](crate::Sleeper::now), by default `Tokio.now()`); only a bucket that
    /// refills over time uses it.
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.handle.tokens(now)
    }

    /// Retries the operation: a closure that returns a `Result`, or a future of one.
    ///
    /// The closure is called when the first attempt starts, not before.
    pub const fn retry<O, K>(
        &self,
        operation: O,
    ) -> Retry<'_, CallWhenToSayWhichErrorsAreRetried, &Policy, O, K>
    where
        O: Operation,
        O::Answer: Answer<K>,
    {
        Retry::new(self, operation)
    }

    /// Retries an operation that takes its [`Attempt`]: the number, the failure before it and the remaining
    /// time, for example to set a timeout or a header.
    ///
    /// ```
    /// use redial::{Policy, ms, s};
    /// # use std::io;
    /// # use std::time::Duration;
    /// # async fn get(_: u32, wait: Duration) -> io::Result<Duration> { Ok(wait) }
    ///
    /// static FETCH: Policy = Policy::exponential(ms(10)).deadline(s(5)).build();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> io::Result<()> {
    /// let waited = FETCH
    ///     .retry_with(|attempt| get(attempt.number(), attempt.remaining().unwrap_or(s(1))))
    ///     .when(|error| error.kind() == io::ErrorKind::TimedOut)
    ///     .await?;
    /// assert_eq!(waited, s(5));
    /// # Ok(())
    /// # }
    /// ```
    pub const fn retry_with<F, R, K>(
        &self,
        operation: F,
    ) -> Retry<'_, CallWhenToSayWhichErrorsAreRetried, &Policy, WithAttempt<F>, K>
    where
        F: FnMut(Attempt) -> R,
        R: Answer<K>,
    {
        Retry::new(self, WithAttempt(operation))
    }

    /// Retries an async operation that borrows `target` mutably for each attempt. (A blocking operation
    /// can borrow by itself: use [`Policy::retry`].)
    ///
    /// Options come first; `when` comes last and is awaited. An error that implements
    /// [`Transient`](crate::Transient) needs `.when(Transient::failure)` here.
    ///
    /// ```
    /// # use redial::{Policy, ms};
    /// # struct Conn; impl Conn { async fn query(&mut self, _: &str) -> Result<u32, std::io::Error> { Ok(7) } }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::io::Error> {
    /// static QUERY: Policy = Policy::exponential(ms(10)).build();
    /// let mut conn = Conn;
    /// let rows = QUERY.retry_on(&mut conn, async |conn| conn.query("select 7").await).when(|_| true).await?;
    /// assert_eq!(rows, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn retry_on<'a, A, F, T, E>(
        &'a self,
        target: &'a mut A,
        operation: F,
    ) -> BorrowingRetry<'a, A, F>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
    {
        BorrowingRetry::new(self, target, operation)
    }
}

impl Hedged {
    /// Hedges the operation: a closure that returns a future of a `Result`.
    ///
    /// ```
    /// use redial::{Hedged, Policy, ms};
    /// # use std::io;
    /// # async fn get(_: &str) -> io::Result<u32> { Ok(7) }
    ///
    /// /// A second request is sent if the first has no answer after 50 ms; the first success wins.
    /// static READ: Hedged = Policy::hedged(ms(50)).attempts(2).build();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> io::Result<()> {
    /// let value = READ.retry(|| get("key")).when(|_| true).await?;
    /// assert_eq!(value, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn retry<O>(
        &self,
        operation: O,
    ) -> Retry<'_, CallWhenToSayWhichErrorsAreRetried, &Hedged, O, Async>
    where
        O: Operation,
        O::Answer: Answer<Async>,
    {
        Retry::new(self, operation)
    }

    /// Hedges an operation that takes its [`Attempt`].
    pub const fn retry_with<F, R>(
        &self,
        operation: F,
    ) -> Retry<'_, CallWhenToSayWhichErrorsAreRetried, &Hedged, WithAttempt<F>, Async>
    where
        F: FnMut(Attempt) -> R,
        R: Answer<Async>,
    {
        Retry::new(self, WithAttempt(operation))
    }

    /// Replaces the throttle with one that is shared at run time.
    #[must_use]
    pub fn sharing(self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        Hedged(self.0.sharing(bucket))
    }

    /// The rules of the policy.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        self.0.rules()
    }

    /// The policy of `redial-core`, for your own drivers.
    #[must_use]
    pub const fn core(&self) -> &redial_core::Policy {
        self.0.core()
    }

    /// The tokens left in the throttle; `None` without a throttle. `now` is the time of the clock that the
    /// calls use ([`Sleeper::now`](crate::Sleeper::now), by default `Tokio.now()`); only a bucket that
    /// refills over time uses it.
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.0.tokens(now)
    }
}

/// The same as `Policy::exponential(ms(100)).try_build()`: the documented defaults and a retry budget of its
/// own. An empty configuration gives the same policy.
impl Default for Policy {
    fn default() -> Self {
        let core = redial_core::Policy::new(Rules::DEFAULT);
        Policy { core, handle: Handle::Own(Arc::new(RetryBudget::standard())), strategy: None }
    }
}

// Only the throttle and the state of a strategy are mutable. Both are shared between threads, so they
// must be consistent after a panic anyway.
impl UnwindSafe for Policy {}
impl RefUnwindSafe for Policy {}

impl AsRef<redial_core::Policy> for Policy {
    fn as_ref(&self) -> &redial_core::Policy {
        &self.core
    }
}

impl AsRef<redial_core::Policy> for Hedged {
    fn as_ref(&self) -> &redial_core::Policy {
        &self.0.core
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("core", &self.core)
            .field("throttle", &self.handle)
            .field("strategy", &self.strategy.is_some())
            .finish()
    }
}

impl fmt::Debug for Hedged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hedged").field(&self.0).finish()
    }
}
