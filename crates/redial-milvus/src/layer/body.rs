//! The bodies of requests and responses.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use redial_grpc::BoxError;

/// The longest message that is saved for retries: what a Milvus server accepts by default.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The longest response whose status and message are looked at before the client gets it.
pub const RESPONSE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A body that was read, as a whole or up to a limit.
#[derive(Debug)]
pub(super) enum Read<B> {
    Whole(Bytes, Option<HeaderMap>),
    /// More than the limit: the part that was read, and the rest.
    TooLong(Bytes, B),
}

/// Reads a body up to a limit.
pub(super) async fn read<B>(mut body: B, max: usize) -> Result<Read<B>, BoxError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut first = Bytes::new();
    let mut joined: Option<BytesMut> = None;
    let mut trailers = None;
    while let Some(frame) = next(&mut body).await {
        match frame.map_err(Into::into)?.into_data() {
            Ok(data) => {
                // A body of one part is not copied.
                match &mut joined {
                    None if first.is_empty() => first = data,
                    None => {
                        let mut bytes = BytesMut::with_capacity(first.len() + data.len());
                        bytes.extend_from_slice(&first);
                        bytes.extend_from_slice(&data);
                        joined = Some(bytes);
                    }
                    Some(bytes) => bytes.extend_from_slice(&data),
                }
                if joined.as_ref().map_or(first.len(), BytesMut::len) > max {
                    let part = joined.map_or(first, BytesMut::freeze);
                    return Ok(Read::TooLong(part, body));
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(Read::Whole(joined.map_or(first, BytesMut::freeze), trailers))
}

async fn next<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

/// A body whose start was read before: the saved message of a request, a response that was looked at, or the
/// first part of either, with the rest as it comes.
#[derive(Debug)]
pub struct BufferedBody<B> {
    start: Bytes,
    rest: Option<B>,
    trailers: Option<HeaderMap>,
}

impl<B> BufferedBody<B> {
    pub(super) fn whole(start: Bytes, trailers: Option<HeaderMap>) -> Self {
        BufferedBody { start, rest: None, trailers }
    }

    pub(super) fn streamed(start: Bytes, rest: B) -> Self {
        BufferedBody { start, rest: Some(rest), trailers: None }
    }
}

impl<B> Body for BufferedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if !this.start.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.start)))));
        }
        match &mut this.rest {
            Some(body) => {
                Pin::new(body).poll_frame(cx).map(|it| it.map(|it| it.map_err(Into::into)))
            }
            None => Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.start.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let start = self.start.len() as u64;
        let Some(rest) = &self.rest else { return SizeHint::with_exact(start) };
        let rest = rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(start));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(start));
        }
        hint
    }
}
