//! Runs requests: RFC 49, "Retry Orchestration" (decisions C6, C7, C10, C12, C14, C15).
//!
//! The decisions are the core's and the loop is `redial`'s: what is here builds the policy that makes
//! them the document's.
//!
//! | what | rule |
//! | --- | --- |
//! | a reason that is always retried | the controlled backoff; no strategy is asked |
//! | any other | the strategy says after how long, or that it is not retried |
//! | both | share one counter, read before it is incremented; capped at the timeout, at which the request ends |
//! | attempts | as many as the timeout allows |
//! | throttle | none, as in the document; one can be added |

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use redial::throttle::Bucket;
use redial::{
    CallLog, Directive, Event, Failure, Policy, Reason, Retry, Sleeper, Throttle,
    rules::Rules,
    strategy::{Decision, Request, Strategy},
    time::{DefaultSleeper, Ns},
};

use crate::context::{RequestAttempt, RequestContext};
use crate::error::{Error, Seen};
use crate::log::{RetryLogLine, RetryLogger};
use crate::operation::RequestOperation;
use crate::presets;
use crate::reason;
use crate::response::ResponseOutcome;
use crate::retryable_error::RetryableError;
use crate::strategy::FastFailOnTerminalError;

/// The policy of a request with this timeout; its strategy is the call's own to name.
///
/// For scenarios and drivers of your own: an [`Orchestrator`] uses it by itself.
#[must_use]
pub const fn policy(timeout: Duration) -> Policy {
    let rules = Rules { deadline: Some(timeout), uses_strategy: true, ..presets::RULES };
    Policy::from_rules(rules).throttle(Throttle::none()).build()
}

/// A hook that gets each line of the log, with its request.
type LogHook = dyn Fn(&RequestContext, &RetryLogLine) + Send + Sync;

/// What a client's requests have in common: the strategy, who reads the log, a throttle if any.
/// Cheap to clone.
///
/// No order between requests is promised: one that is retried may end after one that was sent later
/// (decision C15). Whoever needs the effect of the first waits for its result.
#[derive(Clone)]
pub struct Orchestrator {
    strategy: Arc<dyn Strategy>,
    throttle: Option<Arc<dyn Bucket + Send + Sync>>,
    log: Option<Arc<LogHook>>,
}

impl Orchestrator {
    /// With the default of a new client: fast fail on terminal errors (decision C14).
    #[must_use]
    pub fn new() -> Self {
        Orchestrator::with(FastFailOnTerminalError::new())
    }

    /// With another strategy.
    #[must_use]
    pub fn with(strategy: impl Strategy + 'static) -> Self {
        Orchestrator::sharing(Arc::new(strategy))
    }

    /// With a strategy that is shared.
    #[must_use]
    pub fn sharing(strategy: Arc<dyn Strategy>) -> Self {
        Orchestrator { strategy, throttle: None, log: None }
    }

    /// The same, with a throttle that holds the retries of all requests back. The document knows
    /// none.
    #[must_use]
    pub fn throttled(mut self, throttle: Arc<dyn Bucket + Send + Sync>) -> Self {
        self.throttle = Some(throttle);
        self
    }

    /// The same, with a hook that gets each line of the log. It must not block.
    #[must_use]
    pub fn on_log(
        mut self,
        hook: impl Fn(&RequestContext, &RetryLogLine) + Send + Sync + 'static,
    ) -> Self {
        self.log = Some(Arc::new(hook));
        self
    }

    /// A request that must end within the timeout: every request has one, since nothing else bounds
    /// what is always retried (decision C10).
    pub fn request(&self, operation: RequestOperation, timeout: Duration) -> RequestBuilder<'_> {
        RequestBuilder {
            orchestrator: self,
            operation,
            timeout,
            about: Cow::Borrowed(""),
            strategy: None,
            data: (),
            call_log: None,
            sleeper: DefaultSleeper::default(),
        }
    }
}

impl Default for Orchestrator {
    fn default() -> Self {
        Orchestrator::new()
    }
}

impl std::fmt::Debug for Orchestrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orchestrator")
            .field("throttled", &self.throttle.is_some())
            .field("logs", &self.log.is_some())
            .finish_non_exhaustive()
    }
}

