//! The builder of a call: the operation, the classification of its errors, and the options.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use redial_core::throttle::CallSite;
use redial_core::{LatencyEstimator, Ns};

use crate::attempt::{Answer, Async, Attempt, Operation, WithAttempt};
use crate::classify::{
    AddClassify, AddHook, AddUntil, AddWhen, Chain, Classify, ClassifyRule, IntoDirective,
    NeedsWhen, When,
};
use crate::error_hook::{Notify, RecordErrors};
use crate::future::{CallResult, Output, Retrying, Value, WithReport};
use crate::options::{Options, call_log_option, call_options, retry_options};
use crate::plain_call::UNKNOWN;
use crate::policy::{Hedged, Origin, Site};
use crate::sleeper::{DEFAULT_SLEEPER, DefaultSleeper, Sleeper};

/// Retries the operation with the default policy: 3 attempts, exponential backoff from 100 ms with full
/// jitter, and a retry budget for this call site. Only errors that `.when(..)` accepts are retried.
///
/// ```
/// # use std::io;
/// # async fn user(id: u32) -> io::Result<String> { Ok(format!("user {id}")) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> io::Result<()> {
/// let user = redial::retry(|| user(7)).when(|error| error.kind() == io::ErrorKind::TimedOut).await?;
/// assert_eq!(user, "user 7");
/// # Ok(())
/// # }
/// ```
///
/// The budget belongs to the line that calls `retry`. A wrapper function is therefore one call site with
/// one budget for all of its callers, unless it is `#[track_caller]`.
#[track_caller]
pub fn retry<'p, O, K>(operation: O) -> Retry<'p, NeedsWhen, Site, O, K>
where
    O: Operation,
    O::Answer: Answer<K>,
{
    Retry::new(Site(CallSite::here()), operation)
}

/// Retries the operation with the default policy, as [`retry`] does, with the [`Attempt`](crate::Attempt)
/// as an argument of the closure.
///
/// ```
/// # use std::io;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> io::Result<()> {
/// let number = redial::retry_with(|attempt| async move { Ok::<_, io::Error>(attempt.number()) })
///     .when(|_| true)
///     .await?;
/// assert_eq!(number, 1);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn retry_with<'p, F, R, K>(operation: F) -> Retry<'p, NeedsWhen, Site, WithAttempt<F>, K>
where
    F: FnMut(Attempt) -> R,
    R: Answer<K>,
{
    Retry::new(Site(CallSite::here()), WithAttempt(operation))
}

/// A call before it runs.
///
/// State which errors are retried with [`when`](Retry::when) (not needed for an error that implements
/// [`Transient`](crate::Transient)), then `.await` it, or run a blocking operation with
/// [`call`](Retry::call). For `tokio::spawn`, use `.into_future()`.
///
/// # Cancel safety
/// Nothing is spawned. Dropping the future drops every running attempt and refunds a retry that has not
/// started. A dropped call does not count as a failure.
///
/// # Panics
/// A panic of the operation, a classifier or a hook is propagated, and the call is cancelled. The future
/// panics if it is polled after completion and, with tokio's sleeper, if it has to wait outside a tokio
/// runtime.
///
/// A call without a classification does not compile:
/// ```compile_fail
/// # async fn f() { let _ =
/// redial::retry(|| async { Err::<(), _>("busy") }).await;
/// # }
/// ```
#[must_use = "a call does nothing until it is awaited or called"]
pub struct Retry<
    'p,
    // First, so that rustc prints it also where it shortens long types: the name of the classifier of a
    // call without `when` is a message.
    C,
    G,
    O,
    K,
    S = DefaultSleeper,
    R = Value,
> {
    pub(crate) origin: G,
    pub(crate) operation: O,
    pub(crate) classify: C,
    sleeper: S,
    pub(crate) options: Option<Box<Options<'p>>>,
    kind: PhantomData<fn() -> (K, R)>,
}

// Most fields are closures, which cannot be printed.
impl<G, O, K, C, S, R> fmt::Debug for Retry<'_, C, G, O, K, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").finish_non_exhaustive()
    }
}

