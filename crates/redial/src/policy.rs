//! Policies: immutable values that define how calls are retried or hedged.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::{Bucket, CallSite, RetryBudget};
use redial_core::{
    AttemptTimeoutAction, Backoff, Cost, Jitter, Ns, PolicyError, Rules, Withdrawal,
};

use crate::attempt::{Answer, Async, Attempt, Operation, WithAttempt, WithContext};
use crate::borrowing::{EveryValue, RetryOn};
use crate::builder::Builder;
use crate::classify::NeedsWhen;
use crate::delays::Delays;
use crate::future::{HedgeList, Hedges, NoHedges};
use crate::mistakes::Mistakes;
use crate::policy_name::PolicyName;
use crate::policy_ref::PolicyRef;
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
/// | throttle | a retry budget for the call site of the policy: a reserve of 10 retries, and 1 more per 10 successes and per second | prevents retry storms against an overloaded server |
/// | deadline, attempt timeout, limits | none | only the caller knows them |
/// | attempts that time out | end the call | they may have run: state it with [`Builder::retry_timeouts`] |
/// | longest hint of a server | 60 s; a longer one ends the call | a server must not hold a caller for hours |
/// | retried errors | none | a retry must be safe: state it with `when` |
///
/// The default budget has a reserve of 10 retries that all calls of the policy share. A policy that
/// retries more often than once per second needs another throttle: [`Throttle::budget`] with a larger
/// reserve (`RetryBudget::new(50.0, 0.1).per_second(5.0)`), or [`Throttle::none`]. Waiting for a value
/// ([`until`](crate::Retry::until)) is free.
#[derive(Clone)]
pub struct Policy {
    pub(crate) core: redial_core::Policy,
    pub(crate) handle: Handle,
    /// Whether no throttle was named: the handle is that of the default budget, or none if calls never give up.
    pub(crate) has_default_throttle: bool,
    pub(crate) strategy: Option<Arc<dyn Strategy>>,
    pub(crate) name: PolicyName,
    /// Whether the throttle was replaced under the same name: one name then has several throttles. Only metrics
    /// read it.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(crate) shares_name: bool,
}

/// The source of a call's rules and throttle: a [`Policy`], a [`Hedged`] policy, or the call site of
/// [`retry`](crate::retry).
pub trait Origin<'p>: Clone + OriginKind {
    /// The rules, and a strategy if there is one.
    #[doc(hidden)]
    fn policy(&self) -> &Policy;

    /// The same, for as long as the call.
    #[doc(hidden)]
    fn policy_ref(&self) -> PolicyRef<'p>;

    /// The throttle.
    #[doc(hidden)]
    fn handle(&self) -> Handle;

    /// Whether the clock is read before the first attempt.
    #[doc(hidden)]
    #[inline(always)]
    fn needs_clock(&self) -> bool {
        self.policy().needs_clock()
    }

    /// Withdraws the cost of a retry from the budget of a call without its state machine; `now` is read
    /// if the budget refills over time.
    #[doc(hidden)]
    fn withdraw(&self, cost: Cost, now: impl FnOnce() -> Ns) -> Option<Withdrawal>;

    /// Reports a success to the throttle.
    #[doc(hidden)]
    fn succeeded(&self);

    /// The name of the policy, or the place of the call.
    #[doc(hidden)]
    fn name(&self) -> PolicyName;
}

/// An [`Origin`] that retries and does not hedge.
#[diagnostic::on_unimplemented(
    message = "a hedged call has no strategy: hedges start before there is a failure",
    label = "this call may hedge",
    note = "retry it with a `Policy`; of an `AnyPolicy`, match `AnyPolicy::Policy`"
)]
pub trait Sequential<'p>: Origin<'p> {}

/// An [`Origin`] that retries, or that may hedge and is not known to: all but a [`Hedged`] policy.
#[diagnostic::on_unimplemented(
    message = "a hedged call runs its operation more than once, so it is always idempotent",
    label = "this call hedges",
    note = "retry it with a `Policy`"
)]
pub trait MayBeSequential<'p>: Origin<'p> {}

