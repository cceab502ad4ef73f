//! A gRPC server in memory that closes, resets, hangs or responds slowly. It is written on h2,
//! because a tonic server cannot misbehave like this.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::JoinSet;

use super::support::SERVER;

/// How a connection ends after its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// GOAWAY with `NO_ERROR` and the last stream that is processed, as proxies send it; requests
    /// in flight are finished.
    GoAway,
    /// The socket is closed while requests are in flight.
    Abrupt,
}

/// How a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Answer,
    /// A Trailers-Only response with this status.
    Status(tonic::Code),
    Reset(Reason),
    Hang,
}

/// The behaviour of a server from now on, also on existing connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// How many requests a connection serves.
    pub(crate) requests_max: Option<(u32, Closing)>,
    pub(crate) treatment: Treatment,
    pub(crate) delay: Duration,
}

impl Behaviour {
    pub(crate) const HEALTHY: Behaviour =
        Behaviour { requests_max: None, treatment: Treatment::Answer, delay: Duration::ZERO };
}

/// A server whose behaviour the test changes.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    name: u64,
    behaviour: Arc<Mutex<Behaviour>>,
    cut: Arc<Notify>,
}

impl Faulty {
    pub(crate) fn new(name: u64, behaviour: Behaviour) -> Self {
        Faulty { name, behaviour: Arc::new(Mutex::new(behaviour)), cut: Arc::default() }
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Closes all connections while requests are in flight.
    pub(crate) fn cut_connections(&self) {
        self.cut.notify_waiters();
    }

    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap()
    }

    /// Serves one connection until it closes; responses in progress end with it.
    pub(crate) async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        tokio::select! {
            () = self.cut.notified() => {}
            () = self.serve_requests(io) => {}
        }
    }

    async fn serve_requests(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Ok(mut connection) = h2::server::handshake(io).await else { return };
        let (mut requests, mut running) = (0, JoinSet::new());
        while let Some(Ok((request, respond))) = connection.accept().await {
            requests += 1;
            running.spawn(answer(request, respond, self.behaviour(), self.name));
            match self.behaviour().requests_max {
                Some((max, Closing::Abrupt)) if requests >= max => return,
                Some((max, Closing::GoAway)) if requests == max => connection.graceful_shutdown(),
                _ => {}
            }
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    behaviour: Behaviour,
    name: u64,
) {
    let mut body = request.into_body();
    while let Some(Ok(bytes)) = body.data().await {
        let _freed = body.flow_control().release_capacity(bytes.len());
    }
    tokio::time::sleep(behaviour.delay).await;
    let head = |status: Option<tonic::Code>| {
        let mut head = Response::new(());
        let headers = head.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.insert(SERVER, name.into());
        if let Some(code) = status {
            headers.insert("grpc-status", (code as i32).into());
        }
        head
    };
    // Send errors are ignored: the connection has closed.
    match behaviour.treatment {
        Treatment::Hang => std::future::pending::<()>().await,
        Treatment::Reset(reason) => respond.send_reset(reason),
        Treatment::Status(code) => drop(respond.send_response(head(Some(code)), true)),
        Treatment::Answer => {
            let Ok(mut stream) = respond.send_response(head(None), false) else { return };
            // An empty message.
            if stream.send_data(Bytes::from_static(&[0; 5]), false).is_err() {
                return;
            }
            let status = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                HeaderValue::from(0),
            )]);
            let _sent = stream.send_trailers(status);
        }
    }
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Serves one connection and responds to every request after this delay, cancelled or not: h2 does
/// not send frames for streams that it knows to be cancelled, but a server behind a slow network
/// does.
pub(crate) async fn serve_ignoring_cancellation(
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    delay: Duration,
) -> std::io::Result<()> {
    const PREFACE: usize = 24;
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;
    const ACK: u8 = 1;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    let (mut read, write) = tokio::io::split(io);
    let write = Arc::new(AsyncMutex::new(write));
    read.read_exact(&mut [0; PREFACE]).await?;
    write.lock().await.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        read.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        read.read_exact(&mut payload).await?;
        let reply = match (head[3], head[4] & ACK) {
            (SETTINGS, 0) => frame(SETTINGS, ACK, 0, &[]),
            (PING, 0) => frame(PING, ACK, 0, &payload),
            (DATA, _) if length > 0 => frame(WINDOW_UPDATE, 0, 0, &length.to_be_bytes()),
            (HEADERS, _) => {
                // Fields without indexing (RFC 7541, section 6.2.2), after `:status: 200`.
                let head = b"\x88\x00\x0ccontent-type\x10application/grpc";
                let status = b"\x00\x0bgrpc-status\x010";
                let answer = [
                    frame(HEADERS, END_HEADERS, stream, head),
                    frame(DATA, 0, stream, &[0; 5]),
                    frame(HEADERS, END_HEADERS | END_STREAM, stream, status),
                ];
                let write = write.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    write.lock().await.write_all(&answer.concat()).await
                });
                continue;
            }
            _ => continue,
        };
        write.lock().await.write_all(&reply).await?;
    }
}
