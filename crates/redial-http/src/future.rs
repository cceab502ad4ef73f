//! The future of a request: the first attempt, and a call of `redial` if that fails.

use std::fmt;
use std::future::IntoFuture;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use redial::Directive;
use redial::parts::{Chain, OwnedHedged, OwnedPolicy, Retrying};
use redial::time::{Ns, Sleeper as _, Tokio};
use tower_service::Service;

use crate::call::{
    Answered, CallStart, CallTimers, ClassifyOutcome, Facts, HttpAttempt, HttpOperation,
    RequestState, WithAttempts, WithHedges, attempts_max,
};
use crate::error::{self, Error};
use crate::layer::Settings;
use crate::options::RequestOptions;
use crate::policy::HttpPolicy;
use crate::request::HttpRequest;
use crate::response::HttpResponse;
use crate::rules::RequestHead;
use crate::service_error::AsStdError;

/// What callers of the service `S` get.
pub(crate) type OutputOf<S, Req> = <<S as Service<Req>>::Response as HttpResponse>::Output;

/// The result of a request.
type ResultOf<S, Req> = Result<OutputOf<S, Req>, Error<<S as Service<Req>>::Error>>;

/// The call of a request; `P` is the policy, and `R` adds the report to the response. In a box: most
/// requests succeed with their first attempt.
type HttpCall<S, Req, X, P, R> = Pin<
    Box<
        Retrying<
            'static,
            Chain<ClassifyOutcome<X>>,
            P,
            HttpOperation<S, Req>,
            HttpAttempt<S, Req>,
            Answered<OutputOf<S, Req>>,
            <S as Service<Req>>::Error,
            Tokio,
            R,
        >,
    >,
>;

pin_project! {
    /// The future of a request through a [`RetryService`](crate::RetryService).
    ///
    /// # Cancel safety
    /// Nothing is spawned. Dropping the future drops every running attempt and refunds a retry that has not
    /// started.
    ///
    /// # Panics
    /// A panic of the service or of a function of the layer is propagated; the future can only be dropped
    /// then. The future panics if it is polled after completion or after a panic.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, X>
    where
        S: Service<Req>,
        S::Response: HttpResponse,
        Req: HttpRequest,
    {
        #[pin]
        state: State<S, Req, X>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Req, X>
    where
        S: Service<Req>,
        S::Response: HttpResponse,
        Req: HttpRequest,
    {
        /// The first attempt of a request that needs nothing else before this attempt has failed.
        First {
            #[pin]
            attempt: FirstAttempt<S::Future>,
            service: Option<S>,
            start: Option<CallStart<Req>>,
        },
        /// A call after its first failure, or with timers, hedges, options or observers.
        Call { call: AnyCall<S, Req, X> },
        /// The request has ended, or user code has panicked.
        Done,
    }
}

/// A call that retries or hedges.
enum AnyCall<S, Req, X>
where
    S: Service<Req>,
    S::Response: HttpResponse,
    Req: HttpRequest,
{
    Retry(HttpCall<S, Req, X, OwnedPolicy, WithAttempts>),
    Hedge(HttpCall<S, Req, X, OwnedHedged, WithHedges>),
}

pin_project! {
    /// A first attempt, and the time at which it was first pending.
    pub(crate) struct FirstAttempt<F> {
        #[pin]
        attempt: F,
        pending_since: Option<Ns>,
    }
}

impl<F> FirstAttempt<F> {
    #[inline]
    pub(crate) const fn new(attempt: F) -> Self {
        FirstAttempt { attempt, pending_since: None }
    }

    /// When the attempt was first pending.
    pub(crate) const fn pending_since(&self) -> Option<Ns> {
        self.pending_since
    }
}

impl<F: Future> Future for FirstAttempt<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = this.attempt.poll(cx);
        if result.is_pending() && this.pending_since.is_none() {
            *this.pending_since = Some(Tokio.now());
        }
        result
    }
}

impl<S, Req, X> ResponseFuture<S, Req, X>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
    X: AsStdError<S::Error>,
{
    /// Starts a call with this service, which is ready. Another clone, which may not be, takes its place.
    #[inline(always)]
    pub(crate) fn start(
        settings: &Arc<Settings>,
        ready: &mut S,
        mut request: Req,
        options: Option<RequestOptions>,
    ) -> Self {
        let state = match CallStart::new(settings, &mut request, options.as_ref()) {
            Some(start) => State::First {
                service: Some(ready.clone()),
                attempt: FirstAttempt::new(ready.call(request)),
                start: Some(start),
            },
            None => {
                let clone = ready.clone();
                let service = mem::replace(ready, clone);
                State::Call { call: AnyCall::start(settings, service, request, options) }
            }
        };
        ResponseFuture { state }
    }

    /// The rest of a call whose first attempt has not succeeded at once.
    #[cfg(feature = "reqwest-middleware")]
    pub(crate) fn resume(
        start: CallStart<Req>,
        service: S,
        result: Result<S::Response, S::Error>,
        directive: Option<Directive>,
        pending_since: Option<Ns>,
    ) -> Self {
        let call = AnyCall::resume(start, service, result, directive, pending_since);
        ResponseFuture { state: State::Call { call } }
    }
}

