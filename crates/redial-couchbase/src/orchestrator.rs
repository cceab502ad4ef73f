//! The retry orchestrator: RFC 49, "Retry Orchestration" (decisions C6, C7, C10, C12, C14, C15).
//!
//! `redial-core` decides and `redial` drives the attempts; this module configures them with RFC 49's
//! rules. A first attempt runs before the call of `redial` unless something observes successes: if it
//! succeeds in time, there is no call; otherwise the call begins as of its start, with that attempt.
//!
//! The rules:
//!
//!
//! | subject | rule |
//! | --- | --- |
//! | reasons that are always retried | controlled backoff, without calling the strategy |
//! | other reasons | the strategy returns a delay, or declines the retry |
//! | both | share one attempt counter, read before it is incremented; delays are capped at the timeout |
//! | attempts | as many as the timeout allows |
//! | throttle | none, as in RFC 49; one can be added |

use std::any::Any;
use std::borrow::Cow;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redial::parts::Sequential;
use redial::throttle::Bucket;
use redial::time::Sleeper;
use redial::{
    CallLog, Directive, Event, Failure, Policy, Reason, Retry, Throttle,
    rules::Rules,
    strategy::{Decision, Request, Strategy},
    time::{DefaultSleeper, Ns, ns},
};
use redial_core::NEVER;

use crate::context::{RequestAttempt, RequestContext};
use crate::error::{CallSummary, Error};
use crate::log::{RetryLogLine, RetryLogger};
use crate::operation::RequestOperation;
use crate::presets;
use crate::reason;
use crate::response::ResponseOutcome;
use crate::retryable_error::RetryableError;
use crate::started_attempt::StartedAttempt;
use crate::strategy::FastFailOnTerminalError;

/// The policy of a request with this timeout. The call supplies the strategy.
///
/// For scenarios and custom drivers; an [`Orchestrator`] applies it by itself.
#[must_use]
pub const fn policy(timeout: Duration) -> Policy {
    let rules = Rules { deadline: Some(timeout), uses_strategy: true, ..presets::RULES };
    Policy::from_rules(rules).throttle(Throttle::none()).build()
}

/// A hook that receives each log line with its request.
type LogHook = dyn Fn(&RequestContext, &RetryLogLine) + Send + Sync;

/// Asked before each retry. If it refuses, the request ends with the error that would have been retried.
pub(crate) type RetryGate = Arc<dyn Fn() -> bool + Send + Sync>;

/// Runs a client's requests with a shared strategy, log hook and optional throttle. Cheap to clone.
///
/// Requests are not ordered: a retried request may complete after one that was sent later (decision
/// C15). If a request depends on another one, await the first.
#[derive(Clone)]
pub struct Orchestrator {
    strategy: Arc<dyn Strategy>,
    throttle: Option<Arc<dyn Bucket + Send + Sync>>,
    log: Option<Arc<LogHook>>,
}

impl Orchestrator {
    /// An orchestrator with the default strategy, [`FastFailOnTerminalError`] (decision C14).
    #[must_use]
    pub fn new() -> Self {
        Orchestrator::with(FastFailOnTerminalError::new())
    }

    /// An orchestrator with this strategy.
    #[must_use]
    pub fn with(strategy: impl Strategy + 'static) -> Self {
        Orchestrator::sharing(Arc::new(strategy))
    }

    /// An orchestrator with a shared strategy.
    #[must_use]
    pub fn sharing(strategy: Arc<dyn Strategy>) -> Self {
        Orchestrator { strategy, throttle: None, log: None }
    }

