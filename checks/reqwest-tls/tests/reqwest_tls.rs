//! Goal: what an error of reqwest proves is also known if it is one of TLS. Method: reqwest with rustls against
//! the scripted servers of redial-http's tests.

#[allow(dead_code, reason = "the tests of redial-http use the rest")]
#[path = "../../../crates/redial-http/tests/it/server.rs"]
mod server;
#[path = "../../../crates/redial-http/tests/it/tls_server.rs"]
mod tls_server;

use redial::report::AttemptEnd;
use redial::{Report, StopReason, ms};
use redial_faults::proxy::{ConnectionFault, Handle, Proxy, Script};
use redial_http::reqwest::SendWith;
use tokio::net::TcpListener;

use crate::server::{Answer, client_builder, fast};
use crate::tls_server::{TlsServer, client_config};

/// A client that trusts the certificate of this server alone.
fn builder(server: &TlsServer, protocols: &[&str]) -> reqwest::ClientBuilder {
    let mut config = client_config(&server.certificate);
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    client_builder().tls_backend_preconfigured(config)
}

#[tokio::test]
async fn reqwest_tls_requests_are_retried_over_one_connection() {
    for (protocol, version) in [("http/1.1", http::Version::HTTP_11), ("h2", http::Version::HTTP_2)]
    {
        let answers = vec![Answer::status(503), Answer::status(200)];
        let server = TlsServer::start(0, &[protocol], answers).await;
        let client = builder(&server, &[protocol]).build().unwrap();
        let response = client.get(server.url()).send_with(&fast()).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        assert_eq!((server.server.requests(), server.accepted()), (2, 1));
    }
}

#[tokio::test]
async fn reqwest_tls_broken_handshake_is_retried_for_every_method() {
    let server = TlsServer::start(2, &[], vec![Answer::status(201)]).await;
    let client = builder(&server, &[]).build().unwrap();
    let request = client.post(server.url()).body("order");
    let response = request.send_with(&fast()).await.unwrap();
    assert_eq!((response.status().as_u16(), server.server.requests()), (201, 1));
    let report = response.extensions().get::<Report>().unwrap();
    let AttemptEnd::Failed(failure) = report.history[0].end else { panic!("{report:?}") };
    assert!(report.attempts == 3 && failure.proves_not_run());
}

#[tokio::test]
async fn reqwest_tls_stalled_handshake_is_retried_for_every_method() {
    let trusted = TlsServer::start(0, &[], vec![Answer::status(200)]).await;
    // Connections wait in the queue of this socket, which no program accepts.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = builder(&trusted, &[]).connect_timeout(ms(200)).build().unwrap();
    let request = client.post(format!("https://{}/", listener.local_addr().unwrap()));
    let error = request.body("order").send_with(&fast()).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (4, StopReason::AttemptsExhausted));
}

/// A server behind a proxy whose first connection has this fault, and a client of this protocol.
async fn behind(
    fault: ConnectionFault,
    protocol: &str,
    answer: Answer,
) -> (TlsServer, Handle, reqwest::Client) {
    let server = TlsServer::start(0, &[protocol], vec![answer]).await;
    let script = Script::new().connections([fault]);
    let proxy = Proxy::tcp(server.server.address).script(script).listen("127.0.0.1:0").await;
    let client = builder(&server, &[protocol]).build().unwrap();
    (server, proxy.unwrap(), client)
}

// The head of the response alone is larger than the handshake and the bytes that pass.
#[tokio::test]
async fn reqwest_tls_lost_response_is_retried_for_get_only() {
    for protocol in ["http/1.1", "h2"] {
        for fault in [ConnectionFault::reset(), ConnectionFault::close()] {
            let fault = fault.at_down_bytes(4000);
            let answer = || Answer::status(200).header("x-large", "x".repeat(8000));
            let (server, proxy, client) = behind(fault.clone(), protocol, answer()).await;
            let request = client.get(format!("https://{}/", proxy.addr()));
            let response = request.send_with(&fast()).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(redial_http::attempts(response.extensions()), 2, "{protocol}: {fault:?}");
            assert_eq!(server.server.requests(), 2, "the server has processed both");

            let (server, proxy, client) = behind(fault.clone(), protocol, answer()).await;
            let request = client.post(format!("https://{}/", proxy.addr())).body("order");
            let error = request.send_with(&fast()).await.unwrap_err();
            assert_eq!(error.stop_reason(), StopReason::NotIdempotent, "{protocol}: {fault:?}");
            assert_eq!((error.attempts(), server.server.requests()), (1, 1));
        }
    }
}

// Of the body, at most this much has passed.
#[tokio::test]
async fn reqwest_tls_request_cut_off_is_retried_for_put_only() {
    let body = "x".repeat(50_000);
    for protocol in ["http/1.1", "h2"] {
        for fault in [ConnectionFault::reset(), ConnectionFault::close()] {
            let fault = fault.at_up_bytes(20_000);
            let (server, proxy, client) =
                behind(fault.clone(), protocol, Answer::status(200)).await;
            let request = client.put(format!("https://{}/", proxy.addr())).body(body.clone());
            let response = request.send_with(&fast()).await.unwrap();
            assert_eq!(redial_http::attempts(response.extensions()), 2, "{protocol}: {fault:?}");
            let received = server.server.received();
            assert!(received.len() == 1 && received[0].body == body, "never half a body");

            let (server, proxy, client) =
                behind(fault.clone(), protocol, Answer::status(200)).await;
            let request = client.post(format!("https://{}/", proxy.addr())).body(body.clone());
            let error = request.send_with(&fast()).await.unwrap_err();
            assert_eq!(error.stop_reason(), StopReason::NotIdempotent, "{protocol}: {fault:?}");
            assert_eq!((error.attempts(), server.server.requests()), (1, 0));
        }
    }
}

#[tokio::test]
async fn reqwest_tls_truncated_response_is_an_error_of_its_body() {
    for protocol in ["http/1.1", "h2"] {
        for fault in [ConnectionFault::reset(), ConnectionFault::close()] {
            let answer = Answer::status(200).body(vec![b'x'; 100_000]);
            let (server, proxy, client) =
                behind(fault.at_down_bytes(50_000), protocol, answer).await;
            let request = client.get(format!("https://{}/", proxy.addr()));
            let response = request.send_with(&fast()).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(redial_http::attempts(response.extensions()), 1);
            assert!(response.bytes().await.is_err(), "{protocol}");
            assert_eq!(server.server.requests(), 1);
        }
    }
}

// Decision H6.
#[tokio::test]
async fn reqwest_tls_certificate_that_is_not_accepted_is_final() {
    let server = TlsServer::start(0, &[], vec![Answer::status(200)]).await;
    let other = TlsServer::start(0, &[], vec![Answer::status(200)]).await;
    let client = builder(&other, &[]).build().unwrap();
    let error = client.get(server.url()).send_with(&fast()).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotRetryable), "{error:?}");
    assert_eq!((server.accepted(), server.server.requests()), (1, 0));
}
