//! Numbered test servers: over TCP, each on its own runtime that can be killed, or over pipes on
//! the test's runtime, whose clock can be paused.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::{Echo, EchoServer};
use redial_echo::{EchoRequest, EchoResponse, Responder};
use redial_grpc_balance::{
    self as balance, BalancedChannel, ChannelBuilder, ConnectFuture, Connector, Io, Resolution,
    ResolveFuture, Resolver,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::codegen::BoxStream;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use super::faulty_server::{Behaviour, Faulty, serve_ignoring_cancellation};

pub(crate) type Client = EchoClient<BalancedChannel>;

/// The metadata key for the number of the server that responded.
pub(crate) const SERVER: &str = "server";

/// The servers at which attempts arrived, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<usize>>>);

impl Log {
    pub(crate) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// How many attempts arrived at each server.
    pub(crate) fn counts(&self) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for server in &*self.0.lock().unwrap() {
            *counts.entry(*server).or_insert(0) += 1;
        }
        counts
    }
}

/// Controls how a server behaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerControl {
    code: Arc<AtomicU32>,
    delay_ms: Arc<AtomicU64>,
    /// The user agent of the last call.
    pub(crate) agent: Arc<Mutex<Option<String>>>,
}

impl ServerControl {
    /// Fails every attempt with this code; 0 responds as the request asks.
    pub(crate) fn fail(&self, code: tonic::Code) {
        self.code.store(code as u32, Ordering::Relaxed);
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

/// The echo service, with a number.
#[derive(Clone, Debug)]
struct NumberedEcho {
    name: usize,
    log: Log,
    server_control: ServerControl,
}

impl NumberedEcho {
    async fn arrived<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let agent = request.metadata().get("user-agent").map(|it| it.to_str().unwrap().to_owned());
        *self.server_control.agent.lock().unwrap() = agent;
        self.log.0.lock().unwrap().push(self.name);
        tokio::time::sleep(Duration::from_millis(
            self.server_control.delay_ms.load(Ordering::Relaxed),
        ))
        .await;
        match self.server_control.code.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(Status::new(tonic::Code::from_i32(code as i32), "scripted failure")),
        }
    }

    fn signed<T>(&self, mut response: Response<T>) -> Response<T> {
        response.metadata_mut().insert(SERVER, (self.name as u64).into());
        response
    }
}

#[tonic::async_trait]
impl Echo for NumberedEcho {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        self.arrived(&request).await?;
        Responder.unary(request).await.map(|response| self.signed(response))
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoResponse>, Status> {
        self.arrived(&request).await?;
        Responder.client_stream(request).await.map(|response| self.signed(response))
    }

    type ServerStreamStream = BoxStream<EchoResponse>;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        self.arrived(&request).await?;
        Responder.server_stream(request).await.map(|response| self.signed(response))
    }

    type BidiStream = BoxStream<EchoResponse>;

    async fn bidi(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<BoxStream<EchoResponse>>, Status> {
        self.arrived(&request).await?;
        Responder.bidi(request).await.map(|response| self.signed(response))
    }
}

