//! Server pushback from a handler.

use std::time::Duration;

use redial_echo::EchoRequest;
use redial_echo::echo_server::EchoServer;
use redial_grpc_server::PushbackExt as _;
use tonic::Status;
use tonic::transport::Server;

use super::support::{FrameClient, Handlers, serve};

#[tokio::test(start_paused = true)]
async fn pushback_reaches_the_client_in_one_frame() {
    let handlers = Handlers::unary(|request| {
        let busy = Status::unavailable("busy");
        Err(match request.get_ref().delay_ms {
            0 => busy.do_not_retry(),
            ms => busy.retry_after(Duration::from_millis(ms.into())),
        })
    });
    let pipe = serve(|incoming| {
        Server::builder().add_service(EchoServer::new(handlers)).serve_with_incoming(incoming)
    });
    let mut raw = FrameClient::over(pipe).await;
    for (delay_ms, expected) in [(0, "-1"), (1, "1"), (u32::MAX, "2147483647")] {
        let request = EchoRequest { delay_ms, ..EchoRequest::default() };
        let answer = raw.call("Unary", &[], &request).await;
        assert_eq!(answer.frames, ["HEADERS+END"]);
        assert_eq!(answer.header("grpc-status"), Some("14"));
        let values = answer.head.headers().get_all("grpc-retry-pushback-ms").iter();
        assert_eq!(values.collect::<Vec<_>>(), [expected]);
    }
}
