//! HTTP connections: each request gets its fault, and is forwarded unless the fault replaces it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::body::{ExchangeGuard, RequestBody, ResponseBody, count_request};
use super::client_io::{Breaker, ClientIo};
use super::fault::{self, BreakKind, BreakPoint, Fault, FaultAction, Upstream};
use super::record::ExchangeOutcome;
use super::script::FAULT_HEADER;
use super::shared::Shared;

/// How many bytes of a request are read before the proxy answers it itself.
pub const REQUEST_BYTES_DISCARDED_MAX: u64 = 16 * 1024 * 1024;

/// A gRPC request that is silent for this long counts as complete, half-closed or not.
const GRPC_PAUSE: Duration = Duration::from_millis(20);

/// Serves a connection until it is closed.
pub(super) async fn serve(shared: Arc<Shared>, number: u64, breaker: Arc<Breaker>, io: ClientIo) {
    let connection = Arc::new(HttpConnection { shared, number, breaker, http2: Mutex::new(None) });
    let mut server = auto::Builder::new(TokioExecutor::new());
    // The proxy adds nothing of its own: no date, and names as they were written.
    server.http1().auto_date_header(false).preserve_header_case(true);
    server.http2().auto_date_header(false);
    let service = service_fn(|request| {
        let connection = connection.clone();
        async move { Ok::<_, Infallible>(connection.exchange(request).await) }
    });
    // An error here is the client's: it broke the connection, or does not speak HTTP.
    let _ = server.serve_connection(TokioIo::new(io), service).await;
}

struct HttpConnection {
    shared: Arc<Shared>,
    number: u64,
    breaker: Arc<Breaker>,
    /// The upstream connection of an HTTP/2 client. HTTP/1.1 requests have one each, so that none
    /// meets a connection that the server is about to close.
    http2: Mutex<Option<http2::SendRequest<RequestBody>>>,
}

impl HttpConnection {
    async fn exchange(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let (mut head, body) = request.into_parts();
        let by_header = match head.headers.remove(FAULT_HEADER).map(|it| fault_in_header(&it)) {
            None => Ok(None),
            Some(parsed) => parsed.map(Some),
        };
        let invalid = by_header.as_ref().err().cloned();
        let (number, fault) = self.shared.arrive(self.number, &head, by_header.ok().flatten());
        let guard = ExchangeGuard { shared: self.shared.clone(), number, outcome: None };
        if let Some(text) = invalid {
            let text = format!("{FAULT_HEADER}: {text}\n");
            return self.respond(StatusCode::BAD_REQUEST, text.into(), guard);
        }
        sleep(fault.delay).await;
        let request = Request::from_parts(head, body);
        match (&fault.action, fault.upstream) {
            (FaultAction::Pass, _) => self.pass(request, &fault, guard).await,
            (FaultAction::Break(kind, BreakPoint::ResponseBytes(at)), _) => {
                let response = self.pass(request, &fault, guard).await;
                response.map(|body| body.breaking(*kind, *at, self.breaker.clone()))
            }
            (_, Upstream::Contacted) => self.replace(request, &fault, guard).await,
            (FaultAction::Break(_, BreakPoint::RequestBytes(at)), Upstream::Skipped) => {
                self.discard(guard.number, request, *at).await;
                self.inject(&fault, guard).await
            }
            (_, Upstream::Skipped) => {
                let max = REQUEST_BYTES_DISCARDED_MAX;
                self.discard(guard.number, request, max).await;
                self.inject(&fault, guard).await
            }
        }
    }

    /// Reads a request's body up to this byte.
    async fn discard(&self, number: u64, request: Request<Incoming>, max: u64) {
        // Some gRPC clients do not half-close a unary call that they repeat.
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"));
        let pause = if is_grpc { GRPC_PAUSE } else { Duration::MAX };
        let mut body = request.into_body();
        let mut left = max;
        while left > 0
            && let Ok(Some(Ok(frame))) = timeout(pause, body.frame()).await
        {
            if let Some(data) = frame.data_ref() {
                count_request(&self.shared, number, data);
                left = left.saturating_sub(data.len() as u64);
            }
        }
    }

    /// Forwards the request, and returns the response.
    async fn pass(
        &self,
        request: Request<Incoming>,
        fault: &Fault,
        mut guard: ExchangeGuard,
    ) -> Response<ResponseBody> {
        let response = match self.forward(request, guard.number).await {
            Ok(response) => response,
            Err(error) => {
                guard.outcome = Some(ExchangeOutcome::UpstreamFailed);
                return self.bad_gateway(&error, guard);
            }
        };
        sleep(fault.delay_response).await;
        self.shared.update(guard.number, |it| it.status = Some(response.status()));
        response.map(|body| {
            if body.is_end_stream() {
                guard.outcome = Some(ExchangeOutcome::Answered);
            }
            ResponseBody::upstream(body, guard)
        })
    }

