//! The response future.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::failure::{CallFailure, CallResult};
use super::pending::PendingCall;
use super::response_body::ResponseBody;
use crate::client_adapter::ClientAdapter;
use crate::response_status::{self, Head};
use crate::{BoxError, transport_error};

pin_project! {
    /// The response future.
    ///
    /// # Cancel safety
    /// Dropping it cancels every attempt (its stream is reset) and frees the buffered request.
    ///
    /// # Panics
    /// If user code panics during a poll, for example an adapter or a metrics recorder, the panic is
    /// passed on, and each further poll panics: the future can only be dropped.
    pub struct ResponseFuture<S, B, W>
    where
        S: Service<Request<B>>,
    {
        // The first attempt is stored inline; retries and hedges, which are rare, are boxed.
        #[pin]
        first: Option<S::Future>,
        kind: Kind<S, B>,
        adapter: W,
    }
}

/// What the future does.
enum Kind<S, B>
where
    S: Service<Request<B>>,
{
    /// Pass-through: a single attempt without retry state.
    PassThrough,
    /// A call with retry state.
    Call(PendingCall<S, B>),
    /// A call in which user code panicked, so it can only be dropped. It is kept until then: its end is
    /// reported to user code, where a second panic during the unwinding would abort the process.
    Panicked(#[expect(dead_code, reason = "dropped with the future")] Box<PendingCall<S, B>>),
    /// The call failed before an attempt started.
    Failed(Box<CallFailure>),
    /// The result has been returned.
    Done,
}

/// Marks a call as panicked, unless it is forgotten. An attempt may have been taken from the state machine
/// and not be started, so a call that is polled again could wait forever.
struct PanicGuard<'a, S, B>(&'a mut Kind<S, B>)
where
    S: Service<Request<B>>;

impl<S, B> Drop for PanicGuard<'_, S, B>
where
    S: Service<Request<B>>,
{
    fn drop(&mut self) {
        if let Kind::Call(call) = std::mem::replace(self.0, Kind::Done) {
            *self.0 = Kind::Panicked(Box::new(call));
        }
    }
}

impl<S, B, W> ResponseFuture<S, B, W>
where
    S: Service<Request<B>>,
{
    /// A single attempt without retry state.
    pub(crate) fn pass_through(first: S::Future, adapter: W) -> Self {
        ResponseFuture { first: Some(first), kind: Kind::PassThrough, adapter }
    }

    /// A call, and its first attempt if that has started.
    pub(crate) fn started(call: PendingCall<S, B>, first: Option<S::Future>, adapter: W) -> Self {
        ResponseFuture { first, kind: Kind::Call(call), adapter }
    }

    /// A call that failed before an attempt started.
    pub(crate) fn failed(failure: CallFailure, adapter: W) -> Self {
        ResponseFuture { first: None, kind: Kind::Failed(Box::new(failure)), adapter }
    }
}

impl<S, B, R, W> Future for ResponseFuture<S, B, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    type Output = CallResult<R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult<R>> {
        let this = self.project();
        match this.kind {
            Kind::PassThrough => {
                let Some(first) = this.first.as_pin_mut() else { return Poll::Pending };
                Poll::Ready(match ready!(first.poll(cx)) {
                    Ok(response) => Ok(pass_through(response)),
                    Err(error) => pass_through_error(error.into(), this.adapter),
                })
            }
            Kind::Call(_) => {
                let guard = PanicGuard(this.kind);
                let Kind::Call(call) = &mut *guard.0 else { return Poll::Pending };
                let polled = call.poll(this.first, this.adapter, cx);
                std::mem::forget(guard);
                polled
            }
            Kind::Panicked(_) => panic!("polled after a panic"),
            Kind::Failed(_) => match std::mem::replace(this.kind, Kind::Done) {
                Kind::Failed(failure) => Poll::Ready(failure.into_result(None, this.adapter)),
                _ => Poll::Pending,
            },
            Kind::Done => Poll::Pending,
        }
    }
}

/// The response of a pass-through call. A non-gRPC response is converted into the status it stands for,
/// even without retries (decision G6).
fn pass_through<R>(response: Response<R>) -> Response<ResponseBody<R>> {
    if response_status::is_plain(&response) {
        return response.map(ResponseBody::pass_through);
    }
    match response_status::head(&response) {
        Head::NotGrpc(code, _) => {
            let mut response = response.map(|_| ResponseBody::none());
            response_status::write_status(&mut response, code);
            response
        }
        Head::Headers | Head::Status(..) => response.map(ResponseBody::pass_through),
    }
}

/// A pass-through call failed. The status code comes from this layer's mapping, not from tonic.
fn pass_through_error<B, R>(error: BoxError, adapter: &impl ClientAdapter<B>) -> CallResult<R> {
    let (failure, code) = transport_error::classify(&*error);
    CallFailure::from_connection_error(error, failure, code, 1).into_result(None, adapter)
}