    /// The same orchestrator with another strategy.
    #[cfg(feature = "client")]
    pub(crate) fn strategy(mut self, strategy: impl Strategy + 'static) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    /// The same orchestrator for what waits and does not fail.
    #[cfg(feature = "client")]
    pub(crate) fn without_throttle(&self) -> Self {
        Orchestrator { throttle: None, ..self.clone() }
    }

    /// Adds a throttle that limits the retries of all requests. RFC 49 has none.
    #[must_use]
    pub fn throttled(mut self, throttle: Arc<dyn Bucket + Send + Sync>) -> Self {
        self.throttle = Some(throttle);
        self
    }

    /// Adds a hook that receives each log line. It must not block.
    #[must_use]
    pub fn on_log(
        mut self,
        hook: impl Fn(&RequestContext, &RetryLogLine) + Send + Sync + 'static,
    ) -> Self {
        self.log = Some(Arc::new(hook));
        self
    }

    /// Whether something other than the request needs the events of one that succeeds at once.
    pub(crate) fn observes_success(&self) -> bool {
        self.throttle.is_some() || redial::is_observed()
    }

    /// A request with a timeout. Every request has one: nothing else bounds the retries of reasons that
    /// are always retried (decision C10).
    pub fn request(&self, operation: RequestOperation, timeout: Duration) -> RequestBuilder<'_> {
        RequestBuilder {
            orchestrator: self,
            operation,
            timeout,
            label: Cow::Borrowed(""),
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

/// A request before it is sent. [`run`](RequestBuilder::run) it on an async executor, or
/// [`call`](RequestBuilder::call) it in this thread.
#[must_use = "a request does nothing until it is run or called"]
pub struct RequestBuilder<'a, S = DefaultSleeper, D = ()> {
    orchestrator: &'a Orchestrator,
    operation: RequestOperation,
    timeout: Duration,
    label: Cow<'static, str>,
    strategy: Option<Arc<dyn Strategy>>,
    data: D,
    call_log: Option<&'a mut CallLog>,
    sleeper: S,
}

impl<'a, S, D> RequestBuilder<'a, S, D> {
    /// A label of the request for log lines and errors, for instance the document's key.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.label = label.into();
        self
    }

    /// Overrides the strategy for this request.
    pub fn strategy(self, strategy: impl Strategy + 'static) -> Self {
        self.sharing(Arc::new(strategy))
    }

    /// Overrides the strategy for this request with a shared one.
    pub fn sharing(mut self, strategy: Arc<dyn Strategy>) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Attaches user data that a strategy can read ([`Request::data`]).
    pub fn data<T: Any + Send + Sync>(self, data: T) -> RequestBuilder<'a, S, T> {
        let RequestBuilder {
            orchestrator,
            operation,
            timeout,
            label,
            strategy,
            call_log,
            sleeper,
            ..
        } = self;
        RequestBuilder {
            orchestrator,
            operation,
            timeout,
            label,
            strategy,
            data,
            call_log,
            sleeper,
        }
    }

    /// Records the request's events in this call log.
    pub fn call_log(mut self, call_log: &'a mut CallLog) -> Self {
        self.call_log = Some(call_log);
        self
    }

    /// Uses this sleeper instead of tokio's timer.
    pub fn sleeping_on<Z>(self, sleeper: Z) -> RequestBuilder<'a, Z, D> {
        let RequestBuilder {
            orchestrator,
            operation,
            timeout,
            label,
            strategy,
            data,
            call_log,
            ..
        } = self;
        RequestBuilder {
            orchestrator,
            operation,
            timeout,
            label,
            strategy,
            data,
            call_log,
            sleeper,
        }
    }

    /// The context of the request.
    pub(crate) fn context(&mut self) -> Arc<RequestContext> {
        let label = mem::take(&mut self.label);
        Arc::new(RequestContext::new(self.operation, label, self.timeout))
    }

    /// Splits the request into the parts that the call borrows and those that it consumes.
    fn prepare(self, context: Arc<RequestContext>) -> (BorrowedParts, CallExtras<'a, D>, S) {
        let RequestBuilder { orchestrator, timeout, strategy, data, call_log, sleeper, .. } = self;
        let mut policy = policy(timeout);
        if let Some(throttle) = &orchestrator.throttle {
            policy = policy.sharing(throttle.clone());
        }
        let strategy = strategy.unwrap_or_else(|| orchestrator.strategy.clone());
        let recorder = EventRecorder::new(context.clone(), orchestrator.log.clone());
        (
            BorrowedParts { policy, context, recorder },
            CallExtras { strategy, gate: None, data, call_log },
            sleeper,
        )
    }
}

