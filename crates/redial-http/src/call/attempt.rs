//! One attempt: wait until the service is ready, call it, and read the body of a response that is
//! probably abandoned.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use redial::Directive;
use tower_service::Service;

use crate::call::{Answered, Facts};
use crate::layer::Settings;
use crate::response::HttpResponse;

pin_project! {
    /// One attempt of a request.
    pub(crate) struct HttpAttempt<S, Req>
    where
        S: Service<Req>,
        S::Response: HttpResponse,
    {
        number: u32,
        // Set if a retry may follow a response with a retryable status.
        facts: Option<(Arc<Settings>, Facts)>,
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
        /// The attempt has ended.
        Ended { result: Option<Result<S::Response, S::Error>> },
        /// The body is read.
        Draining { drain: <S::Response as HttpResponse>::Drain },
    }
}

impl<S, Req> HttpAttempt<S, Req>
where
    S: Service<Req, Response: HttpResponse>,
{
    pub(crate) fn not_ready(
        number: u32,
        facts: Option<(Arc<Settings>, Facts)>,
        service: S,
        request: Req,
    ) -> Self {
        let state = AttemptState::NotReady { service, request: Some(request) };
        HttpAttempt { number, facts, state }
    }

    pub(crate) fn ended(
        number: u32,
        facts: Option<(Arc<Settings>, Facts)>,
        result: Result<S::Response, S::Error>,
    ) -> Self {
        HttpAttempt { number, facts, state: AttemptState::Ended { result: Some(result) } }
    }

    pub(crate) fn called(
        number: u32,
        facts: Option<(Arc<Settings>, Facts)>,
        response: S::Future,
    ) -> Self {
        HttpAttempt { number, facts, state: AttemptState::Called { response } }
    }
}

/// Whether the response will be abandoned if a retry is possible.
fn is_drained(facts: Option<&(Arc<Settings>, Facts)>, response: &impl HttpResponse) -> bool {
    let Some((settings, facts)) = facts else { return false };
    let directive = facts.classify_response(settings, response.status(), response.headers());
    matches!(directive, Directive::Retry(_)) && response.is_drainable()
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
                    AttemptState::Ended { result: Some(ready!(response.poll(cx))) }
                }
                AttemptStateProjection::Ended { result } => {
                    let response = result.take().expect("polled after completion")?;
                    if !is_drained(this.facts.as_ref(), &response) {
                        let response = response.pass();
                        return Poll::Ready(Ok(Answered { response, attempt }));
                    }
                    AttemptState::Draining { drain: response.drain() }
                }
                AttemptStateProjection::Draining { drain } => {
                    let response = ready!(Pin::new(drain).poll(cx));
                    return Poll::Ready(Ok(Answered { response, attempt }));
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
