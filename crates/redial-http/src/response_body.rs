//! The body of a response: as it came, or with its start in memory.
//!
//! An attempt with a retryable status reads its body into memory, within limits, before the call decides
//! whether to retry. If the call retries, the connection has been read to the end of the response, so that
//! it can be used again. If it does not, the caller gets the body from memory (decision H5).

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::response::UnreadBody;

/// The most bytes of a body that are read before a retry. The connection of a longer body is closed if
/// the response is abandoned.
pub const DRAIN_BYTES_MAX: u64 = 64 * 1024;

/// The most frames of a body that are read before a retry: a frame of a byte costs more than a byte.
const DRAIN_FRAMES_MAX: usize = 1024;

/// The longest time for which a body is read before a retry. A body is read for at most half of the time
/// that is left until the deadline, the attempt timeout or the next hedge: none of these loses a response
/// that has arrived.
pub const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);

pin_project! {
    /// The body of a response of the layer. It yields exactly what the body `B` of the service yields.
    #[project = ResponseBodyState]
    pub struct ResponseBody<B>
    where
        B: Body,
    {
        #[pin]
        body: BodyState<B>,
    }
}

pin_project! {
    #[project = BodyStateProjection]
    enum BodyState<B>
    where
        B: Body,
    {
        /// As it came.
        Untouched {
            #[pin]
            body: B,
        },
        /// Some or all of it is in memory.
        Drained { drained: Drained<B> },
    }
}

/// A frame of the body `B`, or its error.
type FrameResult<B> = Result<Frame<<B as Body>::Data>, <B as Body>::Error>;

/// The part of a body that was read, and the rest of it.
struct Drained<B: Body> {
    frames: VecDeque<Frame<B::Data>>,
    bytes: u64,
    /// After the frames: an error, or the rest of the body, or the end.
    error: Option<B::Error>,
    rest: Option<Pin<Box<B>>>,
}

impl<B: Body> ResponseBody<B> {
    #[inline]
    pub(crate) const fn untouched(body: B) -> Self {
        ResponseBody { body: BodyState::Untouched { body } }
    }

    /// Whether the service's body has not been read to its end.
    pub(crate) const fn is_unread(&self) -> bool {
        match &self.body {
            BodyState::Untouched { .. } => true,
            BodyState::Drained { drained } => drained.rest.is_some(),
        }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().body.project() {
            BodyStateProjection::Untouched { body } => body.poll_frame(cx),
            BodyStateProjection::Drained { drained } => drained.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            BodyState::Untouched { body } => body.is_end_stream(),
            BodyState::Drained { drained } => drained.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            BodyState::Untouched { body } => body.size_hint(),
            BodyState::Drained { drained } => drained.size_hint(),
        }
    }
}

impl<B: Body> Drained<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<FrameResult<B>>> {
        if let Some(frame) = self.frames.pop_front() {
            self.bytes = self.bytes.saturating_sub(data_bytes(&frame));
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let at_rest = self.frames.is_empty() && self.error.is_none();
        at_rest && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(self.bytes));
        // After an error, nothing follows.
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(self.bytes));
        }
        hint
    }
}

fn data_bytes<D: Buf>(frame: &Frame<D>) -> u64 {
    frame.data_ref().map_or(0, |data| data.remaining() as u64)
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

pin_project! {
    /// Reads a body into memory: to its end, or up to a limit.
    pub(crate) struct DrainBody<B>
    where
        B: Body,
    {
        drained: Option<Drained<B>>,
        #[pin]
        timer: Sleep,
    }
}

impl<B: Body> DrainBody<B> {
    /// What is known of a body that has not been read.
    pub(crate) fn unread(body: &B) -> UnreadBody {
        if body.is_end_stream() {
            UnreadBody::Empty
        } else if body.size_hint().lower() <= DRAIN_BYTES_MAX {
            UnreadBody::Drainable
        } else {
            UnreadBody::TooLong
        }
    }

    pub(crate) fn new(body: B, time_max: Duration) -> Self {
        let rest = Some(Box::pin(body));
        let drained = Drained { frames: VecDeque::new(), bytes: 0, error: None, rest };
        DrainBody { drained: Some(drained), timer: tokio::time::sleep(time_max) }
    }
}

impl<B: Body> Drained<B> {
    /// Reads frames; ready at the end, at an error or at a limit.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.bytes <= DRAIN_BYTES_MAX && self.frames.len() < DRAIN_FRAMES_MAX {
            let Some(rest) = &mut self.rest else { break };
            match rest.as_mut().poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    self.bytes = self.bytes.saturating_add(data_bytes(&frame));
                    self.frames.push_back(frame);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.error = Some(error);
                    self.rest = None;
                }
                Poll::Ready(None) => self.rest = None,
            }
        }
        Poll::Ready(())
    }
}