    /// Forwards the request, discards the response, and injects the fault in its place.
    async fn replace(
        &self,
        request: Request<Incoming>,
        fault: &Fault,
        mut guard: ExchangeGuard,
    ) -> Response<ResponseBody> {
        let discarded = match self.forward(request, guard.number).await {
            Ok(response) => {
                let mut body = response.into_body();
                loop {
                    match body.frame().await {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => break Err(io::Error::other(error)),
                        None => break Ok(()),
                    }
                }
            }
            Err(error) => Err(error),
        };
        match discarded {
            Ok(()) => self.inject(fault, guard).await,
            Err(error) => {
                guard.outcome = Some(ExchangeOutcome::UpstreamFailed);
                self.bad_gateway(&error, guard)
            }
        }
    }

    /// Answers with the fault's response, or lets the connection fail.
    async fn inject(&self, fault: &Fault, mut guard: ExchangeGuard) -> Response<ResponseBody> {
        sleep(fault.delay_response).await;
        match &fault.action {
            FaultAction::Respond(response) => {
                let fault::Response { status, headers, body } = response.clone();
                let mut response = self.respond(status, body, guard);
                *response.headers_mut() = headers;
                response
            }
            FaultAction::Break(kind, _) => {
                match kind {
                    BreakKind::Reset => guard.outcome = Some(ExchangeOutcome::Reset),
                    BreakKind::Close => guard.outcome = Some(ExchangeOutcome::Closed),
                    // The other streams of an HTTP/2 connection go on.
                    BreakKind::Stall => std::future::pending().await,
                }
                self.breaker.fail(*kind);
                // The connection is dropped, and this with it.
                std::future::pending().await
            }
            FaultAction::Pass => self.respond(StatusCode::OK, Bytes::new(), guard),
        }
    }

    fn respond(
        &self,
        status: StatusCode,
        body: Bytes,
        mut guard: ExchangeGuard,
    ) -> Response<ResponseBody> {
        self.shared.update(guard.number, |it| it.status = Some(status));
        if body.is_empty() {
            guard.outcome.get_or_insert(ExchangeOutcome::Answered);
        }
        let mut response = Response::new(ResponseBody::proxy(body, guard));
        *response.status_mut() = status;
        response
    }

    fn bad_gateway(&self, error: &io::Error, guard: ExchangeGuard) -> Response<ResponseBody> {
        let text = format!("fault proxy: {}: {error}\n", self.shared.options.to);
        let mut response = self.respond(StatusCode::BAD_GATEWAY, text.into(), guard);
        let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
        response
    }

    /// Sends a request to the upstream server.
    async fn forward(
        &self,
        request: Request<Incoming>,
        number: u64,
    ) -> io::Result<Response<Incoming>> {
        let shared = self.shared.clone();
        let request = request.map(|inner| RequestBody { inner, shared, number });
        let response = if request.version() == Version::HTTP_2 {
            let mut sender = self.http2_sender().await?;
            self.shared.forwarded(number);
            sender.send_request(request).await
        } else {
            let mut sender = self.http1_sender().await?;
            self.shared.forwarded(number);
            sender.send_request(request).await
        };
        let response = response.map_err(io::Error::other)?;
        self.shared.answered_by_upstream(number, response.status());
        Ok(response)
    }

    async fn http1_sender(&self) -> io::Result<http1::SendRequest<RequestBody>> {
        let socket = connect(&self.shared.options.to).await?;
        let handshake = http1::Builder::new().preserve_header_case(true).handshake(socket);
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn http2_sender(&self) -> io::Result<http2::SendRequest<RequestBody>> {
        let mut kept = self.http2.lock().await;
        if let Some(sender) = kept.as_ref().filter(|it| !it.is_closed()) {
            return Ok(sender.clone());
        }
        let socket = connect(&self.shared.options.to).await?;
        let handshake = http2::Builder::new(TokioExecutor::new()).handshake(socket);
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        *kept = Some(sender.clone());
        Ok(sender)
    }
}

async fn connect(to: &str) -> io::Result<TokioIo<TcpStream>> {
    let socket = TcpStream::connect(to).await?;
    // Send small frames immediately; if this fails they are only delayed.
    let _ = socket.set_nodelay(true);
    Ok(TokioIo::new(socket))
}

/// The fault that a request's header carries as JSON.
fn fault_in_header(value: &http::HeaderValue) -> Result<Fault, String> {
    let text = value.to_str().map_err(|_| "expected JSON in ASCII".to_owned())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}
