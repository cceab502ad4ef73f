//! The server on sockets or on pipes.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::connection;
use super::record::RequestRecord;
use super::script::{Answer, Script};
use super::state::{OnRequest, Shared};
use super::tls::Identity;

/// The largest number of open connections; further ones are closed at once.
pub const CONNECTIONS_OPEN_MAX: usize = 1000;
/// The size of a pipe in each direction.
pub const PIPE_BYTES: usize = 64 << 10;
/// The port of the nodes on pipes.
const PIPE_PORT: u16 = 11210;

/// A server that is not started yet.
pub struct Server {
    script: Script,
    identity: Option<Identity>,
    on_request: Option<Box<OnRequest>>,
}

impl Server {
    /// A server with this script.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Server { script, identity: None, on_request: None }
    }

    /// Speaks TLS with this certificate.
    #[must_use]
    pub fn tls(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Calls a hook for each request, once its answer has been written.
    #[must_use]
    pub fn on_request(mut self, hook: impl Fn(&RequestRecord) + Send + Sync + 'static) -> Self {
        self.on_request = Some(Box::new(hook));
        self
    }

    /// Listens with every node on a free port of this host.
    ///
    /// # Errors
    /// The script is invalid, or a socket is not available.
    pub async fn listen(self, host: &str) -> io::Result<Handle> {
        self.listen_on(host, 0).await
    }

    /// Listens on this host, the first node on this port; port 0 takes a free one.
    ///
    /// # Errors
    /// The script is invalid, or a socket is not available.
    pub async fn listen_on(self, host: &str, port: u16) -> io::Result<Handle> {
        let nodes = self.script.nodes;
        let mut handle = self.start()?;
        for node in 0..nodes {
            let port = if node == 0 { port } else { 0 };
            let listener = TcpListener::bind((host, port)).await?;
            let port = listener.local_addr()?.port();
            handle.shared.lock().addresses.push((host.to_owned(), port));
            let accepted = accept(listener, node, handle.shared.clone());
            handle.tasks.push(tokio::spawn(accepted).abort_handle());
        }
        Ok(handle)
    }

    /// Serves pipes: the addresses of its nodes are `node0`, `node1`, ..., and
    /// [`Handle::connect`] opens a connection.
    ///
    /// # Errors
    /// The script is invalid.
    pub fn on_pipe(self) -> io::Result<Handle> {
        let nodes = self.script.nodes;
        let handle = self.start()?;
        let addresses = (0..nodes).map(|node| (format!("node{node}"), PIPE_PORT)).collect();
        handle.shared.lock().addresses = addresses;
        Ok(handle)
    }

    fn start(self) -> io::Result<Handle> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        self.script.check().map_err(invalid)?;
        let shared = Arc::new(Shared::new(self.script, self.identity, self.on_request));
        Ok(Handle { shared, tasks: Vec::new() })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("script", &self.script).finish_non_exhaustive()
    }
}

async fn accept(listener: TcpListener, node: usize, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it the server would work, only slower.
                let _ = stream.set_nodelay(true);
                if let Some(connection) = admit(&shared) {
                    let served = connection::serve(stream, node, connection, shared.clone());
                    tokio::spawn(served);
                }
            }
            // No file descriptor is left, for instance: not a reason for a busy loop.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// The number of a new connection; `None` if too many are open.
fn admit(shared: &Shared) -> Option<usize> {
    let mut state = shared.lock();
    if state.connections_open >= CONNECTIONS_OPEN_MAX {
        return None;
    }
    state.connections_open += 1;
    state.connections += 1;
    Some(state.connections - 1)
}

/// Opens a pipe to a node.
fn open(shared: &Arc<Shared>, node: usize) -> io::Result<DuplexStream> {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let connection = admit(shared).ok_or_else(refused)?;
    let (client, server) = tokio::io::duplex(PIPE_BYTES);
    tokio::spawn(connection::serve(server, node, connection, shared.clone()));
    Ok(client)
}

/// A running server. It stops when the handle is dropped.
pub struct Handle {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

impl Handle {
    /// Host and port of a node.
    ///
    /// # Panics
    /// There is no such node.
    #[must_use]
    pub fn address(&self, node: usize) -> (String, u16) {
        self.shared.lock().addresses[node].clone()
    }