impl<G, O, K> Retry<'_, NeedsWhen, G, O, K, DefaultSleeper, Value> {
    pub(crate) const fn new(origin: G, operation: O) -> Self {
        Retry {
            origin,
            operation,
            classify: NeedsWhen::NEW,
            sleeper: DEFAULT_SLEEPER,
            options: None,
            kind: PhantomData,
        }
    }
}

impl<'p, C, G, O, K, S, R> Retry<'p, C, G, O, K, S, R>
where
    O: Operation,
    O::Answer: Answer<K>,
{
    /// States which errors are retried. The closure returns a `bool`, an `Option` of a
    /// [`Failure`](crate::Failure), or a [`Directive`](crate::Directive).
    ///
    /// A failure has more information than `true`: how far the attempt got (see
    /// [`not_idempotent`](Retry::not_idempotent)), and the delay that the server asked for, which replaces
    /// the backoff delay.
    ///
    /// ```
    /// use redial::{Failure, Policy, Stage, ms};
    /// use std::time::Duration;
    ///
    /// enum HttpError { Refused, Busy { retry_after: Duration }, NotFound }
    ///
    /// fn may_be_repeated(error: &HttpError) -> Option<Failure> {
    ///     match error {
    ///         HttpError::Refused => Some(Failure::client().at(Stage::Unsent)),
    ///         HttpError::Busy { retry_after } => Some(Failure::throttling().retry_after(*retry_after)),
    ///         HttpError::NotFound => None,
    ///     }
    /// }
    ///
    /// static GET: Policy = Policy::exponential(ms(100)).hint_max(ms(500)).build();
    ///
    /// let mut answers =
    ///     [Err(HttpError::Refused), Err(HttpError::Busy { retry_after: ms(2) }), Ok("page")].into_iter();
    /// let page = GET.retry(|| answers.next().unwrap()).when(may_be_repeated).call();
    /// assert_eq!(page.ok(), Some("page"));
    /// ```
    #[doc(alias("retry_if", "retryable", "condition"))]
    pub fn when<W, F>(self, accepts: F) -> Retry<'p, C::Added<When<F>>, G, O, K, S, R>
    where
        C: AddWhen,
        F: FnMut(&<O::Answer as Answer<K>>::Error) -> W,
        W: IntoDirective,
    {
        // Without a closure: each call site has its own copy of this function.
        let Retry { origin, operation, classify, sleeper, options, kind } = self;
        Retry { origin, operation, classify: classify.add(When(accepts)), sleeper, options, kind }
    }

    /// Waits for a value: a value that `accepts` rejects is retried. Errors are classified as without it, by
    /// `when` or [`Transient`](crate::Transient). If the call ends first,
    /// [`Error::last_value`](crate::Error::last_value) has the last value.
    ///
    /// A value that is not ready is not a failure, so the throttle is not charged for another attempt. It may
    /// come before or after `when` and [`notify`](Retry::notify).
    ///
    /// ```
    /// use redial::{Policy, ms, s};
    ///
    /// static POLL: Policy = Policy::constant(ms(5)).unlimited().deadline(s(2)).build();
    ///
    /// let mut progress = 0;
    /// let status = POLL
    ///     .retry(|| {
    ///         progress += 10;
    ///         Ok::<_, std::io::Error>(progress)
    ///     })
    ///     .until(|progress| *progress >= 30)
    ///     .when(|error| error.kind() == std::io::ErrorKind::TimedOut)
    ///     .call();
    /// assert_eq!(status.ok(), Some(30));
    /// ```
    pub fn until<F>(self, accepts: F) -> Retry<'p, C::Added<F>, G, O, K, S, R>
    where
        C: AddUntil,
        F: FnMut(&<O::Answer as Answer<K>>::Value) -> bool,
    {
        self.map(|classify| classify.add(accepts))
    }

    /// Classifies the whole result, value or error. Rules can be chained with [`ClassifyRule::or`]: the
    /// first one that returns a directive decides. If none does, a value is a success and an error fails.
    ///
    /// ```
    /// use redial::{Directive, Failure, Policy, StopReason, classify::ClassifyRule};
    ///
    /// struct Response { status: u16 }
    /// type Answer = Result<Response, std::io::Error>;
    ///
    /// /// Statuses that are worth a retry, and one that is not.
    /// fn by_status(answer: &Answer) -> Option<Directive> {
    ///     match answer.as_ref().ok()?.status {
    ///         429 => Some(Directive::Retry(Failure::throttling())),
    ///         500..=599 => Some(Directive::Retry(Failure::server())),
    ///         404 => Some(Directive::Fail),
    ///         _ => None,
    ///     }
    /// }
    ///
    /// /// For results that `by_status` does not classify.
    /// fn by_error(answer: &Answer) -> Option<Directive> {
    ///     answer.as_ref().err().map(|_| Directive::Retry(Failure::client()))
    /// }
    ///
    /// static GET: Policy = Policy::immediate().attempts(4).build();
    ///
    /// let mut answers = [429, 0, 503, 404].map(|status| match status {
    ///     0 => Err(std::io::Error::other("connection reset")),
    ///     status => Ok(Response { status }),
    /// }).into_iter();
    /// let error = GET
    ///     .retry(|| answers.next().unwrap())
    ///     .classify(by_status.or(by_error))
    ///     .call()
    ///     .err()
    ///     .unwrap();
    /// assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotRetryable, 4));
    /// assert_eq!(error.last_value().unwrap().status, 404);
    /// ```
    pub fn classify<J>(self, rules: J) -> Retry<'p, C::Added<Chain<J>>, G, O, K, S, R>
    where
        C: AddClassify,
        J: ClassifyRule<<O::Answer as Answer<K>>::Value, <O::Answer as Answer<K>>::Error>,
    {
        self.map(|classify| classify.add(Chain(rules)))
    }

    /// Calls `notify` each time that an error is retried, with the error and the delay before the next
    /// attempt: to log it, count it, or change what the next attempt uses. It is called when the retry is
    /// decided, before the delay.
    ///
    /// The error that ends the call is not passed to it: the call returns that one. An attempt that timed
    /// out and a value that [`until`](Retry::until) rejects have no error; see [`on_event`](Retry::on_event).
    /// In a hedged call an error starts the next attempt at once, so the delay is zero unless the server's
    /// pushback or the throttle delays that attempt. It is not called if no attempt follows, as when the
    /// budget refuses it, even if others still run. Under rules that charge a retry after its delay
    /// ([`ChargeAt::AfterBackoff`](crate::rules::ChargeAt::AfterBackoff)) it is called before the throttle
    /// answers, so the retry may still be refused.
    ///
    /// A call with `notify` costs no allocation and no clock read. Several are called in their order.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static AGAIN: Policy = Policy::constant(ms(2)).attempts(3).build();
    ///
    /// let mut answers = [Err("connection refused"), Err("busy"), Ok(7)].into_iter();
    /// let mut lines = Vec::new();
    /// let value = AGAIN
    ///     .retry(|| answers.next().unwrap())
    ///     .when(|_| true)
    ///     .notify(|error, delay| lines.push(format!("{error}, next attempt in {delay:?}")))
    ///     .call();
    /// assert_eq!(value.ok(), Some(7));
    /// assert_eq!(lines, ["connection refused, next attempt in 2ms", "busy, next attempt in 2ms"]);
    /// ```
    #[doc(alias("on_retry", "on_error", "inspect_err"))]
    pub fn notify<F>(self, notify: F) -> Retry<'p, C::Added<Notify<F>>, G, O, K, S, R>
    where
        C: AddHook,
        F: FnMut(&<O::Answer as Answer<K>>::Error, Duration),
    {
        self.map(|classify| classify.add(Notify(notify)))
    }

    /// Records the text of each error of the operation: in the `tracing` events of the call (feature
    /// `tracing`), in its [`history`](Retry::history), in its [`call_log`](Retry::call_log) and for its
    /// [hooks](Retry::on_event). The report of a call that failed has the last one. The text is what the error
    /// displays; where nothing records it, it is not made.
    ///
    /// It is an option because error texts can hold data that does not belong in a log, such as a URL with a
    /// token.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// static AGAIN: Policy = Policy::immediate().attempts(3).name("again").build();
    ///
    /// let mut answers = [Err("connection refused"), Ok(7)].into_iter();
    /// let (_, report) = AGAIN
    ///     .retry(|| answers.next().unwrap())
    ///     .when(|_| true)
    ///     .record_errors()
    ///     .history()
    ///     .with_report()
    ///     .call()
    ///     .unwrap();
    /// assert_eq!(report.policy.to_string(), "again");
    /// assert_eq!(report.history[0].error.as_deref(), Some("connection refused"));
    /// assert_eq!(report.history[1].error, None);
    /// ```
    pub fn record_errors(self) -> Retry<'p, C::Added<RecordErrors>, G, O, K, S, R>
    where
        C: AddHook,
        <O::Answer as Answer<K>>::Error: fmt::Display,
    {
        self.map(|classify| classify.add(RecordErrors))
    }
}

