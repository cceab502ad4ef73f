//! All layers together: each has its effect, and calls of every kind succeed.

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Failing, Responder};
use redial_grpc_server::{DeadlineLayer, HoldLayer, InboundAttemptLayer};
use tokio::io::DuplexStream;
use tonic::transport::Server;

use super::support::{FrameClient, channel, serve};

fn layered() -> DuplexStream {
    serve(|incoming| {
        let mut server = Server::builder()
            .layer(DeadlineLayer::new())
            .layer(InboundAttemptLayer::new())
            .layer(HoldLayer::new());
        server.add_service(EchoServer::new(Responder)).serve_with_incoming(incoming)
    })
}

fn layered_the_other_way() -> DuplexStream {
    serve(|incoming| {
        let mut server = Server::builder()
            .layer(HoldLayer::new())
            .layer(InboundAttemptLayer::new())
            .layer(DeadlineLayer::new());
        server.add_service(EchoServer::new(Responder)).serve_with_incoming(incoming)
    })
}

fn response(payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), ..EchoRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn layers_serve_all_call_kinds_in_any_order() {
    for pipe in [layered(), layered_the_other_way()] {
        let mut client = EchoClient::new(channel(pipe).await);
        let both = || tokio_stream::iter([response("a"), response("b")]);
        assert_eq!(client.unary(response("a")).await.unwrap().into_inner().payload, "a");
        assert_eq!(client.client_stream(both()).await.unwrap().into_inner().payload, "ab");

        let twice = EchoRequest { responses: Some(2), ..response("a") };
        let mut served = client.server_stream(twice).await.unwrap().into_inner();
        let mut answered = client.bidi(both()).await.unwrap().into_inner();
        for (stream, payloads) in [(&mut served, ["a", "a"]), (&mut answered, ["a", "b"])] {
            for payload in payloads {
                assert_eq!(stream.message().await.unwrap().unwrap().payload, payload);
            }
            assert!(stream.message().await.unwrap().is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn layers_keep_rejections_and_merged_errors_in_one_frame() {
    for pipe in [layered(), layered_the_other_way()] {
        let mut raw = FrameClient::over(pipe).await;
        let late = raw.call("ServerStream", &[("grpc-timeout", "0n")], &response("a")).await;
        assert_eq!(late.frames, ["HEADERS+END"]);
        assert_eq!(late.header("grpc-status"), Some("4"));
        let failing =
            EchoRequest { failures: 1, failing: Failing::FirstItem.into(), ..response("a") };
        let failed = raw.call("ServerStream", &[("grpc-timeout", "9S")], &failing).await;
        assert_eq!(failed.frames, ["HEADERS+END"]);
        assert_eq!(failed.header("grpc-status"), Some("14"));
    }
}