/// A request that is being written. [`run`](Dispatch::run) it on an async executor, or
/// [`call`](Dispatch::call) it in this thread.
#[must_use = "a request does nothing until it is run or called"]
pub struct RequestBuilder<'a, S = DefaultSleeper, D = ()> {
    orchestrator: &'a Orchestrator,
    operation: RequestOperation,
    timeout: Duration,
    about: Cow<'static, str>,
    strategy: Option<Arc<dyn Strategy>>,
    data: D,
    call_log: Option<&'a mut CallLog>,
    sleeper: S,
}

impl<'a, S, D> RequestBuilder<'a, S, D> {
    /// What the request is about, for the log and the error: for instance the document's key.
    pub fn about(mut self, about: impl Into<Cow<'static, str>>) -> Self {
        self.about = about.into();
        self
    }

    /// Another strategy for this request.
    pub fn strategy(self, strategy: impl Strategy + 'static) -> Self {
        self.sharing(Arc::new(strategy))
    }

    /// Another strategy for this request, which is shared.
    pub fn sharing(mut self, strategy: Arc<dyn Strategy>) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Data of your own that a strategy can see ([`Request::data`]).
    pub fn data<T: Any + Send + Sync>(self, data: T) -> RequestBuilder<'a, S, T> {
        let RequestBuilder {
            orchestrator,
            operation,
            timeout,
            about,
            strategy,
            call_log,
            sleeper,
            ..
        } = self;
        RequestBuilder {
            orchestrator,
            operation,
            timeout,
            about,
            strategy,
            data,
            call_log,
            sleeper,
        }
    }

    /// Writes the request's diary.
    pub fn call_log(mut self, call_log: &'a mut CallLog) -> Self {
        self.call_log = Some(call_log);
        self
    }

    /// Waits on this sleeper in place of tokio.
    pub fn sleeping_on<Z>(self, sleeper: Z) -> RequestBuilder<'a, Z, D> {
        let RequestBuilder {
            orchestrator,
            operation,
            timeout,
            about,
            strategy,
            data,
            call_log,
            ..
        } = self;
        RequestBuilder {
            orchestrator,
            operation,
            timeout,
            about,
            strategy,
            data,
            call_log,
            sleeper,
        }
    }

    /// Splits what the call borrows from what it takes.
    fn prepare(self) -> (Prepared, Extra<'a, D>, S) {
        let RequestBuilder {
            orchestrator,
            operation,
            timeout,
            about,
            strategy,
            data,
            call_log,
            sleeper,
        } = self;
        let mut policy = policy(timeout);
        if let Some(throttle) = &orchestrator.throttle {
            policy = policy.sharing(throttle.clone());
        }
        let context = Arc::new(RequestContext::new(operation, about, timeout));
        let strategy = strategy.unwrap_or_else(|| orchestrator.strategy.clone());
        let record = Record::new(context.clone(), orchestrator.log.clone());
        (Prepared { policy, context, record }, Extra { strategy, data, call_log }, sleeper)
    }
}

impl<S, D: Any + Send + Sync> RequestBuilder<'_, S, D> {
    /// Runs the request on an async executor: the operation is started for each attempt.
    ///
    /// # Errors
    /// The request did not get what it asked for.
    ///
    /// # Cancel safety
    /// Dropping the future drops the attempt that runs. Nothing is logged then.
    pub async fn run<F, R, T, E>(self, mut operation: F) -> Result<T, Error<E>>
    where
        F: FnMut(RequestAttempt) -> R,
        R: Future<Output = Result<T, E>>,
        E: RetryableError,
        S: Sleeper,
    {
        let (prepared, extra, sleeper) = self.prepare();
        let Prepared { policy, context, mut record } = prepared;
        let call = policy
            .retry_with(|attempt| operation(RequestAttempt::new(attempt, context.clone())))
            .when(|error: &E| classify(error, &context));
        let result = extra.give(call, &context, &mut record).sleeping_on(sleeper).await;
        result.map_err(|error| Error::new(error, context, record.seen()))
    }

    /// Runs the request in this thread, which it blocks while an attempt runs and while it waits.
    ///
    /// A running attempt cannot be cancelled: it is told what remains, and the timeout is judged
    /// when it returns (decision P12).
    ///
    /// # Errors
    /// The request did not get what it asked for.
    pub fn call<F, T, E>(self, mut operation: F) -> Result<T, Error<E>>
    where
        F: FnMut(RequestAttempt) -> Result<T, E>,
        E: RetryableError,
    {
        let (prepared, extra, _) = self.prepare();
        let Prepared { policy, context, mut record } = prepared;
        let call = policy
            .retry_with(|attempt| operation(RequestAttempt::new(attempt, context.clone())))
            .when(|error: &E| classify(error, &context));
        let result = extra.give(call, &context, &mut record).call();
        result.map_err(|error| Error::new(error, context, record.seen()))
    }
}

