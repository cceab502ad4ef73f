//! The future of a response, from the handler to its first frame.
//!
//! Rule: the future polls the stream itself, so dropping the future drops the stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, Response, response};
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::HeaderHold;
use super::trailers_only::{can_be_held, is_error, merge};
use crate::PeekedBody;
use redial_grpc::BoxError;

pin_project! {
    /// The future of [`HoldService`](super::HoldService).
    pub struct HoldFuture<F, B> {
        // Dropped when the handler has returned, because it may hold a permit of an inner layer.
        #[pin]
        handler: Option<F>,
        hold: HeaderHold,
        at_most: Option<Duration>,
        // The handler's response, while its headers are held.
        held: Option<Response<B>>,
        // Created only if the first frame is not available immediately.
        #[pin]
        timer: Option<Sleep>,
    }
}

impl<F, B> HoldFuture<F, B> {
    pub(super) fn new(handler: F, hold: HeaderHold, at_most: Option<Duration>) -> Self {
        Self { handler: Some(handler), hold, at_most, held: None, timer: None }
    }
}

impl<F, B, E> Future for HoldFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<PeekedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(handler) = this.handler.as_mut().as_pin_mut() {
            let returned = ready!(handler.poll(context));
            this.handler.set(None);
            *this.held = Some(returned?);
        }
        // Present, because a completed future must not be polled again.
        let Some(held) = this.held.take() else { return Poll::Pending };
        let (head, mut body) = held.into_parts();
        if !can_be_held(&head) {
            return Poll::Ready(Ok(Response::from_parts(head, PeekedBody::whole(body))));
        }
        if let Poll::Ready(first) = Pin::new(&mut body).poll_frame(context) {
            let respond = if this.hold.is_released() { unchanged } else { merge_early_error };
            return Poll::Ready(Ok(respond(head, first, body)));
        }
        let over = match this.at_most {
            Some(Duration::ZERO) => true,
            Some(time) => {
                if this.timer.is_none() {
                    this.timer.set(Some(sleep(*time)));
                }
                this.timer.as_pin_mut().is_some_and(|timer| timer.poll(context).is_ready())
            }
            None => false,
        };
        if over || this.hold.poll_released(context) {
            return Poll::Ready(Ok(Response::from_parts(head, PeekedBody::whole(body))));
        }
        *this.held = Some(Response::from_parts(head, body));
        Poll::Pending
    }
}

impl<F, B> fmt::Debug for HoldFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldFuture").field("holding", &self.held.is_some()).finish_non_exhaustive()
    }
}

/// The result of the first poll of a body.
type First<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// The handler's response, with the frame that was already read in front.
fn unchanged<B: Body>(head: response::Parts, first: First<B>, rest: B) -> Response<PeekedBody<B>> {
    let body = match first {
        Some(first) => PeekedBody::with_first_frame(first, rest),
        None => PeekedBody::empty(),
    };
    Response::from_parts(head, body)
}

/// Merges the error into the headers if the stream begins with one.
fn merge_early_error<B>(
    mut head: response::Parts,
    first: First<B>,
    rest: B,
) -> Response<PeekedBody<B>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let trailers = match first {
        Some(Ok(frame)) if frame.trailers_ref().is_some_and(is_error) => frame.into_trailers(),
        Some(Err(error)) => Ok(trailers_of(&Status::from_error(error.into()))),
        first => return unchanged(head, first, rest),
    };
    let left =
        trailers.and_then(|trailers| merge(&mut head.headers, trailers).map_err(Frame::trailers));
    match left {
        Ok(()) => Response::from_parts(head, PeekedBody::empty()),
        Err(frame) => unchanged(head, Some(Ok(frame)), rest),
    }
}

fn trailers_of(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // The message or the details do not fit into a header; the code is the most important part.
        trailers.insert(Status::GRPC_STATUS, (status.code() as i32).into());
    }
    trailers
}
