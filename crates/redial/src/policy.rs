//! Policies: immutable values that say how a call is repeated.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use redial_core::throttle::{Bucket, Budget, Place};
use redial_core::{Backoff, Cost, Grant, HintRule, Jitter, Late, Limits, Ns, Problem, Rules, Step};

use crate::attempt::{Answer, Attempt, Operation, Seeing};
use crate::classify::SayWhichErrorsMayBeRepeatedWithWhen;
use crate::lend::Lend;
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
/// (`Budget::checked(50.0, 0.1)`), or [`Throttle::none`].
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
    fn is_flat(self) -> bool;

    /// Asks for a retry.
    #[doc(hidden)]
    fn take(self, cost: Cost, now: Ns) -> Grant;

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
    fn is_flat(self) -> bool {
        self.handle.is_flat()
    }
    #[inline]
    fn take(self, cost: Cost, now: Ns) -> Grant {
        self.handle.take(cost, now)
    }
    #[inline(always)]
    fn succeeded(self) {
        self.handle.succeeded(None);
    }
}

/// A call site without a policy of its own: the default rules, and the site's own budget. The rules
/// are a constant, so that the compiler sees what they do not ask for.
#[derive(Clone, Copy, Debug)]
pub struct Site(pub(crate) Place);

static DEFAULT: Policy =
    Policy::exponential(redial_core::ms(100)).throttle(Throttle::none()).checked();

