//! The server, and the handle of a running one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::time::sleep;

use super::action::OnConnect;
use super::answer::Answer;
use super::connection::{self, ConnectionGuard};
use super::io::Io;
use super::record::{Counts, Record, StreamRecord};
use super::script::Script;
use super::shared::{OnEnd, Options, Shared};

/// How many ended streams, and as many connections, the record keeps by default.
pub const STREAMS_KEPT: usize = 10_000;
/// How many payload bytes the record keeps of each stream by default.
pub const PAYLOAD_BYTES_KEPT: u64 = 64 * 1024;
/// How many bytes a pipe holds in each direction by default.
pub const PIPE_BYTES: usize = 64 * 1024;
/// How many connections may be open at a time; further ones are closed immediately.
pub const CONNECTIONS_OPEN_MAX: u64 = 1_000;
/// How many streams may be open at a time on a connection, whatever its settings; further ones are
/// refused.
pub const STREAMS_OPEN_MAX: u32 = 10_000;

/// A server with its script, before it runs.
///
/// | option | default | why |
/// | --- | --- | --- |
/// | [`concurrent_streams`](Server::concurrent_streams) | not announced | most scripts do not test it |
/// | [`streams_kept`](Server::streams_kept) | [`STREAMS_KEPT`] | more than a test reads |
/// | [`payload_bytes_kept`](Server::payload_bytes_kept) | [`PAYLOAD_BYTES_KEPT`] | the rest is in the digest |
/// | [`pipe_bytes`](Server::pipe_bytes) | [`PIPE_BYTES`] | as much as a socket's buffer |
#[derive(Clone, Debug)]
#[must_use = "a server runs on a pipe or on a socket"]
pub struct Server {
    script: Script,
    options: Options,
}

impl Server {
    /// Creates a server that follows this script.
    ///
    /// # Panics
    /// The script is invalid ([`Script::check`]).
    #[track_caller]
    pub fn new(script: impl Into<Script>) -> Server {
        let script = script.into();
        if let Err(unplayable) = script.check() {
            panic!("{unplayable}");
        }
        let options = Options {
            concurrent_streams: None,
            streams_kept: STREAMS_KEPT,
            payload_bytes_kept: PAYLOAD_BYTES_KEPT,
            pipe_bytes: PIPE_BYTES,
            on_end: None,
        };
        Server { script, options }
    }

    /// Announces how many streams a client may have open on a connection
    /// (`SETTINGS_MAX_CONCURRENT_STREAMS`), and refuses further ones.
    pub fn concurrent_streams(mut self, max: u32) -> Server {
        self.options.concurrent_streams = Some(max);
        self
    }

    /// Keeps this many ended streams in the record; the oldest are dropped first.
    pub fn streams_kept(mut self, max: usize) -> Server {
        self.options.streams_kept = max;
        self
    }

    /// Keeps this many payload bytes of each stream.
    pub fn payload_bytes_kept(mut self, max: u64) -> Server {
        self.options.payload_bytes_kept = max;
        self
    }

    /// Sets the buffer of a pipe in each direction; at least one byte.
    pub fn pipe_bytes(mut self, max: usize) -> Server {
        self.options.pipe_bytes = max.max(1);
        self
    }

    /// Calls this for each stream when it has ended.
    pub fn on_end(mut self, tell: impl Fn(&StreamRecord) + Send + Sync + 'static) -> Server {
        self.options.on_end = Some(OnEnd(Arc::new(tell)));
        self
    }

    /// Runs in memory. Its connections are tasks of the runtime in which they are opened.
    pub fn on_pipe(self) -> Handle<Pipe> {
        Handle { shared: Shared::new(self.script, self.options), transport: Pipe(()) }
    }

