//! Certificates of the server's own.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate that signs itself, with its key. A client trusts it if its certificate is among the
/// client's roots.
#[derive(Clone)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    pub(super) config: Arc<ServerConfig>,
}

impl Identity {
    /// A new certificate for these names or IP addresses.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn self_signed<N: Into<String>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let certified = rcgen::generate_simple_self_signed(names)?;
        let certificate = certified.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], PrivateKeyDer::Pkcs8(key))?;
        Ok(Identity { certificate, config: Arc::new(config) })
    }

    /// The certificate, for a client's roots.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