/// A server over TCP that can be killed.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    pub(crate) server_control: ServerControl,
    service: NumberedEcho,
    tls: Option<ServerTlsConfig>,
    runtime: Option<tokio::runtime::Runtime>,
    drain: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Replica {
    pub(crate) fn start(name: usize, log: &Log) -> Self {
        Replica::start_with(name, log, None)
    }

    /// Starts a server, optionally with TLS.
    pub(crate) fn start_with(name: usize, log: &Log, tls: Option<ServerTlsConfig>) -> Self {
        Replica::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), name, log, tls)
    }

    pub(crate) fn start_at(
        address: SocketAddr,
        name: usize,
        log: &Log,
        tls: Option<ServerTlsConfig>,
    ) -> Self {
        let server_control = ServerControl::default();
        let service =
            NumberedEcho { name, log: log.clone(), server_control: server_control.clone() };
        let mut replica =
            Replica { address, server_control, service, tls, runtime: None, drain: None };
        replica.restart();
        replica
    }

    /// Starts it again at the same address.
    pub(crate) fn restart(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime for a server");
        let listener = std::net::TcpListener::bind(self.address).expect("a port");
        self.address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener");
        let (drain, drained) = tokio::sync::oneshot::channel();
        let service = EchoServer::new(self.service.clone());
        // Cancelled hedges must not look like a rapid-reset attack to a slow server.
        let mut server = Server::builder()
            .http2_max_pending_accept_reset_streams(Some(100_000))
            .http2_max_local_error_reset_streams(None);
        if let Some(tls) = &self.tls {
            server = server.tls_config(tls.clone()).expect("a certificate and its key");
        }
        let server = server.add_service(service);
        runtime.spawn(async move {
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
            let shutdown = async { drop(drained.await) };
            server.serve_with_incoming_shutdown(incoming, shutdown).await
        });
        (self.runtime, self.drain) = (Some(runtime), Some(drain));
    }

    /// Closes all connections while requests are in flight.
    pub(crate) fn kill(&mut self) {
        self.runtime.take().expect("it runs").shutdown_background();
    }

    /// Drains: accepts no new calls and connections, and finishes those in flight.
    pub(crate) fn drain(&mut self) {
        self.drain.take().expect("it runs").send(()).expect("it listens");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts servers over TCP.
pub(crate) fn replicas(count: usize) -> (Vec<Replica>, Log) {
    let log = Log::default();
    ((0..count).map(|name| Replica::start(name, &log)).collect(), log)
}

/// A channel to these replicas with this config.
pub(crate) fn to(replicas: &[Replica], config: &str) -> ChannelBuilder {
    balance::channel("http://echo.test")
        .addresses(replicas.iter().map(|replica| replica.address))
        .default_service_config(config)
        // A server name of its own, because all tests share one process.
        .layer(
            redial_grpc_balance::RetryLayer::builder()
                .for_server(format!("{:p}", replicas.as_ptr())),
        )
}

/// Servers over pipes, at addresses that do not exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipes(Arc<Network>);

#[derive(Debug, Default)]
struct Network {
    listeners: Mutex<HashMap<SocketAddr, Listener>>,
    attempts: Mutex<Vec<(SocketAddr, Instant)>>,
    changed: tokio::sync::Notify,
}

#[derive(Debug)]
enum Listener {
    Serves(mpsc::UnboundedSender<io::Result<DuplexStream>>),
    /// Serves with faults.
    Faulty(Faulty),
    /// Responds after this delay, also to cancelled requests.
    IgnoresCancellation(Duration),
    /// Accepts connections, reads a few bytes and closes them.
    Closes,
    /// Sends SETTINGS, stays open for this long and closes.
    ClosesAfter(Duration),
    /// Leaves connection attempts pending until the listener changes.
    Pending,
    /// Accepts connections and sends nothing.
    Silent(Vec<DuplexStream>),
}

pub(crate) fn address(nth: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, nth as u8], 50051))
}

impl Pipes {
    /// Serves at this address from now on.
    pub(crate) fn serve(&self, nth: usize, log: &Log) -> ServerControl {
        let (connections, accepted) = mpsc::unbounded_channel();
        let server_control = ServerControl::default();
        let service =
            NumberedEcho { name: nth, log: log.clone(), server_control: server_control.clone() };
        tokio::spawn(async move {
            let server = Server::builder().add_service(EchoServer::new(service));
            server.serve_with_incoming(UnboundedReceiverStream::new(accepted)).await
        });
        self.listen(nth, Listener::Serves(connections));
        server_control
    }

    /// Serves at this address with faults from now on.
    pub(crate) fn serve_faulty(&self, nth: usize, behaviour: Behaviour) -> Faulty {
        let faulty = Faulty::new(nth as u64, behaviour);
        self.let_misbehave_at(nth, &faulty);
        faulty
    }

    pub(crate) fn let_misbehave_at(&self, nth: usize, faulty: &Faulty) {
        self.listen(nth, Listener::Faulty(faulty.clone()));
    }

    /// Refuses connections at this address.
    pub(crate) fn refuse_at(&self, nth: usize) {
        self.0.listeners.lock().unwrap().remove(&address(nth));
    }

    pub(crate) fn answer_cancelled_at(&self, nth: usize, delay: Duration) {
        self.listen(nth, Listener::IgnoresCancellation(delay));
    }

    pub(crate) fn close_connections_at(&self, nth: usize) {
        self.listen(nth, Listener::Closes);
    }

    pub(crate) fn stay_silent_at(&self, nth: usize) {
        self.listen(nth, Listener::Silent(Vec::new()));
    }

    pub(crate) fn close_after_at(&self, nth: usize, how_long: Duration) {
        self.listen(nth, Listener::ClosesAfter(how_long));
    }

    pub(crate) fn leave_pending_at(&self, nth: usize) {
        self.listen(nth, Listener::Pending);
    }

    fn listen(&self, nth: usize, listener: Listener) {
        self.0.listeners.lock().unwrap().insert(address(nth), listener);
        self.0.changed.notify_waiters();
    }

