//! The part of the request body that is available when the call starts.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http_body::Body;

use crate::BoxError;
use crate::message_size::MessageSizeLimit;
use crate::replay_buffer::{EMPTY_FRAMES_MAX, Failure};

/// The part of the request body that is available when the call starts.
pub(super) enum InitialBody {
    /// The complete body. A unary request is one frame and needs no replay buffer.
    Complete(Bytes),
    /// The first frames of a streaming body.
    Partial([Option<Bytes>; 2]),
}

impl InitialBody {
    /// Number of bytes available.
    pub(super) fn len(&self) -> usize {
        match self {
            InitialBody::Complete(bytes) => bytes.len(),
            InitialBody::Partial(frames) => frames.iter().flatten().map(Bytes::len).sum(),
        }
    }

    /// Reads up to two frames: for a unary request the second poll finds the end of the body. Reading
    /// more would defeat backpressure. If nothing is available yet, no waker is registered: the attempt
    /// that needs the frame polls again.
    pub(super) fn read<B>(
        body: &mut B,
        size_limit: &mut Option<MessageSizeLimit>,
    ) -> Result<InitialBody, Failure>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = None;
        // Empty frames are skipped, but only a limited number of them, so that a body which is always
        // ready cannot starve other tasks.
        for _ in 0..EMPTY_FRAMES_MAX {
            let frame = match Pin::new(&mut *body).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Err(Failure::Body(error.into())),
                Poll::Ready(None) => return Ok(InitialBody::Complete(first.unwrap_or_default())),
                Poll::Pending => return Ok(InitialBody::Partial([first, None])),
            };
            // gRPC requests have no trailers, and empty frames carry nothing.
            let Ok(bytes) = frame.into_data() else { continue };
            if let Some(Err(large)) = size_limit.as_mut().map(|size_limit| size_limit.check(&bytes))
            {
                return Err(Failure::TooLarge(large));
            }
            match first {
                _ if !bytes.has_remaining() => {}
                None => first = Some(bytes),
                first => return Ok(InitialBody::Partial([first, Some(bytes)])),
            }
        }
        Ok(InitialBody::Partial([first, None]))
    }
}
