//! The server, and what one holds of it while it runs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::time::sleep;

use super::act::Door;
use super::answer::Answer;
use super::connection::{self, Opened};
use super::io::Io;
use super::record::{Counts, Record, Stream};
use super::script::Script;
use super::shared::{OnEnd, Options, Shared};

/// How many streams that have ended, and as many connections, are kept in the record by default.
pub const STREAMS_KEPT: usize = 10_000;
/// How many bytes of payload are kept of each stream by default.
pub const PAYLOAD_BYTES_KEPT: u64 = 64 * 1024;
/// How many bytes a pipe holds in each direction by default.
pub const PIPE_BYTES: usize = 64 * 1024;
/// How many connections may be open at a time; one more is closed at once.
pub const CONNECTIONS_OPEN_MAX: u64 = 1_000;
/// How many streams may be open at a time on a connection, whatever it was told; one more is
/// refused.
pub const STREAMS_OPEN_MAX: u32 = 10_000;

/// A server with its script, not running yet.
///
/// | option | default | why |
/// | --- | --- | --- |
/// | [`concurrent_streams`](Server::concurrent_streams) | not said to clients | most scripts are not about it |
/// | [`streams_kept`](Server::streams_kept) | [`STREAMS_KEPT`] | more than a test looks at |
/// | [`payload_bytes_kept`](Server::payload_bytes_kept) | [`PAYLOAD_BYTES_KEPT`] | the rest is in the digest |
/// | [`pipe_bytes`](Server::pipe_bytes) | [`PIPE_BYTES`] | as much as a socket's buffer |
#[derive(Clone, Debug)]
#[must_use = "a server runs on a pipe or on a socket"]
pub struct Server {
    script: Script,
    options: Options,
}

impl Server {
    /// A server that plays this script.
    ///
    /// # Panics
    /// The script cannot be played ([`Script::check`]).
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

    /// Tells clients how many streams they may have open on a connection
    /// (`SETTINGS_MAX_CONCURRENT_STREAMS`), and refuses those above it.
    pub fn concurrent_streams(mut self, max: u32) -> Server {
        self.options.concurrent_streams = Some(max);
        self
    }

    /// Keeps that many streams in the record that have ended; the oldest are forgotten first.
    pub fn streams_kept(mut self, max: usize) -> Server {
        self.options.streams_kept = max;
        self
    }

    /// Keeps that many bytes of the messages of each stream.
    pub fn payload_bytes_kept(mut self, max: u64) -> Server {
        self.options.payload_bytes_kept = max;
        self
    }

    /// Gives pipes that many bytes in each direction; at least one.
    pub fn pipe_bytes(mut self, max: usize) -> Server {
        self.options.pipe_bytes = max.max(1);
        self
    }

    /// Tells of each stream when it has ended.
    pub fn on_end(mut self, tell: impl Fn(&Stream) + Send + Sync + 'static) -> Server {
        self.options.on_end = Some(OnEnd(Arc::new(tell)));
        self
    }

    /// Runs in memory. Its connections are tasks of the runtime in which they are opened.
    pub fn on_pipe(self) -> Handle<Pipe> {
        Handle { shared: Shared::new(self.script, self.options), door: Pipe(()) }
    }

    /// Runs on a listening socket.
    ///
    /// # Errors
    /// The address cannot be listened on; or the script refuses a connection, which a socket that
    /// listens cannot do.
    pub async fn listen(self, addr: impl ToSocketAddrs) -> io::Result<Handle<Tcp>> {
        if self.script.refuses() {
            let text = "a socket that listens refuses no connection: use a pipe, or an address where nobody listens";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let shared = Shared::new(self.script, self.options);
        tokio::spawn(accept(shared.clone(), listener));
        Ok(Handle { shared, door: Tcp { addr } })
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            () = shared.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                // Small frames are to leave when they are written; if not, they leave later.
                let _ = socket.set_nodelay(true);
                let (opened, met) = Opened::new(shared.clone());
                tokio::spawn(connection::begin(opened, &met, Io::Tcp(socket)));
            }
            // The client has gone again, or there are no more descriptors: neither lasts.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// A running server; `D` is its door: [`Pipe`] or [`Tcp`]. It stops when this is dropped.
#[derive(Debug)]
pub struct Handle<D> {
    shared: Arc<Shared>,
    door: D,
}

/// The door of a server in memory.
#[derive(Debug)]
pub struct Pipe(());

/// The door of a server on a socket.
#[derive(Debug)]
pub struct Tcp {
    addr: SocketAddr,
}

impl<D> Handle<D> {
    /// What the server has seen so far.
    #[must_use]
    pub fn record(&self) -> Record {
        self.shared.record()
    }

    /// The numbers of the record, without copying it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Comes with the record when `enough` says so. It is asked now and after every change, each
    /// time with a copy.
    pub async fn until(&self, enough: impl Fn(&Record) -> bool) -> Record {
        self.shared.until(|shared| Some(shared.record()).filter(&enough)).await
    }

    /// Comes with the numbers when `enough` says so; the record is not copied for it.
    pub async fn until_counts(&self, enough: impl Fn(&Counts) -> bool) -> Counts {
        self.shared.until(|shared| Some(shared.counts()).filter(&enough)).await
    }

    /// Comes when no stream is open.
    pub async fn idle(&self) {
        self.shared.until(|shared| (shared.counts().streams_open == 0).then_some(())).await;
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

    /// Closes every connection, and comes with the record when nothing runs any more.
    pub async fn shutdown(self) -> Record {
        self.shared.stop();
        let over = |counts: Counts| counts.streams_open == 0 && counts.connections_open == 0;
        self.shared.until(|shared| over(shared.counts()).then(|| shared.record())).await
    }
}

impl<D> Drop for Handle<D> {
    fn drop(&mut self) {
        self.shared.stop();
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

    /// What opens connections, for a client that does so itself.
    #[must_use]
    pub fn connector(&self) -> Connector {
        let Pipe(()) = self.door;
        Connector { shared: self.shared.clone() }
    }
}

impl Handle<Tcp> {
    /// The address on which it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.door.addr
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
    /// Opens a connection, and gives the client's end of it. The server's settings are in it. A door
    /// that is shut after a while is one that takes so long to open.
    ///
    /// # Errors
    /// The script refuses this connection.
    ///
    /// # Cancel safety
    /// A connection that was asked for has used up its place in the script.
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        let (opened, mut met) = Opened::new(self.shared.clone());
        if met.door.is_shut() && !met.after.is_zero() {
            // Whoever has a connection writes a request into it, however soon it ends.
            sleep(std::mem::take(&mut met.after)).await;
        }
        if met.door == Door::Refused {
            drop(opened);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client, server) = tokio::io::duplex(self.shared.options.pipe_bytes);
        tokio::spawn(connection::begin(opened, &met, Io::Pipe(server)));
        Ok(client)
    }
}
