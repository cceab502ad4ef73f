//! A reference client of Couchbase's KV service (the document store), with all of RFC 49's retry handling.
//!
//! ```no_run
//! use redial_couchbase::client::{Address, Client, ClientOptions};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let options = ClientOptions::new([Address::new("db1.example.com", 11210)], "travel")
//!     .credentials("app", "secret");
//! let client = Client::open(options);
//! let airlines = client.collection("inventory", "airline");
//! airlines.upsert("airline_10", r#"{"name": "40-Mile Air"}"#).await?;
//! let document = airlines.get("airline_10").await?;
//! # Ok(())
//! # }
//! ```
//!
//! It is a reference client: small, readable, and complete in its retry handling. It is not a
//! replacement for the vendor's SDK, which has durability, transactions, query, search, compression,
//! node-to-node failover policies and support. Use the vendor's client in production, and Redial's
//! strategies in it; use this one to learn, to test strategies, and where a small client is enough.
//!
//! # Where the reasons come from
//!
//! | reason | raised when |
//! | --- | --- |
//! | `SERVICE_NOT_AVAILABLE` | there is no cluster configuration yet, or the node has no KV service |
//! | `NODE_NOT_AVAILABLE` | the cluster configuration has no node for the vbucket |
//! | `SOCKET_NOT_AVAILABLE` | the node is not connected, its send queue is full, or the connection was lost before the request was written |
//! | `SOCKET_CLOSED_WHILE_IN_FLIGHT` | the connection was lost after the request was written |
//! | `CIRCUIT_BREAKER_OPEN` | the circuit breaker of the endpoint is open |
//! | `AUTHENTICATION_ERROR`, `TLS_ERROR`, `BUCKET_ACCESS_ERROR`, `SCOPE_NOT_FOUND`, `COLLECTION_NOT_FOUND` | the request cannot be sent, and the [`TerminalState`] says why |
//! | `KV_...` | from the response ([`Response::classify`](crate::Response::classify)) |
//! | `UNKNOWN` | the response is not one to this request |
//!
//! # Limits
//!
//! Keys have at most [`KEY_BYTES_MAX`] bytes in the default collection and
//! [`COLLECTION_KEY_BYTES_MAX`] in others, values [`VALUE_BYTES_MAX`], responses [`BODY_BYTES_MAX`];
//! a connection queues [`SEND_QUEUE_MAX`] requests of [`SEND_QUEUE_BYTES_MAX`] bytes and has [`IN_FLIGHT_MAX`] in flight; a client lets
//! [`REQUESTS_IN_RETRY_MAX`] requests wait for a retry.

mod bootstrap;
mod breaker;
mod cluster;
mod collection;
mod connection;
mod documents;
mod endpoint;
mod error;
mod frame;
mod manifest;
mod opcode;
mod options;
mod request;
mod scram;
mod subdoc;
mod topology;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use crate::error::Error;
use crate::operation::{self, RequestOperation};
use crate::reason;
use crate::terminal_state::TerminalState;

