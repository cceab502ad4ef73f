//! The I/O object that `h2` uses instead of the socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Wire;

/// How many bytes may be queued for the socket before `h2` is blocked (backpressure).
const OUT_BYTES_MAX: usize = 64 * 1024;

/// Reads from the wire and writes to it.
#[derive(Debug)]
pub(in crate::grpc) struct InterceptedIo(pub(super) Arc<Wire>);

impl AsyncRead for InterceptedIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        state.driver = Some(cx.waker().clone());
        // There may be injected frames to write; a socket error shows up in the read.
        let _ = state.poll_out(cx);
        let before = buf.filled().len();
        let Some(io) = &mut state.io else { return Poll::Ready(Ok(())) };
        ready!(Pin::new(io).poll_read(cx, buf))?;
        state.process_inbound(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for InterceptedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.state();
        if state.io.is_none() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.out.len() >= OUT_BYTES_MAX {
            ready!(state.poll_out(cx))?;
        }
        state.process_outbound(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        ready!(state.poll_out(cx))?;
        match &mut state.io {
            Some(io) => Pin::new(io).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        ready!(state.poll_out(cx))?;
        match &mut state.io {
            Some(io) => Pin::new(io).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
