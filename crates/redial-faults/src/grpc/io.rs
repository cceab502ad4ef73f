//! The transport of a connection: a pipe in memory or a TCP socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

/// The server's end.
#[derive(Debug)]
pub(super) enum Io {
    Pipe(DuplexStream),
    Tcp(TcpStream),
}

impl Io {
    /// Closes immediately. On TCP the client gets a reset, and unsent data is lost.
    pub(super) fn abort(self) {
        if let Io::Tcp(socket) = &self {
            // If this fails, the socket is closed without a reset.
            let _ = socket.set_zero_linger();
        }
    }

    /// Whether client and server share a clock.
    pub(super) fn is_pipe(&self) -> bool {
        matches!(self, Io::Pipe(_))
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buf),
            Io::Tcp(socket) => Pin::new(socket).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Pipe(pipe) => Pin::new(pipe).poll_write(cx, buf),
            Io::Tcp(socket) => Pin::new(socket).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Pipe(pipe) => Pin::new(pipe).poll_flush(cx),
            Io::Tcp(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Pipe(pipe) => Pin::new(pipe).poll_shutdown(cx),
            Io::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
