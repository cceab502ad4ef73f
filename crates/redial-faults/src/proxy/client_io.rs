//! The proxy's side of a client's connection: counts bytes, and fails at the scripted byte.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use super::fault::{BreakKind, ConnectionFault, ConnectionPoint};

/// How many bytes a stalled connection still reads, to notice that the client closes it.
const STALL_BYTES_MAX: usize = 64 * 1024;

/// What the tasks of a connection know of each other.
#[derive(Debug)]
pub(super) struct Breaker {
    broken: watch::Sender<Option<BreakKind>>,
    stalled: AtomicBool,
    up: AtomicU64,
    down: AtomicU64,
}

impl Breaker {
    pub(super) fn new() -> Arc<Breaker> {
        Arc::new(Breaker {
            broken: watch::Sender::new(None),
            stalled: AtomicBool::new(false),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        })
    }

    /// Lets the connection fail. The first cause counts.
    pub(super) fn fail(&self, kind: BreakKind) {
        match kind {
            BreakKind::Stall => self.stalled.store(true, Ordering::Relaxed),
            BreakKind::Reset | BreakKind::Close => {
                self.broken.send_if_modified(|broken| {
                    let first = broken.is_none();
                    broken.get_or_insert(kind);
                    first
                });
            }
        }
    }

    /// Waits until the connection is to be reset or closed.
    pub(super) async fn failed(&self) {
        // It cannot fail: `self` owns the sender.
        let _ = self.broken.subscribe().wait_for(Option::is_some).await;
    }

    /// The bytes from the client and to the client.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.up.load(Ordering::Relaxed), self.down.load(Ordering::Relaxed))
    }
}

/// A client's connection. Dropping it closes the socket, with a reset if the breaker says so.
#[derive(Debug)]
pub(super) struct ClientIo {
    socket: TcpStream,
    breaker: Arc<Breaker>,
    breaks: Option<(BreakKind, ConnectionPoint)>,
    latency: Duration,
    write_delay: Option<Pin<Box<Sleep>>>,
    /// While it is stalled: how many bytes were read, and whether the client has closed it.
    discarded: usize,
    client_closed: bool,
}

impl ClientIo {
    pub(super) fn new(
        socket: TcpStream,
        breaker: Arc<Breaker>,
        fault: &ConnectionFault,
    ) -> ClientIo {
        let (breaks, latency) = (fault.breaks, fault.latency);
        ClientIo {
            socket,
            breaker,
            breaks,
            latency,
            write_delay: None,
            discarded: 0,
            client_closed: false,
        }
    }

    fn stalled(&self) -> bool {
        self.breaker.stalled.load(Ordering::Relaxed)
    }

    /// Reads and discards, so that the end of a stalled connection is noticed.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        while self.discarded < STALL_BYTES_MAX {
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                self.client_closed = true;
                return Poll::Ready(Ok(()));
            }
            self.discarded += buf.filled().len();
        }
        Poll::Pending
    }

    /// How many bytes may still be written before the fault.
    fn left_down(&self) -> Option<(BreakKind, u64)> {
        match self.breaks {
            Some((kind, ConnectionPoint::Down(at))) => {
                Some((kind, at.saturating_sub(self.breaker.bytes().1)))
            }
            _ => None,
        }
    }

    /// How many bytes may still be read before the fault.
    fn left_up(&self) -> Option<(BreakKind, u64)> {
        match self.breaks {
            Some((kind, ConnectionPoint::Up(at))) => {
                Some((kind, at.saturating_sub(self.breaker.bytes().0)))
            }
            _ => None,
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some((kind, 0)) = this.left_up() {
            this.breaker.fail(kind);
            if kind != BreakKind::Stall {
                // The task that owns the connection drops it.
                return Poll::Pending;
            }
        }
        if this.stalled() {
            return this.poll_discard(cx);
        }
        let before = buf.filled().len();
        match this.left_up() {
            None => ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?,
            Some((_, left)) => {
                // Never past the byte at which the connection fails.
                let mut bytes = [0; 4096];
                let left = usize::try_from(left).unwrap_or(usize::MAX);
                let max = left.min(bytes.len()).min(buf.remaining());
                let mut part = ReadBuf::new(&mut bytes[..max]);
                ready!(Pin::new(&mut this.socket).poll_read(cx, &mut part))?;
                buf.put_slice(part.filled());
            }
        }
        let read = buf.filled().len() - before;
        this.breaker.up.fetch_add(read as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.stalled() {
            return Poll::Pending;
        }
        let max = match this.left_down() {
            Some((kind, 0)) => {
                this.breaker.fail(kind);
                return Poll::Pending;
            }
            Some((_, left)) => usize::try_from(left).unwrap_or(usize::MAX).min(buf.len()),
            None => buf.len(),
        };
        if !this.latency.is_zero() {
            let latency = this.latency;
            let delay = this.write_delay.get_or_insert_with(|| Box::pin(sleep(latency)));
            ready!(delay.as_mut().poll(cx));
        }
        let written = ready!(Pin::new(&mut this.socket).poll_write(cx, &buf[..max]))?;
        this.write_delay = None;
        this.breaker.down.fetch_add(written as u64, Ordering::Relaxed);
        if let Some((kind, 0)) = this.left_down() {
            this.breaker.fail(kind);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.stalled() && !this.client_closed {
            return Poll::Pending;
        }
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        if *self.breaker.broken.borrow() == Some(BreakKind::Reset) {
            // If this fails, the socket is closed without a reset.
            let _ = self.socket.set_zero_linger();
        }
    }
}
