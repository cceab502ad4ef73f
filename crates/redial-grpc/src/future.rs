//! The future of a response.
//!
//! Invariant: a call that nobody watches and that runs against no clock is polled as its one
//! attempt is, until that has an outcome.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::answer::{self, Head};
use crate::body::ResponseBody;
use crate::finish::{Answer, Finish};
use crate::pending::Pending;
use crate::wrap::ClientAdapter;
use crate::{BoxError, evidence};

pin_project! {
    /// The future of a response.
    ///
    /// # Cancel safety
    /// Dropping it cancels every attempt (its stream is reset) and gives back what the call kept.
    pub struct ResponseFuture<S, B, W, R>
    where
        S: Service<Request<B>>,
        R: 'static,
    {
        // The first attempt is in here as long as it runs; further ones, which are rare, in boxes.
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
    /// The first attempt is all there is.
    Pass(W),
    /// It ended before an attempt was made.
    Ended(Option<Box<Finish>>, W),
    Call(Pending<S, B, W, R>),
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
    type Output = Answer<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<R>> {
        let this = self.as_mut().project();
        let (Kind::Pass(bodies), Some(first)) = (this.kind, this.first.as_pin_mut()) else {
            return self.poll_call(cx);
        };
        match first.poll(cx) {
            Poll::Ready(Ok(response)) => Poll::Ready(Ok(unwatched(response))),
            Poll::Ready(Err(error)) => Poll::Ready(lost(error.into(), bodies)),
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
    /// Polls a call that somebody watches.
    // Apart, so that one that nobody watches is polled as it is without us.
    #[inline(never)]
    fn poll_call(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<R>> {
        let mut this = self.project();
        match this.kind {
            Kind::Call(call) if call.is_first() => {
                let Some(first) = this.first.as_mut().as_pin_mut() else { return Poll::Pending };
                match first.poll(cx) {
                    Poll::Ready(Ok(response)) if answer::head(&response) == Head::Begins => {
                        Poll::Ready(Ok(call.begins(response)))
                    }
                    Poll::Ready(result) => call.go_on(result.map_err(Into::into), this.first, cx),
                    Poll::Pending => Poll::Pending,
                }
            }
            Kind::Call(call) => call.poll(this.first, cx),
            // It has nothing but its attempt.
            Kind::Pass(_) => Poll::Pending,
            Kind::Ended(finish, bodies) => match finish.take() {
                Some(finish) => Poll::Ready(finish.hand_on(None, bodies)),
                None => Poll::Pending,
            },
        }
    }
}

/// The response of a call without retries.
#[inline]
fn unwatched<R>(response: Response<R>) -> Response<ResponseBody<R>> {
    if answer::is_plain(&response) { response.map(ResponseBody::pass) } else { explained(response) }
}

/// Also without retries an answer that is not gRPC's is the status that it means (decision G6).
#[cold]
fn explained<R>(mut response: Response<R>) -> Response<ResponseBody<R>> {
    let Head::Foreign(code, _) = answer::head(&response) else {
        return response.map(ResponseBody::pass);
    };
    answer::explain(&mut response, code);
    response.map(|_| ResponseBody::none())
}

/// A call without retries lost its connection. Also then a status is ours, not tonic's.
#[cold]
fn lost<B, R>(error: BoxError, bodies: &impl ClientAdapter<B>) -> Answer<R> {
    let (evidence, code) = evidence::of(&*error);
    Finish::of_connection(error, evidence, code, 1).hand_on(None, bodies)
}
