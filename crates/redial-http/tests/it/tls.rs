//! TLS: retries over one connection, certificates that are not accepted, handshakes that break off.
//!
//! The client is hyper's; `checks/reqwest-tls` has the same with reqwest. A reqwest with TLS needs a crypto
//! provider in every program of the workspace that uses reqwest, since cargo unifies its features.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use redial::report::AttemptEnd;
use redial::{Report, StopReason};
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