impl<S, Req, X> AnyCall<S, Req, X>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
    X: AsStdError<S::Error>,
{
    fn start(
        settings: &Arc<Settings>,
        service: S,
        mut request: Req,
        options: Option<RequestOptions>,
    ) -> Self {
        let given = options.as_ref().or_else(|| request.options());
        let CallPlan { mut facts, policy, hedges, deadline, no_retries } =
            CallPlan::of(settings, &request, given);
        facts.add_key(settings, &mut request);
        if settings.rules.has_hook() {
            facts.head = Some(Arc::new(RequestHead {
                method: request.method().clone(),
                host: request.host().into_owned(),
                headers: request.headers().clone(),
                idempotent: facts.idempotent,
            }));
        }
        let budget = settings.budgets.of_host(&request.host());
        let hedged = if hedges { settings.hedged.as_ref() } else { None };
        let rules = hedged.map_or_else(|| policy.policy.rules(), |hedged| hedged.policy.rules());
        let operation = HttpOperation {
            service,
            request: RequestState::Unsent(request),
            settings: settings.clone(),
            facts,
            options,
            attempts_max: if no_retries { 1 } else { attempts_max(rules) },
            timers: CallTimers::new(rules, deadline),
        };
        let classify = ClassifyOutcome::of(&operation, rules);
        /// The call with this policy; both kinds of policy have the same methods.
        macro_rules! call {
            ($policy:expr, $output:ty) => {{
                let policy = match budget {
                    Some(budget) => $policy.with_budget(budget),
                    None => $policy.clone(),
                };
                let mut call = policy.retry(operation).classify(classify).with_output::<$output>();
                if let Some(deadline) = deadline {
                    call = call.deadline(deadline);
                }
                if no_retries {
                    call = call.attempts(1);
                }
                Box::pin(call.into_future())
            }};
        }
        match hedged {
            Some(hedged) => AnyCall::Hedge(call!(hedged.policy, WithHedges)),
            None => AnyCall::Retry(call!(policy.policy, WithAttempts)),
        }
    }

    fn resume(
        start: CallStart<Req>,
        service: S,
        result: Result<S::Response, S::Error>,
        directive: Option<Directive>,
        pending_since: Option<Ns>,
    ) -> Self {
        let (policy, mut operation) = start.into_call(service);
        let classify = ClassifyOutcome::of(&operation, policy.rules());
        let first = HttpAttempt::ended(&mut operation, result, directive);
        let call = policy.retry(operation).classify(classify).with_output::<WithAttempts>();
        AnyCall::Retry(Box::pin(call.resume(first, pending_since)))
    }
}

/// What the options of a request and the layer say about a call.
struct CallPlan {
    facts: Facts,
    policy: HttpPolicy,
    hedges: bool,
    deadline: Option<Duration>,
    no_retries: bool,
}

impl CallPlan {
    fn of(settings: &Settings, request: &impl HttpRequest, given: Option<&RequestOptions>) -> Self {
        let policy = match given {
            Some(RequestOptions { policy: Some(policy), .. }) => policy,
            _ => &settings.policy,
        };
        let may_hedge = given
            .is_none_or(|given| !given.no_hedging && !given.no_retries && given.policy.is_none());
        let mut facts = Facts::of(settings, request, policy, given);
        let hedges = may_hedge && settings.hedges(request, &facts);
        if let Some(hedged) = settings.hedged.as_ref().filter(|_| hedges) {
            facts.hint_clamp = hedged.clamp;
        }
        CallPlan {
            hedges,
            facts,
            policy: policy.clone(),
            deadline: given.and_then(|given| given.deadline),
            no_retries: given.is_some_and(|given| given.no_retries),
        }
    }
}

impl<S, Req, X> Future for ResponseFuture<S, Req, X>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
    X: AsStdError<S::Error>,
{
    type Output = ResultOf<S, Req>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut end = EndOnDrop(self.project().state);
        let state = &mut end.0;
        if let StateProjection::First { mut attempt, start, service } = state.as_mut().project() {
            let Poll::Ready(result) = attempt.as_mut().poll(cx) else {
                mem::forget(end);
                return Poll::Pending;
            };
            let directive = match (&result, &*start) {
                (Ok(response), Some(call)) => Some(call.classify(response)),
                _ => None,
            };
            let result = match result {
                Ok(response) if directive == Some(Directive::Succeed) => {
                    return Poll::Ready(Ok(response.pass()));
                }
                result => result,
            };
            let pending_since = attempt.pending_since();
            let (start, service) = start.take().zip(service.take()).expect("set until here");
            let call = AnyCall::resume(start, service, result, directive, pending_since);
            state.set(State::Call { call });
        }
        let result = poll_call(state.as_mut(), cx);
        if result.is_pending() {
            mem::forget(end);
        }
        result
    }
}

/// Ends a request when it is dropped: the request has ended, or the service or a function of the layer has
/// panicked. The future can only be dropped then.
struct EndOnDrop<'a, S, Req, X>(Pin<&'a mut State<S, Req, X>>)
where
    S: Service<Req, Response: HttpResponse>,
    Req: HttpRequest;

impl<S, Req, X> Drop for EndOnDrop<'_, S, Req, X>
where
    S: Service<Req, Response: HttpResponse>,
    Req: HttpRequest,
{
    #[inline]
    fn drop(&mut self) {
        self.0.set(State::Done);
    }
}

/// Polls a call after its first attempt.
#[cold]
fn poll_call<S, Req, X>(
    state: Pin<&mut State<S, Req, X>>,
    cx: &mut Context<'_>,
) -> Poll<ResultOf<S, Req>>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
    X: AsStdError<S::Error>,
{
    let StateProjection::Call { call } = state.project() else { panic!("polled after completion") };
    let result = match call {
        AnyCall::Retry(call) => call.as_mut().poll(cx),
        AnyCall::Hedge(call) => call.as_mut().poll(cx),
    };
    result.map(|result| result.or_else(error::from_call))
}

impl<S, Req, X> fmt::Debug for ResponseFuture<S, Req, X>
where
    S: Service<Req, Response: HttpResponse>,
    Req: HttpRequest,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