impl<'p, G, O, K, C, S, R> Retry<'p, C, G, O, K, S, R> {
    fn map<D>(self, change: impl FnOnce(C) -> D) -> Retry<'p, D, G, O, K, S, R> {
        let Retry { origin, operation, classify, sleeper, options, kind } = self;
        Retry { origin, operation, classify: change(classify), sleeper, options, kind }
    }

    call_options!('p);
    call_log_option!('p);

    /// Uses this sleeper instead of tokio's timer: a type that implements [`Sleeper`](crate::time::Sleeper), or a
    /// function in [`sleep_fn`](crate::time::sleep_fn). [`Policy::sleeping_on`](crate::Policy::sleeping_on)
    /// names one for all calls of a policy.
    ///
    /// A blocking call waits in its thread and has no sleeper: `.call()` after it does not compile.
    pub fn sleeping_on<Z: Sleeper>(self, sleeper: Z) -> Retry<'p, C, G, O, K, Z, R> {
        let Retry { origin, operation, classify, options, kind, .. } = self;
        Retry { origin, operation, classify, sleeper, options, kind }
    }

    /// Returns the [`Report`](crate::Report) with the value: the number of attempts and the elapsed time.
    ///
    /// ```
    /// let (value, report) = redial::retry(|| Ok::<_, std::io::Error>(7))
    ///     .when(|_| true)
    ///     .with_report()
    ///     .call()
    ///     .unwrap();
    /// assert_eq!((value, report.attempts), (7, 1));
    /// ```
    pub fn with_report(self) -> Retry<'p, C, G, O, K, S, WithReport> {
        self.with_output()
    }

    /// Makes the output of a success from the value and, if the output asks for it, the report.
    ///
    /// ```
    /// use redial::parts::Output;
    /// use redial::{Policy, Report};
    ///
    /// /// The value, and whether it took more than one attempt.
    /// enum Retried {}
    ///
    /// impl<T> Output<T> for Retried {
    ///     type Output = (T, bool);
    ///     const TIMED: bool = false;
    ///     fn output(value: T, report: impl FnOnce() -> Report) -> (T, bool) {
    ///         (value, report().attempts > 1)
    ///     }
    /// }
    ///
    /// static AGAIN: Policy = Policy::immediate().build();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut answers = [Err("busy"), Ok(7)].into_iter();
    /// let call = AGAIN.retry(|| std::future::ready(answers.next().unwrap()));
    /// let retry_errors = |answer: &Result<u32, &str>| {
    ///     answer.is_err().then(|| redial::Directive::Retry(redial::Failure::server()))
    /// };
    /// let result = call.classify(retry_errors).with_output::<Retried>().await;
    /// assert_eq!(result.unwrap(), (7, true));
    /// # }
    /// ```
    pub fn with_output<Q>(self) -> Retry<'p, C, G, O, K, S, Q> {
        let Retry { origin, operation, classify, sleeper, options, .. } = self;
        Retry { origin, operation, classify, sleeper, options, kind: PhantomData }
    }
}

