//! The server's process.

use redial_echo::Responder;
use redial_echo::echo_server::EchoServer;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// Serves until it is killed; prints its address.
pub fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("http://{}", listener.local_addr().expect("an address"));
        Server::builder()
            .add_service(EchoServer::new(Responder))
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await
            .expect("it serves");
    });
}
