//! The future of a request.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::classify::Classify;
use crate::future::{CallResult, Retrying, Value};
use crate::policy::{Origin, OriginKind};
use crate::sleeper::Sleeper;
use crate::tower::attempt::ServiceAttempt;
use crate::tower::clone_request::CloneRequest;
use crate::tower::operation::ServiceOperation;

/// The call of a request of type `Req` through the service `S`.
type ServiceCall<S, Req, P, C, K, Z> = Retrying<
    'static,
    C,
    P,
    ServiceOperation<S, Req, K>,
    ServiceAttempt<S, Req>,
    <S as Service<Req>>::Response,
    <S as Service<Req>>::Error,
    Z,
    Value,
>;

pin_project! {
    /// The future of a request through a [`RetryService`](crate::tower::RetryService).
    ///
    /// The attempts are in it, without a box, apart from hedges. It is `Send` if the service, its future,
    /// the request and the functions of the layer are.
    ///
    /// # Cancel safety
    /// Nothing is spawned. Dropping the future drops every running attempt and refunds a retry that has not
    /// started. A dropped request does not count as a failure.
    ///
    /// # Panics
    /// A panic of the service, a classifier or a hook is propagated, and the call is cancelled. The future
    /// panics if it is polled after completion.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, P, C, K, Z>
    where
        S: Service<Req>,
        P: OriginKind,
        Z: Sleeper,
    {
        #[pin]
        call: ServiceCall<S, Req, P, C, K, Z>,
    }
}

impl<S: Service<Req>, Req, P: OriginKind, C, K, Z: Sleeper> ResponseFuture<S, Req, P, C, K, Z> {
    pub(super) const fn new(call: ServiceCall<S, Req, P, C, K, Z>) -> Self {
        ResponseFuture { call }
    }
}

impl<S, Req, P, C, K, Z> Future for ResponseFuture<S, Req, P, C, K, Z>
where
    S: Service<Req> + Clone,
    P: Origin<'static>,
    C: Classify<S::Response, S::Error>,
    K: CloneRequest<Req>,
    Z: Sleeper,
{
    type Output = CallResult<S::Response, S::Error, C, Value>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().call.poll(cx)
    }
}

impl<S, Req, P, C, K, Z> fmt::Debug for ResponseFuture<S, Req, P, C, K, Z>
where
    S: Service<Req>,
    P: OriginKind,
    Z: Sleeper,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
