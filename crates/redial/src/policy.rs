//! Policies: immutable values that say how a call is repeated.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::{Bucket, CallSite, RetryBudget};
use redial_core::{Backoff, Cost, Grant, Jitter, Ns, PolicyError, Rules};

use crate::attempt::{Answer, Async, Attempt, Operation, WithAttempt};
use crate::borrowing::BorrowingRetry;
use crate::builder::Builder;
use crate::classify::CallWhenToSayWhichErrorsAreRetried;
use crate::retry::Retry;
use crate::strategy::Strategy;
use crate::throttle::{Handle, Throttle};

/// How a call is repeated: an immutable value, cheap to clone, built in a `static`.
///
/// | what | default | why |
/// | --- | --- | --- |
/// | attempts | 3, the first included | two more tries cure what is passing |
/// | backoff | 100 ms, doubled, at most 20 s | quick at first, gentle soon |
/// | jitter | full | who failed together does not return together |
/// | throttle | a budget for the place where the policy is written | a dead server is not beaten: after a reserve of 10, one retry in ten successful calls |
/// | deadline, attempt timeout, limits | none | only the caller knows |
/// | which errors | none | what may be repeated is somebody's explicit word: `when` |
///
/// The default budget holds 10 retries in reserve, so no call under it makes more than 11 attempts,
/// and calls that fail in a row share them. A policy that must try longer, or that waits for a value,
/// names its throttle: [`Throttle::budget`] with a larger reserve
/// (`RetryBudget::new(50.0, 0.1)`), or [`Throttle::none`].
#[derive(Clone)]
pub struct Policy {
    pub(crate) core: redial_core::Policy,
    pub(crate) handle: Handle,
    pub(crate) strategy: Option<Arc<dyn Strategy>>,
}

/// Where a call has its policy and throttle from: a [`Policy`], or the place where it is written.
pub trait Origin<'p>: Copy + sealed::Sealed {
    /// The rules, and a strategy if there is one.
    #[doc(hidden)]
    fn policy(self) -> &'p Policy;

    /// The throttle.
    #[doc(hidden)]
    fn handle(self) -> Handle;

    /// Whether what the throttle takes is always the same.
    #[doc(hidden)]
    fn is_fixed_cost(self) -> bool;

    /// Whether the throttle is told when calls start and end, so that a call needs its machine from
    /// the start.
    #[doc(hidden)]
    fn watches_calls(self) -> bool;

    /// Asks for a retry.
    #[doc(hidden)]
    fn withdraw(self, cost: Cost, now: Ns) -> Grant;

    /// Counts a success.
    #[doc(hidden)]
    fn succeeded(self);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &super::Policy {}
    impl Sealed for super::Site {}
}

impl<'p> Origin<'p> for &'p Policy {
    #[inline(always)]
    fn policy(self) -> &'p Policy {
        self
    }
    fn handle(self) -> Handle {
        self.handle.clone()
    }
    #[inline]
    fn is_fixed_cost(self) -> bool {
        self.handle.is_fixed_cost()
    }
    #[inline(always)]
    fn watches_calls(self) -> bool {
        self.handle.watches_calls()
    }
    #[inline]
    fn withdraw(self, cost: Cost, now: Ns) -> Grant {
        self.handle.withdraw(cost, now)
    }
    #[inline(always)]
    fn succeeded(self) {
        self.handle.succeeded(None);
    }
}

/// A call site without a policy of its own: the default rules, and the site's own budget. The rules
/// are a constant, so that the compiler sees what they do not ask for.
#[derive(Clone, Copy, Debug)]
pub struct Site(pub(crate) CallSite);

static DEFAULT: Policy =
    Policy::exponential(redial_core::ms(100)).throttle(Throttle::none()).build();

impl<'p> Origin<'p> for Site {
    #[inline(always)]
    fn policy(self) -> &'p Policy {
        &DEFAULT
    }
    fn handle(self) -> Handle {
        Handle::CallSite(self.0)
    }
    #[inline]
    fn is_fixed_cost(self) -> bool {
        true
    }
    #[inline(always)]
    fn watches_calls(self) -> bool {
        false
    }
    #[inline]
    fn withdraw(self, cost: Cost, now: Ns) -> Grant {
        self.0.withdraw(cost, now)
    }
    #[inline(always)]
    fn succeeded(self) {
        self.0.succeeded(None);
    }
}

/// How a call is hedged: another attempt starts when those before it are slow or fail, and the
/// first answer wins.
///
/// A type of its own: a blocking call cannot be hedged, and neither can one that must not run
/// twice.
///
/// ```
/// use redial::{Hedged, Policy, ms};
///
/// static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();
/// ```
///
/// The delay is right for the latencies of the day on which it was written; a call with a
/// [`estimator`](crate::Retry::pace) follows those that are seen.
///
/// It has no blocking call:
/// ```compile_fail
/// # use redial::{Hedged, Policy, ms};
/// # static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();
/// READ.retry(|| std::fs::read("file")).when(|_| true).call();
/// ```
#[derive(Clone)]
pub struct Hedged(pub(crate) Policy);

impl Policy {
    /// Each delay is `2` times the one before it, at most 20 s; see [`Builder::factor`] and
    /// [`Builder::cap`].
    #[track_caller]
    pub const fn exponential(first: Duration) -> Builder<Policy> {
        let cap = Some(Duration::from_secs(20));
        Builder::new(Rules {
            backoff: Backoff::Exponential { first, factor: 2.0, cap },
            ..Rules::DEFAULT
        })
    }

    /// Every delay is the same. There is no jitter unless [`Builder::jitter`] adds one.
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

