//! One connection: connect behaviour, handshake, and a handler for each stream.
//!
//! Only this module drives `h2`. Handlers request changes of the connection through the wire.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::action::{Close, OnConnect};
use super::frames::PREFACE_BYTES;
use super::io::Io;
use super::record::{StreamOutcome, StreamRecord};
use super::script::{CALL_HEADER, ConnectPlan};
use super::shared::Shared;
use super::stream_handler::StreamHandler;
use super::wire::{InterceptedIo, StreamEnded, Wire};

/// How many unread bytes a client may send on a stream without a window limit.
pub(super) const WINDOW_BYTES: u32 = 1024 * 1024;
/// The same for a whole connection: large enough to never limit a stream.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// How many reset streams `h2` remembers. Many resets look like an attack to a real server; here
/// they are a test of hedging.
const RESETS_MAX: usize = 100_000;
/// How long a graceful close waits for the client to read, and then to close its side.
const LINGER: Duration = Duration::from_secs(1);

/// Records the end of the connection when dropped.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    shared: Arc<Shared>,
    number: u64,
}

impl ConnectionGuard {
    /// Records a new connection, and returns how to treat it.
    pub(super) fn new(shared: Arc<Shared>) -> (ConnectionGuard, ConnectPlan) {
        let (number, plan) = shared.connect();
        (ConnectionGuard { shared, number }, plan)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.shared.disconnected(self.number);
    }
}

/// Starts a connection, and returns the future that serves it until it is closed.
///
/// The server's SETTINGS are written before this returns, so that a client that reads first sees
/// the window limits.
pub(super) fn serve_connection(
    guard: ConnectionGuard,
    plan: &ConnectPlan,
    io: Io,
) -> impl Future<Output = ()> + Send + 'static {
    let (on_connect, after) = (plan.on_connect, plan.after);
    let mut io = Some(io);
    let now = after.is_zero() && on_connect == OnConnect::Serve;
    let handshaken =
        now.then(|| io.take()).flatten().map(|io| Http2Connection::new(&guard.shared, io));
    async move {
        if !after.is_zero() {
            let shared = guard.shared.clone();
            tokio::select! {
                () = shared.tasks.stopped() => return,
                () = sleep(after) => {}
            }
        }
        match (handshaken, io) {
            (Some(connection), _) => connection.serve(guard).await,
            (None, Some(io)) => run_on_connect(on_connect, guard, io).await,
            (None, None) => {}
        }
    }
}

async fn run_on_connect(on_connect: OnConnect, guard: ConnectionGuard, mut io: Io) {
    let shared = guard.shared.clone();
    match on_connect {
        OnConnect::Serve => Http2Connection::new(&shared, io).serve(guard).await,
        OnConnect::Refuse | OnConnect::CloseImmediately => {}
        OnConnect::CloseAfterPreface => {
            let mut preface = [0; PREFACE_BYTES];
            tokio::select! {
                () = shared.tasks.stopped() => {}
                read = io.read_exact(&mut preface) => {
                    if read.is_ok() {
                        close_gracefully(io, &[], guard).await;
                    }
                }
            }
        }
        OnConnect::SendNothing => {
            tokio::select! {
                () = shared.tasks.stopped() => {}
                () = drain(&mut io) => {}
            }
        }
    }
}

/// Reads until the end of the connection.
async fn drain(io: &mut Io) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = io.read(&mut bytes).await {}
}

/// Closes a connection so that everything written is delivered, if the client reads.
async fn close_gracefully(mut io: Io, rest: &[u8], guard: ConnectionGuard) {
    let shared = guard.shared.clone();
    let last = async { io.write_all(rest).await.is_ok() && io.shutdown().await.is_ok() };
    let written = timeout(LINGER, last).await.unwrap_or(false);
    drop(guard);
    if written {
        // Closing a socket with unread data resets the connection, and the client could lose the
        // last bytes.
        tokio::select! {
            () = shared.tasks.stopped() => {}
            _ = timeout(LINGER, drain(&mut io)) => {}
        }
    }
}

