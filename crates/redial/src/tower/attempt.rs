//! One attempt of a request: wait until the service is ready, then call it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

pin_project! {
    #[project = ServiceAttemptState]
    pub(super) enum ServiceAttempt<S, Req>
    where
        S: Service<Req>,
    {
        /// The service may not be ready. The request is taken when it is.
        NotReady { service: S, request: Option<Req> },
        /// The service has been called.
        Called {
            #[pin]
            response: S::Future,
        },
    }
}

impl<S: Service<Req>, Req> Future for ServiceAttempt<S, Req> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let response = match self.as_mut().project() {
                ServiceAttemptState::Called { response } => return response.poll(cx),
                ServiceAttemptState::NotReady { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    let request = request.take().expect("the request is sent once");
                    service.call(request)
                }
            };
            self.set(ServiceAttempt::Called { response });
        }
    }
}
