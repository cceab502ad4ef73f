//! SCRAM (RFC 5802) as a client: SHA-1, SHA-256 and SHA-512, without channel binding.
//!
//! Three messages: the client's nonce; the server's nonce, salt and iterations; the client's proof.
//! The server's last message proves that it knows the password as well.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

/// The maximum number of iterations that a server may ask for: about half a second of work. Couchbase
/// servers ask for 15,000 at most.
pub const SCRAM_ITERATIONS_MAX: u32 = 500_000;
/// The maximum length of a server's message.
const MESSAGE_BYTES_MAX: usize = 4096;

/// A hash function of SCRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha512,
}

/// Runs an expression with the digest type of a hash as `D`.
macro_rules! with_digest {
    ($hash:expr, $D:ident => $body:expr) => {
        match $hash {
            Hash::Sha1 => {
                type $D = Sha1;
                $body
            }
            Hash::Sha256 => {
                type $D = Sha256;
                $body
            }
            Hash::Sha512 => {
                type $D = Sha512;
                $body
            }
        }
    };
}

impl Hash {
    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        with_digest!(self, D => D::digest(bytes).to_vec())
    }

    fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        with_digest!(self, D => {
            // HMAC takes keys of any length, so that this cannot fail.
            let Ok(mut mac) = Hmac::<D>::new_from_slice(key) else { return Vec::new() };
            mac.update(message);
            mac.finalize().into_bytes().to_vec()
        })
    }

    fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        with_digest!(self, D => {
            let mut salted = vec![0; <D as sha2::Digest>::output_size()];
            pbkdf2::pbkdf2_hmac::<D>(password, salt, iterations, &mut salted);
            salted
        })
    }
}

/// A SCRAM exchange of a client.
#[derive(Debug)]
pub(crate) struct Scram {
    hash: Hash,
    nonce: String,
    first_bare: String,
}

/// The client's last message, and the server's proof that must come.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) message: String,
    server_signature: Vec<u8>,
}

impl Scram {
    /// An exchange with a nonce of printable characters without a comma.
    pub(crate) fn new(hash: Hash, user: &str, nonce: &str) -> Self {
        // RFC 5802: "=" and "," of a name are escaped.
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Scram { hash, nonce: nonce.to_owned(), first_bare: format!("n={user},r={nonce}") }
    }

    /// The first message.
    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// The last message, from the server's first one. This computes the salted password: slow, by
    /// design.
    ///
    /// # Errors
    /// The message is not SCRAM's.
    pub(crate) fn proof(&self, password: &str, server_first: &[u8]) -> Result<Proof, &'static str> {
        if server_first.len() > MESSAGE_BYTES_MAX {
            return Err("the server's SCRAM message is too long");
        }
        let server_first = std::str::from_utf8(server_first)
            .map_err(|_| "the server's SCRAM message is no text")?;
        let field = |name: char| {
            let mut fields = server_first.split(',');
            fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        // RFC 5802: an extension that a client must understand or fail.
        if field('m').is_some() {
            return Err("the server's SCRAM message has an unknown mandatory extension");
        }
        let (Some(nonce), Some(salt), Some(iterations)) = (field('r'), field('s'), field('i'))
        else {
            return Err("the server's SCRAM message lacks nonce, salt or iterations");
        };
        if !nonce.starts_with(&self.nonce) {
            return Err("the server's SCRAM nonce does not begin with the client's");
        }
        if nonce == self.nonce {
            return Err("the server's SCRAM nonce is the client's alone");
        }
        let salt = BASE64.decode(salt).map_err(|_| "the server's SCRAM salt is not base64")?;
        let iterations: u32 =
            iterations.parse().map_err(|_| "the server's SCRAM iterations are not a number")?;
        if !(1..=SCRAM_ITERATIONS_MAX).contains(&iterations) {
            return Err("the server's SCRAM iterations are 0 or too many");
        }
        let hash = self.hash;
        let salted = hash.salted_password(password.as_bytes(), &salt, iterations);
        let client_key = hash.hmac(&salted, b"Client Key");
        // "biws" is "n,," in base64: no channel binding.
        let without_proof = format!("c=biws,r={nonce}");
        let auth = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = hash.hmac(&hash.digest(&client_key), auth.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let message = format!("{without_proof},p={}", BASE64.encode(proof));
        let server_key = hash.hmac(&salted, b"Server Key");
        Ok(Proof { message, server_signature: hash.hmac(&server_key, auth.as_bytes()) })
    }
}

impl Proof {
    /// Whether the server's last message proves that it knows the password.
    pub(crate) fn accepts(&self, server_final: &[u8]) -> bool {
        let verifier = server_final.strip_prefix(b"v=");
        verifier.is_some_and(|text| BASE64.decode(text).is_ok_and(|it| it == self.server_signature))
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the exchange is that of the RFCs' examples, and wrong messages are refused.

    use super::*;

    /// RFC 5802, section 5, and RFC 7677, section 3: user "user", password "pencil".
    #[test]
    fn scram_matches_the_examples_of_the_rfcs() {
        let scram = Scram::new(Hash::Sha1, "user", "fyko+d2lbbFgONRv9qkxdawL");
        assert_eq!(scram.first(), "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL");
        let first = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
        let proof = scram.proof("pencil", first).unwrap();
        let expected = "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,\
                        p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
        assert_eq!(proof.message, expected);
        assert!(proof.accepts(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="));
        assert!(!proof.accepts(b"v=AAAA"));
        assert!(!proof.accepts(b"e=other-error"));

        let scram = Scram::new(Hash::Sha256, "user", "rOprNGfwEbeRWgbNEkqO");
        let first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proof = scram.proof("pencil", first).unwrap();
        assert!(proof.message.ends_with("p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="));
        assert!(proof.accepts(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    }

    #[test]
    fn scram_refuses_messages_that_are_not_scram() {
        let scram = Scram::new(Hash::Sha512, "a,b=c", "nonce");
        assert_eq!(scram.first(), "n,,n=a=2Cb=3Dc,r=nonce");
        let max = format!("r=nonce1,s=AAAA,i={SCRAM_ITERATIONS_MAX}");
        for (message, text) in [
            ("", "lacks nonce"),
            ("r=nonce1,s=AAAA", "lacks nonce"),
            ("m=x,r=nonce1,s=AAAA,i=1", "mandatory extension"),
            ("r=nonce,s=AAAA,i=1", "the client's alone"),
            ("r=other,s=AAAA,i=1", "does not begin"),
            ("r=nonce1,s=A,i=1", "not base64"),
            ("r=nonce1,s=AAAA,i=x", "not a number"),
            ("r=nonce1,s=AAAA,i=0", "0 or too many"),
            (&max.replace("i=5", "i=6"), "0 or too many"),
            (&"r".repeat(MESSAGE_BYTES_MAX + 1), "too long"),
        ] {
            let problem = scram.proof("x", message.as_bytes()).unwrap_err();
            assert!(problem.contains(text), "{message:.40}: {problem}");
        }
        assert!(scram.proof("x", b"\xff").unwrap_err().contains("no text"));
        assert!(scram.proof("x", &[b'r'; MESSAGE_BYTES_MAX]).unwrap_err().contains("lacks"));
    }
}
