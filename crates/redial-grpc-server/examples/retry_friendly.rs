//! A tonic server that rejects the first attempt with pushback, and a client that obeys it.
//!
//! `cargo run -p redial-grpc-server --example retry_friendly`

use std::error::Error;
use std::time::{Duration, Instant};

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::{Echo, EchoServer};
use redial_echo::{EchoRequest, EchoResponse, Responder};
use redial_grpc::RetryLayer;
use redial_grpc_server::{
    DeadlineLayer, HoldLayer, InboundAttemptLayer, PushbackExt as _, previous_attempts, remaining,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::BoxStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tower::ServiceBuilder;

const CONFIG: &str = r#"{"methodConfig": [{
    "name": [{"service": "redial.test.Echo"}],
    "timeout": "5s",
    "retryPolicy": {
        "maxAttempts": 3, "initialBackoff": "10s", "maxBackoff": "10s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"]
    }
}]}"#;

/// Answers the second attempt of each call, and asks for it after 50 ms.
#[derive(Clone, Copy)]
struct WarmingUp;

#[tonic::async_trait]
impl Echo for WarmingUp {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let attempt = previous_attempts(&request) + 1;
        println!(
            "  server: attempt {attempt}, {:.1?} left",
            remaining(&request).unwrap_or_default()
        );
        if attempt == 1 {
            return Err(Status::unavailable("warming up").retry_after(Duration::from_millis(50)));
        }
        Responder.unary(request).await
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoResponse>, Status> {
        Responder.client_stream(request).await
    }

    type ServerStreamStream = BoxStream<EchoResponse>;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        Responder.server_stream(request).await
    }

    type BidiStream = BoxStream<EchoResponse>;

    async fn bidi(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        Responder.bidi(request).await
    }
}

async fn run() -> Result<Duration, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder()
        .layer(DeadlineLayer::new())
        .layer(InboundAttemptLayer::new())
        .layer(HoldLayer::new())
        .add_service(EchoServer::new(WarmingUp));
    let server = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect_lazy();
    let channel = ServiceBuilder::new().layer(RetryLayer::from_json(CONFIG)?).service(channel);
    let mut client = EchoClient::new(channel);
    let start = Instant::now();
    let request = EchoRequest { payload: "hello".into(), ..EchoRequest::default() };
    let answer = client.unary(request).await?.into_inner();
    let elapsed = start.elapsed();
    println!(
        "client: {:?} from attempt {} after {} ms; the policy's own backoff is up to 10 s",
        answer.payload,
        answer.previous_attempts + 1,
        elapsed.as_millis()
    );
    server.abort();
    Ok(elapsed)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn example_client_waits_as_long_as_the_server_asks() {
        let elapsed = run().await.unwrap();
        assert!(
            (Duration::from_millis(50)..Duration::from_secs(4)).contains(&elapsed),
            "{elapsed:?}"
        );
    }
}
