//! Streams that the client resets while their response is in flight: h2 counts them, and closes the
//! connection above a limit.

use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Reason};
use redial_grpc::RetryLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tonic::Code;
use tower::ServiceBuilder;

use crate::common::harness::{Harness, RETRY, endpoint, message, ms};

const HEADERS: u8 = 1;

const RST_STREAM: u8 = 3;

const SETTINGS: u8 = 4;

/// A server that responds to a stream only after the client has reset it.
async fn answers_what_was_reset(mut io: DuplexStream) -> std::io::Result<()> {
    let mut preface = [0; 24];
    io.read_exact(&mut preface).await?;
    io.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut head = [0; 9];
        io.read_exact(&mut head).await?;
        let [l1, l2, l3, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, l1, l2, l3]) as usize];
        io.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags == 0 => io.write_all(&[0, 0, 0, SETTINGS, 1, 0, 0, 0, 0]).await?,
            // Only resets by the application, not those that h2 sends because of the response.
            RST_STREAM if payload == u32::from(Reason::CANCEL).to_be_bytes() => {
                // `:status: 200` with END_HEADERS and END_STREAM.
                let mut answer = vec![0, 0, 1, HEADERS, 5];
                answer.extend(stream);
                answer.push(0x88);
                io.write_all(&answer).await?;
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stream_error_too_many_local_resets_is_lost_connection() {
    const RESETS_MAX: usize = 20;
    let endpoint = endpoint()
        .http2_max_concurrent_reset_streams(0)
        .http2_max_local_error_reset_streams(Some(RESETS_MAX));
    let channel = endpoint.connect_with_connector_lazy(tower::service_fn(|_| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(answers_what_was_reset(theirs));
        async move { Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(ours)) }
    }));
    let layer = RetryLayer::builder().build();
    let client = EchoClient::new(ServiceBuilder::new().layer(layer).service(channel));
    let mut other = client.clone();
    let other = tokio::spawn(async move { other.unary(message("x")).await });
    for _ in 0..=RESETS_MAX {
        assert!(!other.is_finished());
        let mut client = client.clone();
        // The loser of a hedged call is reset the same way.
        let dropped = tokio::time::timeout(ms(1), client.unary(message("x"))).await;
        assert!(dropped.is_err());
        tokio::time::sleep(ms(1)).await;
    }
    let status = other.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("too_many_internal_resets"), "{status:?}");
}

/// A reset from the server keeps its meaning.
#[tokio::test(start_paused = true)]
async fn stream_error_enhance_your_calm_from_server_is_resource_exhausted() {
    let mut harness = Harness::new(RETRY, [Answer::reset(Reason::ENHANCE_YOUR_CALM)]);
    assert_eq!(harness.call().await.code(), Code::ResourceExhausted);
}
