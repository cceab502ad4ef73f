//! Servers, clients and configs that the tests share.

pub(crate) mod harness;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
pub(crate) mod sample_calls;
pub(crate) mod streaming;

use hyper_util::rt::TokioIo;
use redial_echo::Responder;
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_grpc::{RetryLayer, RetryService};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Server};
use tower::{ServiceBuilder, service_fn};

pub(crate) type TestClient = EchoClient<RetryService<Channel>>;

/// A channel over in-memory pipes to a tonic server of the echo service.
pub(crate) fn echo_channel() -> Channel {
    let (connections, accepted) = mpsc::unbounded_channel::<Result<DuplexStream, std::io::Error>>();
    let incoming = UnboundedReceiverStream::new(accepted);
    tokio::spawn(async move {
        let server = Server::builder().add_service(EchoServer::new(Responder));
        server.serve_with_incoming(incoming).await
    });
    Endpoint::from_static("http://echo").connect_with_connector_lazy(service_fn(move |_| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let sent = connections.send(Ok(theirs));
        async move {
            match sent {
                Ok(()) => Ok(TokioIo::new(ours)),
                Err(_) => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
            }
        }
    }))
}

/// A client of the echo service with this layer.
pub(crate) fn echo(layer: &RetryLayer) -> TestClient {
    EchoClient::new(ServiceBuilder::new().layer(layer.clone()).service(echo_channel()))
}

/// A config that retries every method of the echo service after UNAVAILABLE.
pub(crate) fn retry_config(attempts: u32) -> String {
    format!(
        r#"{{ "methodConfig": [{{ "name": [{{ "service": "redial.test.Echo" }}],
            "retryPolicy": {{ "maxAttempts": {attempts}, "initialBackoff": "0.1s", "maxBackoff": "1s",
            "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }} }}] }}"#
    )
}

/// A config that hedges every method of the echo service.
pub(crate) fn hedge_config(attempts: u32, delay: &str) -> String {
    format!(
        r#"{{ "methodConfig": [{{ "name": [{{ "service": "redial.test.Echo" }}],
            "hedgingPolicy": {{ "maxAttempts": {attempts}, "hedgingDelay": "{delay}",
            "nonFatalStatusCodes": ["UNAVAILABLE"] }} }}] }}"#
    )
}
