//! A name that is resolved, and a call to the server behind it.
//!
//! `cargo run -p redial-grpc-dns --example localhost [dns:///host:port]`
//!
//! Without an argument it starts a server of its own and calls it by the name `localhost`.

use std::error::Error;

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use redial_grpc_dns::ChannelBuilderExt as _;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// A server on a free port of this machine, by name.
async fn own_server() -> Result<String, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let server = Server::builder().add_service(EchoServer::new(Responder));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Ok(format!("dns:///localhost:{port}"))
}

async fn run(target: String) -> Result<Vec<u8>, Box<dyn Error>> {
    // `.dns(|dns| dns.config_by_txt())` also reads the service config from the TXT record.
    let channel = redial_grpc_balance::channel(target.as_str()).dns(|dns| dns).build()?;
    let mut client = EchoClient::new(channel);
    let mut request =
        tonic::Request::new(EchoRequest { payload: "hello".into(), ..EchoRequest::default() });
    request.set_timeout(std::time::Duration::from_secs(5));
    let answer = client.unary(request).await?.into_inner();
    println!("{target} answered {:?}", answer.payload);
    Ok(answer.payload.to_vec())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let target = match std::env::args().nth(1) {
        Some(target) => target,
        None => own_server().await?,
    };
    run(target).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn example_calls_a_server_by_name() {
        assert_eq!(run(own_server().await.unwrap()).await.unwrap(), b"hello");
    }
}