    /// Runs on a listening socket.
    ///
    /// # Errors
    /// The address cannot be bound; or the script refuses a connection, which a listening socket
    /// cannot do.
    pub async fn listen(self, addr: impl ToSocketAddrs) -> io::Result<Handle<Tcp>> {
        if self.script.refuses() {
            let text = "a listening socket refuses no connection: use a pipe, or an address without a server";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let shared = Shared::new(self.script, self.options);
        tokio::spawn(accept(shared.clone(), listener));
        Ok(Handle { shared, transport: Tcp { addr } })
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            () = shared.tasks.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                // Send small frames immediately; if this fails they are only delayed.
                let _ = socket.set_nodelay(true);
                let (guard, plan) = ConnectionGuard::new(shared.clone());
                tokio::spawn(connection::serve_connection(guard, &plan, Io::Tcp(socket)));
            }
            // The client has disconnected, or file descriptors ran out: both are temporary.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// A running server; `D` is its transport: [`Pipe`] or [`Tcp`]. It stops when dropped.
#[derive(Debug)]
pub struct Handle<D> {
    shared: Arc<Shared>,
    transport: D,
}

/// The transport of a server in memory.
#[derive(Debug)]
pub struct Pipe(());

/// The transport of a server on a socket.
#[derive(Debug)]
pub struct Tcp {
    addr: SocketAddr,
}

impl<D> Handle<D> {
    /// A copy of the record.
    #[must_use]
    pub fn record(&self) -> Record {
        self.shared.record()
    }

    /// The counts of the record, without copying the rest.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Waits until `enough` returns `true` for a copy of the record, and returns that copy.
    /// `enough` is called now and after every change.
    pub async fn until(&self, enough: impl Fn(&Record) -> bool) -> Record {
        self.shared.tasks.until(|| Some(self.record()).filter(&enough)).await
    }

    /// Waits until `enough` returns `true` for the counts, without copying the record.
    pub async fn until_counts(&self, enough: impl Fn(&Counts) -> bool) -> Counts {
        self.shared.tasks.until(|| Some(self.counts()).filter(&enough)).await
    }

    /// Waits until no stream is open.
    pub async fn idle(&self) {
        self.shared.tasks.until(|| (self.counts().streams_open == 0).then_some(())).await;
    }

    /// Adds answers for streams that name no call.
    ///
    /// # Panics
    /// An answer cannot be played ([`Script::check`]).
    #[track_caller]
    pub fn attempts(&self, answers: impl IntoIterator<Item = Answer>) {
        self.add(None, answers);
    }

    /// Adds answers for the streams of this call.
    ///
    /// # Panics
    /// An answer cannot be played ([`Script::check`]).
    #[track_caller]
    pub fn call(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        self.add(Some(name), answers);
    }

    #[track_caller]
    fn add(&self, name: Option<&str>, answers: impl IntoIterator<Item = Answer>) {
        let answers: Vec<_> = answers.into_iter().collect();
        if let Err(unplayable) = answers.iter().try_for_each(Answer::check) {
            panic!("{unplayable}");
        }
        self.shared.with_script(|script| script.add(name, answers));
    }

    /// Closes every connection, waits for all tasks, and returns the record.
    pub async fn shutdown(self) -> Record {
        self.shared.tasks.stop();
        let over = |counts: Counts| counts.streams_open == 0 && counts.connections_open == 0;
        self.shared.tasks.until(|| over(self.counts()).then(|| self.record())).await
    }
}

impl<D> Drop for Handle<D> {
    fn drop(&mut self) {
        self.shared.tasks.stop();
    }
}

impl Handle<Pipe> {
    /// Opens a connection: see [`Connector::connect`].
    ///
    /// # Errors
    /// The script refuses this connection.
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        self.connector().connect().await
    }

    /// Returns a cloneable connector for clients that connect on demand.
    #[must_use]
    pub fn connector(&self) -> Connector {
        let Pipe(()) = self.transport;
        Connector { shared: self.shared.clone() }
    }
}

impl Handle<Tcp> {
    /// The address of the listening socket.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.transport.addr
    }
}

/// Opens connections to a server in memory; cheap to clone.
///
/// For a tonic client:
/// ```
/// use hyper_util::rt::TokioIo;
/// use redial_faults::grpc::{Answer, Server};
/// use tonic::transport::{Channel, Endpoint};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let server = Server::new([Answer::reply("x")]).on_pipe();
/// let connector = server.connector();
/// let service = tower::service_fn(move |_| {
///     let connector = connector.clone();
///     async move { connector.connect().await.map(TokioIo::new) }
/// });
/// let channel: Channel = Endpoint::from_static("http://pipe").connect_with_connector_lazy(service);
/// # drop(channel);
/// # });
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    shared: Arc<Shared>,
}

impl Connector {
    /// Opens a connection, and returns the client's end. The server's SETTINGS are already in it. A
    /// delayed refusal delays this call.
    ///
    /// # Errors
    /// The script refuses this connection.
    ///
    /// # Cancel safety
    /// A cancelled connection has still consumed its entry in the script.
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        let (guard, mut plan) = ConnectionGuard::new(self.shared.clone());
        if plan.on_connect.prevents_requests() && !plan.after.is_zero() {
            // A client with a connection may write a request into it, however soon it is closed.
            sleep(std::mem::take(&mut plan.after)).await;
        }
        if plan.on_connect == OnConnect::Refuse {
            drop(guard);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client, server) = tokio::io::duplex(self.shared.options.pipe_bytes);
        tokio::spawn(connection::serve_connection(guard, &plan, Io::Pipe(server)));
        Ok(client)
    }
}