impl<'p, G: Sequential<'p>> MayBeSequential<'p> for G {}

pub(crate) mod sealed {
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
    fn policy(&self) -> &Policy {
        self
    }
    fn policy_ref(&self) -> PolicyRef<'p> {
        PolicyRef::Borrowed(self)
    }
    fn handle(&self) -> Handle {
        self.handle.clone()
    }
    fn withdraw(&self, cost: Cost, now: impl FnOnce() -> Ns) -> Option<Withdrawal> {
        self.handle.withdraw_from_budget(cost, now)
    }
    #[inline(always)]
    fn succeeded(&self) {
        self.handle.succeeded(None);
    }
    fn name(&self) -> PolicyName {
        self.name.clone()
    }
}

impl<'p> Sequential<'p> for &'p Policy {}

impl<'p> Origin<'p> for &'p Hedged {
    fn policy(&self) -> &Policy {
        &self.0
    }
    fn policy_ref(&self) -> PolicyRef<'p> {
        PolicyRef::Borrowed(&self.0)
    }
    fn handle(&self) -> Handle {
        self.0.handle.clone()
    }
    fn withdraw(&self, cost: Cost, now: impl FnOnce() -> Ns) -> Option<Withdrawal> {
        self.0.handle.withdraw_from_budget(cost, now)
    }
    #[inline(always)]
    fn succeeded(&self) {
        self.0.handle.succeeded(None);
    }
    fn name(&self) -> PolicyName {
        self.0.name.clone()
    }
}

/// A call site of [`retry`](crate::retry): the default rules and the budget of the call site. The rules
/// are a constant, so the compiler removes the code for settings that they do not use.
#[derive(Clone, Copy, Debug)]
pub struct Site(pub(crate) CallSite);

static DEFAULT: Policy =
    Policy::exponential(redial_core::ms(100)).throttle(Throttle::none()).build();