/// A connection that completes the HTTP/2 handshake.
struct Http2Connection {
    wire: Arc<Wire>,
    handshake_state: HandshakeState,
    on_pipe: bool,
}

/// The state of the handshake.
enum HandshakeState {
    Waiting(Handshake<InterceptedIo, Bytes>),
    StreamEnded(Result<Connection<InterceptedIo, Bytes>, h2::Error>),
}

impl Http2Connection {
    fn new(shared: &Shared, io: Io) -> Http2Connection {
        let on_pipe = io.is_pipe();
        let wire = Wire::new(io, shared.options.concurrent_streams);
        let mut handshake = h2::server::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_reset_streams(RESETS_MAX)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .handshake(wire.intercepted_io());
        // The first poll writes the SETTINGS; the rest of the handshake is awaited later.
        let mut cx = Context::from_waker(Waker::noop());
        let handshake_state = match Pin::new(&mut handshake).poll(&mut cx) {
            Poll::Pending => HandshakeState::Waiting(handshake),
            Poll::Ready(handshaken) => HandshakeState::StreamEnded(handshaken),
        };
        Http2Connection { wire, handshake_state, on_pipe }
    }

    async fn serve(self, guard: ConnectionGuard) {
        let Http2Connection { wire, handshake_state, on_pipe } = self;
        let shared = guard.shared.clone();
        let connection = StreamAcceptor {
            shared: shared.clone(),
            wire: wire.clone(),
            number: guard.number,
            on_pipe,
        };
        let how = tokio::select! {
            biased;
            how = wire.closing() => Some(how),
            () = shared.tasks.stopped() => Some(Close::Graceful),
            () = connection.accept(handshake_state) => None,
        };
        let ended = if how.is_some() { StreamEnded::Closed } else { StreamEnded::ClosedByClient };
        match (how, wire.take(ended)) {
            (Some(Close::Graceful), Some((io, rest))) => close_gracefully(io, &rest, guard).await,
            (Some(Close::Abrupt), Some((io, _))) => io.abort(),
            _ => {}
        }
    }
}

/// The context that new streams get from their connection.
struct StreamAcceptor {
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    number: u64,
    on_pipe: bool,
}

impl StreamAcceptor {
    /// Accepts streams until the client disconnects.
    async fn accept(&self, handshake_state: HandshakeState) {
        let handshaken = match handshake_state {
            HandshakeState::Waiting(handshake) => handshake.await,
            HandshakeState::StreamEnded(handshaken) => handshaken,
        };
        let Ok(mut connection) = handshaken else { return };
        while let Some(Ok((request, respond))) = connection.accept().await {
            self.arrived(request, respond);
        }
    }

    fn arrived(&self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let id = respond.stream_id().as_u32();
        let rejected = match self.wire.stream_ended(id) {
            Some(StreamEnded::GoneAway(reason)) => Some(StreamOutcome::GoneAway(reason)),
            _ => self.wire.over_limit(id).then_some(StreamOutcome::TooManyStreams),
        };
        let (head, body) = request.into_parts();
        let call = head
            .headers
            .get(CALL_HEADER)
            .map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        let stream = StreamRecord {
            number: 0,
            connection: self.number,
            id,
            call,
            attempt: None,
            scripted: false,
            arrived: self.shared.tasks.now(),
            path: head.uri.path().to_owned(),
            headers: head.headers,
            messages: 0,
            bytes: 0,
            digest: 0,
            payloads: Vec::new(),
            half_closed: None,
            reset: None,
            end: None,
        };
        let (number, next) = self.shared.arrive(stream, rejected.is_some());
        if let Some(outcome) = rejected {
            if outcome == StreamOutcome::TooManyStreams {
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            self.wire.forget(id);
            self.shared.end(number, outcome);
        }
        if let Some(next) = next {
            let handler = StreamHandler::new(
                self.shared.clone(),
                self.wire.clone(),
                number,
                body,
                respond,
                self.on_pipe,
            );
            tokio::spawn(handler.run(next));
        }
    }
}
