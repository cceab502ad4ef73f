//! Streams that the client resets, and answers that cross the reset: h2 counts them, and ends the
//! connection when they are too many.

use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Reason};
use redial_grpc::RetryLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tonic::Code;
use tower::ServiceBuilder;

use super::rig::{RETRY, Rig, endpoint, message, ms};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;

/// A server that hangs, and answers a stream when it was reset.
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
            // Not what h2 resets because of the answer.
            RST_STREAM if payload == u32::from(Reason::CANCEL).to_be_bytes() => {
                // `:status: 200`, the end of headers and stream.
                let mut answer = vec![0, 0, 1, HEADERS, 5];
                answer.extend(stream);
                answer.push(0x88);
                io.write_all(&answer).await?;
            }
            _ => {}
        }
    }
}

/// Red: leave out the case of a GOAWAY of our own in `of_h2`.
#[tokio::test(start_paused = true)]
async fn too_many_local_resets_are_a_lost_connection() {
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
        // A hedge that lost ends so, too.
        let dropped = tokio::time::timeout(ms(1), client.unary(message("x"))).await;
        assert!(dropped.is_err());
        tokio::time::sleep(ms(1)).await;
    }
    let status = other.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("too_many_internal_resets"), "{status:?}");
}

/// A server that asks for fewer requests means what it says.
#[tokio::test(start_paused = true)]
async fn enhance_your_calm_of_a_server_stays_resource_exhausted() {
    let mut rig = Rig::new(RETRY, [Answer::reset(Reason::ENHANCE_YOUR_CALM)]);
    assert_eq!(rig.call().await.code(), Code::ResourceExhausted);
}
