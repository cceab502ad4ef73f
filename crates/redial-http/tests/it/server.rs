//! A scripted HTTP server: it answers the n-th request as the script of a test says, and records what it
//! received. HTTP/1.1 and HTTP/2 without TLS on one port.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use redial::{Policy, Throttle, ms};
use redial_http::RetryLayer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

/// The answer to one request.
#[derive(Clone)]
pub(crate) enum Answer {
    Response {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Bytes,
    },
    /// The status, then a body without an end.
    Endless(u16),
    /// The status, then a body that stalls. The server counts those that the client has dropped.
    Stalled(u16),
    /// Closes the connection after the request has been read.
    Close,
    /// Waits this long, then answers.
    Slow(Duration, Box<Answer>),
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Answer::Response {
            status,
            headers: Vec::new(),
            body: Bytes::from(format!("body of {status}")),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "texts and numbers alike")]
    pub(crate) fn header(self, name: &'static str, value: impl ToString) -> Self {
        let Answer::Response { status, mut headers, body } = self else { panic!("no response") };
        headers.push((name, value.to_string()));
        Answer::Response { status, headers, body }
    }

    pub(crate) fn body(self, content: impl Into<Bytes>) -> Self {
        let Answer::Response { status, headers, .. } = self else { panic!("no response") };
        Answer::Response { status, headers, body: content.into() }
    }

    pub(crate) fn after(self, delay: Duration) -> Self {
        Answer::Slow(delay, Box::new(self))
    }
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type Script = dyn Fn(usize) -> Answer + Send + Sync;

/// A running server; it stops with the runtime of the test.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    script: Box<Script>,
    received: Mutex<Vec<Received>>,
    started: AtomicUsize,
    connections: AtomicUsize,
    dropped: Arc<AtomicUsize>,
}

/// A body that stalls after its first byte.
struct StalledBody {
    first: Option<Bytes>,
    dropped: Arc<AtomicUsize>,
}

impl Body for StalledBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.first.take().map_or(Poll::Pending, |first| Poll::Ready(Some(Ok(Frame::data(first)))))
    }
}

impl Drop for StalledBody {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Server {
    /// Answers the n-th request, from 0, with the n-th of these answers, and all later ones with the last.
    pub(crate) async fn answering(answers: impl Into<Vec<Answer>>) -> Self {
        let answers = answers.into();
        Server::start(move |n| answers[n.min(answers.len() - 1)].clone()).await
    }

    pub(crate) async fn start(script: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Server::start_on(listener, script)
    }

    pub(crate) fn start_on(
        listener: TcpListener,
        script: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let server = Server::idle(listener.local_addr().unwrap(), script);
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(accepting.clone().serve(socket));
            }
        });
        server
    }

    /// A server without a listener; [`Server::serve`] serves connections.
    pub(crate) fn idle(
        address: SocketAddr,
        script: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            script: Box::new(script),
            received: Mutex::default(),
            started: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            dropped: Arc::default(),
        };
        Server { address, state: Arc::new(state) }
    }

    /// Serves one connection.
    pub(crate) async fn serve(self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        self.state.connections.fetch_add(1, Ordering::SeqCst);
        let service = service_fn(move |request| self.clone().answer(request));
        let builder = auto::Builder::new(TokioExecutor::new());
        // The error of a connection that a test closes.
        let _ = builder.serve_connection(TokioIo::new(socket), service).await;
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> io::Result<Response<BoxBody<Bytes, Infallible>>> {
        let n = self.state.started.fetch_add(1, Ordering::SeqCst);
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let path = parts.uri.path().to_owned();
        let received = Received { method: parts.method, path, headers: parts.headers, body };
        self.state.received.lock().unwrap().push(received);
        let mut answer = (self.state.script)(n);
        while let Answer::Slow(delay, inner) = answer {
            tokio::time::sleep(delay).await;
            answer = *inner;
        }
        match answer {
            Answer::Response { status, headers, body } => {
                let mut response = Response::new(Full::new(body).boxed());
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                for (name, value) in headers {
                    response.headers_mut().append(name, value.parse().unwrap());
                }
                Ok(response)
            }
            Answer::Endless(status) => {
                let chunk = || Ok(Frame::data(Bytes::from(vec![b'x'; 16 * 1024])));
                let body = StreamBody::new(tokio_stream::iter(std::iter::repeat_with(chunk)));
                let mut response = Response::new(BodyExt::boxed(body));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok(response)
            }
            Answer::Stalled(status) => {
                let dropped = self.state.dropped.clone();
                let body = StalledBody { first: Some(Bytes::from_static(b"x")), dropped };
                let mut response = Response::new(body.boxed());
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok(response)
            }
            Answer::Close => Err(io::ErrorKind::ConnectionReset.into()),
            Answer::Slow(..) => unreachable!("waited above"),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests that have been read to their end.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.received().len()
    }

    /// The number of bodies of [`Answer::Stalled`] that were dropped, as their connections or streams ended.
    pub(crate) fn dropped(&self) -> usize {
        self.state.dropped.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

/// A client without proxies, without the retries of reqwest itself.
pub(crate) fn client() -> reqwest::Client {
    client_builder().build().unwrap()
}

/// A client with the retries that reqwest makes by default.
pub(crate) fn with_own_retries() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy()
}

pub(crate) fn client_builder() -> reqwest::ClientBuilder {
    with_own_retries().retry(reqwest::retry::never())
}

/// Four attempts with delays of at most 4 ms, and no budget.
pub(crate) static FAST: Policy =
    Policy::exponential(ms(1)).attempts(4).throttle(Throttle::none()).build();

pub(crate) fn fast() -> RetryLayer {
    RetryLayer::new(&FAST).policy_throttle()
}
