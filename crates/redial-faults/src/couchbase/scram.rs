//! SCRAM as a server, written independently of the client.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

/// Few, since this is a test double; real servers use thousands.
const ITERATIONS: u32 = 64;
const SALT: &[u8] = b"a test double's salt";

/// An exchange after the client's first message.
#[derive(Debug)]
pub(super) struct Exchange {
    mechanism: Mechanism,
    user: String,
    /// The client's first message without its header, and the server's.
    said: String,
    nonce: String,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Mechanism {
    Sha1,
    Sha256,
    Sha512,
}

impl Mechanism {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"SCRAM-SHA1" => Some(Mechanism::Sha1),
            b"SCRAM-SHA256" => Some(Mechanism::Sha256),
            b"SCRAM-SHA512" => Some(Mechanism::Sha512),
            _ => None,
        }
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Mechanism::Sha1 => Sha1::digest(bytes).to_vec(),
            Mechanism::Sha256 => Sha256::digest(bytes).to_vec(),
            Mechanism::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        macro_rules! hmac {
            ($digest:ty) => {
                Hmac::<$digest>::new_from_slice(key)
                    .map(|mac| mac.chain_update(bytes).finalize().into_bytes().to_vec())
                    .unwrap_or_default()
            };
        }
        match self {
            Mechanism::Sha1 => hmac!(Sha1),
            Mechanism::Sha256 => hmac!(Sha256),
            Mechanism::Sha512 => hmac!(Sha512),
        }
    }

    fn salted(self, password: &[u8]) -> Vec<u8> {
        macro_rules! salted {
            ($digest:ty) => {{
                let mut salted = vec![0; <$digest>::output_size()];
                pbkdf2::pbkdf2_hmac::<$digest>(password, SALT, ITERATIONS, &mut salted);
                salted
            }};
        }
        match self {
            Mechanism::Sha1 => salted!(Sha1),
            Mechanism::Sha256 => salted!(Sha256),
            Mechanism::Sha512 => salted!(Sha512),
        }
    }
}

impl Exchange {
    /// Answers the client's first message; `None` if it is not one.
    pub(super) fn start(mechanism: Mechanism, message: &[u8]) -> Option<(Self, String)> {
        let bare = std::str::from_utf8(message).ok()?.strip_prefix("n,,")?;
        let (user, nonce) = bare.strip_prefix("n=")?.split_once(",r=")?;
        let user = user.replace("=2C", ",").replace("=3D", "=");
        let mut random = [0; 12];
        getrandom::fill(&mut random).ok()?;
        let nonce = format!("{nonce}{}", BASE64.encode(random));
        let challenge = format!("r={nonce},s={},i={ITERATIONS}", BASE64.encode(SALT));
        let said = format!("{bare},{challenge}");
        Some((Exchange { mechanism, user, said, nonce }, challenge))
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// Checks the client's proof, and returns the server's; `None` if it is wrong.
    pub(super) fn finish(&self, password: &str, message: &[u8]) -> Option<String> {
        let message = std::str::from_utf8(message).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        if without_proof != format!("c=biws,r={}", self.nonce) {
            return None;
        }
        let mechanism = self.mechanism;
        let salted = mechanism.salted(password.as_bytes());
        let stored = mechanism.hash(&mechanism.hmac(&salted, b"Client Key"));
        let auth = format!("{},{without_proof}", self.said);
        let signature = mechanism.hmac(&stored, auth.as_bytes());
        let proof = BASE64.decode(proof).ok()?;
        let key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        if proof.len() != signature.len() || mechanism.hash(&key) != stored {
            return None;
        }
        let server_key = mechanism.hmac(&salted, b"Server Key");
        Some(format!("v={}", BASE64.encode(mechanism.hmac(&server_key, auth.as_bytes()))))
    }
}