pub use breaker::{CircuitBreakerOptions, CircuitBreakerState};
pub use collection::Collection;
pub use connection::{IN_FLIGHT_MAX, SEND_QUEUE_BYTES_MAX, Stream};
pub use documents::{Cas, CollectionId, Counter, Document, Existence, Mutation};
pub use endpoint::CONNECTION_HEALTHY_AFTER;
pub use error::{InvalidRequest, RequestError};
pub use frame::{BODY_BYTES_MAX, COLLECTION_KEY_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use options::{
    CONFIG_POLL_INTERVAL, CONFIG_POLL_INTERVAL_MIN, CONFIG_POLL_TIMEOUT, CONNECT_TIMEOUT,
    ClientOptions, Connecting, Connector, PlainSasl, REQUESTS_IN_RETRY_MAX, SEND_QUEUE_MAX,
    TIMEOUT, TcpConnector,
};
pub use request::Request;
pub use scram::SCRAM_ITERATIONS_MAX;
pub use subdoc::{Lookup, LookupIn, MutateIn, PATH_BYTES_MAX, PATHS_MAX, PathError, PathMutation};
pub use topology::Address;

use cluster::{Cluster, CollectionName};
use options::Protocol;

/// Waiting for the connections changes nothing on a server.
const READY: RequestOperation = RequestOperation::declared_idempotent("client.ready");

/// A client of one bucket. Clones share its connections, which are closed with the last of them.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

/// Closes the client when it is dropped.
struct Handle {
    cluster: Arc<Cluster>,
    polling: Option<AbortHandle>,
}

impl Client {
    /// Opens a client. It connects in the background: requests that come too early are retried, or
    /// fail at once with the reason if the strategy says so.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn open(options: ClientOptions) -> Self {
        let polls = options.protocol == Protocol::Couchbase;
        let interval = options.config_poll_interval;
        let cluster = Cluster::start(options);
        let polling = polls.then(|| tokio::spawn(poll(cluster.clone(), interval)).abort_handle());
        Client { handle: Arc::new(Handle { cluster, polling }) }
    }

    /// The default collection.
    #[must_use]
    pub fn default_collection(&self) -> Collection {
        self.collection("_default", "_default")
    }

    /// A collection of a scope.
    #[must_use]
    pub fn collection(&self, scope: &str, collection: &str) -> Collection {
        Collection::new(self.clone(), scope, collection)
    }

    /// Waits until all nodes are connected. The client's strategy decides whether a terminal reason,
    /// for instance wrong credentials, ends the waiting at once. The throttle does not apply: waiting is
    /// no failure.
    ///
    /// # Errors
    /// A node is not connected in time, or the strategy declined to wait.
    pub async fn wait_until_ready(&self, timeout: Duration) -> Result<(), Error<RequestError>> {
        let cluster = self.cluster();
        let orchestrator = cluster.options.orchestrator.without_throttle();
        let request = orchestrator.request(READY, timeout);
        let ready = |_| async {
            if cluster.is_ready() {
                return Ok(());
            }
            Err(cluster.not_sent(reason::SERVICE_NOT_AVAILABLE, &CollectionName::Default))
        };
        request.run(ready).await
    }

    /// Checks that a node responds: a request that does nothing.
    pub fn noop(&self) -> Request<'_, ()> {
        self.annotated_command(opcode::NOOP, operation::KV_NOOP)
    }

    /// Sends a command without arguments, annotated as this operation: for scenarios of operations that
    /// the client does not have.
    #[doc(hidden)]
    pub fn annotated_command(&self, opcode: u8, operation: RequestOperation) -> Request<'_, ()> {
        let command = request::Command::new(operation, opcode, bytes::Bytes::new());
        let command = request::Command { without_collection: true, ..command };
        Request::new(self.cluster(), CollectionName::Default, command, documents::nothing)
    }

    /// The state that raises and clears terminal reasons.
    #[must_use]
    pub fn terminal_state(&self) -> &TerminalState {
        &self.cluster().terminal
    }

    /// The endpoints of the present cluster configuration.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        let status = |endpoint: &Arc<endpoint::Endpoint>| EndpointStatus {
            address: endpoint.address.clone(),
            is_connected: endpoint.ready().is_some(),
            circuit_breaker: endpoint.breaker.state(),
            connect_error: endpoint.connect_error().map(|error| error.to_string()),
        };
        self.cluster().endpoints().iter().map(status).collect()
    }

    /// Epoch and revision of the present cluster configuration; `None` without one.
    #[must_use]
    pub fn config_revision(&self) -> Option<(i64, i64)> {
        self.cluster().revision()
    }

    /// How many requests wait for a retry.
    #[must_use]
    pub fn requests_in_retry(&self) -> usize {
        self.cluster().in_retry()
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.handle.cluster
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("options", &self.cluster().options)
            .field("config_revision", &self.config_revision())
            .field("endpoints", &self.endpoints())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(polling) = &self.polling {
            polling.abort();
        }
        self.cluster.close();
    }
}

/// An endpoint of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Its address.
    pub address: Address,
    /// Whether requests can be sent to it.
    pub is_connected: bool,
    /// The state of its circuit breaker.
    pub circuit_breaker: CircuitBreakerState,
    /// Why the last attempt to connect failed, or that its connection was lost soon; `None` once it is
    /// connected.
    pub connect_error: Option<String>,
}

/// Polls the cluster configuration at an interval.
async fn poll(cluster: Arc<Cluster>, interval: Duration) {
    let mut interval = tokio::time::interval(interval);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval.tick().await;
    loop {
        interval.tick().await;
        cluster.poll_config().await;
    }
}
