//! Deadlines of calls on the balanced channel.

use std::time::Duration;

use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Server, StatusNumber as Peer};
use tonic::{Code, Request};

fn within(deadline: Duration) -> Request<EchoRequest> {
    let payload = "x".to_owned().into();
    let mut request = Request::new(EchoRequest { payload, ..EchoRequest::default() });
    request.set_timeout(deadline);
    request
}

/// In real time: 300 ms must pass, and a minute is the tolerance.
#[tokio::test]
async fn deadline_of_a_balanced_call_holds_after_ok_headers() {
    let answer = Answer::trailers_only(Peer::OK).without_end_stream();
    let server = Server::new(vec![answer; 2]).listen("127.0.0.1:0").await.unwrap();
    let channel = redial_grpc_balance::channel(server.addr().to_string()).build().unwrap();
    let mut client = EchoClient::new(channel);
    let (deadline, minute) = (Duration::from_millis(300), Duration::from_secs(60));
    let unary = tokio::time::timeout(minute, client.unary(within(deadline))).await;
    assert_eq!(unary.expect("it ends").unwrap_err().code(), Code::DeadlineExceeded);
    let mut stream = client.server_stream(within(deadline)).await.unwrap().into_inner();
    let message = tokio::time::timeout(minute, stream.message()).await;
    assert_eq!(message.expect("it ends").unwrap_err().code(), Code::DeadlineExceeded);
}
