//! A server that fails depending on the number of the attempt, so every run is the same.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redial_echo::echo_server::{Echo, EchoServer};
use redial_echo::{EchoRequest, EchoResponse};
use redial_grpc_server::{
    self as server, DeadlineLayer, HoldLayer, InboundAttemptLayer, PushbackExt,
};
use tonic::codegen::BoxStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Longer than any client in this example waits.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A running server; it ends with its runtime.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<AtomicU32>,
}

/// Starts the server with all layers of `redial_grpc_server`.
pub(crate) fn start() -> std::io::Result<RunningServer> {
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?;
    let address = incoming.local_addr()?;
    let seen = Arc::default();
    let handlers = EchoHandlers { seen: Arc::clone(&seen) };
    let server = Server::builder()
        // Rejects expired requests, and gives handlers the remaining time.
        .layer(DeadlineLayer::new())
        // Makes the number of previous attempts available to handlers and to the clients they use.
        .layer(InboundAttemptLayer::new())
        // Makes an error before the first message of a stream retryable.
        .layer(HoldLayer::new())
        .add_service(EchoServer::new(handlers));
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(RunningServer { address, seen })
}

/// The handlers.
struct EchoHandlers {
    /// The number of attempts that arrived.
    seen: Arc<AtomicU32>,
}

impl EchoHandlers {
    /// Counts and prints an attempt; returns the number of previous attempts.
    fn count_attempt<T>(&self, method: &str, request: &Request<T>) -> u32 {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let previous = server::previous_attempts(request);
        let left = match server::remaining(request) {
            Some(left) => format!(", {} ms left", left.as_millis()),
            None => String::new(),
        };
        println!("    server: {method}, attempt {}{left}", previous + 1);
        previous
    }
}

fn answer(payload: impl Into<Vec<u8>>, previous_attempts: u32, received: u32) -> EchoResponse {
    EchoResponse { payload: payload.into().into(), previous_attempts, received }
}

#[tonic::async_trait]
impl Echo for EchoHandlers {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let previous = self.count_attempt("Unary", &request);
        let payload = request.into_inner().payload;
        match (&payload[..], previous) {
            // The server knows when it will be ready: pushback with a delay.
            (b"hello", 0) => {
                Err(Status::unavailable("warming up").retry_after(Duration::from_millis(30)))
            }
            (b"hello", 1) => Err(Status::unavailable("one moment")),
            // The server knows that a retry cannot help: negative pushback.
            (b"quota", _) => Err(Status::unavailable("the quota is used up").do_not_retry()),
            (b"stuck", 0) => Err(Status::unavailable("one moment")),
            (b"stuck", _) => {
                tokio::time::sleep(TOO_LONG).await;
                Err(Status::internal("after the deadline of the client"))
            }
            _ => Ok(Response::new(answer(payload, previous, 1))),
        }
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoResponse>, Status> {
        let previous = self.count_attempt("ClientStream", &request);
        let mut inbound = request.into_inner();
        let mut all = Vec::new();
        let mut received = 0;
        while let Some(message) = inbound.message().await? {
            received += 1;
            all.extend_from_slice(&message.payload);
            if previous == 0 && received == 3 {
                return Err(Status::unavailable("lost after three messages"));
            }
        }
        Ok(Response::new(answer(all, previous, received)))
    }

    type ServerStreamStream = BoxStream<EchoResponse>;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        let previous = self.count_attempt("ServerStream", &request);
        let payload = request.into_inner().payload.to_vec();
        if previous == 0 {
            // The first response never arrives, so a hedge has to win.
            return Ok(Response::new(Box::pin(tokio_stream::pending())));
        }
        let items = match previous {
            // The first item of the stream is an error, which `HoldLayer` makes retryable.
            1 => vec![Err(Status::unavailable("the index is being built"))],
            _ => vec![Ok(answer(payload.clone(), previous, 1)), Ok(answer(payload, previous, 1))],
        };
        Ok(Response::new(Box::pin(tokio_stream::iter(items))))
    }

    type BidiStream = BoxStream<EchoResponse>;

    async fn bidi(
        &self,
        _request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        Err(Status::unimplemented("this example has no such call"))
    }
}
