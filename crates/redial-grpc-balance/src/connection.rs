//! One HTTP/2 connection to one backend.
//!
//! Rule: a tonic channel is used for one connection and never reconnects. tonic alone would
//! reconnect immediately and without limit; here the next attempt waits for the connection backoff.
//! Requests that tonic still holds when the connection closes were not sent, and fail with an error
//! that says so ([`ConnectionEnded`]).

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use redial_grpc::BoxError;
use redial_grpc::balancing::ConnectionEnded;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::catch_panic;
use super::error::ConnectError;
use super::subchannels::Connection;

/// The future of [`Connector::connect`].
pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send + 'a>>;

/// A byte stream in both directions.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for T {}

/// Opens the connections of a channel, in place of TCP: through a proxy, over another kind of
/// socket, or in memory for tests. With an `https` target, the channel runs TLS over the returned
/// stream. A connector that does TLS itself needs an `http` target.
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Makes one connection attempt. The channel applies the connection backoff and the timeout,
    /// and drops the future if the connection is no longer needed.
    fn connect(&self, address: SocketAddr) -> ConnectFuture<'_>;
}

/// TCP with the socket options of the endpoint.
#[derive(Debug)]
pub(crate) struct TcpConnector {
    nodelay: bool,
    keepalive: Option<TcpKeepalive>,
}

impl TcpConnector {
    pub(crate) fn new(endpoint: &Endpoint) -> Self {
        let (idle, interval) =
            (endpoint.get_tcp_keepalive(), endpoint.get_tcp_keepalive_interval());
        let retries = endpoint.get_tcp_keepalive_retries();
        let asked = idle.is_some() || interval.is_some() || retries.is_some();
        let keepalive = asked.then(|| {
            let mut keepalive = TcpKeepalive::new();
            if let Some(idle) = idle {
                keepalive = keepalive.with_time(idle);
            }
            if let Some(interval) = interval {
                keepalive = keepalive.with_interval(interval);
            }
            #[cfg(not(windows))]
            if let Some(retries) = retries {
                keepalive = keepalive.with_retries(retries);
            }
            keepalive
        });
        TcpConnector { nodelay: endpoint.get_tcp_nodelay(), keepalive }
    }
}

impl Connector for TcpConnector {
    fn connect(&self, address: SocketAddr) -> ConnectFuture<'_> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(self.nodelay)?;
            if let Some(keepalive) = &self.keepalive {
                SockRef::from(&stream).set_tcp_keepalive(keepalive)?;
            }
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opened,
    /// The server has sent its first bytes.
    Established,
    Closed,
}

type Phases = Arc<watch::Sender<Phase>>;

/// An established connection.
#[derive(Clone, Debug)]
pub(crate) struct TonicConnection {
    pub(crate) channel: Channel,
    phase: watch::Receiver<Phase>,
    /// Whether it has returned a response. Only the first response has to take the channel's lock.
    pub(crate) served: Arc<AtomicBool>,
    /// The address of the backend, as shown in reports and logs.
    pub(crate) name: Arc<str>,
}

impl Connection for TonicConnection {
    fn is_open(&self) -> bool {
        *self.phase.borrow() != Phase::Closed
    }
}

impl TonicConnection {
    /// Waits until the connection accepts no more requests.
    pub(crate) async fn closed(&mut self) {
        // An error means that the sender is gone, and the connection with it.
        let _ended = self.phase.wait_for(|phase| *phase == Phase::Closed).await;
    }
}

/// Makes one connection attempt within `timeout`. The connection counts as established when the
/// server has sent its first bytes: a server that accepts and stays silent is not usable.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    connector: Arc<dyn Connector>,
    address: SocketAddr,
    timeout: Duration,
) -> Result<TonicConnection, ConnectError> {
    let (sender, mut phase) = watch::channel(Phase::Opened);
    let tls_required = endpoint.uri().scheme_str() == Some("https");
    let target = Some((connector, address));
    let connector = SingleUseConnector { target, tls_required, phases: Arc::new(sender) };
    let connecting = async {
        let channel = endpoint.connect_with_connector(connector).await.map_err(ConnectError::of)?;
        let established = phase.wait_for(|phase| *phase != Phase::Opened).await.map(|phase| *phase);
        match established {
            Ok(Phase::Established) => {
                let name = address.to_string().into();
                Ok(TonicConnection { channel, phase, served: Arc::default(), name })
            }
            _ => Err(ConnectError::closed()),
        }
    };
    // The stream is application code too, and tonic writes its first bytes here.
    let connecting = catch_panic::run(|| Box::pin(connecting), || Err(ConnectError::panicked()));
    tokio::time::timeout(timeout, connecting)
        .await
        .unwrap_or_else(|_| Err(ConnectError::timed_out(timeout)))
}

