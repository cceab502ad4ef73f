//! One attempt: wait until the service is ready, call it, and read the body of a response that is
//! probably abandoned.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use redial::Directive;
use tower_service::Service;

use crate::call::{Answered, DrainLimits, Facts, HttpOperation, Kept, RequestState};
use crate::layer::Settings;
use crate::request::HttpRequest;
use crate::response::{DrainedResponse, HttpResponse, UnreadBody};

pin_project! {
    /// One attempt of a request.
    pub(crate) struct HttpAttempt<S, Req>
    where
        S: Service<Req>,
        S::Response: HttpResponse,
    {
        number: u32,
        settings: Arc<Settings>,
        facts: Facts,
        // Whether the request can be sent again.
        is_replayable: bool,
        limits: DrainLimits,
        #[pin]
        state: AttemptState<S, Req>,
    }
}

pin_project! {
    #[project = AttemptStateProjection]
    enum AttemptState<S, Req>
    where
        S: Service<Req>,
        S::Response: HttpResponse,
    {
        /// The service may not be ready. The request is taken when it is.
        NotReady { service: S, request: Option<Req> },
        /// The service has been called.
        Called {
            #[pin]
            response: S::Future,
        },
        /// The attempt has ended. Its response may have been classified.
        Ended { result: Option<Result<S::Response, S::Error>>, directive: Option<Directive> },
        /// The body is read.
        Draining { drain: <S::Response as HttpResponse>::Drain, directive: Directive },
    }
}

impl<S, Req> HttpAttempt<S, Req>
where
    S: Service<Req, Response: HttpResponse>,
    Req: HttpRequest,
{
    fn new(
        number: u32,
        operation: &mut HttpOperation<S, Req>,
        state: AttemptState<S, Req>,
    ) -> Self {
        HttpAttempt {
            number,
            settings: operation.settings.clone(),
            facts: operation.facts.clone(),
            is_replayable: matches!(operation.request, RequestState::Kept(_)),
            limits: operation.timers.start_attempt(),
            state,
        }
    }

    /// An attempt on this service, which may not be ready.
    pub(crate) fn not_ready(
        number: u32,
        operation: &mut HttpOperation<S, Req>,
        request: Req,
    ) -> Self
    where
        S: Clone,
    {
        let service = operation.service.clone();
        let state = AttemptState::NotReady { service, request: Some(request) };
        HttpAttempt::new(number, operation, state)
    }

    /// The first attempt, whose service has been called.
    pub(crate) fn called(operation: &mut HttpOperation<S, Req>, response: S::Future) -> Self {
        HttpAttempt::new(1, operation, AttemptState::Called { response })
    }

    /// The first attempt, which has ended outside of the call.
    pub(crate) fn ended(
        operation: &mut HttpOperation<S, Req>,
        result: Result<S::Response, S::Error>,
        directive: Option<Directive>,
    ) -> Self {
        let state = AttemptState::Ended { result: Some(result), directive };
        HttpAttempt::new(1, operation, state)
    }
}

/// How long the body of a response may be read that is probably abandoned; `None` if the call returns it at
/// once, because no retry is possible.
fn drain_time(
    is_replayable: bool,
    facts: &Facts,
    limits: &DrainLimits,
    directive: Directive,
) -> Option<Duration> {
    match directive {
        Directive::Retry(failure)
            if is_replayable && (facts.idempotent || failure.proves_not_run()) =>
        {
            limits.drain_time(&failure)
        }
        _ => None,
    }
}

impl<S, Req> Future for HttpAttempt<S, Req>
where
    S: Service<Req, Response: HttpResponse>,
{
    type Output = Result<Answered<<S::Response as HttpResponse>::Output>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let attempt = *this.number;
        loop {
            let state = match this.state.as_mut().project() {
                AttemptStateProjection::NotReady { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    let request = request.take().expect("the request is sent once");
                    AttemptState::Called { response: service.call(request) }
                }
                AttemptStateProjection::Called { response } => {
                    AttemptState::Ended { result: Some(ready!(response.poll(cx))), directive: None }
                }
                AttemptStateProjection::Ended { result, directive } => {
                    let response = result.take().expect("polled after completion")?;
                    let directive = directive
                        .unwrap_or_else(|| this.facts.classify_response(this.settings, &response));
                    let unread = response.unread_body();
                    let is_unread = unread != UnreadBody::Empty;
                    let time = match unread {
                        UnreadBody::Drainable => {
                            drain_time(*this.is_replayable, this.facts, this.limits, directive)
                        }
                        UnreadBody::Empty | UnreadBody::TooLong => None,
                    };
                    let Some(time) = time else {
                        let response = Kept::Response(response.pass());
                        let answered = Answered { response, is_unread, attempt, directive };
                        return Poll::Ready(Ok(answered));
                    };
                    AttemptState::Draining { drain: response.drain(time), directive }
                }
                AttemptStateProjection::Draining { drain, directive } => {
                    let DrainedResponse { response, is_unread } = ready!(Pin::new(drain).poll(cx));
                    let (response, directive) = (Kept::Response(response), *directive);
                    return Poll::Ready(Ok(Answered { response, is_unread, attempt, directive }));
                }
            };
            this.state.set(state);
        }
    }
}

impl<S, Req> fmt::Debug for HttpAttempt<S, Req>
where
    S: Service<Req, Response: HttpResponse>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAttempt").field("number", &self.number).finish_non_exhaustive()
    }
}
