//! The options of a client.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redial::strategy::Strategy;
use redial::throttle::Bucket;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;

use super::breaker::CircuitBreakerOptions;
use super::connection::Stream;
use super::topology::Address;
use crate::context::RequestContext;
use crate::log::RetryLogLine;
use crate::orchestrator::Orchestrator;
use crate::strategy::BackoffCalculator;

/// The timeout of a request.
pub const TIMEOUT: Duration = Duration::from_millis(2500);
/// The timeout of connecting, with TLS, authentication and bucket.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which the cluster configuration is polled.
pub const CONFIG_POLL_INTERVAL: Duration = Duration::from_millis(2500);
/// The shortest interval of polls; zero would be a busy loop.
pub const CONFIG_POLL_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// How long a poll waits for its response. The next poll comes after it.
pub const CONFIG_POLL_TIMEOUT: Duration = Duration::from_millis(2500);
/// How many requests are queued for a connection.
pub const SEND_QUEUE_MAX: usize = 1024;
/// How many requests of a client wait for a retry.
pub const REQUESTS_IN_RETRY_MAX: usize = 32_768;

/// A stream that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens byte streams to nodes. The default is TCP; tests and tunnels can bring their own. TLS runs on
/// top of it.
pub trait Connector: Send + Sync {
    /// Opens a stream to a node.
    fn connect(&self, address: &Address) -> Connecting;
}

/// Connects with TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnector;

impl Connector for TcpConnector {
    fn connect(&self, address: &Address) -> Connecting {
        let address = address.clone();
        Box::pin(async move {
            let stream = TcpStream::connect((address.host(), address.port())).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// What the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Couchbase,
    /// No handshake, bucket or cluster configuration.
    Memcached,
}

/// Whether a password or token may be sent without encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainSasl {
    /// `PLAIN` is used over TLS only.
    #[default]
    TlsOnly,
    /// `PLAIN` is used without TLS, too, if the server has no SCRAM: anyone on the network can read the
    /// password.
    Always,
}

/// How the client authenticates.
#[derive(Clone)]
pub(crate) enum Credentials {
    Password { user: String, password: String },
    Token(String),
}

/// The options of a [`Client`](super::Client).
///
/// ```
/// use redial::{ms, s};
/// use redial_couchbase::BestEffort;
/// use redial_couchbase::client::{Address, ClientOptions};
///
/// let options = ClientOptions::new([Address::new("db1.example.com", 11210)], "travel")
///     .credentials("app", "secret")
///     .timeout(s(1))
///     .config_poll_interval(ms(500))
///     .strategy(BestEffort::new());
/// ```
#[derive(Clone)]
pub struct ClientOptions {
    pub(crate) addresses: Vec<Address>,
    pub(crate) bucket: String,
    pub(crate) protocol: Protocol,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) plain_sasl: PlainSasl,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) orchestrator: Orchestrator,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect: BackoffCalculator,
    pub(crate) config_poll_interval: Duration,
    pub(crate) send_queue_max: usize,
    pub(crate) requests_in_retry_max: usize,
    pub(crate) circuit_breaker: Option<CircuitBreakerOptions>,
}

impl ClientOptions {
    /// The options for a bucket of the cluster to which these nodes belong. One node is enough, if it is
    /// up.
    pub fn new(addresses: impl IntoIterator<Item = Address>, bucket: impl Into<String>) -> Self {
        ClientOptions {
            addresses: addresses.into_iter().collect(),
            bucket: bucket.into(),
            protocol: Protocol::Couchbase,
            credentials: None,
            plain_sasl: PlainSasl::TlsOnly,
            tls: None,
            tls_server_name: None,
            connector: Arc::new(TcpConnector),
            orchestrator: Orchestrator::new(),
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            reconnect: BackoffCalculator::CONTROLLED,
            config_poll_interval: CONFIG_POLL_INTERVAL,
            send_queue_max: SEND_QUEUE_MAX,
            requests_in_retry_max: REQUESTS_IN_RETRY_MAX,
            circuit_breaker: Some(CircuitBreakerOptions::DEFAULT),
        }
    }

    /// The options for one plain memcached server that speaks the binary protocol: without handshake,
    /// bucket and cluster configuration.
    #[must_use]
    pub fn memcached(address: Address) -> Self {
        let options = ClientOptions::new([address], "");
        ClientOptions { protocol: Protocol::Memcached, ..options }
    }

    /// Sets the bucket.
    #[must_use]
    pub fn bucket(mut self, name: impl Into<String>) -> Self {
        self.bucket = name.into();
        self
    }

