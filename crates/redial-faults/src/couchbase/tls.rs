//! Certificates of the server's own, and of clients.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A certificate that signs itself, with its key. A peer trusts it if it is among the peer's roots.
#[derive(Clone)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: Arc<PrivateKeyDer<'static>>,
    pub(super) config: Arc<ServerConfig>,
}

impl Identity {
    /// A new certificate for these names or IP addresses.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn self_signed<N: Into<String>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let certified = rcgen::generate_simple_self_signed(names)?;
        let certificate = certified.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let key = PrivateKeyDer::Pkcs8(key);
        let config = config(&certificate, &key, None)?;
        Ok(Identity { certificate, key: Arc::new(key), config })
    }

    /// A server with this certificate accepts only clients that present the certificate of `client`
    /// (mutual TLS).
    ///
    /// # Errors
    /// The certificate of the client cannot be a root.
    pub fn for_clients_with(
        mut self,
        client: &Identity,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        self.config = config(&self.certificate, &self.key, Some(&client.certificate))?;
        Ok(self)
    }

    /// The certificate, for the roots of a peer.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate as PEM, the text that most programs read.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(&self.certificate);
        // Base64 is ASCII.
        let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
        let lines = lines.map(|line| format!("{line}\n")).collect::<String>();
        format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
    }

    /// The key, for a client that presents the certificate.
    #[must_use]
    pub fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

/// The configuration of a server; with a certificate that clients have to present, if there is one.
fn config(
    certificate: &CertificateDer<'static>,
    key: &PrivateKeyDer<'static>,
    client: Option<&CertificateDer<'static>>,
) -> Result<Arc<ServerConfig>, Box<dyn Error + Send + Sync>> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let mut roots = RootCertStore::empty();
            roots.add(client.clone())?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build()?)
        }
    };
    Ok(Arc::new(config.with_single_cert(vec![certificate.clone()], key.clone_key())?))
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
