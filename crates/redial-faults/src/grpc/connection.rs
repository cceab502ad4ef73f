//! One connection: its door, the handshake, and a player for each stream.
//!
//! Rule: `h2` is driven here and nowhere else. Players tell the wire what they want of the
//! connection, and it is done here.

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

use super::act::{Close, Door};
use super::frames::PREFACE_BYTES;
use super::io::Io;
use super::player::Player;
use super::record::{How, Stream};
use super::script::{CALL_HEADER, Met};
use super::shared::Shared;
use super::wire::{Over, Tap, Wire};

/// How far a client may run ahead of the server on a stream whose window is not shut.
pub(super) const WINDOW_BYTES: u32 = 1024 * 1024;
/// The same for all streams of a connection together: never what holds one of them up.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// How many streams may be reset, by either side, and still be known to `h2`. What looks like an
/// attack to a real server is a test of hedging here.
const RESETS_MAX: usize = 100_000;
/// How long an orderly close waits for a client that does not read, and then for it to close its
/// side too.
const LINGER: Duration = Duration::from_secs(1);

/// A connection in the record, until this is dropped.
#[derive(Debug)]
pub(super) struct Opened {
    shared: Arc<Shared>,
    number: u64,
}

impl Opened {
    /// A connection is asked for.
    pub(super) fn new(shared: Arc<Shared>) -> (Opened, Met) {
        let (number, met) = shared.connect();
        (Opened { shared, number }, met)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.shared.disconnected(self.number);
    }
}

/// Begins with a connection, and gives what brings it to its end.
///
/// The server's settings are written before this returns, so that a client which looks before it
/// sends finds every window shut.
pub(super) fn begin(
    opened: Opened,
    met: &Met,
    io: Io,
) -> impl Future<Output = ()> + Send + 'static {
    let (door, after) = (met.door, met.after);
    let mut io = Some(io);
    let now = after.is_zero() && door == Door::Open;
    let greeted = now.then(|| io.take()).flatten().map(|io| Talk::new(&opened.shared, io));
    async move {
        if !after.is_zero() {
            let shared = opened.shared.clone();
            tokio::select! {
                () = shared.stopped() => return,
                () = sleep(after) => {}
            }
        }
        match (greeted, io) {
            (Some(talk), _) => talk.serve(opened).await,
            (None, Some(io)) => meet(door, opened, io).await,
            (None, None) => {}
        }
    }
}

async fn meet(door: Door, opened: Opened, mut io: Io) {
    let shared = opened.shared.clone();
    match door {
        Door::Open => Talk::new(&shared, io).serve(opened).await,
        Door::Refused | Door::ClosedAtOnce => {}
        Door::ClosedAfterPreface => {
            let mut preface = [0; PREFACE_BYTES];
            tokio::select! {
                () = shared.stopped() => {}
                read = io.read_exact(&mut preface) => {
                    if read.is_ok() {
                        end(io, &[], opened).await;
                    }
                }
            }
        }
        Door::Silent => {
            tokio::select! {
                () = shared.stopped() => {}
                () = drain(&mut io) => {}
            }
        }
    }
}

/// Reads until there is nothing more.
async fn drain(io: &mut Io) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = io.read(&mut bytes).await {}
}

/// Ends a connection so that what was written arrives, if the client reads.
async fn end(mut io: Io, rest: &[u8], opened: Opened) {
    let shared = opened.shared.clone();
    let last = async { io.write_all(rest).await.is_ok() && io.shutdown().await.is_ok() };
    let written = timeout(LINGER, last).await.unwrap_or(false);
    drop(opened);
    if written {
        // A socket that is closed with something unread resets the connection, and the client
        // might never see what was written last.
        tokio::select! {
            () = shared.stopped() => {}
            _ = timeout(LINGER, drain(&mut io)) => {}
        }
    }
}

/// A connection that speaks HTTP/2.
struct Talk {
    wire: Arc<Wire>,
    greeting: Greeting,
    on_pipe: bool,
}

/// How far the handshake is.
enum Greeting {
    Waiting(Handshake<Tap, Bytes>),
    Over(Result<Connection<Tap, Bytes>, h2::Error>),
}

impl Talk {
    fn new(shared: &Shared, io: Io) -> Talk {
        let on_pipe = io.is_pipe();
        let wire = Wire::new(io, shared.options.concurrent_streams);
        let mut handshake = h2::server::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_reset_streams(RESETS_MAX)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .handshake(wire.tap());
        // The first poll writes the settings. Whoever waits for the rest polls again.
        let mut cx = Context::from_waker(Waker::noop());
        let greeting = match Pin::new(&mut handshake).poll(&mut cx) {
            Poll::Pending => Greeting::Waiting(handshake),
            Poll::Ready(greeted) => Greeting::Over(greeted),
        };
        Talk { wire, greeting, on_pipe }
    }

    async fn serve(self, opened: Opened) {
        let Talk { wire, greeting, on_pipe } = self;
        let shared = opened.shared.clone();
        let connection = Accepting {
            shared: shared.clone(),
            wire: wire.clone(),
            number: opened.number,
            on_pipe,
        };
        let how = tokio::select! {
            biased;
            how = wire.closing() => Some(how),
            () = shared.stopped() => Some(Close::Orderly),
            () = connection.accept(greeting) => None,
        };
        let over = if how.is_some() { Over::Closed } else { Over::ClosedByClient };
        match (how, wire.take(over)) {
            (Some(Close::Orderly), Some((io, rest))) => end(io, &rest, opened).await,
            (Some(Close::Abrupt), Some((io, _))) => io.abort(),
            _ => {}
        }
    }
}

/// What streams need of their connection.
struct Accepting {
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    number: u64,
    on_pipe: bool,
}

impl Accepting {
    /// Accepts streams until the client goes.
    async fn accept(&self, greeting: Greeting) {
        let greeted = match greeting {
            Greeting::Waiting(handshake) => handshake.await,
            Greeting::Over(greeted) => greeted,
        };
        let Ok(mut connection) = greeted else { return };
        while let Some(Ok((request, respond))) = connection.accept().await {
            self.arrived(request, respond);
        }
    }

    fn arrived(&self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let id = respond.stream_id().as_u32();
        let turned_away = match self.wire.over(id) {
            Some(Over::GoneAway(reason)) => Some(How::GoneAway(reason)),
            _ => self.wire.too_many(id).then_some(How::TooMany),
        };
        let (head, body) = request.into_parts();
        let call = head
            .headers
            .get(CALL_HEADER)
            .map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        let stream = Stream {
            number: 0,
            connection: self.number,
            id,
            call,
            attempt: None,
            scripted: false,
            arrived: self.shared.now(),
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
        let (number, given) = self.shared.arrive(stream, turned_away.is_some());
        if let Some(how) = turned_away {
            if how == How::TooMany {
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            self.wire.forget(id);
            self.shared.end(number, how);
        }
        if let Some(given) = given {
            let player = Player::new(
                self.shared.clone(),
                self.wire.clone(),
                number,
                body,
                respond,
                self.on_pipe,
            );
            tokio::spawn(player.play(given));
        }
    }
}
