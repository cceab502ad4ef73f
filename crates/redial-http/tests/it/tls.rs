//! TLS: retries over one connection, certificates that are not accepted, handshakes that break off.
//!
//! The client is hyper's. A reqwest with TLS needs a crypto provider in every program of the workspace that
//! uses reqwest, since cargo unifies its features.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rcgen::CertifiedKey;
use redial::{AttemptEnd, Report, StopReason};
use redial_http::RetryService;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower::{Layer, ServiceExt};

use crate::server::{Answer, Server, fast};

type TlsClient = RetryService<Client<HttpsConnector<HttpConnector>, Full<Bytes>>>;

/// A server with a certificate of its own.
struct TlsServer {
    server: Server,
    certificate: CertificateDer<'static>,
    accepted: Arc<AtomicUsize>,
}

impl TlsServer {
    /// Breaks off the first handshakes, then answers. `protocols` are offered by ALPN.
    async fn start(broken: usize, protocols: &[&str], answers: Vec<Answer>) -> Self {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let script = move |n: usize| answers[n.min(answers.len() - 1)].clone();
        let server = Server::idle(listener.local_addr().unwrap(), script);
        let accepted = Arc::new(AtomicUsize::new(0));
        let (serving, counter) = (server.clone(), accepted.clone());
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                if counter.fetch_add(1, Ordering::SeqCst) < broken {
                    continue;
                }
                let (server, acceptor) = (serving.clone(), acceptor.clone());
                tokio::spawn(async move {
                    // A client that does not accept the certificate ends the handshake.
                    if let Ok(socket) = acceptor.accept(socket).await {
                        server.serve(socket).await;
                    }
                });
            }
        });
        TlsServer { server, certificate: cert.der().clone(), accepted }
    }

    /// A request to this server.
    fn request(&self, method: Method, body: &'static str) -> Request<Full<Bytes>> {
        let url = format!("https://{}/", self.server.address);
        Request::builder().method(method).uri(url).body(Full::from(body)).unwrap()
    }

    /// A client that trusts this server's certificate alone.
    fn client(&self) -> TlsClient {
        client_that_trusts(&self.certificate)
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

fn client_that_trusts(certificate: &CertificateDer<'static>) -> TlsClient {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_all_versions();
    fast().layer(Client::builder(TokioExecutor::new()).build(connector.build()))
}

#[tokio::test]
async fn tls_requests_are_retried_over_one_connection() {
    for (protocol, version) in [("http/1.1", http::Version::HTTP_11), ("h2", http::Version::HTTP_2)]
    {
        let answers = vec![Answer::status(503), Answer::status(200)];
        let server = TlsServer::start(0, &[protocol], answers).await;
        let request = server.request(Method::GET, "");
        let response = server.client().oneshot(request).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        assert_eq!((server.server.requests(), server.accepted()), (2, 1));
    }
}

#[tokio::test]
async fn tls_handshake_that_breaks_off_is_retried_for_every_method() {
    let server = TlsServer::start(2, &[], vec![Answer::status(201)]).await;
    let request = server.request(Method::POST, "order");
    let response = server.client().oneshot(request).await.unwrap();
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
    let client = client_that_trusts(&other.certificate);
    let error = client.oneshot(server.request(Method::GET, "")).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotRetryable), "{error:?}");
    assert_eq!((server.accepted(), server.server.requests()), (1, 0));
}
