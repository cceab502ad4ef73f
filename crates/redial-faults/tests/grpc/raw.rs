//! A client on the raw `h2` crate, for exact control of frames.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{HeaderMap, Request, StatusCode};
use redial_faults::grpc::{Handle, Pipe, Script, Server};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Milliseconds.
pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server on a pipe that plays this script.
pub(crate) fn serve(script: impl Into<Script>) -> Handle<Pipe> {
    Server::new(script).on_pipe()
}

/// A gRPC message: its prefix and its payload.
pub(crate) fn message(payload: impl AsRef<[u8]>) -> Bytes {
    let payload = payload.as_ref();
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(payload.len()).unwrap());
    message.put_slice(payload);
    message.freeze()
}

/// A connection that delays the server's bytes by a millisecond.
pub(crate) fn late(server: DuplexStream) -> DuplexStream {
    let (client, between) = tokio::io::duplex(64 * 1024);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (mut from_client, mut to_client) = tokio::io::split(between);
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    tokio::spawn(async move {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
            tokio::time::sleep(ms(1)).await;
            if to_client.write_all(&bytes[..read]).await.is_err() {
                break;
            }
        }
    });
    client
}

/// A connection that batches the client's writes of 5 ms.
pub(crate) fn gathered(server: DuplexStream) -> DuplexStream {
    let (client, between) = tokio::io::duplex(1024 * 1024);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (mut from_client, mut to_client) = tokio::io::split(between);
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    tokio::spawn(async move {
        let mut bytes = vec![0; 1024 * 1024];
        loop {
            tokio::time::sleep(ms(5)).await;
            let Ok(read @ 1..) = from_client.read(&mut bytes).await else { break };
            if to_server.write_all(&bytes[..read]).await.is_err() {
                break;
            }
        }
    });
    client
}

/// The kind and the stream of each frame that a server has sent.
pub(crate) type Frames = Arc<Mutex<Vec<u8>>>;

/// A connection that records every byte of the server.
pub(crate) fn recorded(server: DuplexStream) -> (DuplexStream, Frames) {
    let (client, between) = tokio::io::duplex(64 * 1024);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (mut from_client, mut to_client) = tokio::io::split(between);
    let recorded = Frames::default();
    let recording = recorded.clone();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    tokio::spawn(async move {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
            recording.lock().unwrap().extend_from_slice(&bytes[..read]);
            if to_client.write_all(&bytes[..read]).await.is_err() {
                break;
            }
        }
    });
    (client, recorded)
}

/// The kind and the stream of each frame (RFC 9113, section 4.1).
pub(crate) fn frames(recorded: &Frames) -> Vec<(u8, u32)> {
    let bytes = recorded.lock().unwrap();
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let [l1, l2, l3, kind, _, s1, s2, s3, s4, after @ ..] = rest {
        frames.push((*kind, u32::from_be_bytes([*s1, *s2, *s3, *s4])));
        rest = &after[u32::from_be_bytes([0, *l1, *l2, *l3]) as usize..];
    }
    assert!(rest.is_empty(), "every frame is whole");
    frames
}

/// A connection whose client stops reading after the first bytes, and stays open.
pub(crate) fn stuck(server: DuplexStream, first: u64) -> DuplexStream {
    let (client, between) = tokio::io::duplex(64 * 1024);
    let (from_server, mut to_server) = tokio::io::split(server);
    let (mut from_client, mut to_client) = tokio::io::split(between);
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    tokio::spawn(async move {
        let mut some = from_server.take(first);
        let _ = tokio::io::copy(&mut some, &mut to_client).await;
        std::future::pending::<()>().await;
    });
    client
}

/// A connection.
pub(crate) struct Client {
    send: SendRequest<Bytes>,
    /// Ends with the connection.
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

/// The response on a stream. Times count from the stream's start.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) headers: Option<(Duration, StatusCode, HeaderMap)>,
    /// Whether the headers ended the stream.
    pub(crate) only: bool,
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// The stream ended with an error.
    pub(crate) error: Option<h2::Error>,
    pub(crate) ended: Duration,
}

impl Seen {
    /// A field of the headers.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, _, fields) = self.headers.as_ref()?;
        fields.get(name).map(|value| value.to_str().unwrap())
    }

    /// A field of the trailers.
    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.as_ref()?.get(name).map(|value| value.to_str().unwrap())
    }

    /// The code of the reset or GOAWAY that ended the stream.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.error.as_ref().and_then(h2::Error::reason)
    }
}

/// An open stream.
pub(crate) struct Call {
    pub(crate) response: ResponseFuture,
    pub(crate) request: SendStream<Bytes>,
    start: Instant,
}

impl Client {
    pub(crate) async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Client {
        let (send, connection) = h2::client::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        Client { send, connection }
    }

    pub(crate) async fn of(server: &Handle<Pipe>) -> Client {
        Client::over(server.connect().await.unwrap()).await
    }

    /// Opens a stream with these request headers.
    pub(crate) async fn begin(
        &mut self,
        fields: &[(&str, &str)],
        end: bool,
    ) -> Result<Call, h2::Error> {
        poll_fn(|cx| self.send.poll_ready(cx)).await?;
        let mut request = Request::post("http://peer/echo.Echo/Get").version(http::Version::HTTP_2);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (response, request) = self.send.send_request(request.body(()).unwrap(), end)?;
        Ok(Call { response, request, start: Instant::now() })
    }

    /// Opens a stream without yielding first.
    pub(crate) fn begin_unready(
        &mut self,
        fields: &[(&str, &str)],
        end: bool,
    ) -> Result<Call, h2::Error> {
        let mut request = Request::post("http://peer/echo.Echo/Get").version(http::Version::HTTP_2);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (response, request) = self.send.clone().send_request(request.body(()).unwrap(), end)?;
        Ok(Call { response, request, start: Instant::now() })
    }

    /// Lets the connection read the available bytes.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(ms(0)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// The server's limit on concurrent streams.
    pub(crate) fn max_streams(&self) -> usize {
        self.send.current_max_send_streams()
    }

    /// A unary call with one message.
    pub(crate) async fn unary(&mut self, payload: &str) -> Seen {
        self.unary_with(&[], payload).await
    }

    pub(crate) async fn unary_with(&mut self, fields: &[(&str, &str)], payload: &str) -> Seen {
        let mut call = self.begin(fields, false).await.unwrap();
        call.request.send_data(message(payload), true).unwrap();
        call.seen().await
    }
}

impl Call {
    /// The whole response.
    pub(crate) async fn seen(self) -> Seen {
        let Call { response, request, start } = self;
        let mut seen = Seen::default();
        let mut data = BytesMut::new();
        // The request stays open until the response ends.
        let _request = request;
        match response.await {
            Err(error) => seen.error = Some(error),
            Ok(response) => {
                let (head, mut body) = response.into_parts();
                seen.headers = Some((start.elapsed(), head.status, head.headers));
                seen.only = body.is_end_stream();
                while let Some(piece) = body.data().await {
                    match piece {
                        Ok(piece) => {
                            body.flow_control().release_capacity(piece.len()).unwrap();
                            data.extend_from_slice(&piece);
                        }
                        Err(error) => {
                            seen.error = Some(error);
                            break;
                        }
                    }
                }
                if seen.error.is_none() {
                    match body.trailers().await {
                        Ok(trailers) => seen.trailers = trailers,
                        Err(error) => seen.error = Some(error),
                    }
                }
            }
        }
        seen.ended = start.elapsed();
        seen.data = data.freeze();
        seen
    }
}
