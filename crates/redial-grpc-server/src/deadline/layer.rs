//! The layer and its service: accepts every call immediately and records its deadline.

use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{Deadline, DeadlineFuture};
use crate::PeekedBody;

/// Rejects calls whose deadline has passed, and provides the remaining time to handlers.
///
/// An overloaded server wastes its time on calls whose clients have given up, and is then late for
/// the next calls too. This layer records when a call arrives and waits until the inner service is
/// ready. If the call's `grpc-timeout` has passed by then, the layer responds with
/// `DEADLINE_EXCEEDED` in one frame (Trailers-Only) and does not call the service. A call that is
/// still waiting at its deadline is rejected at that moment and leaves the queue. A call that has
/// started is not interrupted.
///
/// The time counts from the outermost such layer; layers further in use the same deadline. So place
/// it above any layer that queues calls, and a second one below any layer that delays them after
/// they were accepted (a buffer, a slow interceptor):
/// ```
/// use redial_grpc_server::DeadlineLayer;
/// use tower::limit::GlobalConcurrencyLimitLayer;
///
/// let server = tonic::transport::Server::builder()
///     .layer(DeadlineLayer::new())
///     .layer(GlobalConcurrencyLimitLayer::new(100));
/// # let _ = server;
/// ```
/// tonic's own `concurrency_limit_per_connection` is above all layers of a server, so neither this
/// layer nor tonic's own timeout sees the time that a call waits there. Use a limit below this
/// layer instead.
///
/// The layer accepts every call immediately, so a layer that sheds load when the service is not
/// ready must also be below it. An invalid `grpc-timeout` (anything but one to eight digits and one
/// of `HMSmun`) is ignored, as in tonic; of several values the first counts. A call without a
/// timeout costs one header lookup and a clone of the inner service.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DeadlineLayer;

impl DeadlineLayer {
    /// Creates the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService { inner }
    }
}

/// The service of [`DeadlineLayer`].
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    inner: S,
}

impl<S, A, B> Service<Request<A>> for DeadlineService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: Body,
{
    type Response = Response<PeekedBody<B>>;
    type Error = S::Error;
    type Future = DeadlineFuture<S, A>;

    /// Always ready: the time of a call counts only once it has arrived here.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let deadline = Deadline::of(&request).or_else(|| {
            let deadline = Deadline::from_headers(&request)?;
            request.extensions_mut().insert(deadline);
            Some(deadline)
        });
        DeadlineFuture::new(self.inner.clone(), request, deadline)
    }
}
