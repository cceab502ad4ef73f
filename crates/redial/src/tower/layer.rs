//! The layer and its options.

use std::fmt;
use std::time::Duration;

use redial_core::Event;
use redial_core::throttle::CallSite;
use tower_layer::Layer;

use crate::call_log::CallLog;
use crate::classify::{
    AddClassify, AddHook, AddUntil, AddWhen, Chain, ClassifyRule, IntoDirective, NeedsWhen, When,
};
use crate::error_hook::{Notify, RecordErrors};
use crate::event_context::EventContext;
use crate::policy::Site;
use crate::sleeper::DefaultSleeper;
use crate::tower::call_logs::CallLogs;
use crate::tower::call_options::{CallOptions, ConfigureWith, NoOptions, OnEvent};
use crate::tower::clone_request::{CloneWith, Cloned};
use crate::tower::policy::IntoPolicy;
use crate::tower::service::RetryService;

/// Retries or hedges the requests of a service. See the [module](crate::tower) for the defaults and for what
/// can go wrong.
///
/// `P` is the policy, `C` classifies results, `K` copies requests, `X` sets the options of a request, and `Z`
/// is the clock and timer.
///
/// ```
/// use redial::tower::RetryLayer;
/// use redial::{Hedged, Policy, ms};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// # #[derive(Debug)] struct Busy;
///
/// /// A second request is sent if the first has no answer after 20 ms; the first success wins.
/// static READ: Hedged = Policy::hedged(ms(20)).attempts(2).build();
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redial::Error<Busy>> {
/// let mut replica = ServiceBuilder::new()
///     .layer(RetryLayer::new(&READ).when(|_: &Busy| true))
///     .service(service_fn(|key: u32| async move { Ok::<_, Busy>(key + 1) }));
/// assert_eq!(replica.ready().await?.call(6).await?, 7);
/// # Ok(())
/// # }
/// ```
///
/// Without `when`, the service's error must implement [`Transient`](crate::Transient):
/// ```compile_fail
/// # use redial::{Policy, ms, tower::RetryLayer};
/// # use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// # static FETCH: Policy = Policy::exponential(ms(100)).build();
/// let mut client = ServiceBuilder::new()
///     .layer(RetryLayer::new(&FETCH))
///     .service(service_fn(|path: &'static str| async move { Ok::<_, std::io::Error>(path) }));
/// let _ = client.call("/index");
/// ```
#[derive(Clone, Copy)]
pub struct RetryLayer<
    P,
    // Without a default, which rustc would leave out: the name of the classifier of a layer without `when` is a
    // message.
    C,
    K = Cloned,
    X = NoOptions,
    Z = DefaultSleeper,
> {
    pub(super) policy: P,
    pub(super) classify: C,
    pub(super) clone_request: K,
    pub(super) configure: X,
    pub(super) sleeper: Z,
}

impl<P, Z> RetryLayer<P, NeedsWhen, Cloned, NoOptions, Z> {
    /// A layer with this policy; a [`Hedged`](crate::Hedged) policy makes it hedge. A policy with a sleeper
    /// ([`SleepingOn`](crate::time::SleepingOn)) gives it to the layer.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).attempts(4).build();
    /// let layer = RetryLayer::new(&FETCH).when(|error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut);
    /// # let _ = layer;
    /// ```
    pub fn new(policy: impl IntoPolicy<Policy = P, Sleeper = Z>) -> Self {
        let (policy, sleeper) = policy.into_policy();
        RetryLayer {
            policy,
            classify: NeedsWhen::NEW,
            clone_request: Cloned,
            configure: NoOptions,
            sleeper,
        }
    }
}

impl RetryLayer<Site, NeedsWhen> {
    /// A layer with the default policy of [`retry`](crate::retry()): 3 attempts, exponential backoff from
    /// 100 ms with full jitter, and the retry budget of the line that calls this function.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    ///
    /// let layer = RetryLayer::standard().when(|error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut);
    /// # let _ = layer;
    /// ```
    #[track_caller]
    #[must_use]
    pub fn standard() -> Self {
        RetryLayer::new(Site(CallSite::here()))
    }
}

impl<P, C, K, X, Z> RetryLayer<P, C, K, X, Z> {
    /// States which errors are retried; see [`Retry::when`](crate::Retry::when). The function is cloned for
    /// each request.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Failure, Policy, Stage, ms};
    /// use std::time::Duration;
    ///
    /// enum HttpError { Refused, Busy { retry_after: Duration }, NotFound }
    ///
    /// static GET: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let layer = RetryLayer::new(&GET).when(|error: &HttpError| match error {
    ///     HttpError::Refused => Some(Failure::client().at(Stage::Unsent)),
    ///     HttpError::Busy { retry_after } => Some(Failure::throttling().retry_after(*retry_after)),
    ///     HttpError::NotFound => None,
    /// });
    /// # let _ = (layer, HttpError::Refused, HttpError::Busy { retry_after: ms(1) }, HttpError::NotFound);
    /// ```
    #[doc(alias("retry_if", "retryable"))]
    pub fn when<E, W, F>(self, accepts: F) -> RetryLayer<P, C::Added<When<F>>, K, X, Z>
    where
        C: AddWhen,
        F: FnMut(&E) -> W,
        W: IntoDirective,
    {
        self.with_classify(|classify| classify.add(When(accepts)))
    }

    /// Retries responses that `accepts` rejects; see [`Retry::until`](crate::Retry::until). It comes before
    /// or after [`when`](RetryLayer::when).
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Policy, ms, s};
    ///
    /// static POLL: Policy = Policy::constant(ms(250)).unlimited().deadline(s(30)).build();
    ///
    /// struct Job { done: bool }
    /// let layer = RetryLayer::new(&POLL).until(|job: &Job| job.done).when(|_: &std::io::Error| true);
    /// # let _ = layer;
    /// ```
    pub fn until<T, F>(self, accepts: F) -> RetryLayer<P, C::Added<F>, K, X, Z>
    where
        C: AddUntil,
        F: FnMut(&T) -> bool,
    {
        self.with_classify(|classify| classify.add(accepts))
    }

    /// Classifies the whole result, response or error; see [`Retry::classify`](crate::Retry::classify).
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Directive, Failure, Policy, ms};
    ///
    /// struct Response { status: u16 }
    ///
    /// fn by_status(answer: &Result<Response, std::io::Error>) -> Option<Directive> {
    ///     match answer.as_ref().ok()?.status {
    ///         429 => Some(Directive::Retry(Failure::throttling())),
    ///         500..=599 => Some(Directive::Retry(Failure::server())),
    ///         _ => None,
    ///     }
    /// }
    ///
    /// static GET: Policy = Policy::exponential(ms(100)).build();
    /// let layer = RetryLayer::new(&GET).classify(by_status);
    /// # let _ = layer;
    /// ```
    pub fn classify<T, E, J>(self, rules: J) -> RetryLayer<P, C::Added<Chain<J>>, K, X, Z>
    where
        C: AddClassify,
        J: ClassifyRule<T, E>,
    {
        self.with_classify(|classify| classify.add(Chain(rules)))
    }

    /// Calls `notify` each time that an error is retried, with the error and the delay before the next
    /// attempt; see [`Retry::notify`](crate::Retry::notify). It may come before or after
    /// [`when`](RetryLayer::when), [`until`](RetryLayer::until) and [`classify`](RetryLayer::classify), and is
    /// cloned for each request.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let layer = RetryLayer::new(&FETCH)
    ///     .when(|error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut)
    ///     .notify(|error: &std::io::Error, delay| eprintln!("{error}, next attempt in {delay:?}"));
    /// # let _ = layer;
    /// ```
    pub fn notify<E, F>(self, notify: F) -> RetryLayer<P, C::Added<Notify<F>>, K, X, Z>
    where
        C: AddHook,
        F: FnMut(&E, Duration),
    {
        self.with_classify(|classify| classify.add(Notify(notify)))
    }

    /// Records the text of each error in the `tracing` events, the call log and the report of a request; see
    /// [`Retry::record_errors`](crate::Retry::record_errors). The error of the service must implement
    /// [`Display`](fmt::Display). It may come before or after [`when`](RetryLayer::when),
    /// [`until`](RetryLayer::until) and [`classify`](RetryLayer::classify).
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    /// let layer = RetryLayer::new(&FETCH).when(|_: &std::io::Error| true).record_errors();
    /// # let _ = layer;
    /// ```
    pub fn record_errors(self) -> RetryLayer<P, C::Added<RecordErrors>, K, X, Z>
    where
        C: AddHook,
    {
        self.with_classify(|classify| classify.add(RecordErrors))
    }

    fn with_classify<D>(self, change: impl FnOnce(C) -> D) -> RetryLayer<P, D, K, X, Z> {
        let RetryLayer { policy, classify, clone_request, configure, sleeper } = self;
        RetryLayer { policy, classify: change(classify), clone_request, configure, sleeper }
    }

    fn with_configure<Y>(self, change: impl FnOnce(X) -> Y) -> RetryLayer<P, C, K, Y, Z> {
        let RetryLayer { policy, classify, clone_request, configure, sleeper } = self;
        RetryLayer { policy, classify, clone_request, configure: change(configure), sleeper }
    }

    /// Copies requests with this function, for requests that do not implement [`Clone`] or that are made
    /// again. A request for which it returns `None` has one attempt: if that fails with a retryable failure,
    /// the stop reason is [`Committed`](crate::StopReason::Committed).
    ///
    /// The function is called before each attempt, for the one after it.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Policy, ms};
    ///
    /// struct Request { path: String, stream: Option<std::fs::File> }
    ///
    /// static SEND: Policy = Policy::exponential(ms(100)).build();
    ///
    /// // A request with a stream is sent once.
    /// let layer = RetryLayer::new(&SEND).clone_request(|request: &Request| match request.stream {
    ///     None => Some(Request { path: request.path.clone(), stream: None }),
    ///     Some(_) => None,
    /// });
    /// # let _ = layer;
    /// ```
    pub fn clone_request<Req, F>(self, clone_request: F) -> RetryLayer<P, C, CloneWith<F>, X, Z>
    where
        F: Fn(&Req) -> Option<Req>,
    {
        let RetryLayer { policy, classify, configure, sleeper, .. } = self;
        let clone_request = CloneWith(clone_request);
        RetryLayer { policy, classify, clone_request, configure, sleeper }
    }

    /// Sets options for single requests: a deadline, that it is not idempotent, hooks; see [`CallOptions`].
    /// A request with options costs allocations and a clock read.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Policy, ms};
    /// use std::time::Duration;
    ///
    /// #[derive(Clone)]
    /// struct Request { timeout: Option<Duration> }
    ///
    /// static SEND: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let layer = RetryLayer::new(&SEND).call_options(|request: &Request, options| match request.timeout {
    ///     Some(timeout) => options.deadline(timeout),
    ///     None => options,
    /// });
    /// # let _ = layer;
    /// ```
    pub fn call_options<Req, F>(self, options: F) -> RetryLayer<P, C, K, (X, ConfigureWith<F>), Z>
    where
        F: Fn(&Req, CallOptions<P>) -> CallOptions<P>,
    {
        self.with_configure(|earlier| (earlier, ConfigureWith(options)))
    }

    /// Calls `hook` for every event of every request, with its time, the name of the policy and the last
    /// error, as [`Retry::on_event`](crate::Retry::on_event) does. The hook is cloned for each request.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Event, Policy, ms};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let retries = Arc::new(AtomicU32::new(0));
    /// let count = retries.clone();
    /// let layer = RetryLayer::new(&FETCH).on_event(move |_context, event| {
    ///     if let Event::RetryScheduled { .. } = event {
    ///         count.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// # let _ = layer;
    /// ```
    pub fn on_event<F>(self, hook: F) -> RetryLayer<P, C, K, (X, OnEvent<F>), Z>
    where
        F: FnMut(&EventContext<'_>, &Event) + Clone + Send + 'static,
    {
        self.with_configure(|earlier| (earlier, OnEvent(hook)))
    }

    /// Passes the call log of each request to `sink` when the request has ended, or was dropped. A request
    /// that is dropped before its first poll has no log.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{CallLog, Policy, ms};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    ///
    /// let layer = RetryLayer::new(&FETCH).call_logs(|log: CallLog| {
    ///     if log.events().len() > 4 {
    ///         eprintln!("{log}");
    ///     }
    /// });
    /// # let _ = layer;
    /// ```
    pub fn call_logs<F>(self, sink: F) -> RetryLayer<P, C, K, (X, CallLogs<F>), Z>
    where
        F: FnMut(CallLog) + Clone + Send + 'static,
    {
        self.with_configure(|earlier| (earlier, CallLogs(sink)))
    }

    /// Uses this sleeper instead of tokio's timer. It is cloned for each request.
    ///
    /// ```
    /// use redial::tower::RetryLayer;
    /// use redial::{Policy, ms, testing};
    ///
    /// static FETCH: Policy = Policy::exponential(ms(100)).build();
    /// let layer = RetryLayer::new(&FETCH).sleeping_on(testing::Clock);
    /// # let _ = layer;
    /// ```
    pub fn sleeping_on<Y>(self, sleeper: Y) -> RetryLayer<P, C, K, X, Y> {
        let RetryLayer { policy, classify, clone_request, configure, .. } = self;
        RetryLayer { policy, classify, clone_request, configure, sleeper }
    }
}

// A service that is not `Clone` is refused here, where the compiler names it, and not where it is called.
impl<S, P, C, K, X, Z> Layer<S> for RetryLayer<P, C, K, X, Z>
where
    S: Clone,
    P: Clone,
    C: Clone,
    K: Clone,
    X: Clone,
    Z: Clone,
{
    type Service = RetryService<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryService::new(inner, self.clone())
    }
}

// The functions of a layer cannot be printed.
impl<P: fmt::Debug, C, K, X, Z> fmt::Debug for RetryLayer<P, C, K, X, Z> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer").field("policy", &self.policy).finish_non_exhaustive()
    }
}
