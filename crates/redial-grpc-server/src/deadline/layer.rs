//! The layer itself: it takes every call at once, and notes when that was.

use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{Deadline, DeadlineFuture};
use crate::PeekedBody;

/// Refuses calls whose deadline has passed, and tells handlers how much time is left.
///
/// A server that is overloaded spends its time on calls whose clients have given up, and so is late for
/// the next ones too. This layer notes when a call arrived, waits until the service below can take it, and
/// if its `grpc-timeout` is over by then, answers `DEADLINE_EXCEEDED` without having called the
/// service: one frame, Trailers-Only. A call that still waits when its deadline comes is refused in that
/// moment and leaves the queue. Once the service has been called, it is left alone.
///
/// The time is counted from where the call meets the first such layer, and every further one below
/// uses the same deadline. So it goes above whatever makes calls wait, and a second one below whatever
/// makes them wait after they were called (a buffer, a slow interceptor):
/// ```
/// use redial_grpc_server::DeadlineLayer;
/// use tower::limit::GlobalConcurrencyLimitLayer;
///
/// let server = tonic::transport::Server::builder()
///     .layer(DeadlineLayer::new())
///     .layer(GlobalConcurrencyLimitLayer::new(100));
/// # let _ = server;
/// ```
/// tonic's own `concurrency_limit_per_connection` is above every layer that a server is given: what a call
/// waits there is not seen, neither here nor by tonic's own timeout. Use a limit below this layer.
///
/// The layer takes every call at once, so one that sheds load when the service is not ready has to be
/// below it, too. A `grpc-timeout` that cannot be read (anything but one to eight digits and one of `HMSmun`)
/// is ignored, as tonic does it; of several the first counts. A call without one costs a look at its headers
/// and a clone of the service below.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DeadlineLayer;

impl DeadlineLayer {
    /// The layer.
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

/// The service that [`DeadlineLayer`] makes.
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

    /// Always: a call has to be here for its time to be counted.
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
