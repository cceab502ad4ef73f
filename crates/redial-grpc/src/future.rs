//! The response future.
//!
//! Fast path: a call without retry state, deadline or observer polls its single attempt directly
//! until that attempt has an outcome.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::call_result::{CallFailure, CallResult};
use crate::client_adapter::ClientAdapter;
use crate::pending_call::PendingCall;
use crate::response_status::{self, Head};
use crate::{BoxError, transport_error};

pin_project! {
    /// The response future.
    ///
    /// # Cancel safety
    /// Dropping it cancels every attempt (its stream is reset) and frees the buffered request.
    pub struct ResponseFuture<S, B, W, R>
    where
        S: Service<Request<B>>,
        R: 'static,
    {
        // The first attempt is stored inline; retries and hedges, which are rare, are boxed.
        #[pin]
        first: Option<S::Future>,
        kind: Kind<S, B, W, R>,
    }
}

pub(crate) enum Kind<S, B, W, R>
where
    S: Service<Request<B>>,
    R: 'static,
{
    /// Pass-through: a single attempt without retry state.
    PassThrough(W),
    /// The call failed before an attempt started.
    Ended(Option<Box<CallFailure>>, W),
    Call(PendingCall<S, B, W, R>),
}

impl<S, B, W, R> ResponseFuture<S, B, W, R>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) fn new(first: Option<S::Future>, kind: Kind<S, B, W, R>) -> Self {
        ResponseFuture { first, kind }
    }
}

impl<S, B, R, W> Future for ResponseFuture<S, B, W, R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin + 'static,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    type Output = CallResult<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult<R>> {
        let this = self.as_mut().project();
        let (Kind::PassThrough(adapter), Some(first)) = (this.kind, this.first.as_pin_mut()) else {
            return self.poll_call(cx);
        };
        match first.poll(cx) {
            Poll::Ready(Ok(response)) => Poll::Ready(Ok(pass_through(response))),
            Poll::Ready(Err(error)) => Poll::Ready(pass_through_error(error.into(), adapter)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S, B, R, W> ResponseFuture<S, B, W, R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin + 'static,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    /// Polls a call that has retry state.
    // Not inlined, so that the pass-through path stays as small as without this layer.
    #[inline(never)]
    fn poll_call(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult<R>> {
        let mut this = self.project();
        match this.kind {
            Kind::Call(call) if call.is_fast_path() => {
                let Some(first) = this.first.as_mut().as_pin_mut() else { return Poll::Pending };
                match first.poll(cx) {
                    Poll::Ready(Ok(response))
                        if response_status::head(&response) == Head::Headers =>
                    {
                        Poll::Ready(Ok(call.commit_first(response)))
                    }
                    Poll::Ready(result) => {
                        call.handle_first_result(result.map_err(Into::into), this.first, cx)
                    }
                    Poll::Pending => Poll::Pending,
                }
            }
            Kind::Call(call) => call.poll(this.first, cx),
            // Only the attempt itself can make progress.
            Kind::PassThrough(_) => Poll::Pending,
            Kind::Ended(call_failure, adapter) => match call_failure.take() {
                Some(call_failure) => Poll::Ready(call_failure.into_result(None, adapter)),
                None => Poll::Pending,
            },
        }
    }
}

/// The response of a pass-through call.
#[inline]
fn pass_through<R>(response: Response<R>) -> Response<ResponseBody<R>> {
    if response_status::is_plain(&response) {
        response.map(ResponseBody::pass_through)
    } else {
        replace_non_grpc(response)
    }
}

/// A non-gRPC response is converted into the status it stands for, even without retries (decision G6).
#[cold]
fn replace_non_grpc<R>(mut response: Response<R>) -> Response<ResponseBody<R>> {
    let Head::NotGrpc(code, _) = response_status::head(&response) else {
        return response.map(ResponseBody::pass_through);
    };
    response_status::write_status(&mut response, code);
    response.map(|_| ResponseBody::none())
}

/// A pass-through call failed. The status code comes from this layer's mapping, not from tonic.
#[cold]
fn pass_through_error<B, R>(error: BoxError, adapter: &impl ClientAdapter<B>) -> CallResult<R> {
    let (failure, code) = transport_error::classify(&*error);
    CallFailure::from_connection_error(error, failure, code, 1).into_result(None, adapter)
}
