//! Compressed messages.

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, EchoResponse, Responder};
use redial_faults::grpc::Answer;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tower::Layer as _;

use crate::common::harness::{HEDGE, Harness, RETRY, busy, layer, message};

#[tokio::test(start_paused = true)]
async fn compression_of_requests_is_replayed_byte_by_byte() {
    let mut harness = Harness::new(RETRY, [busy(), busy(), Answer::reply("")]);
    harness.client = harness.client.send_compressed(CompressionEncoding::Gzip);
    let outcome = harness.call_with(tonic::Request::new(message(&"z".repeat(5000)))).await;
    assert_eq!(outcome.code(), Code::Ok);
    let streams = outcome.record.streams;
    assert_eq!(streams.len(), 3);
    for stream in &streams {
        assert_eq!(stream.headers["grpc-encoding"], "gzip");
        assert_eq!((stream.bytes, stream.digest), (streams[0].bytes, streams[0].digest));
        assert!(stream.bytes < 500, "{} bytes of 5000", stream.bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn compression_in_both_directions_works_with_retries() {
    for policy in [RETRY, HEDGE] {
        let server = EchoServer::new(Responder)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let layer = layer(policy).build();
        let mut client = EchoClient::new(layer.layer(server))
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        let payload = "z".repeat(50_000);
        let request = EchoRequest { failures: 2, ..message(&payload) };
        let answer = client.unary(request.clone()).await.unwrap();
        assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
        let answer: EchoResponse = answer.into_inner();
        assert_eq!((answer.payload.len(), answer.previous_attempts), (50_000, 2));
        let request = EchoRequest { responses: Some(3), ..request };
        let mut stream = client.server_stream(request).await.unwrap().into_inner();
        for _ in 0..3 {
            assert_eq!(stream.message().await.unwrap().unwrap().payload, payload);
        }
        assert_eq!(stream.message().await.unwrap(), None);
        assert_eq!(layer.control().bytes_kept(), 0);
    }
}
