//! The server behind the proxy, and the clients in front of it.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use redial_faults::proxy::{Handle, Proxy, Script};
use tokio::net::TcpListener;

/// Generous for a busy machine, and shorter than any wrong wait.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(10);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A real HTTP server that echoes bodies and headers, and counts requests.
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    served: Arc<AtomicU64>,
}

impl Upstream {
    pub(crate) async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let counter = served.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let counter = counter.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| echo(request, counter.clone()));
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Upstream { addr, served }
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }
}

async fn echo(
    request: Request<Incoming>,
    served: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::new()));
    let (head, body) = request.into_parts();
    // A request that does not arrive as a whole is no work.
    let Ok(body) = body.collect().await else { return Ok(response) };
    served.fetch_add(1, Ordering::SeqCst);
    for (name, value) in &head.headers {
        if name.as_str().starts_with("x-") {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    if let Some(query) = head.uri.query() {
        response.headers_mut().insert("x-query", query.parse().unwrap());
    }
    if head.uri.path() == "/missing" {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    *response.body_mut() = Full::new(body.to_bytes());
    Ok(response)
}

pub(crate) async fn http_proxy(upstream: &Upstream, script: impl Into<Script>) -> Handle {
    Proxy::http(upstream.addr).script(script).listen("127.0.0.1:0").await.unwrap()
}

pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// A client with a connection pool that retries nothing by itself.
pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http()
}

pub(crate) type Answer = (StatusCode, HeaderMap, Bytes);

/// Sends a request, and reads the whole response.
pub(crate) async fn send(
    client: &HttpClient,
    request: Request<Full<Bytes>>,
) -> Result<Answer, Box<dyn Error + Send + Sync>> {
    let (head, body) = client.request(request).await?.into_parts();
    Ok((head.status, head.headers, body.collect().await?.to_bytes()))
}

pub(crate) fn post(proxy: &Handle, path: &str, body: &'static str) -> Request<Full<Bytes>> {
    let url = format!("{}{path}", proxy.url());
    Request::post(url).body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
}

/// The innermost I/O error of an error.
pub(crate) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut found = None;
    let mut next = Some(error);
    while let Some(error) = next {
        found = error.downcast_ref::<io::Error>().map(io::Error::kind).or(found);
        next = error.source();
    }
    found
}

/// Whether hyper reports a message that ended too early.
pub(crate) fn is_incomplete(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let incomplete = error.downcast_ref::<hyper::Error>();
        if incomplete.is_some_and(|it| it.is_incomplete_message() || it.is_body_write_aborted()) {
            return true;
        }
        if error.to_string().contains("end of file before message length reached") {
            return true;
        }
        next = error.source();
    }
    false
}
