//! The request body of one attempt, as its connection reads it.
//!
//! Invariant: after its end or an error there is nothing more, whatever becomes of the tape.

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

/// The request body of one attempt: what the application wrote, from the beginning.
// 48 bytes instead of 40: of boxes between 25 and 40 bytes a call through tonic has nine already, more
// than the caches of glibc's allocator hold, and one more costs as much as half of this layer.
#[repr(align(16))]
pub struct Replay<B> {
    kind: Kind<B>,
    sent: SentBytes,
}

enum Kind<B> {
    /// All of it was there when the call began.
    Whole(Option<Bytes>),
    Buffered(Reader<B>),
}

struct Reader<B> {
    buffer: Arc<ReplayBuffer<B>>,
    attempt: u32,
    next: u64,
    /// The last frame was handed out, and it is known to be the last.
    done: bool,
}

impl<B> Replay<B> {
    /// A body that is one frame, or none.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        let kind = Kind::Whole((!bytes.is_empty()).then_some(bytes));
        Replay { kind, sent: SentBytes::default() }
    }

    pub(super) fn buffered(buffer: Arc<ReplayBuffer<B>>, attempt: u32) -> Self {
        let kind = Kind::Buffered(Reader { buffer, attempt, next: 0, done: false });
        Replay { kind, sent: SentBytes::default() }
    }

    /// The same, counted.
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
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
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
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Buffered(reader) => reader.done,
        }
    }

    fn size_hint(&self) -> SizeHint {
        // An exact hint would make hyper send a content-length that the application did not ask for.
        SizeHint::default()
    }
}

impl<B> fmt::Debug for Replay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

/// Why an attempt's body ends early: its attempt is over, or the application's body failed.
///
/// It makes the connection reset the stream; the call's own result says more.
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
        // hyper resets a stream with the reason that it finds here, and with INTERNAL_ERROR if
        // there is none; which of body and response it sees cancelled first is chance.
        static CANCEL: LazyLock<h2::Error> = LazyLock::new(|| h2::Reason::CANCEL.into());
        match self.0 {
            EarlyEnd::Cancelled => Some(&*CANCEL),
            EarlyEnd::Failed => None,
        }
    }
}

/// What a reader finds.
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
        let (read, after) = self.buffer.read(self.attempt, &mut self.next, cx);
        after.run();
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
