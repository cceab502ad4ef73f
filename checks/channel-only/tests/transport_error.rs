//! Goal: the classification of transport errors does not depend on tonic's features. Method: the
//! layer's own tests of it, with a tonic that has a client and no server; and a test that shows
//! that this tonic maps such errors differently.

#[path = "../../../crates/redial-grpc/tests/it/connection.rs"]
mod connection;
#[path = "../../../crates/redial-grpc/tests/it/connection_queue.rs"]
mod connection_queue;
#[path = "../../../crates/redial-grpc/tests/it/common/harness.rs"]
mod harness;
#[path = "../../../crates/redial-grpc/tests/it/stream_error.rs"]
mod stream_error;

/// The path that the shared tests use.
mod common {
    pub(crate) use super::harness;
}

use harness::{Harness, channel, endpoint, message};
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Reason, Server};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn transport_error_reset_is_found_in_tonic_without_server() {
    let reset = || Answer::reset(Reason::CANCEL);
    let server = Server::new([reset()]).on_pipe();
    let mut plain = EchoClient::new(channel(&endpoint(), &server.connector()));
    assert_eq!(plain.unary(message("x")).await.unwrap_err().code(), Code::Unknown);
    let mut harness = Harness::new("", [reset()]);
    assert_eq!(harness.call().await.code(), Code::Cancelled);
}
