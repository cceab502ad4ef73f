//! Translates the outcomes of attempts for the core, by the rules of the layer.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use redial::Directive;
use redial::classify::{ClassifyRule, Hint};
use redial::rules::{ChargeAt, DeadlineAction};

use crate::call::{Answered, HttpOperation};
use crate::layer::Settings;
use crate::options::RequestOptions;
use crate::policy::HttpPolicy;
use crate::request::HttpRequest;
use crate::response::ResponseHead;
use crate::rules::{IDEMPOTENCY_KEY, Outcome, RequestHead};
use crate::service_error::AsStdError;
use crate::transport;

/// What the rules need to know of a request.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) idempotent: bool,
    /// Whether it has an idempotency key, where that matters.
    pub(crate) has_key: bool,
    /// Whether the layer may make the request idempotent with a key.
    takes_key: bool,
    /// Whether the request ignores the hints of the server.
    ignores_hints: bool,
    /// Longer hints are cut to this.
    pub(crate) hint_clamp: Option<Duration>,
    /// Only for a hook.
    pub(crate) head: Option<Arc<RequestHead>>,
}

impl Facts {
    /// The facts of a request, without an idempotency key of the layer and without its head.
    #[inline(always)]
    pub(crate) fn of(
        settings: &Settings,
        request: &impl HttpRequest,
        policy: &HttpPolicy,
        options: Option<&RequestOptions>,
    ) -> Self {
        let stated = options.and_then(|options| options.idempotent);
        let by_method = settings.rules.is_idempotent(request.method());
        // Whether an idempotent request has a key matters only for a conflict.
        let has_key = (!by_method || settings.rules.retries_conflicts())
            && request.headers().contains_key(IDEMPOTENCY_KEY);
        Facts {
            idempotent: stated.unwrap_or(by_method || has_key),
            has_key,
            takes_key: stated != Some(false),
            ignores_hints: options.is_some_and(|options| options.ignores_retry_after),
            hint_clamp: policy.clamp,
            head: None,
        }
    }

    /// Adds an idempotency key if the layer has them and the request needs one.
    #[inline(always)]
    pub(crate) fn add_key(&mut self, settings: &Settings, request: &mut impl HttpRequest) {
        if let Some(make_key) = &settings.make_key
            && !self.idempotent
            && self.takes_key
        {
            request.headers_mut().insert(IDEMPOTENCY_KEY, make_key());
            (self.idempotent, self.has_key) = (true, true);
        }
    }

    #[inline]
    pub(crate) fn classify_response(
        &self,
        settings: &Settings,
        response: &impl ResponseHead,
    ) -> Directive {
        let (status, headers) = (response.status(), response.headers());
        let rules = &settings.rules;
        if rules.has_hook() {
            let outcome = Outcome::Response { status, headers };
            if let Some(directive) = rules.ask_hook(self.head.as_deref(), outcome) {
                return self.clamped(directive);
            }
        }
        self.clamped(rules.classify_response(status, headers, self.has_key, self.ignores_hints))
    }

    fn classify_error(&self, settings: &Settings, error: &(dyn Error + 'static)) -> Directive {
        let hook = settings.rules.ask_hook(self.head.as_deref(), Outcome::Error(error));
        let directive = hook
            .unwrap_or_else(|| transport::failure(error).map_or(Directive::Fail, Directive::Retry));
        self.clamped(directive)
    }

    /// The same with a hint of at most the maximum of the policy, whether the server or a hook gave the hint.
    #[inline]
    fn clamped(&self, mut directive: Directive) -> Directive {
        if let Some(most) = self.hint_clamp
            && let Directive::Retry(failure) = &mut directive
            && let Hint::After(delay) = &mut failure.hint
        {
            *delay = (*delay).min(most);
        }
        directive
    }
}

/// Classifies the outcomes of one call. `X` states how an error of the service is inspected.
pub(crate) struct ClassifyOutcome<X> {
    settings: Arc<Settings>,
    facts: Facts,
    /// Whether a response that is retried can be dropped: its call does not return it any more.
    releases: bool,
    errors: PhantomData<fn() -> X>,
}

impl<X> ClassifyOutcome<X> {
    /// For calls of this operation by a policy with these rules.
    pub(crate) fn of<S, Req: HttpRequest>(
        operation: &HttpOperation<S, Req>,
        rules: &redial::rules::Rules,
    ) -> Self {
        let (settings, facts) = (operation.settings.clone(), operation.facts.clone());
        // After the backoff, the throttle may refuse the retry. A hedged call may end while it waits, and so
        // may one that waits for its deadline.
        let releases = rules.hedge.is_none()
            && rules.charge_at != ChargeAt::AfterBackoff
            && rules.deadline_action != DeadlineAction::WaitForDeadline;
        ClassifyOutcome { settings, facts, releases, errors: PhantomData }
    }
}

impl<X, T: ResponseHead, E> ClassifyRule<Answered<T>, E> for ClassifyOutcome<X>
where
    X: AsStdError<E>,
{
    const RELEASES: bool = true;

    fn release(&mut self, result: &mut Result<Answered<T>, E>) {
        if let Ok(answer) = result
            && self.releases
        {
            answer.release();
        }
    }

    fn classify(&mut self, result: &Result<Answered<T>, E>) -> Option<Directive> {
        Some(match result {
            // The attempt has classified its response, to know whether to read it.
            Ok(answer) => answer.directive,
            Err(error) => self.facts.classify_error(&self.settings, X::as_std_error(error)),
        })
    }
}

impl<X> fmt::Debug for ClassifyOutcome<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyOutcome").finish_non_exhaustive()
    }
}