    fn holds(&self, address: SocketAddr) -> bool {
        matches!(self.0.listeners.lock().unwrap().get(&address), Some(Listener::Pending))
    }

    /// When connection attempts to this address were made.
    pub(crate) fn connect_attempts(&self, nth: usize) -> Vec<Instant> {
        let attempts = self.0.attempts.lock().unwrap();
        attempts.iter().filter(|(to, _)| *to == address(nth)).map(|(_, at)| *at).collect()
    }

    /// A channel to the servers 1 to `count`, with this config.
    pub(crate) fn to(&self, count: usize, config: &str) -> ChannelBuilder {
        self.channel(config).addresses((1..=count).map(address))
    }

    /// A channel that connects through these pipes.
    pub(crate) fn channel(&self, config: &str) -> ChannelBuilder {
        balance::channel("http://echo.test")
            .default_service_config(config)
            .layer(redial_grpc_balance::RetryLayer::builder().for_server(format!("{:p}", self.0)))
            .connector(self.clone())
            // Long enough that a test can observe a channel in connection backoff.
            .connect_backoff(Duration::from_secs(1), Duration::from_secs(120))
    }
}

impl Connector for Pipes {
    fn connect(&self, address: SocketAddr) -> ConnectFuture<'_> {
        Box::pin(async move {
            self.0.attempts.lock().unwrap().push((address, Instant::now()));
            while self.holds(address) {
                self.0.changed.notified().await;
            }
            let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
            match self.0.listeners.lock().unwrap().get_mut(&address) {
                Some(Listener::Serves(connections)) => connections
                    .send(Ok(theirs))
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?,
                Some(Listener::Faulty(faulty)) => {
                    tokio::spawn(faulty.clone().serve(theirs));
                }
                Some(Listener::IgnoresCancellation(delay)) => {
                    tokio::spawn(serve_ignoring_cancellation(theirs, *delay));
                }
                Some(Listener::Closes | Listener::Pending) => {
                    tokio::spawn(async move { theirs.read(&mut [0; 16]).await });
                }
                Some(Listener::ClosesAfter(how_long)) => {
                    let how_long = *how_long;
                    tokio::spawn(async move {
                        // An empty SETTINGS frame (RFC 9113, section 6.5).
                        theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
                        tokio::time::sleep(how_long).await;
                        io::Result::Ok(())
                    });
                }
                Some(Listener::Silent(held)) => held.push(theirs),
                None => return Err(io::ErrorKind::ConnectionRefused.into()),
            }
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}

/// A resolver that returns the scripted resolution and records each query.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedResolver(Arc<Mutex<(Option<Resolution>, Vec<Instant>)>>);

impl ScriptedResolver {
    pub(crate) fn set(&self, answer: Resolution) {
        self.0.lock().unwrap().0 = Some(answer);
    }

    pub(crate) fn fail(&self) {
        self.0.lock().unwrap().0 = None;
    }

    pub(crate) fn queries(&self) -> Vec<Instant> {
        self.0.lock().unwrap().1.clone()
    }
}

impl Resolver for ScriptedResolver {
    fn resolve(&self) -> ResolveFuture<'_> {
        Box::pin(async move {
            let mut resolver = self.0.lock().unwrap();
            resolver.1.push(Instant::now());
            resolver.0.clone().ok_or_else(|| "the resolver is out".into())
        })
    }
}

/// A config with this method policy for every method.
pub(crate) fn config(balancing: &str, method: &str) -> String {
    let comma = if method.is_empty() { "" } else { "," };
    format!(
        r#"{{ "loadBalancingPolicy": "{balancing}",
            "methodConfig": [{{ "name": [{{}}]{comma} {method} }}] }}"#
    )
}

/// The retry policy of most tests.
pub(crate) const RETRY: &str = r#""retryPolicy": { "maxAttempts": 5, "initialBackoff": "0.01s",
    "maxBackoff": "0.05s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;

/// A request that fails this many attempts.
pub(crate) fn failing(failures: u32) -> EchoRequest {
    EchoRequest { failures, ..EchoRequest::default() }
}

/// Makes a call. Returns the number of the server that responded.
pub(crate) async fn responding_server(
    client: &mut Client,
    ask: EchoRequest,
) -> Result<usize, Status> {
    let response = client.unary(ask).await?;
    let server = response.metadata().get(SERVER).expect("answers are signed");
    Ok(server.to_str().unwrap().parse().unwrap())
}

/// Waits until the condition holds, on the test's clock; a generous limit ends a test that hangs.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