impl<'p, G, O, K, C, S, R> Retry<'p, C, G, O, K, S, R> {
    retry_options!('p, G);
}

impl<'p, O, K, C, S, R> Retry<'p, C, &'p Hedged, O, K, S, R> {
    /// Lets the hedge delay follow the observed latency. The policy's delay is used until the estimator has
    /// enough samples.
    ///
    /// Share one estimator between calls with similar latency, usually those of one method of one server.
    /// The estimator also observes this call: the latency of the first attempt if it succeeds, or that it
    /// was slower than the time at which the hedge was sent or the deadline came. Failures are not
    /// counted. If hedges do not win, the estimator stops them, apart from an occasional probe; a failed
    /// attempt is still followed by the next one at once.
    ///
    /// A dropped call counts as slower than its last event. Prefer a [`deadline`](Retry::deadline) to a
    /// timeout around the call: the estimator learns more from it.
    ///
    /// ```
    /// use redial::{Hedged, Policy, ms, hedging::{HedgeAt, HedgeDelay, LatencyEstimator}};
    /// # use std::io;
    /// # async fn get(_: &str) -> io::Result<u32> { tokio::time::sleep(ms(8)).await; Ok(7) }
    ///
    /// static READ: Hedged = Policy::hedged(ms(50)).attempts(2).build();
    /// /// The 95th percentile of reads, after 20 samples.
    /// static READS: LatencyEstimator = LatencyEstimator::new(HedgeAt::quantile(0.95).floor(ms(2)).samples(20).build());
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> io::Result<()> {
    /// for _ in 0..20 {
    ///     READ.retry(|| get("key")).when(|_| true).latency_estimator(&READS).await?;
    /// }
    /// let Some(HedgeDelay::After(delay)) = READS.delay() else { panic!("20 are known") };
    /// assert!((4_000_000..16_000_000).contains(&delay), "around 8 ms, in ns: {delay}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Only hedged calls have an estimator:
    /// ```compile_fail,E0599
    /// # use redial::{Policy, ms, hedging::{HedgeAt, LatencyEstimator}};
    /// # static READS: LatencyEstimator = LatencyEstimator::new(HedgeAt::quantile(0.95).build());
    /// static FETCH: Policy = Policy::exponential(ms(20)).build();
    /// # async fn f() {
    /// FETCH.retry(|| async { Ok::<_, ()>(7) }).when(|_| true).latency_estimator(&READS).await;
    /// # }
    /// ```
    pub fn latency_estimator(mut self, estimator: &'p LatencyEstimator) -> Self {
        self.options().estimator = Some(estimator);
        self
    }
}

impl<'p, C, G, O, A, T, E, S, R> IntoFuture for Retry<'p, C, G, O, Async, S, R>
where
    O: Operation<Answer = A>,
    A: Future<Output = Result<T, E>>,
    C: Classify<T, E>,
    S: Sleeper,
    G: Origin<'p>,
    R: Output<T>,
{
    type Output = CallResult<T, E, C, R>;
    type IntoFuture = Retrying<'p, C, G, O, A, T, E, S, R>;

    fn into_future(self) -> Self::IntoFuture {
        let Retry { origin, operation, classify, sleeper, options, .. } = self;
        Retrying::new(origin, operation, classify, sleeper, options)
    }
}

impl<'p, C, G, O, A, T, E, S, R> Retry<'p, C, G, O, Async, S, R>
where
    O: Operation<Answer = A>,
    A: Future<Output = Result<T, E>>,
    C: Classify<T, E>,
    S: Sleeper,
    G: Origin<'p>,
    R: Output<T>,
{
    /// Begins the call as of `start`, when the caller started its first attempt. The operation must return
    /// that attempt as attempt 1, pending or with its result. For an adapter whose calls have options; the
    /// call may begin late only if [nothing observes it](crate::is_observed) from its start.
    #[doc(hidden)]
    pub fn started_at(mut self, start: Ns) -> Self {
        self.options().start = Some(start);
        self
    }

    /// The call after its first attempt, which the caller has started: its future is polled, not started
    /// again. `start` is when the attempt was first pending, if that is known. The call has no options.
    #[doc(hidden)]
    pub fn resume(self, first: A, start: Option<Ns>) -> Retrying<'p, C, G, O, A, T, E, S, R> {
        let Retry { origin, operation, classify, sleeper, options, .. } = self;
        assert!(options.is_none(), "options apply from the start of a call");
        Retrying::resumed(origin, operation, classify, sleeper, first, start.unwrap_or(UNKNOWN))
    }
}
