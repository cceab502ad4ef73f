//! The operation of a call: each attempt sends a copy of the request.

use std::fmt;
use std::mem;
use std::sync::Arc;

use redial::Attempt;
use redial::parts::Operation;
use redial::rules::Rules;
use tower_service::Service;

use crate::call::{CallTimers, Facts, HttpAttempt};
use crate::layer::Settings;
use crate::options::RequestOptions;
use crate::request::HttpRequest;
use crate::response::HttpResponse;

/// Starts the attempts of a call.
pub(crate) struct HttpOperation<S, Req: HttpRequest> {
    pub(crate) service: S,
    pub(crate) request: RequestState<Req>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) facts: Facts,
    /// Options that came beside the request.
    pub(crate) options: Option<RequestOptions>,
    /// The most attempts that the policy allows.
    pub(crate) attempts_max: u32,
    pub(crate) timers: CallTimers,
}

/// The request between attempts.
pub(crate) enum RequestState<Req: HttpRequest> {
    /// No attempt has started, and the service is ready.
    Unsent(Req),
    /// What the next attempt needs.
    Kept(Req::Saved),
    /// The body cannot be sent again: the running attempt is the last.
    Sent,
    /// The policy allows no further attempt, so no copy was made.
    SentLast,
}

impl<Req: HttpRequest> RequestState<Req> {
    /// A copy of a request that is sent now, unless this attempt is the last.
    #[inline(always)]
    pub(crate) fn keep(request: &mut Req, options: Option<&RequestOptions>, is_last: bool) -> Self {
        if is_last {
            return RequestState::SentLast;
        }
        match request.save(options) {
            Some(saved) => RequestState::Kept(saved),
            None => RequestState::Sent,
        }
    }
}

/// The most attempts of a call; without a bound if they are counted anew after a long attempt.
pub(crate) fn attempts_max(rules: &Rules) -> u32 {
    match (rules.attempts, rules.reset_after) {
        (Some(attempts), None) => attempts,
        _ => u32::MAX,
    }
}

impl<S, Req: HttpRequest> HttpOperation<S, Req> {
    /// The request for this attempt. A copy of the original is kept if there can be another attempt.
    fn take_request(&mut self, number: u32) -> Req {
        let mut request = match mem::replace(&mut self.request, RequestState::Sent) {
            RequestState::Unsent(request) => request,
            RequestState::Kept(saved) => Req::restore(saved),
            RequestState::Sent | RequestState::SentLast => {
                unreachable!("an attempt of a request that is not replayable")
            }
        };
        let in_request = if self.options.is_none() { request.options().cloned() } else { None };
        let options = self.options.as_ref().or(in_request.as_ref());
        self.request = RequestState::keep(&mut request, options, number >= self.attempts_max);
        self.settings.number_attempt(&mut request, number);
        request
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
        HttpAttempt::not_ready(number, self, request)
    }

    fn start_first(&mut self) -> Self::Answer {
        let request = self.take_request(1);
        let response = self.service.call(request);
        HttpAttempt::called(self, response)
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

impl<S, Req: HttpRequest> fmt::Debug for HttpOperation<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOperation").finish_non_exhaustive()
    }
}
