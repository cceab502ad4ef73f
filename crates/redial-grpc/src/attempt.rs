//! A single attempt, polled by the caller's task.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use pin_project_lite::pin_project;
use redial_core::Start;
use tower_service::Service;

/// Identifies a running attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningAttempt {
    pub(crate) slot: usize,
    pub(crate) attempt: u32,
    pub(crate) number: u32,
}

impl From<Start> for RunningAttempt {
    fn from(Start { slot, attempt, number }: Start) -> Self {
        RunningAttempt { slot, attempt, number }
    }
}

/// The first attempt of every call.
pub(crate) const FIRST: RunningAttempt = RunningAttempt { slot: 0, attempt: 1, number: 1 };

pin_project! {
    /// A retry or hedge: waits until the service is ready, then runs.
    #[project = AttemptProject]
    pub(crate) enum Attempt<S, F, B> {
        // If it had to wait, the `grpc-timeout` of its request is out of date.
        Readying { service: S, request: Option<Request<B>>, waited: bool },
        Running { #[pin] future: F },
    }
}

impl<S, B> Attempt<S, S::Future, B>
where
    S: Service<Request<B>>,
{
    /// `update_request` refreshes the request of an attempt that had to wait for readiness; it returns
    /// false if it is too late to send it.
    pub(crate) fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut update_request: impl FnMut(&mut Request<B>) -> bool,
    ) -> Poll<Result<S::Response, S::Error>> {
        loop {
            let future = match self.as_mut().project() {
                AttemptProject::Running { future } => return future.poll(cx),
                AttemptProject::Readying { service, request, waited } => {
                    let Poll::Ready(ready) = service.poll_ready(cx) else {
                        *waited = true;
                        return Poll::Pending;
                    };
                    ready?;
                    // The request is taken once; from then on the attempt is `Attempt::Running`.
                    let Some(mut request) = request.take() else { return Poll::Pending };
                    if *waited && !update_request(&mut request) {
                        // The caller handles the deadline or the attempt timeout next.
                        return Poll::Pending;
                    }
                    service.call(request)
                }
            };
            self.set(Attempt::Running { future });
        }
    }
}
