//! One attempt as the caller's task runs it.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use pin_project_lite::pin_project;
use redial_core::Start;
use tower_service::Service;

/// An attempt that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) slot: usize,
    pub(crate) attempt: u32,
    pub(crate) number: u32,
}

impl From<Start> for Running {
    fn from(Start { slot, attempt, number }: Start) -> Self {
        Running { slot, attempt, number }
    }
}

/// The attempt with which every call begins.
pub(crate) const FIRST: Running = Running { slot: 0, attempt: 1, number: 1 };

pin_project! {
    /// A further attempt: waits until the service is ready, then runs.
    #[project = AttemptProject]
    pub(crate) enum Attempt<S, F, B> {
        // Once it has waited, its request no longer says what remains.
        Readying { service: S, request: Option<Request<B>>, waited: bool },
        Running { #[pin] future: F },
    }
}

impl<S, B> Attempt<S, S::Future, B>
where
    S: Service<Request<B>>,
{
    /// An attempt that has waited is stamped again; false if it is too late to send it.
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
                    // It is taken once: afterwards the attempt runs.
                    let Some(mut request) = request.take() else { return Poll::Pending };
                    if *waited && !update_request(&mut request) {
                        // The deadline or the attempt's own timeout comes next.
                        return Poll::Pending;
                    }
                    service.call(request)
                }
            };
            self.set(Attempt::Running { future });
        }
    }
}
