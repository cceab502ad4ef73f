//! A response body whose first frame may already have been read.
//!
//! Rule: its end and size describe the frames that are still to come, including a frame that was
//! read ahead. HTTP/2 sends a body that has ended as `END_STREAM` on the headers, and an exact size
//! as `content-length`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The response body of [`HoldLayer`](super::HoldLayer) and [`DeadlineLayer`](super::DeadlineLayer).
    pub struct PeekedBody<B: Body> {
        first: Option<Result<Frame<B::Data>, B::Error>>,
        #[pin]
        rest: Option<B>,
    }
}

impl<B: Body> PeekedBody<B> {
    /// An empty body.
    pub(super) fn empty() -> Self {
        Self { first: None, rest: None }
    }

    /// The body, unchanged.
    pub(super) fn whole(body: B) -> Self {
        Self { first: None, rest: Some(body) }
    }

    /// A frame that was already read, followed by the rest of the body.
    pub(super) fn with_first_frame(first: Result<Frame<B::Data>, B::Error>, rest: B) -> Self {
        Self { first: Some(first), rest: Some(rest) }
    }
}

impl<B: Body> Body for PeekedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(first));
        }
        match this.rest.as_pin_mut() {
            Some(rest) => rest.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        let Some(Ok(first)) = &self.first else { return rest };
        let first = first.data_ref().map_or(0, |data| Buf::remaining(data) as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(first)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B: Body> Default for PeekedBody<B> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<B: Body> fmt::Debug for PeekedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekedBody")
            .field("first", &self.first.is_some())
            .field("rest", &self.rest.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    //! End and size are correct before, between and after the frames.

    use bytes::Bytes;
    use http::HeaderMap;
    use http_body_util::{BodyExt as _, Empty, Full, StreamBody};

    use super::*;

    type Never = std::convert::Infallible;

    fn bounds<B: Body>(body: &B) -> (u64, Option<u64>) {
        let hint = body.size_hint();
        (hint.lower(), hint.upper())
    }

    #[test]
    fn peeked_body_empty_has_ended() {
        let body = PeekedBody::<Full<Bytes>>::empty();
        assert!(body.is_end_stream());
        assert_eq!(bounds(&body), (0, Some(0)));
        assert!(PeekedBody::<Full<Bytes>>::default().is_end_stream());
    }

    #[tokio::test]
    async fn peeked_body_whole_is_unchanged() {
        let body = PeekedBody::whole(Full::new(Bytes::from_static(b"abc")));
        assert!(!body.is_end_stream());
        assert_eq!(bounds(&body), (3, Some(3)));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
        assert!(PeekedBody::whole(Empty::<Bytes>::new()).is_end_stream());
    }

    #[tokio::test]
    async fn peeked_body_size_includes_the_first_frame() {
        let first = Ok(Frame::data(Bytes::from_static(b"ab")));
        let mut body = PeekedBody::with_first_frame(first, Full::new(Bytes::from_static(b"cde")));
        assert!(!body.is_end_stream());
        assert_eq!(bounds(&body), (5, Some(5)));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(bounds(&body), (3, Some(3)));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "cde");
        assert!(body.is_end_stream());
        assert_eq!(bounds(&body), (0, Some(0)));
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn peeked_body_with_only_trailers_has_not_ended() {
        let first = Ok(Frame::trailers(HeaderMap::new()));
        let mut body = PeekedBody::with_first_frame(first, Empty::<Bytes>::new());
        assert!(!body.is_end_stream());
        assert_eq!(bounds(&body), (0, Some(0)));
        assert!(body.frame().await.unwrap().unwrap().is_trailers());
        assert!(body.is_end_stream());
    }

    #[tokio::test]
    async fn peeked_body_returns_a_peeked_error() {
        let frames = tokio_stream::empty::<Result<Frame<Bytes>, &str>>();
        let mut body = PeekedBody::with_first_frame(Err("broken"), StreamBody::new(frames));
        assert!(!body.is_end_stream());
        assert_eq!(bounds(&body), (0, None));
        assert_eq!(body.frame().await.unwrap().unwrap_err(), "broken");
    }

    #[test]
    fn peeked_body_unknown_size_stays_unknown() {
        let frames = tokio_stream::empty::<Result<Frame<Bytes>, Never>>();
        let first = Ok(Frame::data(Bytes::from_static(b"ab")));
        let body = PeekedBody::with_first_frame(first, StreamBody::new(frames));
        assert_eq!(bounds(&body), (2, None));
    }
}
