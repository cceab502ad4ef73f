//! Goal: our client and server pass the official cases, also without Go. Method: our client against
//! our server over loopback, all cases.

use redial_interop::caller::Caller;
use redial_interop::cases::{self, CASES};
use redial_interop::server::{PAYLOAD_MAX, TestServer};
use redial_interop::testing::test_service_client::TestServiceClient;
use redial_interop::testing::{EchoStatus, SimpleRequest};
use tonic::Code;

#[tokio::test]
async fn interop_cases_pass_with_our_client_and_server() {
    let server = TestServer::start().unwrap();
    let caller = Caller::new(&server.address().to_string()).unwrap();
    let mut failed = Vec::new();
    for name in CASES {
        if let Err(problem) = cases::play(name, &caller).await {
            failed.push(format!("{name}: {problem}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test]
async fn interop_cases_unknown_name_is_refused() {
    let caller = Caller::new("127.0.0.1:1").unwrap();
    let problem = cases::play("full_unary", &caller).await.unwrap_err();
    assert_eq!(problem.to_string(), "there is no case `full_unary`");
}

#[tokio::test]
async fn interop_cases_payload_size_is_limited() {
    let server = TestServer::start().unwrap();
    let address = format!("http://{}", server.address());
    let client = TestServiceClient::connect(address).await.unwrap();
    let mut client = client.max_decoding_message_size(2 * PAYLOAD_MAX);
    let most = i32::try_from(PAYLOAD_MAX).unwrap();
    let ask = |response_size| SimpleRequest { response_size, ..SimpleRequest::default() };
    let answer = client.unary_call(ask(most)).await.unwrap().into_inner();
    assert_eq!(answer.payload.unwrap().body.len(), PAYLOAD_MAX);
    for size in [most + 1, -1] {
        let status = client.unary_call(ask(size)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn interop_cases_fail_against_an_incomplete_server() {
    let server = TestServer::start().unwrap();
    let caller = Caller::new(&server.address().to_string()).unwrap();
    drop(server);
    for name in CASES {
        assert!(cases::play(name, &caller).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn interop_cases_status_ok_is_a_response() {
    let server = TestServer::start().unwrap();
    let address = format!("http://{}", server.address());
    let mut client = TestServiceClient::connect(address).await.unwrap();
    let response_status = Some(EchoStatus { code: 0, message: "fine".into() });
    let request = SimpleRequest { response_status, ..SimpleRequest::default() };
    assert!(client.unary_call(request).await.is_ok());
}
