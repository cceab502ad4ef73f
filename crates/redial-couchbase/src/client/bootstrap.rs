//! The handshake of a connection: HELLO, SASL, error map, SELECT BUCKET, cluster configuration.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use redial::Failure;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use super::connection::{Connection, Stream};
use super::error::RequestError;
use super::frame::{RequestFrame, ResponseFrame};
use super::opcode;
use super::options::{ClientOptions, Credentials, PlainSasl, Protocol};
use super::scram::{Hash, Scram};
use super::topology::{Address, Topology, TopologyError, Transport};
use crate::error_map::ErrorMap;
use crate::reason;
use crate::response::status;
use crate::retryable_error::RetryableError;
use crate::terminal_state::{TerminalState, TopologyConnection};

/// Extended error texts.
const FEATURE_XERROR: u16 = 0x07;
const FEATURE_SELECT_BUCKET: u16 = 0x08;
const FEATURE_COLLECTIONS: u16 = 0x12;
/// The newest version of the error map that the client reads.
const ERROR_MAP_VERSION: u16 = 2;
const AGENT: &str = concat!("redial-couchbase/", env!("CARGO_PKG_VERSION"));

/// Whether keys have the prefix of their collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collections {
    Supported,
    Unsupported,
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub(crate) struct Bootstrapped {
    pub(crate) connection: Connection,
    pub(crate) collections: Collections,
    pub(crate) error_map: Option<ErrorMap>,
    pub(crate) topology: Topology,
}