    /// Host and port of each node.
    #[must_use]
    pub fn addresses(&self) -> Vec<(String, u16)> {
        self.shared.lock().addresses.clone()
    }

    /// Opens a connection to a node on a pipe.
    ///
    /// # Errors
    /// Too many connections are open.
    pub fn connect(&self, node: usize) -> io::Result<DuplexStream> {
        open(&self.shared, node)
    }

    /// Opens connections without the handle, for a client's connector.
    pub fn connector(&self) -> impl Fn(usize) -> io::Result<DuplexStream> + Send + Sync + use<> {
        let shared = self.shared.clone();
        move |node| open(&shared, node)
    }

    /// Adds answers to the script.
    pub fn push_answers(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.lock().answers.extend(answers);
    }

    /// Sets the password of a user.
    pub fn set_password(&self, user: &str, password: &str) {
        self.shared.lock().script.users.insert(user.to_owned(), password.to_owned());
    }

    /// Replaces the token that OAUTHBEARER accepts.
    pub fn set_token(&self, token: &str) {
        self.shared.lock().script.token = Some(token.to_owned());
    }

    /// Sets the status of the answers to GET CLUSTER CONFIG, of polls and of handshakes; 0x00 is a
    /// configuration.
    pub fn set_config_status(&self, status: u16) {
        self.shared.lock().config_status = status;
    }

    /// Leaves the TLS port of a node's KV service out of the cluster configuration, so that clients
    /// with TLS see a node without that service.
    pub fn withdraw_tls_port(&self, node: usize) {
        self.shared.lock().set_tls_port(node, false);
    }

    /// Lists the TLS port of a node's KV service again.
    pub fn offer_tls_port(&self, node: usize) {
        self.shared.lock().set_tls_port(node, true);
    }

    /// Sets the status of SELECT BUCKET: 0x00, 0x24 (no access), 0x01 (warming up).
    pub fn set_bucket_status(&self, status: u16) {
        self.shared.lock().bucket_status = status;
    }

    /// Adds or replaces a scope with its collections.
    pub fn set_scope<C: Into<String>>(
        &self,
        scope: &str,
        collections: impl IntoIterator<Item = C>,
    ) {
        let collections = collections.into_iter().map(Into::into).collect();
        self.shared.lock().set_scope(scope, collections);
    }

    /// Removes a scope.
    pub fn remove_scope(&self, scope: &str) {
        self.shared.lock().remove_scope(scope);
    }

    /// Deletes the bucket and creates it anew: without documents and scopes, and with a new UUID in the
    /// configuration. Its connections are closed, as by a real server.
    pub fn recreate_bucket(&self) {
        self.shared.lock().recreate_bucket();
        self.drop_connections();
    }

    /// Makes a node the active one of all vbuckets; `None`: no node has them. The documents move, too.
    pub fn move_vbuckets(&self, node: Option<usize>) {
        self.shared.lock().move_vbuckets(node);
    }

    /// Takes a node out of the cluster configuration; the next node gets its vbuckets and documents. Its
    /// connections stay open.
    pub fn fail_over(&self, node: usize) {
        self.shared.lock().fail_over(node);
    }

    /// Uses this certificate for new connections.
    pub fn set_identity(&self, identity: Identity) {
        self.shared.lock().identity = Some(identity);
    }

    /// Closes all connections. New ones are accepted.
    pub fn drop_connections(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }

    /// Stops reading requests, so that the buffers of the connections fill up.
    pub fn stop_reading(&self) {
        self.shared.reads.send_replace(false);
    }

    /// Reads requests again.
    pub fn resume_reading(&self) {
        self.shared.reads.send_replace(true);
    }

    /// The requests so far, in the order in which they were answered. At most
    /// [`REQUESTS_KEPT`](super::REQUESTS_KEPT) are kept.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.lock().records.clone()
    }

    /// How many requests arrived, with those that are not kept.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.shared.lock().requests
    }

    /// How many times the cluster configuration was asked for.
    #[must_use]
    pub fn config_polls(&self) -> u64 {
        self.shared.lock().polls
    }

    /// How many times the manifest of the collections was asked for.
    #[must_use]
    pub fn manifest_requests(&self) -> u64 {
        self.shared.lock().manifests
    }

    /// How many connections were made.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.lock().connections
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.drop_connections();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("requests", &self.request_count())
            .field("connections", &self.connection_count())
            .finish_non_exhaustive()
    }
}
