//! Translates the outcomes of attempts for the core, by the rules of the layer.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use redial::Directive;
use redial::classify::ClassifyRule;

use crate::call::Answered;
use crate::layer::Settings;
use crate::response::ResponseHead;
use crate::rules::{Hints, Outcome, RequestHead};
use crate::service_error::AsStdError;
use crate::transport;

/// What the rules need to know of a request.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) idempotent: bool,
    pub(crate) has_key: bool,
    pub(crate) hints: Hints,
    /// Only for a hook.
    pub(crate) head: Option<Arc<RequestHead>>,
}

impl Facts {
    pub(crate) fn classify_response(
        &self,
        settings: &Settings,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Directive {
        let rules = &settings.rules;
        if rules.has_hook() {
            let outcome = Outcome::Response { status, headers };
            if let Some(directive) = rules.ask_hook(self.head.as_deref(), outcome) {
                return directive;
            }
        }
        rules.classify_response(status, headers, self.has_key, self.hints)
    }

    fn classify_error(&self, settings: &Settings, error: &(dyn Error + 'static)) -> Directive {
        let hook = settings.rules.ask_hook(self.head.as_deref(), Outcome::Error(error));
        hook.unwrap_or_else(|| transport::failure(error).map_or(Directive::Fail, Directive::Retry))
    }
}

/// Classifies the outcomes of one call. `X` states how an error of the service is inspected.
pub(crate) struct ClassifyOutcome<X> {
    pub(crate) settings: Arc<Settings>,
    pub(crate) facts: Facts,
    pub(crate) errors: PhantomData<fn() -> X>,
}

impl<X, T: ResponseHead, E> ClassifyRule<Answered<T>, E> for ClassifyOutcome<X>
where
    X: AsStdError<E>,
{
    #[inline]
    fn classify(&mut self, result: &Result<Answered<T>, E>) -> Option<Directive> {
        Some(match result {
            Ok(Answered { response, .. }) => {
                let (status, headers) = (response.status(), response.headers());
                self.facts.classify_response(&self.settings, status, headers)
            }
            Err(error) => self.facts.classify_error(&self.settings, X::as_std_error(error)),
        })
    }
}

impl<X> fmt::Debug for ClassifyOutcome<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyOutcome").finish_non_exhaustive()
    }
}