/// Why a connection could not be made. It is always tried again.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Io(io::Error),
    Tls(io::Error),
    TlsName(String),
    Step { command: &'static str, error: RequestError },
    Status { command: &'static str, status: u16 },
    NoMechanism(String),
    Scram(&'static str),
    Config(TopologyError),
    Timeout,
    LostSoon,
    Panicked,
}

impl RetryableError for Arc<ConnectError> {
    fn failure(&self) -> Option<Failure> {
        Some(reason::failure(reason::SOCKET_NOT_AVAILABLE))
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Io(error) => write!(f, "cannot connect: {error}"),
            ConnectError::Tls(error) => write!(f, "TLS: {error}"),
            ConnectError::TlsName(name) => write!(f, "TLS: {name:?} is not a valid server name"),
            ConnectError::Step { command, error } => write!(f, "{command}: {error}"),
            ConnectError::Status { command, status } => {
                write!(f, "{command}: status {status:#04x}")
            }
            ConnectError::NoMechanism(offered) => {
                write!(
                    f,
                    "no usable SASL mechanism among {offered:?}; PLAIN and OAUTHBEARER need TLS"
                )
            }
            ConnectError::Scram(problem) => f.write_str(problem),
            ConnectError::Config(error) => error.fmt(f),
            ConnectError::Timeout => f.write_str("connecting timed out"),
            ConnectError::Panicked => {
                f.write_str("the application's connector or its delays panicked")
            }
            ConnectError::LostSoon => f.write_str("the connection was lost soon after it was made"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Whether an error of a stream comes from TLS.
pub(crate) fn is_tls_error(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some()
}

/// Connects to a node, and reports what happens to the terminal state.
pub(crate) async fn connect(
    options: &ClientOptions,
    address: &Address,
    terminal: &TerminalState,
    status: &TopologyConnection,
) -> Result<Bootstrapped, ConnectError> {
    let stream = options.connector.connect(address).await.map_err(ConnectError::Io)?;
    let stream = match &options.tls {
        None => stream,
        Some(config) => {
            let name = options.tls_server_name.as_deref().unwrap_or(address.host());
            let stream = handshake(config.clone(), name, stream).await;
            match &stream {
                Err(ConnectError::Tls(error)) => status.tls_failed(error.to_string()),
                // No certificate can have this name.
                Err(error @ ConnectError::TlsName(_)) => status.tls_failed(error.to_string()),
                _ => {}
            }
            stream?
        }
    };
    let connection = Connection::start(stream, options.send_queue_max);
    let handshake = Handshake { options, connection: &connection, terminal, status };
    let ready = handshake.run(address).await;
    // A refused client certificate shows at the first read (decision C1).
    if let Some(error) = connection.error().filter(|error| is_tls_error(error)) {
        status.tls_failed(error.to_string());
    } else if options.tls.is_some() && !matches!(ready, Err(ConnectError::Step { .. })) {
        // The server has responded, so its end of the handshake has succeeded, too.
        status.tls_passed();
    }
    let (collections, error_map, topology) = ready?;
    Ok(Bootstrapped { connection, collections, error_map, topology })
}

async fn handshake(
    config: Arc<rustls::ClientConfig>,
    name: &str,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, ConnectError> {
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| ConnectError::TlsName(name.to_owned()))?;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) if is_tls_error(&error) => Err(ConnectError::Tls(error)),
        Err(error) => Err(ConnectError::Io(error)),
    }
}

struct Handshake<'a> {
    options: &'a ClientOptions,
    connection: &'a Connection,
    terminal: &'a TerminalState,
    status: &'a TopologyConnection,
}

impl Handshake<'_> {
    async fn run(
        &self,
        address: &Address,
    ) -> Result<(Collections, Option<ErrorMap>, Topology), ConnectError> {
        if self.options.protocol == Protocol::Memcached {
            let topology = Topology::single(address.clone());
            return Ok((Collections::Unsupported, None, topology));
        }
        let collections = self.hello().await?;
        if let Some(credentials) = &self.options.credentials {
            self.authenticate(credentials).await?;
        }
        let error_map = self.error_map().await?;
        self.select_bucket().await?;
        let transport = if self.options.tls.is_some() { Transport::Tls } else { Transport::Plain };
        let config = self.send(opcode::GET_CLUSTER_CONFIG, b"", b"").await?;
        let config = success(config, opcode::GET_CLUSTER_CONFIG)?;
        let topology = Topology::parse(&config, address.host(), transport);
        Ok((collections, error_map, topology.map_err(ConnectError::Config)?))
    }

    async fn hello(&self) -> Result<Collections, ConnectError> {
        let wanted = [FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_COLLECTIONS];
        let wanted: Vec<u8> = wanted.iter().flat_map(|feature| feature.to_be_bytes()).collect();
        let response = self.send(opcode::HELLO, AGENT.as_bytes(), &wanted).await?;
        // A server without HELLO has none of the features.
        let granted =
            if response.status == status::SUCCESS { response.value } else { Bytes::new() };
        let has = |feature: u16| granted.chunks_exact(2).any(|it| *it == feature.to_be_bytes());
        Ok(if has(FEATURE_COLLECTIONS) { Collections::Supported } else { Collections::Unsupported })
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<(), ConnectError> {
        let offered = self.send(opcode::SASL_LIST_MECHS, b"", b"").await?;
        let offered = success(offered, opcode::SASL_LIST_MECHS)?;
        let offered = String::from_utf8_lossy(&offered);
        let has = |name: &str| offered.split_ascii_whitespace().any(|it| it == name);
        let may_send_secret =
            self.options.tls.is_some() || self.options.plain_sasl == PlainSasl::Always;
        let (user, password) = match credentials {
            Credentials::Password { user, password } => (user, password),
            Credentials::Token(token) if has("OAUTHBEARER") && may_send_secret => {
                let message = format!("n,,\u{1}auth=Bearer {token}\u{1}\u{1}");
                return self.in_one_step("OAUTHBEARER", &message).await;
            }
            Credentials::Token(_) => {
                return Err(ConnectError::NoMechanism(offered.trim().to_owned()));
            }
        };
        let scram = [
            ("SCRAM-SHA512", Hash::Sha512),
            ("SCRAM-SHA256", Hash::Sha256),
            ("SCRAM-SHA1", Hash::Sha1),
        ];
        if let Some((name, hash)) = scram.into_iter().find(|(name, _)| has(name)) {
            return self.scram(name, hash, user, password).await;
        }
        if !(has("PLAIN") && may_send_secret) {
            return Err(ConnectError::NoMechanism(offered.trim().to_owned()));
        }
        self.in_one_step("PLAIN", &format!("\0{user}\0{password}")).await
    }

    /// A mechanism that sends the secret itself.
    async fn in_one_step(&self, mechanism: &str, message: &str) -> Result<(), ConnectError> {
        let (name, message) = (mechanism.as_bytes(), message.as_bytes());
        let response = self.send(opcode::SASL_AUTH, name, message).await?;
        self.status.sasl_answered(response.status);
        success(response, opcode::SASL_AUTH).map(drop)
    }

    async fn scram(
        &self,
        name: &str,
        hash: Hash,
        user: &str,
        password: &str,
    ) -> Result<(), ConnectError> {
        let mut random = [0; 18];
        getrandom::fill(&mut random).map_err(|_| ConnectError::Scram("no random numbers"))?;
        let nonce = base64::engine::general_purpose::STANDARD.encode(random);
        let scram = Scram::new(hash, user, &nonce);
        let first = scram.first();
        let response = self.send(opcode::SASL_AUTH, name.as_bytes(), first.as_bytes()).await?;
        self.status.sasl_answered(match response.status {
            status::AUTH_CONTINUE => status::AUTH_CONTINUE,
            // Success without a proof of the server is not success.
            status::SUCCESS => return Err(ConnectError::Scram("the server skipped SCRAM's proof")),
            refused => refused,
        });
        let challenge = match response.status {
            status::AUTH_CONTINUE => response.value,
            status => return Err(ConnectError::Status { command: "sasl_auth", status }),
        };
        // The salted password takes milliseconds of CPU, by design.
        let password = password.to_owned();
        let proof = tokio::task::spawn_blocking(move || scram.proof(&password, &challenge));
        let proof = match proof.await {
            Ok(proof) => proof.map_err(ConnectError::Scram)?,
            Err(_) => return Err(ConnectError::Scram("the runtime shuts down")),
        };
        let message = proof.message.as_bytes();
        let response = self.send(opcode::SASL_STEP, name.as_bytes(), message).await?;
        if response.status == status::SUCCESS && !proof.accepts(&response.value) {
            return Err(ConnectError::Scram("the server does not know the password"));
        }
        self.status.sasl_answered(response.status);
        success(response, opcode::SASL_STEP).map(drop)
    }

    async fn error_map(&self) -> Result<Option<ErrorMap>, ConnectError> {
        let version = ERROR_MAP_VERSION.to_be_bytes();
        let response = self.send(opcode::GET_ERROR_MAP, b"", &version).await?;
        // The client works without a map.
        let text = std::str::from_utf8(&response.value).unwrap_or_default();
        let map = ErrorMap::from_json(text).ok();
        Ok(map.filter(|_| response.status == status::SUCCESS))
    }

    async fn select_bucket(&self) -> Result<(), ConnectError> {
        let bucket = &self.options.bucket;
        let response = self.send(opcode::SELECT_BUCKET, bucket.as_bytes(), b"").await?;
        self.terminal.bucket_selected(bucket, response.status);
        success(response, opcode::SELECT_BUCKET).map(drop)
    }

    async fn send(
        &self,
        opcode: u8,
        key: &[u8],
        value: &[u8],
    ) -> Result<ResponseFrame, ConnectError> {
        let frame = RequestFrame {
            opcode,
            vbucket: 0,
            opaque: 0,
            cas: 0,
            extras: &[],
            key_prefix: &[],
            key,
            value,
        };
        let step = |error| ConnectError::Step { command: opcode::name(opcode), error };
        self.connection.send(frame).map_err(step)?.receive().await.map_err(step)
    }
}

fn success(response: ResponseFrame, opcode: u8) -> Result<Bytes, ConnectError> {
    match response.status {
        status::SUCCESS => Ok(response.value),
        status => Err(ConnectError::Status { command: opcode::name(opcode), status }),
    }
}

/// The text of a key for logs.
pub(crate) fn label(key: &[u8]) -> Cow<'static, str> {
    Cow::Owned(String::from_utf8_lossy(key).into_owned())
}