impl<B: Body> Future for DrainBody<B> {
    type Output = ResponseBody<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let drained = this.drained.as_mut().expect("polled after completion");
        if drained.poll_drain(cx).is_pending() && this.timer.poll(cx).is_pending() {
            return Poll::Pending;
        }
        let drained = this.drained.take().expect("it was there");
        Poll::Ready(ResponseBody { body: BodyState::Drained { drained } })
    }
}

impl<B: Body> fmt::Debug for DrainBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainBody").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::HeaderMap;
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::io;

    /// Frames of these sizes; then the end, an error or no end.
    struct Frames(Vec<usize>, Then);

    #[derive(Clone, Copy, PartialEq)]
    enum Then {
        End,
        Error,
        Stall,
    }

    impl Body for Frames {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            match (self.0.pop(), self.1) {
                (Some(size), _) => Poll::Ready(Some(Ok(Frame::data(vec![b'x'; size].into())))),
                (None, Then::End) => Poll::Ready(None),
                (None, Then::Error) => {
                    self.1 = Then::End;
                    Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
                }
                (None, Then::Stall) => Poll::Pending,
            }
        }
    }

    /// Drains, and returns whether the body was read to its end.
    async fn drain(frames: Frames) -> (ResponseBody<Frames>, bool) {
        let body = DrainBody::new(frames, DRAIN_TIME_MAX).await;
        let BodyState::Drained { drained } = &body.body else { panic!() };
        let read = drained.rest.is_none();
        (body, read)
    }

    // Decision H5, at the limit and one past it.
    #[tokio::test(start_paused = true)]
    async fn drain_reads_up_to_the_limit_of_bytes() {
        let limit = DRAIN_BYTES_MAX as usize;
        let (body, read) = drain(Frames(vec![limit - 10, 10], Then::End)).await;
        assert!(read);
        assert_eq!(body.size_hint().exact(), Some(DRAIN_BYTES_MAX));
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), limit);
        let (body, read) = drain(Frames(vec![5, limit - 9, 10], Then::End)).await;
        assert!(!read, "one byte past the limit");
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), limit + 6, "whole all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn drain_reads_up_to_the_limit_of_frames() {
        let (_, read) = drain(Frames(vec![1; DRAIN_FRAMES_MAX - 1], Then::End)).await;
        assert!(read);
        let (body, read) = drain(Frames(vec![1; DRAIN_FRAMES_MAX], Then::End)).await;
        assert!(!read);
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), DRAIN_FRAMES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_of_a_body_that_stalls_ends_in_time() {
        let start = tokio::time::Instant::now();
        let (mut body, read) = drain(Frames(vec![3], Then::Stall)).await;
        assert!(!read && start.elapsed() == DRAIN_TIME_MAX);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "xxx");
    }

    #[tokio::test(start_paused = true)]
    async fn drain_keeps_an_error_of_the_body_in_its_place() {
        let (mut body, read) = drain(Frames(vec![3], Then::Error)).await;
        assert!(read && !body.is_end_stream());
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn drain_keeps_trailers() {
        let frames = [
            Ok::<_, io::Error>(Frame::data(Bytes::from("x"))),
            Ok(Frame::trailers(HeaderMap::new())),
        ];
        let stream = StreamBody::new(tokio_stream::iter(frames));
        let body = DrainBody::new(stream, DRAIN_TIME_MAX).await;
        assert!(body.collect().await.unwrap().trailers().is_some());
    }

    #[test]
    fn drain_skips_empty_bodies_and_those_too_long() {
        let full = |size: usize| Full::new(Bytes::from(vec![0; size]));
        let limit = DRAIN_BYTES_MAX as usize;
        assert_eq!(DrainBody::unread(&full(0)), UnreadBody::Empty);
        assert_eq!(DrainBody::unread(&full(1)), UnreadBody::Drainable);
        assert_eq!(DrainBody::unread(&full(limit)), UnreadBody::Drainable);
        assert_eq!(DrainBody::unread(&full(limit + 1)), UnreadBody::TooLong);
    }
}
