//! The future of a request: a call of `redial` that retries or hedges.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use redial::parts::{Chain, OwnedHedged, OwnedPolicy, Retrying};
use redial::rules::Rules;
use redial::time::Tokio;
use tower_service::Service;

use crate::call::{
    Answered, ClassifyOutcome, Facts, HttpAttempt, HttpOperation, RequestState, WithAttempts,
    WithHedges,
};
use crate::error::{self, Error};
use crate::layer::{Budgets, Settings};
use crate::options::RequestOptions;
use crate::policy::HttpPolicy;
use crate::request::HttpRequest;
use crate::response::HttpResponse;
use crate::rules::{Hints, IDEMPOTENCY_KEY, RequestHead, is_safe};
use crate::service_error::AsStdError;

/// What callers of the service `S` get.
type OutputOf<S, Req> = <<S as Service<Req>>::Response as HttpResponse>::Output;

/// The call of a request; `P` is the policy, and `R` adds the report to the response.
type HttpCall<S, Req, X, P, R> = Retrying<
    'static,
    Chain<ClassifyOutcome<X>>,
    P,
    HttpOperation<S, Req>,
    HttpAttempt<S, Req>,
    Answered<OutputOf<S, Req>>,
    <S as Service<Req>>::Error,
    Tokio,
    R,
>;

pin_project! {
    /// The future of a request through a [`RetryService`](crate::RetryService).
    ///
    /// # Cancel safety
    /// Nothing is spawned. Dropping the future drops every running attempt and refunds a retry that has not
    /// started.
    ///
    /// # Panics
    /// A panic of the service or of a function of the layer is propagated. The future panics if it is
    /// polled after completion.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, X>
    where
        S: Service<Req>,
        S::Response: HttpResponse,
    {
        #[pin]
        call: AnyCall<S, Req, X>,
    }
}

pin_project! {
    #[project = AnyCallProjection]
    enum AnyCall<S, Req, X>
    where
        S: Service<Req>,
        S::Response: HttpResponse,
    {
        Retry {
            #[pin]
            call: HttpCall<S, Req, X, OwnedPolicy, WithAttempts>,
        },
        Hedge {
            #[pin]
            call: HttpCall<S, Req, X, OwnedHedged, WithHedges>,
        },
    }
}

/// What the options of a request and the layer say about a call.
struct CallPlan {
    facts: Facts,
    policy: HttpPolicy,
    hedges: bool,
    deadline: Option<std::time::Duration>,
}

impl CallPlan {
    fn of(settings: &Settings, request: &impl HttpRequest, given: Option<&RequestOptions>) -> Self {
        let method = request.method();
        let has_key = request.headers().contains_key(IDEMPOTENCY_KEY);
        let idempotent = given.and_then(|given| given.idempotent);
        let idempotent =
            idempotent.unwrap_or_else(|| settings.rules.is_idempotent(method) || has_key);
        let policy = match given {
            Some(given) if given.no_retries => &settings.single,
            Some(RequestOptions { policy: Some(policy), .. }) => policy,
            _ => &settings.policy,
        };
        let may_hedge = given
            .is_none_or(|given| !given.no_hedging && !given.no_retries && given.policy.is_none());
        let hints = Hints {
            ignored: given.is_some_and(|given| given.ignores_retry_after),
            clamp: policy.clamp,
        };
        CallPlan {
            facts: Facts { idempotent, has_key, hints, head: None },
            policy: policy.clone(),
            hedges: settings.hedged.is_some() && idempotent && is_safe(method) && may_hedge,
            deadline: given.and_then(|given| given.deadline),
        }
    }
}

impl<S, Req, X> ResponseFuture<S, Req, X>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
    X: AsStdError<S::Error>,
{
    /// Starts a call; `service` must be ready.
    #[inline]
    pub(crate) fn start(
        settings: &Arc<Settings>,
        service: S,
        mut request: Req,
        options: Option<RequestOptions>,
    ) -> Self {
        let given = options.as_ref().or_else(|| request.options());
        let must_not_repeat = given.is_some_and(|given| given.idempotent == Some(false));
        let mut plan = CallPlan::of(settings, &request, given);
        if let Some(make_key) = &settings.make_key
            && !plan.facts.idempotent
            && !must_not_repeat
        {
            request.headers_mut().insert(IDEMPOTENCY_KEY, make_key());
            (plan.facts.idempotent, plan.facts.has_key) = (true, true);
        }
        if settings.rules.has_hook() {
            plan.facts.head = Some(Arc::new(RequestHead {
                method: request.method().clone(),
                host: request.host().to_owned(),
                headers: request.headers().clone(),
                idempotent: plan.facts.idempotent,
            }));
        }
        let CallPlan { facts, policy, hedges, deadline } = plan;
        let budget = match &settings.budgets {
            Budgets::PerHost(budgets) => Some(budgets.get(request.host())),
            Budgets::Shared(budget) => Some(budget.clone()),
            Budgets::OfPolicy => None,
        };
        let classify = ClassifyOutcome {
            settings: settings.clone(),
            facts: facts.clone(),
            errors: PhantomData,
        };
        let hedged = if hedges { settings.hedged.as_ref() } else { None };
        let rules = hedged.map_or_else(|| policy.policy.rules(), OwnedHedged::rules);
        let operation = HttpOperation {
            service,
            request: RequestState::Unsent(request),
            settings: settings.clone(),
            facts,
            options: options.map(Box::new),
            attempts_max: attempts_max(rules),
        };
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
                call.into_future()
            }};
        }
        let call = match hedged {
            Some(policy) => AnyCall::Hedge { call: call!(policy, WithHedges) },
            None => AnyCall::Retry { call: call!(policy.policy, WithAttempts) },
        };
        ResponseFuture { call }
    }
}

/// The most attempts of a call; without a bound if they are counted anew after a long attempt.
fn attempts_max(rules: &Rules) -> u32 {
    match (rules.attempts, rules.reset_after) {
        (Some(attempts), None) => attempts,
        _ => u32::MAX,
    }
}

impl<S, Req, X> Future for ResponseFuture<S, Req, X>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
    X: AsStdError<S::Error>,
{
    type Output = Result<OutputOf<S, Req>, Error<S::Error>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match self.project().call.project() {
            AnyCallProjection::Retry { call } => call.poll(cx),
            AnyCallProjection::Hedge { call } => call.poll(cx),
        };
        result.map(|result| result.or_else(error::from_call))
    }
}

impl<S, Req, X> fmt::Debug for ResponseFuture<S, Req, X>
where
    S: Service<Req, Response: HttpResponse>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