impl<'p> Origin<'p> for Site {
    #[inline(always)]
    fn policy(self) -> &'p Policy {
        &DEFAULT
    }
    fn handle(self) -> Handle {
        Handle::Place(self.0)
    }
    #[inline]
    fn is_flat(self) -> bool {
        true
    }
    #[inline]
    fn take(self, cost: Cost, now: Ns) -> Grant {
        self.0.take(cost, now)
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
/// static READ: Hedged = Policy::hedged(ms(20)).attempts(3).checked();
/// ```
///
/// It has no blocking call:
/// ```compile_fail
/// # use redial::{Hedged, Policy, ms};
/// # static READ: Hedged = Policy::hedged(ms(20)).attempts(3).checked();
/// READ.retry(|| std::fs::read("file")).when(|_| true).call();
/// ```
#[derive(Clone)]
pub struct Hedged(pub(crate) Policy);

/// A policy that is being written. `P` is what it becomes: a [`Policy`] or a [`Hedged`] one.
#[must_use = "a builder does nothing until it is checked or built"]
pub struct Builder<P> {
    rules: Rules,
    throttle: Throttle,
    /// Whether nobody has named a throttle, so that a policy made at run time owns its budget.
    unnamed: bool,
    /// Something that was said and does not go with the backoff.
    misplaced: Option<Problem>,
    becomes: PhantomData<fn() -> P>,
}

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

    /// Each delay is the same.
    #[track_caller]
    pub const fn constant(delay: Duration) -> Builder<Policy> {
        Builder::new(Rules { backoff: Backoff::Constant(delay), ..Rules::DEFAULT })
    }

    /// Each delay is longer than the one before it by the same step.
    #[track_caller]
    pub const fn arithmetic(first: Duration, step: Duration) -> Builder<Policy> {
        let backoff = Backoff::Arithmetic { first, step, cap: None };
        Builder::new(Rules { backoff, ..Rules::DEFAULT })
    }

    /// The delays are listed; the last one repeats.
    #[track_caller]
    pub const fn table(delays: &'static [Duration]) -> Builder<Policy> {
        Builder::new(Rules { backoff: Backoff::Table(delays), ..Rules::DEFAULT })
    }

    /// Retries follow at once.
    #[track_caller]
    pub const fn immediate() -> Builder<Policy> {
        let backoff = Backoff::Constant(Duration::ZERO);
        Builder::new(Rules { backoff, jitter: Jitter::None, ..Rules::DEFAULT })
    }

    /// Another attempt starts whenever this long has passed without an answer, or one fails.
    #[track_caller]
    pub const fn hedged(delay: Duration) -> Builder<Hedged> {
        Builder::new(Rules { hedge: Some(delay), ..Rules::DEFAULT })
    }

    /// A policy of rules that are plain data: what presets and designs are made of.
    #[track_caller]
    pub const fn from_rules(rules: Rules) -> Builder<Policy> {
        Builder::new(rules)
    }

    /// A policy of rules that were checked elsewhere, without a throttle: for designs that make
    /// their own and bring their own ([`Policy::sharing`]).
    #[must_use]
    pub const fn from_core(core: redial_core::Policy) -> Policy {
        Policy { core, handle: Handle::None, strategy: None }
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
    pub fn asking(mut self, strategy: impl Strategy + 'static) -> Result<Self, Problem> {
        self.core = self.core.changed(|rules| rules.asks = true)?;
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

    /// What its throttle holds; `None` without one.
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
    ) -> Retry<'_, &Policy, O, K, SayWhichErrorsMayBeRepeatedWithWhen>
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
    /// static FETCH: Policy = Policy::exponential(ms(10)).deadline(s(5)).checked();
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
    ) -> Retry<'_, &Policy, Seeing<F>, K, SayWhichErrorsMayBeRepeatedWithWhen>
    where
        F: FnMut(Attempt) -> R,
        R: Answer<K>,
    {
        Retry::new(self, Seeing(operation))
    }

    /// Repeats an operation that borrows `target` mutably for each attempt.
    ///
    /// ```
    /// # use redial::{Policy, ms};
    /// # struct Conn; impl Conn { async fn query(&mut self, _: &str) -> Result<u32, std::io::Error> { Ok(7) } }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::io::Error> {
    /// static QUERY: Policy = Policy::exponential(ms(10)).checked();
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
    ) -> Lend<'a, A, F>
    where
        F: AsyncFnMut(&mut A) -> Result<T, E>,
    {
        Lend::new(self, target, operation)
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
    /// static READ: Hedged = Policy::hedged(ms(50)).attempts(2).checked();
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
        crate::Async,
        SayWhichErrorsMayBeRepeatedWithWhen,
        crate::DefaultSleeper,
        crate::future::Value,
        { redial_core::LIVE_MAX },
    >
    where
        O: Operation,
        O::Answer: Answer<crate::Async>,
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
        Seeing<F>,
        crate::Async,
        SayWhichErrorsMayBeRepeatedWithWhen,
        crate::DefaultSleeper,
        crate::future::Value,
        { redial_core::LIVE_MAX },
    >
    where
        F: FnMut(Attempt) -> R,
        R: Answer<crate::Async>,
    {
        Retry::new(&self.0, Seeing(operation))
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

    /// What its throttle holds; `None` without one.
    #[must_use]
    pub fn tokens(&self, now: Ns) -> Option<f64> {
        self.0.tokens(now)
    }
}

impl<P> Builder<P> {
    #[track_caller]
    const fn new(rules: Rules) -> Self {
        Builder {
            rules,
            throttle: Throttle::here(),
            unnamed: true,
            misplaced: None,
            becomes: PhantomData,
        }
    }

    /// How many attempts, the first included. The default budget pays for ten retries at the most;
    /// see [`Policy`].
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.rules.attempts = Some(attempts);
        self
    }

    /// After how long the call must end, whatever it is doing.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.rules.deadline = Some(deadline);
        self
    }

    /// After how long an attempt is cancelled and counts as a failure of kind timeout.
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.rules.attempt_timeout = Some(timeout);
        self
    }

    /// The longest delay that a server's hint may ask for; a longer one becomes this. Without it a
    /// hint is followed however long it is, up to the deadline.
    ///
    /// A hint replaces the policy's own delay, without jitter, and is no step of its series: the
    /// delay after it is the one that would have been next.
    pub const fn hint_max(mut self, most: Duration) -> Self {
        self.rules.hint = HintRule::Exact(Some(most));
        self
    }

    /// The throttle in place of the default budget.
    pub const fn throttle(mut self, throttle: Throttle) -> Self {
        self.throttle = throttle;
        self.unnamed = false;
        self
    }

    #[track_caller]
    const fn fixed(self) -> Policy {
        if let Some(problem) = self.misplaced {
            panic!("{}", problem.text());
        }
        let core = redial_core::Policy::checked(self.rules);
        Policy { core, handle: self.throttle.handle(), strategy: None }
    }

    fn own(self) -> Result<Policy, Problem> {
        self.placed()?;
        let core = redial_core::Policy::new(self.rules)?;
        Ok(Policy { core, handle: self.own_handle(), strategy: None })
    }

    fn placed(&self) -> Result<(), Problem> {
        self.misplaced.map_or(Ok(()), Err)
    }

    /// The handle of a policy that is made at run time: its own budget, unless one was named.
    fn own_handle(&self) -> Handle {
        if self.unnamed {
            Handle::Own(Arc::new(Budget::standard()))
        } else {
            self.throttle.handle()
        }
    }
}

