//! The future of a call that waits for the service and its deadline.
//!
//! Rule: the service is called at most once, when it is ready, and only before the deadline.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep_until};
use tonic::Status;
use tower_service::Service;

use super::Deadline;
use crate::PeekedBody;

const EXPIRED_MESSAGE: &str = "the deadline passed before the call could be served";

pin_project! {
    /// The future of [`DeadlineService`](super::DeadlineService).
    pub struct DeadlineFuture<S: Service<Request<A>>, A> {
        #[pin]
        state: State<S, A, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, A, F> {
        Waiting {
            service: S,
            request: Option<Request<A>>,
            deadline: Option<Deadline>,
            // Created only if the service is not ready immediately, which is rare.
            #[pin]
            timer: Option<Sleep>,
        },
        Called {
            #[pin]
            future: F,
        },
    }
}

impl<S: Service<Request<A>>, A> DeadlineFuture<S, A> {
    pub(super) fn new(service: S, request: Request<A>, deadline: Option<Deadline>) -> Self {
        let request = Some(request);
        Self { state: State::Waiting { service, request, deadline, timer: None } }
    }
}

impl<S, A, B> Future for DeadlineFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Output = Result<Response<PeekedBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Waiting { service, request, deadline, mut timer } => {
                    if service.poll_ready(context)?.is_pending() {
                        let Some(deadline) = deadline else { return Poll::Pending };
                        if timer.is_none() {
                            timer.set(Some(sleep_until(deadline.at())));
                        }
                        if let Some(timer) = timer.as_pin_mut() {
                            ready!(timer.poll(context));
                        }
                        return Poll::Ready(Ok(refusal()));
                    }
                    if deadline.is_some_and(Deadline::has_passed) {
                        return Poll::Ready(Ok(refusal()));
                    }
                    // Present, because a completed future must not be polled again.
                    let Some(request) = request.take() else { return Poll::Pending };
                    let future = service.call(request);
                    state.set(State::Called { future });
                }
                StateProj::Called { future } => {
                    let answer = ready!(future.poll(context))?;
                    return Poll::Ready(Ok(answer.map(PeekedBody::whole)));
                }
            }
        }
    }
}

impl<S: Service<Request<A>>, A> fmt::Debug for DeadlineFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineFuture").finish_non_exhaustive()
    }
}

fn refusal<B: Body>() -> Response<PeekedBody<B>> {
    Status::deadline_exceeded(EXPIRED_MESSAGE).into_http()
}