impl<S, D: Any + Send + Sync> RequestBuilder<'_, S, D> {
    /// Runs the request on an async executor; `operation` is called for each attempt.
    ///
    /// # Errors
    /// The request failed or timed out.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the running attempt and logs nothing.
    pub async fn run<F, R, T, E>(mut self, mut operation: F) -> Result<T, Error<E>>
    where
        F: FnMut(RequestAttempt) -> R,
        R: Future<Output = Result<T, E>>,
        E: RetryableError,
        S: Sleeper,
    {
        let context = self.context();
        let mut pinned = pin!(None);
        let (mut start, mut first) = (None, None);
        if self.call_log.is_none() && !self.orchestrator.observes_success() {
            let now = self.sleeper.now();
            let attempt = redial::Attempt::first(Some(self.timeout));
            pinned.set(Some(operation(RequestAttempt::new(attempt, context.clone()))));
            let deadline = now.saturating_add(ns(self.timeout));
            let mut sleep = pin!(None);
            // The timer is armed if the attempt is pending at all.
            let timer = |cx: &mut Context<'_>| {
                if deadline == NEVER {
                    return Poll::Pending;
                }
                if sleep.is_none() {
                    sleep.set(Some(self.sleeper.sleep_until(deadline)));
                }
                sleep.as_mut().as_pin_mut().map_or(Poll::Pending, |sleep| sleep.poll(cx))
            };
            match StartedAttempt::run(pinned, timer).await {
                Ok(value) => return Ok(value),
                Err(attempt) => (start, first) = (Some(now), Some(attempt)),
            }
        }
        let operation = |attempt| {
            let attempt = match first.take() {
                Some(first) => FirstOrNext::First(first),
                None => FirstOrNext::Next(operation(attempt)),
            };
            async {
                match attempt {
                    FirstOrNext::First(first) => first.resume().await,
                    FirstOrNext::Next(next) => next.await,
                }
            }
        };
        // In a box, so that a request that succeeds at once does not have its size.
        Box::pin(self.run_call(context, start, None, operation)).await
    }

    /// Runs the call of a request. `start` is when the first attempt started, if it did that before the
    /// call; attempt 1 must be that one.
    pub(crate) async fn run_call<F, R, T, E>(
        self,
        context: Arc<RequestContext>,
        start: Option<Ns>,
        gate: Option<RetryGate>,
        mut operation: F,
    ) -> Result<T, Error<E>>
    where
        F: FnMut(RequestAttempt) -> R,
        R: Future<Output = Result<T, E>>,
        E: RetryableError,
        S: Sleeper,
    {
        let (prepared, mut extras, sleeper) = self.prepare(context);
        let BorrowedParts { policy, context, mut recorder } = prepared;
        extras.gate = gate.clone();
        let idempotent = context.operation().is_idempotent();
        let classify = |error: &E| {
            let failure = classify_error(error, &context)?;
            // The strategy, which asks the gate for other reasons, is not asked about these.
            let is_retried =
                failure.is_always_retried() && (idempotent || failure.proves_not_run());
            let admitted = !is_retried || gate.as_ref().is_none_or(|gate| gate());
            admitted.then_some(failure)
        };
        let call = policy
            .retry_with(|attempt| operation(RequestAttempt::new(attempt, context.clone())))
            .when(classify);
        let mut call = extras.apply(call, &context, &mut recorder).sleeping_on(sleeper);
        if let Some(start) = start {
            call = call.started_at(start);
        }
        let result = call.await;
        result.map_err(|error| Error::new(error, context, recorder.finish()))
    }

    /// Runs the request in this thread, blocking during attempts and delays.
    ///
    /// A running attempt cannot be cancelled: it can read the remaining time
    /// ([`RequestAttempt::remaining`]), and the timeout is checked when it returns (decision P12).
    ///
    /// # Errors
    /// The request failed or timed out.
    pub fn call<F, T, E>(mut self, mut operation: F) -> Result<T, Error<E>>
    where
        F: FnMut(RequestAttempt) -> Result<T, E>,
        E: RetryableError,
    {
        let context = self.context();
        let (prepared, extras, _) = self.prepare(context);
        let BorrowedParts { policy, context, mut recorder } = prepared;
        let call = policy
            .retry_with(|attempt| operation(RequestAttempt::new(attempt, context.clone())))
            .when(|error: &E| classify_error(error, &context));
        let result = extras.apply(call, &context, &mut recorder).call();
        result.map_err(|error| Error::new(error, context, recorder.finish()))
    }
}

/// An attempt of a call whose first attempt started before it.
enum FirstOrNext<F, N> {
    First(F),
    Next(N),
}

impl<S, D> std::fmt::Debug for RequestBuilder<'_, S, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBuilder")
            .field("operation", &self.operation)
            .field("label", &self.label)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Classifies the error of an attempt, and stores its response in the context for strategies.