    /// Each delay is longer than the one before it by the same step.
    #[doc(alias = "linear")]
    #[track_caller]
    pub const fn arithmetic(first: Duration, step: Duration) -> Builder<Policy> {
        let backoff = Backoff::Arithmetic { first, step, cap: None };
        Builder::new(Rules { backoff, ..Rules::DEFAULT })
    }

    /// The delays are listed; the last one repeats. There is no jitter unless [`Builder::jitter`]
    /// adds one.
    #[track_caller]
    pub const fn table(delays: &'static [Duration]) -> Builder<Policy> {
        let backoff = Backoff::Table(delays);
        Builder::new(Rules { backoff, jitter: Jitter::None, ..Rules::DEFAULT })
    }

    /// Retries follow at once.
    #[track_caller]
    pub const fn immediate() -> Builder<Policy> {
        Policy::constant(Duration::ZERO)
    }

    /// Another attempt starts whenever this long has passed without an answer, or one fails.
    #[track_caller]
    pub const fn hedged(delay: Duration) -> Builder<Hedged> {
        Builder::new(Rules { hedge: Some(delay), ..Rules::DEFAULT })
    }

    /// A policy of rules that are plain data: what presets and designs are made of. Rules that hedge
    /// are refused when it is built: [`Policy::hedged`] makes those.
    #[track_caller]
    pub const fn from_rules(rules: Rules) -> Builder<Policy> {
        Builder::from_rules(rules)
    }

    /// The same policy with a throttle that is shared at run time.
    #[must_use]
    pub fn sharing(mut self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        self.handle = Handle::Shared(bucket);
        self
    }

    /// The same policy, asking this strategy about each failure.
    ///
    /// # Errors
    /// The rules do not go with a strategy.
    pub fn asking(mut self, strategy: impl Strategy + 'static) -> Result<Self, PolicyError> {
        self.core = self.core.changed(|rules| rules.uses_strategy = true)?;
        self.strategy = Some(Arc::new(strategy));
        Ok(self)
    }

    /// Its rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        self.core.rules()
    }

    /// The same rules as the core has them: for drivers of your own.
    #[must_use]
    pub const fn core(&self) -> &redial_core::Policy {
        &self.core
    }

    /// What its throttle holds; `None` without one. The moment is one of its calls' clock
    /// ([`Sleeper::now`](crate::Sleeper::now): `Tokio.now()` where nobody named another); only a bucket
    /// that refills looks at it.
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.handle.tokens(now)
    }

    /// Repeats the operation: a closure that returns a `Result`, or a future of one.
    ///
    /// The operation is called when the first attempt starts, not before.
    pub const fn retry<O, K>(
        &self,
        operation: O,
    ) -> Retry<'_, &Policy, O, K, CallWhenToSayWhichErrorsAreRetried>
    where
        O: Operation,
        O::Answer: Answer<K>,
    {
        Retry::new(self, operation)
    }

    /// Repeats an operation that sees its [`Attempt`]: its number, what came before, and the time
    /// that remains.
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
    ) -> Retry<'_, &Policy, WithAttempt<F>, K, CallWhenToSayWhichErrorsAreRetried>
    where
        F: FnMut(Attempt) -> R,
        R: Answer<K>,
    {
        Retry::new(self, WithAttempt(operation))
    }

    /// Repeats an async operation that borrows `target` mutably for each attempt. (One that blocks
    /// borrows what it needs by itself: [`Policy::retry`].)
    ///
    /// `when` is the last word, and what is awaited: options come before it. It is needed here even
    /// where the error judges itself; it is `.when(Transient::failure)` then.
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
    /// /// A second request goes out if the first has no answer after 50 ms; the first answer wins.
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
    ) -> Retry<
        '_,
        &Policy,
        O,
        Async,
        CallWhenToSayWhichErrorsAreRetried,
        crate::sleeper::DefaultSleeper,
        crate::future::Value,
        { redial_core::LIVE_MAX },
    >
    where
        O: Operation,
        O::Answer: Answer<Async>,
    {
        Retry::new(&self.0, operation)
    }

    /// Hedges an operation that sees its [`Attempt`].
    pub const fn retry_with<F, R>(
        &self,
        operation: F,
    ) -> Retry<
        '_,
        &Policy,
        WithAttempt<F>,
        Async,
        CallWhenToSayWhichErrorsAreRetried,
        crate::sleeper::DefaultSleeper,
        crate::future::Value,
        { redial_core::LIVE_MAX },
    >
    where
        F: FnMut(Attempt) -> R,
        R: Answer<Async>,
    {
        Retry::new(&self.0, WithAttempt(operation))
    }

    /// The same policy with a throttle that is shared at run time.
    #[must_use]
    pub fn sharing(self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        Hedged(self.0.sharing(bucket))
    }

    /// Its rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        self.0.rules()
    }

    /// The same rules as the core has them.
    #[must_use]
    pub const fn core(&self) -> &redial_core::Policy {
        self.0.core()
    }

    /// What its throttle holds; `None` without one. The moment is one of its calls' clock
    /// ([`Sleeper::now`](crate::Sleeper::now): `Tokio.now()` where nobody named another); only a bucket
    /// that refills looks at it.
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.0.tokens(now)
    }
}

/// The policy of `Policy::exponential(ms(100)).try_build()`: the documented defaults, and a budget of its
/// own, as a written policy has it that says nothing.
impl Default for Policy {
    fn default() -> Self {
        let core = redial_core::Policy::new(Rules::DEFAULT);
        Policy { core, handle: Handle::Own(Arc::new(RetryBudget::standard())), strategy: None }
    }
}

// Nothing of a policy changes but its throttle and what a strategy keeps, which threads share: they
// have to be whole whenever one of them panics, caught or not.
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