impl Builder<Policy> {
    /// No bound on the attempts: a deadline or a limit must end the call.
    pub const fn unlimited(mut self) -> Self {
        self.rules.attempts = None;
        self
    }

    /// No delay exceeds it, jitter included.
    pub const fn cap(mut self, most: Duration) -> Self {
        self.rules.backoff = match self.rules.backoff {
            Backoff::Arithmetic { first, step, .. } => {
                Backoff::Arithmetic { first, step, cap: Some(most) }
            }
            Backoff::Exponential { first, factor, .. } => {
                Backoff::Exponential { first, factor, cap: Some(most) }
            }
            other => {
                self.misplaced = Some(Problem::CapWithoutGrowth);
                other
            }
        };
        self
    }

    /// What each delay of an exponential series is multiplied by; any number above 0.
    pub const fn factor(mut self, factor: f64) -> Self {
        match self.rules.backoff {
            Backoff::Exponential { first, cap, .. } => {
                self.rules.backoff = Backoff::Exponential { first, factor, cap };
            }
            _ => self.misplaced = Some(Problem::FactorWithoutGrowth),
        }
        self
    }

    /// The randomness in a delay.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.rules.jitter = jitter;
        self
    }

    /// Soft and hard limits on the time that retrying takes.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.rules.limits = limits;
        self
    }

    /// What happens when the next retry cannot start before the deadline.
    pub const fn late(mut self, late: Late) -> Self {
        self.rules.late = late;
        self
    }

    /// The policy; a contradiction is a panic, which in a `static` is a compile error.
    ///
    /// ```compile_fail
    /// # use redial::{Policy, ms};
    /// static NEVER: Policy = Policy::constant(ms(1)).attempts(0).checked();
    /// ```
    ///
    /// # Panics
    /// The rules contradict each other; the message says which and what to write instead.
    #[track_caller]
    #[must_use]
    pub const fn checked(self) -> Policy {
        self.fixed()
    }

    /// The policy, made at run time: unless a throttle was named it owns its budget, together with
    /// its clones.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn build(self) -> Result<Policy, Problem> {
        self.own()
    }

    /// The policy, with a table of delays that is made at run time.
    ///
    /// # Errors
    /// The table is empty, or the rules contradict each other.
    pub fn build_with_table(self, table: impl Into<Arc<[Duration]>>) -> Result<Policy, Problem> {
        self.placed()?;
        let core = redial_core::Policy::with_table(self.rules, table)?;
        Ok(Policy { core, handle: self.own_handle(), strategy: None })
    }

    /// The policy, with a function of your own that says each delay before jitter and limits.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn build_with(
        self,
        function: impl Fn(Step<'_>) -> Duration + Send + Sync + 'static,
    ) -> Result<Policy, Problem> {
        self.placed()?;
        let core = redial_core::Policy::with_function(self.rules, function)?;
        Ok(Policy { core, handle: self.own_handle(), strategy: None })
    }
}

impl Builder<Hedged> {
    /// The policy; a contradiction is a panic, which in a `static` is a compile error.
    ///
    /// # Panics
    /// The rules contradict each other; the message says which and what to write instead.
    #[track_caller]
    #[must_use]
    pub const fn checked(self) -> Hedged {
        Hedged(self.fixed())
    }

    /// The policy, made at run time: unless a throttle was named it owns its budget, together with
    /// its clones.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn build(self) -> Result<Hedged, Problem> {
        self.own().map(Hedged)
    }
}

// Not derived: that would ask `P` to be `Copy`, of which a builder holds nothing.
impl<P> Clone for Builder<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Builder<P> {}

impl<P> fmt::Debug for Builder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("rules", &self.rules)
            .field("throttle", &self.throttle)
            .finish_non_exhaustive()
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