impl<S, D> std::fmt::Debug for RequestBuilder<'_, S, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatch")
            .field("operation", &self.operation)
            .field("about", &self.about)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What an error means, while its response is put where strategies find it.
///
/// A response that names no command answers the request's operation. Where that makes a difference
/// (LOCKED on unlock, 0x88 on get-collection-id, DCP), it decides, whatever the error says (decision
/// C5); otherwise the error does, which may know more than its response.
fn classify<E: RetryableError>(error: &E, context: &RequestContext) -> Option<Failure> {
    let Some(response) = error.response() else {
        context.set_last_response(None);
        return error.failure();
    };
    let answer = response.clone().for_operation(context.operation().name());
    let outcome = answer.classify();
    context.set_last_response(Some(answer));
    match outcome {
        _ if outcome == response.classify() => error.failure(),
        ResponseOutcome::Retry(reason) => Some(reason::failure(reason)),
        ResponseOutcome::Ok | ResponseOutcome::Failed => None,
    }
}

/// What the call borrows.
struct Prepared {
    policy: Policy,
    context: Arc<RequestContext>,
    record: Record,
}

/// What the call takes.
struct Extra<'a, D> {
    strategy: Arc<dyn Strategy>,
    data: D,
    call_log: Option<&'a mut CallLog>,
}

impl<D: Any + Send + Sync> Extra<'_, D> {
    /// The call with what the request adds to it.
    fn give<'p, G, O, K, C>(
        self,
        call: Retry<'p, G, O, K, C>,
        context: &Arc<RequestContext>,
        record: &'p mut Record,
    ) -> Retry<'p, G, O, K, C>
    where
        Self: 'p,
    {
        let Extra { strategy, data, call_log } = self;
        let mut call = call
            .data(context.clone())
            .data(data)
            .strategy(move |request: &Request<'_>| -> Decision { strategy.retry_after(request) })
            .on_event(|at, event| record.record(at, event));
        if let Some(call_log) = call_log {
            call = call.call_log(call_log);
        }
        if context.operation().is_idempotent() { call } else { call.not_idempotent() }
    }
}

/// What the orchestrator keeps of the notes of a call.
struct Record {
    context: Arc<RequestContext>,
    hook: Option<Arc<LogHook>>,
    log: RetryLogger,
    seen: Seen,
}

impl Record {
    fn new(context: Arc<RequestContext>, hook: Option<Arc<LogHook>>) -> Self {
        let seen = Seen { reasons: Vec::new(), last: None, may_have_run: false };
        Record { context, hook, log: RetryLogger::new(), seen }
    }

    fn seen(self) -> Seen {
        self.seen
    }

    fn record(&mut self, at: Ns, event: &Event) {
        match event {
            // Until an attempt says otherwise, it counts as sent.
            Event::AttemptStarted { .. } => self.context.set_sent(true),
            Event::AttemptOutcome { classification, .. } => {
                self.seen.last = None;
                if let Directive::Retry(failure) = classification.directive {
                    self.seen.may_have_run |= !failure.proves_not_run();
                    self.remember(failure.reason);
                }
            }
            Event::AttemptCancelled { .. } => self.seen.may_have_run |= self.context.is_sent(),
            _ => {}
        }
        let Some(line) = self.log.line(at, event) else { return };
        if let Some(hook) = &self.hook {
            hook(&self.context, &line);
        }
        #[cfg(feature = "tracing")]
        crate::trace::event(&self.context, &line);
    }

    fn remember(&mut self, reason: Option<Reason>) {
        self.seen.last = reason;
        if let Some(reason) = reason
            && !self.seen.reasons.contains(&reason)
        {
            self.seen.reasons.push(reason);
        }
    }
}
