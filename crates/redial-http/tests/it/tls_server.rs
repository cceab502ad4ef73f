//! A scripted server with TLS, whose first handshakes may break off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::CertifiedKey;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::{Answer, Server};

/// A server with a certificate of its own.
pub(crate) struct TlsServer {
    pub(crate) server: Server,
    pub(crate) certificate: CertificateDer<'static>,
    accepted: Arc<AtomicUsize>,
}

impl TlsServer {
    /// Breaks off the first handshakes, then answers. `protocols` are offered by ALPN.
    pub(crate) async fn start(broken: usize, protocols: &[&str], answers: Vec<Answer>) -> Self {
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

    pub(crate) fn url(&self) -> String {
        format!("https://{}/", self.server.address)
    }

    /// How many connections were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// The TLS of a client that trusts this certificate alone.
pub(crate) fn client_config(certificate: &CertificateDer<'static>) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}
