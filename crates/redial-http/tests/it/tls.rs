//! TLS: retries over one connection, certificates that are not accepted, handshakes that break off, and
//! connections that are lost after a request was sent.
//!
//! The client is hyper's; `checks/reqwest-tls` has the same with reqwest. A reqwest with TLS needs a crypto
//! provider in every program of the workspace that uses reqwest, since cargo unifies its features.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use redial::report::AttemptEnd;
use redial::{Report, StopReason};
use redial_faults::proxy::{ConnectionFault, Handle, Proxy, Script};
use redial_http::RetryService;
use tower::{Layer, ServiceExt};

use crate::server::{Answer, fast};
use crate::tls_server::{TlsServer, client_config};

type TlsClient = RetryService<Client<HttpsConnector<HttpConnector>, Full<Bytes>>>;

/// A client that trusts the certificate of this server alone.
fn client_of(server: &TlsServer) -> TlsClient {
    let config = client_config(&server.certificate);
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_all_versions();
    fast().layer(Client::builder(TokioExecutor::new()).build(connector.build()))
}

/// A client that trusts the certificate of this server, and speaks this protocol.
fn client_with(server: &TlsServer, protocol: &str) -> TlsClient {
    let config = client_config(&server.certificate);
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let connector = match protocol {
        "h2" => connector.enable_http2().build(),
        _ => connector.enable_http1().build(),
    };
    fast().layer(Client::builder(TokioExecutor::new()).build(connector))
}

/// A server behind a proxy whose first connection has this fault.
async fn behind(fault: ConnectionFault, protocol: &str, answer: Answer) -> (TlsServer, Handle) {
    let server = TlsServer::start(0, &[protocol], vec![answer]).await;
    let script = Script::new().connections([fault]);
    let proxy = Proxy::tcp(server.server.address).script(script).listen("127.0.0.1:0").await;
    (server, proxy.unwrap())
}

/// A request through this proxy.
fn through(proxy: &Handle, method: Method, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("https://{}/", proxy.addr());
    Request::builder().method(method).uri(uri).body(Full::from(body.into())).unwrap()
}

/// A request to this server.
fn request(server: &TlsServer, method: Method, body: &'static str) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(server.url()).body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn tls_requests_are_retried_over_one_connection() {
    for (protocol, version) in [("http/1.1", http::Version::HTTP_11), ("h2", http::Version::HTTP_2)]
    {
        let answers = vec![Answer::status(503), Answer::status(200)];
        let server = TlsServer::start(0, &[protocol], answers).await;
        let request = request(&server, Method::GET, "");
        let response = client_of(&server).oneshot(request).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        assert_eq!((server.server.requests(), server.accepted()), (2, 1));
    }
}

#[tokio::test]
async fn tls_handshake_that_breaks_off_is_retried_for_every_method() {
    let server = TlsServer::start(2, &[], vec![Answer::status(201)]).await;
    let request = request(&server, Method::POST, "order");
    let response = client_of(&server).oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), server.server.requests()), (201, 1));
    let report = response.extensions().get::<Report>().unwrap();
    let AttemptEnd::Failed(failure) = report.history[0].end else { panic!("{report:?}") };
    assert!(report.attempts == 3 && failure.proves_not_run());
}

// The head of the response alone is larger than the handshake and the bytes that pass.
#[tokio::test]
async fn tls_lost_response_is_retried_for_get_and_not_post() {
    for protocol in ["http/1.1", "h2"] {
        for fault in [ConnectionFault::reset(), ConnectionFault::close()] {
            let fault = fault.at_down_bytes(4000);
            let answer = || Answer::status(200).header("x-large", "x".repeat(8000));
            let (server, proxy) = behind(fault.clone(), protocol, answer()).await;
            let client = client_with(&server, protocol);
            let response = client.oneshot(through(&proxy, Method::GET, "")).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(redial_http::attempts(response.extensions()), 2, "{protocol}: {fault:?}");
            assert_eq!(server.server.requests(), 2, "the server has processed both");

            let (server, proxy) = behind(fault.clone(), protocol, answer()).await;
            let client = client_with(&server, protocol);
            let error = client.oneshot(through(&proxy, Method::POST, "order")).await.unwrap_err();
            assert_eq!(error.stop_reason(), StopReason::NotIdempotent, "{protocol}: {fault:?}");
            assert_eq!((error.attempts(), server.server.requests()), (1, 1));
        }
    }
}

// Of the body, at most this much has passed.
#[tokio::test]
async fn tls_request_cut_off_is_retried_for_get_only() {
    let body = "x".repeat(50_000);
    for protocol in ["http/1.1", "h2"] {
        for fault in [ConnectionFault::reset(), ConnectionFault::close()] {
            let fault = fault.at_up_bytes(20_000);
            let (server, proxy) = behind(fault.clone(), protocol, Answer::status(200)).await;
            let client = client_with(&server, protocol);
            let request = through(&proxy, Method::GET, body.clone());
            let response = client.oneshot(request).await.unwrap();
            assert_eq!(redial_http::attempts(response.extensions()), 2, "{protocol}: {fault:?}");
            let received = server.server.received();
            assert!(received.len() == 1 && received[0].body == body, "never half a body");

            let (server, proxy) = behind(fault.clone(), protocol, Answer::status(200)).await;
            let client = client_with(&server, protocol);
            let request = through(&proxy, Method::POST, body.clone());
            let error = client.oneshot(request).await.unwrap_err();
            assert_eq!(error.stop_reason(), StopReason::NotIdempotent, "{protocol}: {fault:?}");
            assert_eq!((error.attempts(), server.server.requests()), (1, 0));
        }
    }
}

#[tokio::test]
async fn tls_truncated_response_is_an_error_of_its_body() {
    let answer = || Answer::status(200).body(vec![b'x'; 100_000]);
    for protocol in ["http/1.1", "h2"] {
        for (fault, method) in [
            (ConnectionFault::reset(), Method::GET),
            (ConnectionFault::close(), Method::GET),
            (ConnectionFault::close(), Method::POST),
        ] {
            let fault = fault.at_down_bytes(50_000);
            let (server, proxy) = behind(fault, protocol, answer()).await;
            let client = client_with(&server, protocol);
            let response = client.oneshot(through(&proxy, method, "order")).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(redial_http::attempts(response.extensions()), 1);
            assert!(response.into_body().collect().await.is_err(), "{protocol}");
            assert_eq!(server.server.requests(), 1);
        }
    }
}

// Decision H6.
#[tokio::test]
async fn tls_certificate_that_is_not_accepted_is_final() {
    let server = TlsServer::start(0, &[], vec![Answer::status(200)]).await;
    let other = TlsServer::start(0, &[], vec![Answer::status(200)]).await;
    let request = request(&server, Method::GET, "");
    let error = client_of(&other).oneshot(request).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotRetryable), "{error:?}");
    assert_eq!((server.accepted(), server.server.requests()), (1, 0));
}
