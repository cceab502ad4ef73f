//! The operation of a call: each attempt sends a copy of the request.

use std::fmt;
use std::mem;
use std::sync::Arc;

use http::HeaderValue;
use redial::Attempt;
use redial::parts::Operation;
use tower_service::Service;

use crate::call::{Facts, HttpAttempt};
use crate::layer::Settings;
use crate::options::RequestOptions;
use crate::request::HttpRequest;
use crate::response::HttpResponse;

/// Starts the attempts of a call.
pub(crate) struct HttpOperation<S, Req> {
    pub(crate) service: S,
    pub(crate) request: RequestState<Req>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) facts: Facts,
    /// Options that came beside the request.
    pub(crate) options: Option<Box<RequestOptions>>,
    /// The most attempts that the policy allows.
    pub(crate) attempts_max: u32,
}

/// The request between attempts.
pub(crate) enum RequestState<Req> {
    /// No attempt has started, and the service is ready.
    Unsent(Req),
    /// A copy, for the next attempt.
    Kept(Req),
    /// The body cannot be sent again: the running attempt is the last.
    Sent,
    /// The policy allows no further attempt, so no copy was made.
    SentLast,
}

impl<S, Req: HttpRequest> HttpOperation<S, Req> {
    /// The request for this attempt. A copy of the original is kept if there can be another attempt.
    #[inline]
    fn take_request(&mut self, number: u32) -> Req {
        let (RequestState::Unsent(mut request) | RequestState::Kept(mut request)) =
            mem::replace(&mut self.request, RequestState::Sent)
        else {
            unreachable!("an attempt of a request that is not replayable")
        };
        let options = self.options.as_deref().or_else(|| request.options());
        self.request = if number >= self.attempts_max {
            RequestState::SentLast
        } else {
            request.try_copy(options).map_or(RequestState::Sent, RequestState::Kept)
        };
        if let Some(name) = &self.settings.attempt_header {
            request.headers_mut().insert(name, HeaderValue::from(number));
        }
        request
    }
}

impl<S, Req> HttpOperation<S, Req> {
    /// Whether the body of a response with a retryable status is read: a retry may follow.
    fn drains(&self) -> bool {
        self.facts.idempotent && matches!(self.request, RequestState::Kept(_))
    }
}

impl<S, Req> Operation for HttpOperation<S, Req>
where
    S: Service<Req, Response: HttpResponse> + Clone,
    Req: HttpRequest,
{
    type Answer = HttpAttempt<S, Req>;
    const READS_ATTEMPT: bool = false;
    const RECORDS_HISTORY: bool = true;

    fn start(&mut self, attempt: Attempt) -> Self::Answer {
        if let RequestState::Unsent(_) = self.request {
            return self.start_first();
        }
        let number = attempt.number();
        let request = self.take_request(number);
        let facts = self.drains().then(|| (self.settings.clone(), self.facts.clone()));
        HttpAttempt::not_ready(number, facts, self.service.clone(), request)
    }

    #[inline]
    fn start_first(&mut self) -> Self::Answer {
        let request = self.take_request(1);
        let facts = self.drains().then(|| (self.settings.clone(), self.facts.clone()));
        HttpAttempt::called(1, facts, self.service.call(request))
    }

    #[inline]
    fn is_replayable(&self) -> bool {
        !matches!(self.request, RequestState::Sent)
    }

    #[inline]
    fn is_idempotent(&self) -> bool {
        self.facts.idempotent
    }
}

impl<S, Req> fmt::Debug for HttpOperation<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOperation").finish_non_exhaustive()
    }
}