///
/// A response without a command belongs to the request's operation. Where the operation changes the
/// classification (LOCKED on unlock, 0x88 on get-collection-id, DCP), that classification overrides the
/// error's own (decision C5); otherwise the error decides, since it may know more than its response.
fn classify_error<E: RetryableError>(error: &E, context: &RequestContext) -> Option<Failure> {
    let Some(response) = error.response() else {
        context.set_last_response(None);
        return error.failure();
    };
    let for_operation = response.clone().for_operation(context.operation().name());
    let outcome = for_operation.classify();
    context.set_last_response(Some(for_operation));
    match outcome {
        _ if outcome == response.classify() => error.failure(),
        ResponseOutcome::Retry(reason) => Some(reason::failure(reason)),
        ResponseOutcome::Ok | ResponseOutcome::Failed => None,
    }
}

/// The parts of a request that the call borrows.
struct BorrowedParts {
    policy: Policy,
    context: Arc<RequestContext>,
    recorder: EventRecorder,
}

/// The parts of a request that the call consumes.
struct CallExtras<'a, D> {
    strategy: Arc<dyn Strategy>,
    gate: Option<RetryGate>,
    data: D,
    call_log: Option<&'a mut CallLog>,
}

/// The decision of a strategy, unless the gate refuses a retry.
fn gated(decision: Decision, gate: &RetryGate) -> Decision {
    match decision {
        Decision::Retry(_) if !gate() => Decision::Decline,
        Decision::Later(later) => {
            let gate = gate.clone();
            Decision::later(async move { gated(later.await, &gate) })
        }
        other => other,
    }
}

impl<D: Any + Send + Sync> CallExtras<'_, D> {
    /// Applies the request's strategy, data and observers to the call.
    fn apply<'p, G, O, K, C>(
        self,
        call: Retry<'p, C, G, O, K>,
        context: &Arc<RequestContext>,
        recorder: &'p mut EventRecorder,
    ) -> Retry<'p, C, G, O, K>
    where
        G: Sequential<'p>,
        Self: 'p,
    {
        let CallExtras { strategy, gate, data, call_log } = self;
        let mut call = call
            .data(context.clone())
            .data(data)
            .strategy(move |request: &Request<'_>| -> Decision {
                let decision = strategy.retry_after(request);
                match &gate {
                    Some(gate) => gated(decision, gate),
                    None => decision,
                }
            })
            .on_event(|context, event| recorder.record(context.at, event));
        if let Some(call_log) = call_log {
            call = call.call_log(call_log);
        }
        if context.operation().is_idempotent() { call } else { call.not_idempotent() }
    }
}

/// Derives log lines and the data of the error from the events of a call.
struct EventRecorder {
    context: Arc<RequestContext>,
    hook: Option<Arc<LogHook>>,
    log: RetryLogger,
    summary: CallSummary,
}

impl EventRecorder {
    fn new(context: Arc<RequestContext>, hook: Option<Arc<LogHook>>) -> Self {
        let summary = CallSummary { reasons: Vec::new(), last: None, may_have_run: false };
        EventRecorder { context, hook, log: RetryLogger::new(), summary }
    }

    fn finish(self) -> CallSummary {
        self.summary
    }

    fn record(&mut self, at: Ns, event: &Event) {
        match event {
            // An attempt counts as sent unless it calls `mark_unsent`. The first may have called it already.
            Event::AttemptStarted { number: 2.., .. } => self.context.set_sent(true),
            Event::AttemptOutcome { classification, .. } => {
                self.summary.last = None;
                if let Directive::Retry(failure) = classification.directive {
                    self.summary.may_have_run |= !failure.proves_not_run();
                    self.add_reason(failure.reason);
                }
            }
            Event::AttemptCancelled { .. } => self.summary.may_have_run |= self.context.is_sent(),
            _ => {}
        }
        let Some(line) = self.log.line(at, event) else { return };
        if let Some(hook) = &self.hook {
            hook(&self.context, &line);
        }
        #[cfg(feature = "tracing")]
        crate::trace::event(&self.context, &line);
    }

    fn add_reason(&mut self, reason: Option<Reason>) {
        self.summary.last = reason;
        if let Some(reason) = reason
            && !self.summary.reasons.contains(&reason)
        {
            self.summary.reasons.push(reason);
        }
    }
}
