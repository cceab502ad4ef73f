//! A call whose first attempt runs: what is kept of the request in case it fails.

use std::sync::Arc;

use redial::Directive;
use redial::parts::OwnedPolicy;
use redial::throttle::{Bucket as _, RetryBudget};
use tower_service::Service;

use crate::call::{CallTimers, Facts, HttpOperation, RequestState, attempts_max};
use crate::layer::Settings;
use crate::options::RequestOptions;
use crate::request::HttpRequest;
use crate::response::ResponseHead;

/// A call whose first attempt runs. The call of `redial` starts if this attempt does not succeed.
pub(crate) struct CallStart<Req: HttpRequest> {
    settings: Arc<Settings>,
    facts: Facts,
    /// The copy of the request for the next attempt.
    request: RequestState<Req>,
    budget: Option<Arc<RetryBudget>>,
}

impl<Req: HttpRequest> CallStart<Req> {
    /// Prepares the request for its first attempt. `None` if more than that attempt is needed before it
    /// has ended: timers, hedges, a hook that sees the request, events for an observer.
    #[inline(always)]
    pub(crate) fn new(
        settings: &Arc<Settings>,
        request: &mut Req,
        options: Option<&RequestOptions>,
    ) -> Option<Self> {
        let policy = &settings.policy;
        if options.is_some()
            || request.options().is_some()
            || settings.rules.has_hook()
            || !policy.policy.starts_after_first_attempt()
        {
            return None;
        }
        let mut facts = Facts::of(settings, request, policy, None);
        if settings.hedges(request, &facts) {
            return None;
        }
        facts.add_key(settings, request);
        let is_last = attempts_max(policy.policy.rules()) == 1;
        let kept = RequestState::keep(request, None, is_last);
        settings.number_attempt(request, 1);
        let budget = settings.budgets.of_host(&request.host());
        Some(CallStart { settings: settings.clone(), facts, request: kept, budget })
    }

    /// Classifies the response of the first attempt. A success ends the call and is reported to the budget.
    #[inline(always)]
    pub(crate) fn classify(&self, response: &impl ResponseHead) -> Directive {
        let directive = self.facts.classify_response(&self.settings, response);
        if directive == Directive::Succeed {
            match &self.budget {
                Some(budget) => budget.succeeded(None),
                None => self.settings.policy.policy.succeeded(),
            }
        }
        directive
    }

    /// The policy and the operation of the call. Further attempts run on this service.
    pub(crate) fn into_call<S: Service<Req>>(
        self,
        service: S,
    ) -> (OwnedPolicy, HttpOperation<S, Req>) {
        let CallStart { settings, facts, request, budget } = self;
        let policy = &settings.policy.policy;
        let policy = budget.map_or_else(|| policy.clone(), |budget| policy.with_budget(budget));
        let attempts_max = attempts_max(policy.rules());
        let timers = CallTimers::new(policy.rules(), None);
        let operation = HttpOperation {
            service,
            request,
            settings,
            facts,
            options: None,
            attempts_max,
            timers,
        };
        (policy, operation)
    }
}
