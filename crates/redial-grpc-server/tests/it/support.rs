//! A server behind a pipe, with a tonic client and a client that sees frames.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use redial_echo::echo_server::Echo;
use redial_echo::{EchoRequest, EchoResponse};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::codegen::BoxStream;
use tonic::transport::{Channel, Endpoint};

/// The connections of a server: exactly one.
pub(crate) type Connections =
    Pin<Box<dyn tokio_stream::Stream<Item = io::Result<DuplexStream>> + Send>>;

const PIPE_BYTES: usize = 64 * 1024;

/// Starts a server and returns the client's end of its only connection.
pub(crate) fn serve<F>(start: impl FnOnce(Connections) -> F) -> DuplexStream
where
    F: Future<Output = Result<(), tonic::transport::Error>> + Send + 'static,
{
    let (client, server) = tokio::io::duplex(PIPE_BYTES);
    let incoming = tokio_stream::once(Ok(server)).chain(tokio_stream::pending());
    tokio::spawn(start(Box::pin(incoming)));
    client
}

/// A tonic channel over the pipe.
pub(crate) async fn channel(pipe: DuplexStream) -> Channel {
    let mut pipe = Some(pipe);
    let connector = tower::service_fn(move |_| {
        let pipe = pipe.take().map(TokioIo::new);
        async { pipe.ok_or_else(|| io::Error::other("the one connection is used up")) }
    });
    let endpoint = Endpoint::from_static("http://pipe");
    endpoint.connect_with_connector(connector).await.expect("a pipe connects")
}

/// A client that sees frames.
pub(crate) struct FrameClient {
    client: h2::client::SendRequest<Bytes>,
    seen: Arc<Mutex<Vec<u8>>>,
}

/// The response to one request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Response<()>,
    pub(crate) messages: Vec<EchoResponse>,
    pub(crate) trailers: Option<HeaderMap>,
    /// The frames of its stream, such as `HEADERS` and `HEADERS+END`.
    pub(crate) frames: Vec<&'static str>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).map(|value| value.to_str().unwrap())
    }
}

impl FrameClient {
    pub(crate) async fn over(pipe: DuplexStream) -> Self {
        let seen = Arc::default();
        let tapped = RecordingIo { pipe, seen: Arc::clone(&seen) };
        let (client, connection) = h2::client::handshake(tapped).await.unwrap();
        tokio::spawn(connection);
        Self { client, seen }
    }

    /// A second handle to the same connection, for parallel calls.
    pub(crate) fn again(&self) -> Self {
        Self { client: self.client.clone(), seen: Arc::clone(&self.seen) }
    }

    /// Calls a method with one message, and reads the whole response.
    pub(crate) async fn call(
        &mut self,
        method: &str,
        headers: &[(&'static str, &str)],
        message: &EchoRequest,
    ) -> Answer {
        let mut request = Request::post(format!("http://pipe/redial.test.Echo/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut client = self.client.clone().ready().await.unwrap();
        let (response, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
        let id = response.stream_id().as_u32();
        body.send_data(framed(message), true).unwrap();

        let (head, mut body) = response.await.unwrap().into_parts();
        let mut data = BytesMut::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap();
            body.flow_control().release_capacity(chunk.len()).unwrap();
            data.extend_from_slice(&chunk);
        }
        let trailers = body.trailers().await.unwrap();
        let frames = frames(&self.seen.lock().unwrap(), id);
        let head = Response::from_parts(head, ());
        Answer { head, messages: messages(data.freeze()), trailers, frames }
    }
}

fn framed(message: &EchoRequest) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len().try_into().unwrap());
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn messages(mut data: Bytes) -> Vec<EchoResponse> {
    let mut messages = Vec::new();
    while data.has_remaining() {
        assert_eq!(data.get_u8(), 0, "no compression was requested");
        let length = data.get_u32() as usize;
        messages.push(EchoResponse::decode(data.split_to(length)).unwrap());
    }
    messages
}

/// The frames of one response (RFC 9113, sections 4.1 and 6).
fn frames(mut seen: &[u8], id: u32) -> Vec<&'static str> {
    const END_STREAM: u8 = 1;
    let mut frames = Vec::new();
    while let [a, b, c, kind, flags, stream @ ..] = seen {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes(stream[..4].try_into().unwrap());
        if stream == id {
            match (kind, flags & END_STREAM) {
                (0, 0) => frames.push("DATA"),
                (0, _) => frames.push("DATA+END"),
                (1, 0) => frames.push("HEADERS"),
                (1, _) => frames.push("HEADERS+END"),
                (3, _) => frames.push("RST_STREAM"),
                _ => {}
            }
        }
        seen = &seen[9 + length..];
    }
    frames
}

/// Records the bytes that the server sends.
struct RecordingIo {
    pipe: DuplexStream,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for RecordingIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(context, buffer))?;
        self.seen.lock().unwrap().extend_from_slice(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordingIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// What a streaming handler returns.
pub(crate) type Streamed = Result<tonic::Response<BoxStream<EchoResponse>>, Status>;

type Handle<T, R> = Arc<dyn Fn(tonic::Request<T>) -> R + Send + Sync>;

/// A service whose methods each test supplies; the others are unimplemented.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    unary: Option<Handle<EchoRequest, Result<tonic::Response<EchoResponse>, Status>>>,
    server_stream: Option<Handle<EchoRequest, Streamed>>,
    bidi: Option<Handle<tonic::Streaming<EchoRequest>, Streamed>>,
}

impl Handlers {
    pub(crate) fn unary(
        handle: impl Fn(tonic::Request<EchoRequest>) -> Result<tonic::Response<EchoResponse>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { unary: Some(Arc::new(handle)), ..Self::default() }
    }

    pub(crate) fn server_stream(
        handle: impl Fn(tonic::Request<EchoRequest>) -> Streamed + Send + Sync + 'static,
    ) -> Self {
        Self { server_stream: Some(Arc::new(handle)), ..Self::default() }
    }

    pub(crate) fn bidi(
        handle: impl Fn(tonic::Request<tonic::Streaming<EchoRequest>>) -> Streamed
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { bidi: Some(Arc::new(handle)), ..Self::default() }
    }
}

fn run<T, R>(
    handle: Option<&Handle<T, Result<R, Status>>>,
    request: tonic::Request<T>,
) -> Result<R, Status> {
    handle.ok_or_else(|| Status::unimplemented("this test has no such method"))?(request)
}

#[tonic::async_trait]
impl Echo for Handlers {
    async fn unary(
        &self,
        request: tonic::Request<EchoRequest>,
    ) -> Result<tonic::Response<EchoResponse>, Status> {
        run(self.unary.as_ref(), request)
    }

    async fn client_stream(
        &self,
        _: tonic::Request<tonic::Streaming<EchoRequest>>,
    ) -> Result<tonic::Response<EchoResponse>, Status> {
        Err(Status::unimplemented("no test needs its own"))
    }

    type ServerStreamStream = BoxStream<EchoResponse>;

    async fn server_stream(&self, request: tonic::Request<EchoRequest>) -> Streamed {
        run(self.server_stream.as_ref(), request)
    }

    type BidiStream = BoxStream<EchoResponse>;

    async fn bidi(&self, request: tonic::Request<tonic::Streaming<EchoRequest>>) -> Streamed {
        run(self.bidi.as_ref(), request)
    }
}

/// A response with this payload.
pub(crate) fn response(payload: impl Into<Bytes>) -> EchoResponse {
    EchoResponse { payload: payload.into(), ..EchoResponse::default() }
}
