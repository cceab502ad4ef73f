//! The bodies of an exchange: counted, and cut where the fault says so.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use super::client_io::Breaker;
use super::fault::BreakKind;
use super::record::ExchangeOutcome;
use super::shared::Shared;
use crate::grpc::request_decoder::fnv;

/// How long bytes have to reach the socket before the connection fails behind them. The transport
/// writes them as soon as the body pauses.
const WRITE_TIME: Duration = Duration::from_millis(10);

/// Records the end of an exchange when dropped.
#[derive(Debug)]
pub(super) struct ExchangeGuard {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) outcome: Option<ExchangeOutcome>,
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        let lost = || match self.shared.tasks.is_stopped() {
            true => ExchangeOutcome::Stopped,
            false => ExchangeOutcome::ClientGone,
        };
        self.shared.end(self.number, self.outcome.unwrap_or_else(lost));
    }
}

/// The body of a request on its way to the upstream server.
#[derive(Debug)]
pub(super) struct RequestBody {
    pub(super) inner: Incoming,
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
}

/// Counts a part of a request's body.
pub(super) fn count_request(shared: &Shared, number: u64, bytes: &[u8]) {
    shared.update(number, |it| {
        it.request_bytes += bytes.len() as u64;
        it.request_digest = fnv(it.request_digest, bytes);
    });
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            count_request(&this.shared, this.number, data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response on its way to the client.
#[derive(Debug)]
pub(super) struct ResponseBody {
    source: Source,
    guard: ExchangeGuard,
    breaks: Option<Break>,
}

#[derive(Debug)]
enum Source {
    Upstream(Incoming),
    Proxy(Full<Bytes>),
}

/// A fault inside the response.
#[derive(Debug)]
struct Break {
    kind: BreakKind,
    left: u64,
    breaker: Arc<Breaker>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl ResponseBody {
    pub(super) fn upstream(inner: Incoming, guard: ExchangeGuard) -> ResponseBody {
        ResponseBody { source: Source::Upstream(inner), guard, breaks: None }
    }

    pub(super) fn proxy(body: Bytes, guard: ExchangeGuard) -> ResponseBody {
        ResponseBody { source: Source::Proxy(Full::new(body)), guard, breaks: None }
    }

    /// Lets the connection fail behind this many bytes.
    pub(super) fn breaking(mut self, kind: BreakKind, at: u64, breaker: Arc<Breaker>) -> Self {
        self.breaks = Some(Break { kind, left: at, breaker, waiting: None });
        self
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.source {
            Source::Upstream(body) => {
                Pin::new(body).poll_frame(cx).map(|it| it.map(|it| it.map_err(io::Error::other)))
            }
            Source::Proxy(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|it| it.map(|it| it.map_err(|never| match never {}))),
        }
    }

    /// The frame up to the fault.
    fn cut(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let Some(breaks) = &mut self.breaks else { return frame };
        match frame.into_data() {
            Ok(mut data) => {
                let max = usize::try_from(breaks.left).unwrap_or(usize::MAX);
                data.truncate(max);
                breaks.left -= data.len() as u64;
                Frame::data(data)
            }
            Err(frame) => frame,
        }
    }
}

impl Break {
    /// Waits until the bytes before the fault are written, and lets the connection fail.
    fn poll_fail(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeOutcome> {
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(WRITE_TIME)));
        ready!(waiting.as_mut().poll(cx));
        match self.kind {
            // Nothing wakes this body: the exchange ends when the client leaves.
            BreakKind::Stall => Poll::Pending,
            BreakKind::Reset => Poll::Ready(ExchangeOutcome::Reset),
            BreakKind::Close => Poll::Ready(ExchangeOutcome::Closed),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if let Some(breaks) = &mut this.breaks
            && breaks.left == 0
        {
            this.guard.outcome = Some(ready!(breaks.poll_fail(cx)));
            breaks.breaker.fail(breaks.kind);
            // The connection is dropped before the next poll.
            return Poll::Pending;
        }
        let frame = match ready!(this.poll_source(cx)) {
            Some(Ok(frame)) => this.cut(frame),
            Some(Err(error)) => {
                this.guard.outcome = Some(ExchangeOutcome::UpstreamFailed);
                return Poll::Ready(Some(Err(error)));
            }
            None => {
                this.guard.outcome.get_or_insert(ExchangeOutcome::Answered);
                return Poll::Ready(None);
            }
        };
        if let Some(data) = frame.data_ref() {
            let bytes = data.len() as u64;
            this.guard.shared.update(this.guard.number, |it| it.response_bytes += bytes);
        }
        if frame.is_trailers() || this.is_end_stream() {
            this.guard.outcome.get_or_insert(ExchangeOutcome::Answered);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        let cut = self.breaks.as_ref().is_some_and(|it| it.left == 0);
        let ended = match &self.source {
            Source::Upstream(body) => body.is_end_stream(),
            Source::Proxy(body) => body.is_end_stream(),
        };
        ended && !cut
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Upstream(body) => body.size_hint(),
            Source::Proxy(body) => body.size_hint(),
        }
    }
}