impl<'p> Origin<'p> for Site {
    // The default policy is a static of this crate, whose value the compiler does not know in other crates.
    #[inline(always)]
    fn needs_clock(&self) -> bool {
        false
    }
    fn policy(&self) -> &Policy {
        &DEFAULT
    }
    fn policy_ref(&self) -> PolicyRef<'p> {
        PolicyRef::Borrowed(&DEFAULT)
    }
    fn handle(&self) -> Handle {
        Handle::CallSite(self.0)
    }
    fn withdraw(&self, cost: Cost, now: impl FnOnce() -> Ns) -> Option<Withdrawal> {
        Handle::CallSite(self.0).withdraw_from_budget(cost, now)
    }
    #[inline(always)]
    fn succeeded(&self) {
        self.0.succeeded(None);
    }
    fn name(&self) -> PolicyName {
        PolicyName::of_call_site(self.0.location())
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
/// A fixed delay is wrong as soon as the latency of the operation changes. With a
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

    /// Fibonacci backoff: the first delay times 1, 1, 2, 3, 5, 8 and so on, at most 20 s, with full jitter.
    /// It grows more slowly than [`Policy::exponential`]. See [`Builder::cap`].
    ///
    /// ```
    /// use redial::{Jitter, Policy, ms};
    ///
    /// static POLL: Policy = Policy::fibonacci(ms(100)).jitter(Jitter::None).attempts(7).build();
    /// let delays: Vec<_> = POLL.delays().collect();
    /// assert_eq!(delays, [100, 100, 200, 300, 500, 800].map(ms));
    /// ```
    #[track_caller]
    pub const fn fibonacci(first: Duration) -> Builder<Policy> {
        let cap = Some(Duration::from_secs(20));
        Builder::new(Rules { backoff: Backoff::Fibonacci { first, cap }, ..Rules::DEFAULT })
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
        // A hedged operation may run more than once, so a timed-out attempt may be repeated too.
        let attempt_timeout_action = AttemptTimeoutAction::Retry;
        Builder::new(Rules { hedge: Some(delay), attempt_timeout_action, ..Rules::DEFAULT })
    }

    /// A policy with these rules, which are plain data. Rules that hedge are an error; use
    /// [`Policy::hedged`].
    #[track_caller]
    pub const fn from_rules(rules: Rules) -> Builder<Policy> {
        Builder::from_rules(rules)
    }

    /// Replaces the throttle with one that is shared at run time.
    #[must_use]
    pub fn sharing(&self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        let handle = Handle::Shared(bucket);
        Policy { handle, has_default_throttle: false, ..self.clone() }
    }

    /// Replaces the throttle with a retry budget that is shared at run time, such as the budget of a host
    /// or a tenant ([`KeyedBudgets`](crate::throttle::KeyedBudgets)). The new policy has the name of this one, so
    /// the metrics have no gauge of its budget until [`with_name`](Policy::with_name) gives it a name of its own.
    ///
    /// ```
    /// use redial::throttle::RetryBudget;
    /// use redial::{Policy, ms};
    /// use std::sync::Arc;
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let budget = Arc::new(RetryBudget::new(50.0, 0.1).per_second(1.0));
    /// let policy = FETCH.with_budget(budget);
    /// assert_eq!(policy.tokens(0), Some(50.0));
    /// ```
    #[must_use]
    pub fn with_budget(&self, budget: Arc<RetryBudget>) -> Self {
        let handle = Handle::Own(budget);
        Policy { handle, has_default_throttle: false, shares_name: true, ..self.clone() }
    }

    /// Replaces the name, for names that are known at run time.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let policy = FETCH.with_name(format!("fetch from {}", "eu-west"));
    /// assert_eq!(policy.name().to_string(), "fetch from eu-west");
    /// ```
    #[must_use]
    pub fn with_name(&self, name: impl Into<Arc<str>>) -> Self {
        Policy { name: PolicyName::shared(name.into()), shares_name: false, ..self.clone() }
    }

    /// Changes the rules. Strategy and name stay, and so does the throttle; but a policy that becomes one that
    /// retries [`forever`](Builder::forever) has no default budget, as from the builder.
    ///
    /// ```
    /// use redial::{Policy, ms, s};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let patient = FETCH.with_rules(|rules| rules.deadline = Some(s(30)))?;
    /// assert_eq!(patient.rules().deadline, Some(s(30)));
    /// # Ok::<(), redial::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// The rules contradict each other, they hedge, or the change makes a likely mistake that the builder
    /// refuses:
    ///
    /// ```
    /// use redial::throttle::RetryBudget;
    /// use redial::{Policy, PolicyError, Throttle, ms};
    ///
    /// static SMALL: RetryBudget = RetryBudget::new(5.0, 0.1);
    /// static FETCH: Policy = Policy::constant(ms(50)).throttle(Throttle::budget(&SMALL)).build();
    ///
    /// let more = FETCH.with_rules(|rules| rules.attempts = Some(7));
    /// assert_eq!(more.unwrap_err(), PolicyError::AttemptsAboveReserve);
    /// ```
    pub fn with_rules(&self, change: impl FnOnce(&mut Rules)) -> Result<Self, PolicyError> {
        let core = self.core.clone().changed(change)?;
        match (self.core.rules().hedge, core.rules().hedge) {
            (None, Some(_)) => return Err(PolicyError::HedgeAsRetry),
            (Some(_), None) => return Err(PolicyError::RetryAsHedge),
            _ => {}
        }
        // A preset or a written policy may have a mistake on purpose, and keeps it.
        let (budget, is_default) = (self.handle.retry_budget(), self.has_default_throttle);
        let mistakes = |core| Mistakes::of(core, budget, is_default);
        if let Some(problem) = mistakes(&core).except(mistakes(&self.core)).error() {
            return Err(problem);
        }
        let has_no_budget = is_default && core.rules().never_gives_up();
        let handle = if has_no_budget { Handle::None } else { self.handle.clone() };
        Ok(Policy { core, handle, ..self.clone() })
    }

    /// The name of the policy: that of [`Builder::name`], or else the place in the source where it was
    /// built, as `file:line`.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    /// assert!(FETCH.name().to_string().contains(".rs:"));
    /// ```
    #[must_use]
    pub fn name(&self) -> PolicyName {
        self.name.clone()
    }

    /// The delays of one call, for a loop of your own: one for each retry, with jitter, until no attempt
    /// is left or the sum of the delays reaches a limit or the deadline. The random numbers are those of
    /// calls; [`Delays::seed`] makes them reproducible.
    ///
    /// The iterator does not charge the retry budget, and it does not know how long the attempts take.
    /// Prefer [`Policy::retry`] where it fits.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static CONNECT: Policy = Policy::exponential(ms(1)).attempts(4).build();
    ///
    /// # fn connect(delays: usize) -> Result<u32, &'static str> { if delays > 1 { Err("refused") } else { Ok(7) } }
    /// # fn main() -> Result<(), &'static str> {
    /// let mut delays = CONNECT.delays();
    /// # let mut left = 4;
    /// let connection = loop {
    /// #   left -= 1;
    ///     match connect(left) {
    ///         Ok(connection) => break connection,
    ///         Err(error) => std::thread::sleep(delays.next().ok_or(error)?),
    ///     }
    /// };
    /// assert_eq!(connection, 7);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("iter", "backoff", "intervals"))]
    #[must_use]
    pub const fn delays(&self) -> Delays<'_> {
        Delays::new(&self.core)
    }

    /// Lets this [strategy](crate::strategy) decide about each failure.
    ///
    /// # Errors
    /// The rules cannot be combined with a strategy.
    pub fn with_strategy(&self, strategy: impl Strategy + 'static) -> Result<Self, PolicyError> {
        let core = self.core.clone().changed(|rules| rules.uses_strategy = true)?;
        Ok(Policy { core, strategy: Some(Arc::new(strategy)), ..self.clone() })
    }

    /// The name of a call with this throttle: that of the policy, or the place of a call with the default
    /// policy.
    pub(crate) fn call_name(&self, throttle: &Handle) -> PolicyName {
        match throttle {
            Handle::CallSite(site) if std::ptr::eq(self, &DEFAULT) => Site(*site).name(),
            _ => self.name(),
        }
    }

    /// Whether the clock is read before the first attempt, or the state machine starts with the call.
    #[inline(always)]
    pub(crate) fn needs_clock(&self) -> bool {
        let rules = self.core.rules();
        rules.deadline.is_some() || rules.reset_after.is_some() || self.handle.watches_calls()
    }

    /// Whether a call needs its state machine from the start: it decides whether an expired deadline allows
    /// an attempt (P10), and a throttle that watches calls is notified of their start.
    pub(crate) fn needs_machine(&self) -> bool {
        self.rules().deadline == Some(Duration::ZERO) || self.handle.watches_calls()
    }

    /// Whether counters are all the state of a call after a failure.
    pub(crate) fn needs_only_counters(&self) -> bool {
        self.core.needs_only_counters() && self.handle.is_budget_or_none()
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
    /// calls use ([`Sleeper::now`](crate::time::Sleeper::now), by default `Tokio.now()`), for a bucket that refills over
    /// time. A retry budget does not use it, because it counts its refill when a retry asks:
    /// [`tokens_at`](Policy::tokens_at) includes the refill until now.
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.handle.tokens(now)
    }

    /// The tokens left in the throttle, with the refill of a retry budget until `now`; `None` without a throttle.
    /// For a gauge of your own, which can be set while no call ends (the module `metrics` sets its gauge at the
    /// end of each call). `now` is the time of the clock that the calls use, by default `Tokio.now()`.
    ///
    /// ```
    /// use redial::throttle::RetryBudget;
    /// use redial::{Policy, Throttle, s, time::ns};
    ///
    /// static BUDGET: RetryBudget = RetryBudget::new(2.0, 0.1).per_second(1.0);
    /// static FETCH: Policy = Policy::immediate().throttle(Throttle::budget(&BUDGET)).build();
    ///
    /// # let start = redial::testing::Clock.now();
    /// # use redial::time::Sleeper;
    /// let call = FETCH.retry(async || Err::<(), _>("busy")).when(|_| true).sleeping_on(redial::testing::Clock);
    /// redial::testing::block_on(call.into_future()).unwrap_err();
    /// assert_eq!(FETCH.tokens(start + ns(s(1))), Some(0.0));
    /// assert_eq!(FETCH.tokens_at(start + ns(s(1))), Some(1.0));
    /// ```
    #[must_use]
    pub fn tokens_at(&self, now: Ns) -> Option<f64> {
        self.handle.tokens_at(now)
    }

    /// Retries the operation: a closure that returns a `Result`, or a future of one.
    ///
    /// The closure is called when the first attempt starts, not before.
    pub const fn retry<O, K>(&self, operation: O) -> Retry<'_, NeedsWhen, &Policy, O, K>
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
    ) -> Retry<'_, NeedsWhen, &Policy, WithAttempt<F>, K>
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
    ///
    /// A closure that captures a reference, such as an argument of the function around it, makes a future
    /// that `tokio::spawn` does not take. Use [`Policy::retry_with_context`] there, and where the operation
    /// needs its [`Attempt`]: its closure gets both, and [`until`](Retry::until) works as for every call.
    pub const fn retry_on<'a, A, F, T, E>(
        &'a self,
        target: &'a mut A,
        operation: F,
    ) -> RetryOn<'a, NeedsWhen<EveryValue>, A, F>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
    {
        RetryOn::new(self, target, operation)
    }

    /// Retries an async operation that owns `context` while an attempt runs, and returns it with its
    /// result. The context is everything that the operation changes or borrows: a connection, `&mut self`,
    /// arguments. The closure should capture nothing; then the future can be spawned, boxed and returned
    /// wherever the context can.
    ///
    /// With the [`Attempt`], which [`Policy::retry_on`] does not pass, and a rule for values:
    ///
    /// ```
    /// use redial::{Policy, ms, s};
    /// use std::time::Duration;
    /// # struct Conn { polls: u32 }
    /// # impl Conn {
    /// #     async fn poll(&mut self, _timeout: Duration) -> Result<u32, std::io::Error> { self.polls += 1; Ok(self.polls) }
    /// # }
    ///
    /// static POLL: Policy = Policy::constant(ms(10)).attempts(5).deadline(s(2)).build();
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let mut conn = Conn { polls: 0 };
    /// let polls = POLL
    ///     .retry_with_context(&mut conn, |conn, attempt| async move {
    ///         let result = conn.poll(attempt.remaining().unwrap_or(s(1))).await;
    ///         (conn, result)
    ///     })
    ///     .until(|polls| *polls == 3)
    ///     .when(|_| true)
    ///     .await;
    /// assert_eq!(polls.ok(), Some(3));
    /// # }
    /// ```
    ///
    /// An attempt that is cancelled takes the context with it. So the deadline ends the call as always, and
    /// an attempt timeout ends it too, even with
    /// [`Builder::retry_timeouts`](crate::Builder::retry_timeouts).
    ///
    /// ```
    /// use redial::{Policy, ms};
    /// # struct Conn { queries: u32 }
    /// # impl Conn {
    /// #     async fn run(&mut self, sql: &str) -> Result<usize, std::io::Error> { self.queries += 1; Ok(sql.len()) }
    /// # }
    ///
    /// static QUERY: Policy = Policy::exponential(ms(10)).build();
    ///
    /// impl Conn {
    ///     async fn query(&mut self, sql: &str) -> Result<usize, redial::Error<std::io::Error>> {
    ///         QUERY
    ///             .retry_with_context((self, sql), |(conn, sql), _attempt| async move {
    ///                 let result = conn.run(sql).await;
    ///                 ((conn, sql), result)
    ///             })
    ///             .when(|_| true)
    ///             .await
    ///     }
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = tokio::spawn(async { Conn { queries: 0 }.query("select 7").await }).await??;
    /// assert_eq!(rows, 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_with_context<C, F, A, T, E>(
        &self,
        context: C,
        operation: F,
    ) -> Retry<'_, NeedsWhen, &Policy, WithContext<C, F>, Async>
    where
        F: FnMut(C, Attempt) -> A,
        A: Future<Output = (C, Result<T, E>)>,
    {
        let mut call = Retry::new(self, WithContext::new(context, operation));
        call.options().owns_context = true;
        call
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
    pub const fn retry<O>(&self, operation: O) -> Retry<'_, NeedsWhen, &Hedged, O, Async>
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
    ) -> Retry<'_, NeedsWhen, &Hedged, WithAttempt<F>, Async>
    where
        F: FnMut(Attempt) -> R,
        R: Answer<Async>,
    {
        Retry::new(self, WithAttempt(operation))
    }

    /// Replaces the throttle with one that is shared at run time.
    #[must_use]
    pub fn sharing(&self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        Hedged(self.0.sharing(bucket))
    }

    /// Replaces the throttle with a retry budget that is shared at run time; see
    /// [`Policy::with_budget`].
    ///
    /// ```
    /// use redial::throttle::RetryBudget;
    /// use redial::{Hedged, Policy, ms};
    /// use std::sync::Arc;
    ///
    /// static READ: Hedged = Policy::hedged(ms(20)).build();
    ///
    /// let policy = READ.with_budget(Arc::new(RetryBudget::new(50.0, 0.1)));
    /// assert_eq!(policy.tokens(0), Some(50.0));
    /// ```
    #[must_use]
    pub fn with_budget(&self, budget: Arc<RetryBudget>) -> Self {
        Hedged(self.0.with_budget(budget))
    }

    /// Replaces the name, for names that are known at run time; see [`Policy::with_name`].
    ///
    /// ```
    /// use redial::{Hedged, Policy, ms};
    ///
    /// static READ: Hedged = Policy::hedged(ms(20)).build();
    /// assert_eq!(READ.with_name("read").name().to_string(), "read");
    /// ```
    #[must_use]
    pub fn with_name(&self, name: impl Into<Arc<str>>) -> Self {
        Hedged(self.0.with_name(name))
    }

    /// Changes the rules; see [`Policy::with_rules`].
    ///
    /// ```
    /// use redial::{Hedged, Policy, ms, s};
    ///
    /// static READ: Hedged = Policy::hedged(ms(20)).build();
    ///
    /// let bounded = READ.with_rules(|rules| rules.deadline = Some(s(1)))?;
    /// assert_eq!(bounded.rules().deadline, Some(s(1)));
    /// # Ok::<(), redial::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// The rules contradict each other, or they do not hedge.
    pub fn with_rules(&self, change: impl FnOnce(&mut Rules)) -> Result<Self, PolicyError> {
        self.0.with_rules(change).map(Hedged)
    }

    /// The name of the policy; see [`Policy::name`].
    ///
    /// ```
    /// use redial::{Hedged, Policy, ms};
    ///
    /// static READ: Hedged = Policy::hedged(ms(20)).name("read").build();
    /// assert_eq!(READ.name().to_string(), "read");
    /// ```
    #[must_use]
    pub fn name(&self) -> PolicyName {
        self.0.name()
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
    /// calls use ([`Sleeper::now`](crate::time::Sleeper::now), by default `Tokio.now()`), for a bucket that refills over
    /// time. A retry budget does not use it, because it counts its refill when a retry asks:
    /// [`tokens_at`](Hedged::tokens_at) includes the refill until now.
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.0.tokens(now)
    }

    /// The tokens left in the throttle, with the refill of a retry budget until `now`; see [`Policy::tokens_at`].
    #[must_use]
    pub fn tokens_at(&self, now: Ns) -> Option<f64> {
        self.0.tokens_at(now)
    }
}

/// The same as `Policy::exponential(ms(100)).try_build()`: the documented defaults and a retry budget of its
/// own. An empty configuration gives the same policy.
impl Default for Policy {
    #[track_caller]
    fn default() -> Self {
        let core = redial_core::Policy::new(Rules::DEFAULT);
        let handle = Handle::Own(Arc::new(RetryBudget::standard()));
        let name = PolicyName::here();
        Policy {
            core,
            handle,
            has_default_throttle: true,
            strategy: None,
            name,
            shares_name: false,
        }
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
            .field("name", &self.name)
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
