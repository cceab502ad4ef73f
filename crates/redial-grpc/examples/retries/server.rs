//! A server that has trouble: what it does depends on which attempt it serves, so it is the same in
//! every run.

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

/// A server on a port of its own; it ends with its runtime.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<AtomicU32>,
}

/// Starts the server with all that `redial_grpc_server` has for one.
pub(crate) fn start() -> std::io::Result<Running> {
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?;
    let address = incoming.local_addr()?;
    let seen = Arc::default();
    let desk = Desk { seen: Arc::clone(&seen) };
    let server = Server::builder()
        // Refuses what nobody waits for any more, and tells handlers what time is left.
        .layer(DeadlineLayer::new())
        // Lets the clients that handlers use know whether a retry is being served.
        .layer(InboundAttemptLayer::new())
        // Lets an error that comes before the first message of a stream be retried.
        .layer(HoldLayer::new())
        .add_service(EchoServer::new(desk));
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(Running { address, seen })
}

/// The handlers.
struct Desk {
    /// How many attempts arrived.
    seen: Arc<AtomicU32>,
}

impl Desk {
    /// An attempt arrived; how many came before it.
    fn arrived<T>(&self, method: &str, request: &Request<T>) -> u32 {
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
impl Echo for Desk {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let previous = self.arrived("Unary", &request);
        let payload = request.into_inner().payload;
        match (&payload[..], previous) {
            // It knows when it will be ready, and says so.
            (b"hello", 0) => {
                Err(Status::unavailable("warming up").retry_after(Duration::from_millis(30)))
            }
            (b"hello", 1) => Err(Status::unavailable("one moment")),
            // It knows that no retry will help.
            (b"quota", _) => Err(Status::unavailable("the quota is used up").do_not_retry()),
            (b"stuck", 0) => Err(Status::unavailable("one moment")),
            (b"stuck", _) => {
                tokio::time::sleep(TOO_LONG).await;
                Err(Status::internal("nobody waits for this"))
            }
            _ => Ok(Response::new(answer(payload, previous, 1))),
        }
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoResponse>, Status> {
        let previous = self.arrived("ClientStream", &request);
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
        let previous = self.arrived("ServerStream", &request);
        let payload = request.into_inner().payload.to_vec();
        if previous == 0 {
            // The first answer takes for ever: another attempt has to overtake it.
            return Ok(Response::new(Box::pin(tokio_stream::pending())));
        }
        let items = match previous {
            // The stream is there and its first item is an error, which HoldLayer makes retryable.
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
