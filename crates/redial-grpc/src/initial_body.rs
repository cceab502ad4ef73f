//! What is there of the application's body when its call begins.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http_body::Body;

use crate::BoxError;
use crate::message_size::MessageSizeLimit;
use crate::replay_buffer::{EMPTY_FRAMES_MAX, Failure};

/// What is there of a body.
pub(crate) enum InitialBody {
    /// All of it: a unary call is one piece of bytes, and needs no tape.
    Complete(Bytes),
    /// The first frames of what the application writes.
    Partial([Option<Bytes>; 2]),
}

impl InitialBody {
    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            InitialBody::Complete(bytes) => bytes.len(),
            InitialBody::Partial(frames) => frames.iter().flatten().map(Bytes::len).sum(),
        }
    }

    /// Reads what is there of a body: two frames at the most, of which the second is its end if it
    /// is that of a unary call. More would take from the application what nobody asked for. Where
    /// there is nothing yet nobody is woken for it: the attempt that needs it asks again.
    pub(crate) fn read<B>(
        body: &mut B,
        size_limit: &mut Option<MessageSizeLimit>,
    ) -> Result<InitialBody, Failure>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = None;
        // A frame that says nothing is passed over, and so is not more than a few of them: others want a
        // turn, too.
        for _ in 0..EMPTY_FRAMES_MAX {
            let frame = match Pin::new(&mut *body).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Err(Failure::Body(error.into())),
                Poll::Ready(None) => return Ok(InitialBody::Complete(first.unwrap_or_default())),
                Poll::Pending => return Ok(InitialBody::Partial([first, None])),
            };
            // A request of gRPC has no trailers, and an empty frame says nothing.
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