/// A tonic connector that connects once, and then fails with [`ConnectionEnded`].
struct SingleUseConnector {
    target: Option<(Arc<dyn Connector>, SocketAddr)>,
    /// Whether the target requires TLS.
    tls_required: bool,
    phases: Phases,
}

impl Service<Uri> for SingleUseConnector {
    type Response = TokioIo<MonitoredIo>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<MonitoredIo>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.target.is_some() {
            return Poll::Ready(Ok(()));
        }
        // After a GOAWAY the connection stays open for the requests in flight. tonic asks for a new
        // connection then, which is the signal that this one accepts no more requests.
        self.phases.send_replace(Phase::Closed);
        Poll::Ready(Err(ConnectionEnded.into()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (target, phases, tls_required) =
            (self.target.take(), self.phases.clone(), self.tls_required);
        Box::pin(async move {
            let (connector, address) = target.ok_or(ConnectionEnded)?;
            let panicked = || Err(io::Error::other("the connector panicked"));
            let io = catch_panic::run(|| connector.connect(address), panicked).await?;
            Ok(TokioIo::new(MonitoredIo { io, tls_required, established: false, phases }))
        })
    }
}

/// A byte stream that reports its first bytes and its end.
struct MonitoredIo {
    io: Box<dyn Io>,
    /// Whether TLS is required and the first bytes have not been checked yet.
    tls_required: bool,
    established: bool,
    phases: Phases,
}

/// The first byte of every TLS connection: the record type "handshake" (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

impl MonitoredIo {
    /// Rejects plaintext where TLS is required: a tonic without TLS features would silently send
    /// plaintext to an `https` target.
    fn check_tls(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(first) = bytes.first().filter(|_| self.tls_required) else { return Ok(()) };
        if *first != TLS_HANDSHAKE {
            let reason = "the target is https, but tonic is built without a TLS feature";
            return Err(io::Error::other(reason));
        }
        self.tls_required = false;
        Ok(())
    }
}

impl Drop for MonitoredIo {
    fn drop(&mut self) {
        self.phases.send_replace(Phase::Closed);
    }
}

impl AsyncRead for MonitoredIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.io).poll_read(cx, buffer));
        let ended = result.is_err() || (buffer.filled().len() == before && buffer.remaining() > 0);
        if ended {
            self.phases.send_replace(Phase::Closed);
        } else if !self.established {
            self.established = true;
            self.phases.send_if_modified(|phase| {
                let silent = *phase == Phase::Opened;
                if silent {
                    *phase = Phase::Established;
                }
                silent
            });
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for MonitoredIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_tls(bytes)?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_tls(slices.iter().find(|it| !it.is_empty()).map_or(&[], |it| it))?;
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A tonic without TLS features, which is this library's default, must not send plaintext to an
    /// `https` target.
    #[tokio::test]
    async fn tls_connection_never_writes_plaintext() {
        let monitored = |tls_required| {
            let (ours, theirs) = tokio::io::duplex(64);
            let phases = Arc::new(watch::channel(Phase::Opened).0);
            (MonitoredIo { io: Box::new(ours), tls_required, established: false, phases }, theirs)
        };
        for vectored in [false, true] {
            for (tls_required, bytes, passes) in [
                (true, b"PRI * HTTP/2.0".as_slice(), false),
                (true, &[TLS_HANDSHAKE, 3, 1], true),
                (false, b"PRI * HTTP/2.0", true),
            ] {
                let (mut ours, mut theirs) = monitored(tls_required);
                let written = if vectored {
                    ours.write_vectored(&[io::IoSlice::new(&[]), io::IoSlice::new(bytes)]).await
                } else {
                    ours.write(bytes).await
                };
                assert_eq!(written.is_ok(), passes, "{tls_required} {bytes:?}");
                if passes {
                    ours.write_all(b"anything").await.expect("only the first bytes tell");
                }
                drop(ours);
                let mut read = Vec::new();
                theirs.read_to_end(&mut read).await.unwrap();
                assert_eq!(!read.is_empty(), passes);
            }
        }
    }
}
