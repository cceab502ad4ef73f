//! A single attempt, polled by the caller's task.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use pin_project_lite::pin_project;
use redial_core::Start;
use tower_service::Service;

/// Identifies a running attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningAttempt {
    pub(super) slot: usize,
    pub(super) attempt: u32,
    pub(super) number: u32,
}

impl From<Start> for RunningAttempt {
    fn from(Start { slot, attempt, number }: Start) -> Self {
        RunningAttempt { slot, attempt, number }
    }
}

/// The first attempt of every call.
pub(super) const FIRST: RunningAttempt = RunningAttempt { slot: 0, attempt: 1, number: 1 };

pin_project! {
    /// A retry or hedge: waits until the service is ready, then runs.
    #[project = AttemptProject]
    #[project_replace = AttemptReplaced]
    pub(super) enum Attempt<S, F, B> {
        // If it had to wait, the `grpc-timeout` of its request is out of date.
        Readying { service: S, request: Request<B>, waited: bool },
        Running { #[pin] future: F },
        // Its time was up before the service was ready.
        Expired,
    }
}

impl<S, B> Attempt<S, S::Future, B>
where
    S: Service<Request<B>>,
{
    /// `update_request` refreshes the request of an attempt that had to wait for readiness; it returns
    /// false if it is too late to send it.
    pub(super) fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        update_request: impl FnOnce(&mut Request<B>) -> bool,
    ) -> Poll<Result<S::Response, S::Error>> {
        match self.as_mut().project() {
            AttemptProject::Running { future } => return future.poll(cx),
            AttemptProject::Readying { service, waited, .. } => {
                let Poll::Ready(ready) = service.poll_ready(cx) else {
                    *waited = true;
                    return Poll::Pending;
                };
                ready?;
            }
            // The caller handles the deadline or the attempt timeout next.
            AttemptProject::Expired => return Poll::Pending,
        }
        let AttemptReplaced::Readying { mut service, mut request, waited } =
            self.as_mut().project_replace(Attempt::Expired)
        else {
            return Poll::Pending;
        };
        if waited && !update_request(&mut request) {
            return Poll::Pending;
        }
        self.as_mut().set(Attempt::Running { future: service.call(request) });
        match self.project() {
            AttemptProject::Running { future } => future.poll(cx),
            _ => Poll::Pending,
        }
    }
}