    /// The user name and password. Without them the client does not authenticate.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials =
            Some(Credentials::Password { user: user.into(), password: password.into() });
        self
    }

    /// A JSON Web Token (JWT), sent by SASL OAUTHBEARER, in place of user name and password. New
    /// connections use it; a client for another token is a new client.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::Token(token.into()));
        self
    }

    /// Whether SASL PLAIN and OAUTHBEARER may be used without TLS. Default: over TLS only.
    #[must_use]
    pub fn plain_sasl(mut self, plain: PlainSasl) -> Self {
        self.plain_sasl = plain;
        self
    }

    /// Connects with TLS. The configuration has the trusted certificates, and the client's certificate
    /// if there is one.
    #[must_use]
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// The name that the servers' certificates must have. Default: the host of each address.
    #[must_use]
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls_server_name = Some(name.into());
        self
    }

    /// Opens connections with this connector instead of TCP.
    #[must_use]
    pub fn connector(mut self, connector: impl Connector + 'static) -> Self {
        self.connector = Arc::new(connector);
        self
    }

    /// The retry strategy of all requests. Default:
    /// [`FastFailOnTerminalError`](crate::FastFailOnTerminalError).
    #[must_use]
    pub fn strategy(mut self, strategy: impl Strategy + 'static) -> Self {
        self.orchestrator = self.orchestrator.strategy(strategy);
        self
    }

    /// Adds a hook that receives each retry log line. It must not block.
    #[must_use]
    pub fn on_log(
        mut self,
        hook: impl Fn(&RequestContext, &RetryLogLine) + Send + Sync + 'static,
    ) -> Self {
        self.orchestrator = self.orchestrator.on_log(hook);
        self
    }

    /// Adds a throttle that limits the retries of all requests. RFC 49 has none.
    #[must_use]
    pub fn throttled(mut self, throttle: Arc<dyn Bucket + Send + Sync>) -> Self {
        self.orchestrator = self.orchestrator.throttled(throttle);
        self
    }

    /// The timeout of requests that set none. Default [`TIMEOUT`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The timeout of each attempt to connect. Default [`CONNECT_TIMEOUT`].
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The delays between attempts to connect. Default: 1, 10, 50, 100, 500 ms, then 1 s. They start
    /// anew after a connection that lasted
    /// [`CONNECTION_HEALTHY_AFTER`](super::CONNECTION_HEALTHY_AFTER).
    #[must_use]
    pub fn reconnect(mut self, delays: BackoffCalculator) -> Self {
        self.reconnect = delays;
        self
    }

    /// The interval at which the cluster configuration is polled; at least
    /// [`CONFIG_POLL_INTERVAL_MIN`]. Default [`CONFIG_POLL_INTERVAL`].
    #[must_use]
    pub fn config_poll_interval(mut self, interval: Duration) -> Self {
        self.config_poll_interval = interval.max(CONFIG_POLL_INTERVAL_MIN);
        self
    }

    /// How many requests are queued for a connection; further ones fail with `SOCKET_NOT_AVAILABLE`.
    /// At least 1. Default [`SEND_QUEUE_MAX`]. They have [`SEND_QUEUE_BYTES_MAX`] bytes at most, whatever
    /// their number.
    ///
    /// [`SEND_QUEUE_BYTES_MAX`]: super::SEND_QUEUE_BYTES_MAX
    #[must_use]
    pub fn send_queue_max(mut self, requests: usize) -> Self {
        self.send_queue_max = requests.max(1);
        self
    }

    /// How many requests may wait for a retry at once; further ones fail with
    /// [`TooManyRequestsInRetry`](super::RequestError::TooManyRequestsInRetry). Default
    /// [`REQUESTS_IN_RETRY_MAX`].
    #[must_use]
    pub fn requests_in_retry_max(mut self, requests: usize) -> Self {
        self.requests_in_retry_max = requests;
        self
    }

    /// The circuit breaker of each endpoint; `None` switches it off. Default
    /// [`CircuitBreakerOptions::DEFAULT`].
    #[must_use]
    pub fn circuit_breaker(mut self, options: Option<CircuitBreakerOptions>) -> Self {
        self.circuit_breaker = options;
        self
    }
}

impl fmt::Debug for ClientOptions {
    /// Without the password or token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = match &self.credentials {
            Some(Credentials::Password { user, .. }) => Some(user),
            Some(Credentials::Token(_)) | None => None,
        };
        f.debug_struct("ClientOptions")
            .field("addresses", &self.addresses)
            .field("bucket", &self.bucket)
            .field("user", &user)
            .field("tls", &self.tls.is_some())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
