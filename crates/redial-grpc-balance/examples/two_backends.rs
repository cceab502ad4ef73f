//! Two backends, one of which stops while calls go on: no call fails.
//!
//! `cargo run -p redial-grpc-balance --example two_backends`

use std::error::Error;
use std::net::SocketAddr;

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

const CALLS: u32 = 200;
const CONFIG: &str = r#"{
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{
        "name": [{"service": "redial.test.Echo"}],
        "timeout": "5s",
        "retryPolicy": {
            "maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"]
        }
    }]
}"#;

/// A server, and a sender that stops it.
async fn backend() -> Result<(SocketAddr, oneshot::Sender<()>), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let server = Server::builder().add_service(EchoServer::new(Responder));
    let incoming = TcpListenerStream::new(listener);
    // A graceful stop: the server sends GOAWAY, and further connections are refused.
    tokio::spawn(server.serve_with_incoming_shutdown(incoming, async move {
        let _ = stopped.await;
    }));
    Ok((address, stop))
}

async fn run() -> Result<u32, Box<dyn Error>> {
    let ((first, stop), (second, _keep)) = (backend().await?, backend().await?);
    let channel = redial_grpc_balance::channel("http://echo.test")
        .addresses([first, second])
        .default_service_config(CONFIG)
        .build()?;
    let mut client = EchoClient::new(channel);
    let mut stop = Some(stop);
    let mut failed = 0;
    for number in 0..CALLS {
        if number == CALLS / 2 {
            println!("stopping {first}");
            if let Some(stop) = stop.take() {
                let _ = stop.send(());
            }
        }
        let request = EchoRequest { payload: "hello".into(), ..EchoRequest::default() };
        if let Err(status) = client.unary(request).await {
            println!("call {number}: {status}");
            failed += 1;
        }
    }
    println!("{CALLS} calls, {failed} failed");
    Ok(failed)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_loses_no_call_when_a_backend_stops() {
        assert_eq!(super::run().await.unwrap(), 0);
    }
}
