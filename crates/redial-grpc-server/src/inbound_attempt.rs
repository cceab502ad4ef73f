//! The layer that makes the inbound attempt available to the calls that a handler makes.
//!
//! Rule: everything that the handler runs is in the scope: its future, and its stream at each poll.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::InboundAttempt;

/// Makes [`InboundAttempt::current`] available in handlers and their response streams.
///
/// The layer changes nothing by itself: a client layer uses the value only if its own option is
/// set. Its position among the layers of a server does not matter.
///
/// ```
/// use redial_grpc_server::{InboundAttempt, InboundAttemptLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let handler = service_fn(async |_: http::Request<String>| {
///     let attempt = InboundAttempt::current().unwrap();
///     assert!(attempt.is_repetition());
///     Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
/// });
/// let service = ServiceBuilder::new().layer(InboundAttemptLayer::new()).service(handler);
/// let retry = http::Request::builder().header("grpc-previous-rpc-attempts", "1");
/// service.oneshot(retry.body(String::new()).unwrap()).await.unwrap();
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct InboundAttemptLayer;

impl InboundAttemptLayer {
    /// Creates the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for InboundAttemptLayer {
    type Service = InboundAttemptService<S>;

    fn layer(&self, inner: S) -> InboundAttemptService<S> {
        InboundAttemptService { inner }
    }
}

/// The service of [`InboundAttemptLayer`].
#[derive(Clone, Debug)]
pub struct InboundAttemptService<S> {
    inner: S,
}

impl<S, A, B> Service<Request<A>> for InboundAttemptService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<InboundAttemptBody<B>>;
    type Error = S::Error;
    type Future = InboundAttemptFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let attempt = InboundAttempt::of(&request);
        let future = attempt.within(|| self.inner.call(request));
        InboundAttemptFuture { attempt, future }
    }
}

pin_project! {
    /// The future of [`InboundAttemptService`].
    #[derive(Debug)]
    pub struct InboundAttemptFuture<F> {
        attempt: InboundAttempt,
        #[pin]
        future: F,
    }
}

impl<F, B, E> Future for InboundAttemptFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<InboundAttemptBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let attempt = *this.attempt;
        let answer = ready!(attempt.within(|| this.future.poll(context)));
        Poll::Ready(
            answer.map(|response| response.map(|body| InboundAttemptBody { attempt, body })),
        )
    }
}

pin_project! {
    /// The response body of [`InboundAttemptService`].
    #[derive(Debug)]
    pub struct InboundAttemptBody<B> {
        attempt: InboundAttempt,
        #[pin]
        body: B,
    }
}

impl<B: Body> Body for InboundAttemptBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        this.attempt.within(|| this.body.poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    //! Services and bodies that read the current attempt at every step: handler code is in the
    //! scope, and nothing else.

    use std::convert::Infallible;
    use std::future;

    use bytes::Bytes;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    fn previous() -> Option<u32> {
        InboundAttempt::current().map(InboundAttempt::previous_attempts)
    }

    /// Yields the current attempt at its first poll, then ends.
    struct CurrentAttemptBody(bool);

    impl Body for CurrentAttemptBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let asked = std::mem::replace(&mut self.0, true);
            let text = format!("{:?}", previous());
            Poll::Ready((!asked).then(|| Ok(Frame::data(text.into()))))
        }

        fn is_end_stream(&self) -> bool {
            self.0
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(7)
        }
    }

    #[tokio::test]
    async fn inbound_attempt_scope_covers_call_future_and_body() {
        let inner = tower::service_fn(|_: Request<()>| {
            assert_eq!(previous(), Some(2), "in call");
            async {
                assert_eq!(previous(), Some(2), "in the future");
                tokio::task::yield_now().await;
                assert_eq!(previous(), Some(2), "in its second poll");
                Ok::<_, Infallible>(Response::new(CurrentAttemptBody(false)))
            }
        });
        let request = Request::builder().header("grpc-previous-rpc-attempts", "2");
        let response = InboundAttemptLayer::new()
            .layer(inner)
            .oneshot(request.body(()).unwrap())
            .await
            .unwrap();
        assert_eq!(previous(), None);

        let mut body = response.into_body();
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(7));
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "Some(2)");
        assert!(body.is_end_stream());
        assert_eq!(previous(), None);
    }

    #[tokio::test]
    async fn inbound_attempt_scope_nests() {
        let inner = tower::service_fn(|_: Request<()>| {
            future::ready(Ok::<_, Infallible>(Response::new(format!("{:?}", previous()))))
        });
        let outer = tower::service_fn(move |_: Request<()>| async move {
            let nested = InboundAttemptLayer::new().layer(inner).oneshot(Request::new(())).await?;
            assert_eq!(previous(), Some(1));
            Ok::<_, Infallible>(nested)
        });
        let request = Request::builder().header("grpc-previous-rpc-attempts", "1");
        let service = InboundAttemptLayer::new().layer(outer);
        let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "Some(0)");
    }
}
