//! The request body of one attempt, as its connection reads it.
//!
//! Invariant: after its end or an error it returns no more frames, whatever the replay buffer does.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::ReplayBuffer;
use crate::BoxError;
use crate::observe::SentBytes;

/// The request body of one attempt: replays the application's frames from the start.
pub struct Replay<B> {
    kind: Kind<B>,
    sent: SentBytes,
}

enum Kind<B> {
    /// The complete body was available when the call started.
    Complete(Option<Bytes>),
    Buffered(Reader<B>),
}

struct Reader<B> {
    buffer: Arc<ReplayBuffer<B>>,
    attempt: u32,
    /// The last frame has been returned and is known to be the last.
    done: bool,
}

impl<B> Replay<B> {
    /// A body of at most one frame.
    pub(crate) fn complete(bytes: Bytes) -> Self {
        let kind = Kind::Complete((!bytes.is_empty()).then_some(bytes));
        Replay { kind, sent: SentBytes::default() }
    }

    pub(super) fn buffered(buffer: Arc<ReplayBuffer<B>>, attempt: u32) -> Self {
        let kind = Kind::Buffered(Reader { buffer, attempt, done: false });
        Replay { kind, sent: SentBytes::default() }
    }

    /// Counts the bytes that are read from this body.
    pub(crate) fn counted(mut self, sent: SentBytes) -> Self {
        self.sent = sent;
        self
    }
}

impl<B> Body for Replay<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = ReplayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplayError>>> {
        let polled = match &mut self.kind {
            Kind::Complete(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Buffered(reader) => reader.poll(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.sent.add(data);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Complete(bytes) => bytes.is_none(),
            Kind::Buffered(reader) => reader.done,
        }
    }

    fn size_hint(&self) -> SizeHint {
        // An exact hint would make hyper send a content-length header, which the application did not set.
        SizeHint::default()
    }
}

impl<B> fmt::Debug for Replay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

/// Why the body of an attempt ends early: the attempt was cancelled, or the request body failed.
///
/// It makes the connection reset the stream; the result of the call contains the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayError(pub(super) EarlyEnd);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyEnd {
    Cancelled,
    Failed,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            EarlyEnd::Cancelled => "the attempt is over",
            EarlyEnd::Failed => "the request body failed",
        })
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // hyper resets the stream with the h2 reason found here, or INTERNAL_ERROR without one. Whether
        // it notices the cancelled body or the dropped response first is a race.
        static CANCEL: LazyLock<h2::Error> = LazyLock::new(|| h2::Reason::CANCEL.into());
        match self.0 {
            EarlyEnd::Cancelled => Some(&*CANCEL),
            EarlyEnd::Failed => None,
        }
    }
}

/// Result of a read.
pub(super) enum Read {
    /// A frame, and whether it is known to be the last.
    Frame(Bytes, bool),
    End,
    EndedEarly(EarlyEnd),
}

impl<B> Reader<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplayError>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let (read, deferred) = self.buffer.read(self.attempt, cx);
        deferred.run();
        read.map(|read| match read {
            Read::Frame(bytes, last) => {
                self.done = last;
                Some(Ok(Frame::data(bytes)))
            }
            Read::End => {
                self.done = true;
                None
            }
            Read::EndedEarly(early) => {
                self.done = true;
                Some(Err(ReplayError(early)))
            }
        })
    }
}

impl<B> Drop for Reader<B> {
    fn drop(&mut self) {
        self.buffer.close(self.attempt);
    }
}
