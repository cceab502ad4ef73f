//! The proxy, and the handle of a running one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::{Instant, sleep_until};

use super::client_io::{Breaker, ClientIo};
use super::fault::{BreakKind, ConnectionFault, Fault};
use super::listener::{Connections, Listener, PAUSE};
use super::record::{Counts, Record};
use super::rule::ProxyRule;
use super::script::Script;
use super::shared::{Ended, OnEnd, Options, Shared};
use super::{http, tcp};

/// How many ended exchanges, and as many connections, the record keeps by default.
pub const EXCHANGES_KEPT: usize = 10_000;
/// How many connections may be open at a time; further ones are reset.
pub const CONNECTIONS_OPEN_MAX: u64 = 1_000;

/// What the proxy understands of the bytes that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Tcp,
}

/// A proxy before it runs.
///
/// | option | default | why |
/// | --- | --- | --- |
/// | [`script`](Proxy::script) | no faults | a test adds them, at the start or later |
/// | [`kept`](Proxy::kept) | [`EXCHANGES_KEPT`] | more than a test reads |
#[derive(Clone, Debug)]
#[must_use = "a proxy does nothing until it listens"]
pub struct Proxy {
    protocol: Protocol,
    script: Script,
    options: Options,
}

impl Proxy {
    /// A proxy for HTTP/1.1, and for HTTP/2 without TLS (prior knowledge, as gRPC uses it), to the
    /// server at this address: `127.0.0.1:8080`, or a host name and a port.
    #[expect(clippy::needless_pass_by_value, reason = "callers pass an address or a text")]
    pub fn http(to: impl ToString) -> Proxy {
        Proxy::new(Protocol::Http, to.to_string())
    }

    /// A proxy for any protocol, TLS included: it sees connections and bytes, no requests.
    #[expect(clippy::needless_pass_by_value, reason = "callers pass an address or a text")]
    pub fn tcp(to: impl ToString) -> Proxy {
        Proxy::new(Protocol::Tcp, to.to_string())
    }

    fn new(protocol: Protocol, to: String) -> Proxy {
        let options = Options { to, kept: EXCHANGES_KEPT, on_end: None };
        Proxy { protocol, script: Script::new(), options }
    }

    /// Sets the faults.
    pub fn script(mut self, script: impl Into<Script>) -> Proxy {
        self.script = script.into();
        self
    }

    /// Keeps this many ended exchanges and connections in the record; the oldest are dropped first.
    pub fn kept(mut self, max: usize) -> Proxy {
        self.options.kept = max;
        self
    }

    /// Calls this for each exchange and each connection when it has ended.
    pub fn on_end(mut self, call: impl Fn(Ended<'_>) + Send + Sync + 'static) -> Proxy {
        self.options.on_end = Some(OnEnd(Arc::new(call)));
        self
    }

    /// Listens on this address; port 0 takes any free port.
    ///
    /// # Errors
    /// The script is invalid, or has faults for requests that a TCP proxy does not see; the server's
    /// address is not a host and a port; the address to listen on cannot be bound.
    pub async fn listen(self, addr: impl ToSocketAddrs) -> io::Result<Handle> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        self.script.check().map_err(|error| invalid(error.to_string()))?;
        let port = self.options.to.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.and_then(|(_, port)| port.parse::<u16>().ok()).is_none() {
            let to = &self.options.to;
            let text =
                format!("{to:?} is no server: expected a host and a port, like 127.0.0.1:8080");
            return Err(invalid(text));
        }
        if self.protocol == Protocol::Tcp && self.script.has_requests() {
            let text =
                "a TCP proxy sees no requests: use the faults of connections, or an HTTP proxy";
            return Err(invalid(text.to_owned()));
        }
        let none = || invalid("the address to listen on has no IP address".to_owned());
        let addr = lookup_host(addr).await?.next().ok_or_else(none)?;
        let mut listener = Listener::bind(addr)?;
        let addr = listener.addr();
        let shared = Shared::new(self.script, self.options);
        // Before a client can know the address.
        listener.set(shared.connections().0)?;
        tokio::spawn(accept(shared.clone(), listener, self.protocol));
        Ok(Handle { shared, addr, protocol: self.protocol })
    }
}

async fn accept(shared: Arc<Shared>, mut listener: Listener, protocol: Protocol) {
    let mut wanted = shared.wanted.subscribe();
    loop {
        wanted.mark_unchanged();
        let (connections, change) = shared.connections();
        let change = match listener.set(connections) {
            Ok(()) => {
                shared.present.send_replace(connections);
                change
            }
            Err(_) => Some(Instant::now() + PAUSE),
        };
        let changed = async {
            match change {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.tasks.stopped() => return,
            () = changed => {}
            // It cannot fail: `shared` owns the sender.
            _ = wanted.changed() => {}
            (socket, peer) = listener.accept() => serve(&shared, socket, peer, protocol),
        }
    }
}

fn serve(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr, protocol: Protocol) {
    // Send small packets immediately; if this fails they are only delayed.
    let _ = socket.set_nodelay(true);
    let breaker = Breaker::new();
    let Some((number, fault)) = shared.connect(peer, CONNECTIONS_OPEN_MAX) else {
        breaker.fail(BreakKind::Reset);
        drop(ClientIo::new(socket, breaker, &ConnectionFault::pass()));
        return;
    };
    let io = ClientIo::new(socket, breaker.clone(), &fault);
    let guard = ConnectionGuard { shared: shared.clone(), number, breaker: breaker.clone() };
    let shared = shared.clone();
    tokio::spawn(async move {
        let serving = async {
            tokio::time::sleep(fault.delay).await;
            match protocol {
                Protocol::Http => http::serve(shared.clone(), number, breaker.clone(), io).await,
                Protocol::Tcp => tcp::serve(shared.clone(), breaker.clone(), io).await,
            }
        };
        tokio::select! {
            biased;
            () = breaker.failed() => {}
            () = shared.tasks.stopped() => {}
            () = serving => {}
        }
        drop(guard);
    });
}

/// Records the end of a connection when dropped.
struct ConnectionGuard {
    shared: Arc<Shared>,
    number: u64,
    breaker: Arc<Breaker>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let (up, down) = self.breaker.bytes();
        self.shared.disconnected(self.number, up, down);
    }
}

/// A running proxy. It stops when dropped.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    addr: SocketAddr,
    protocol: Protocol,
}

impl Handle {
    /// The address on which the proxy listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A copy of the record.
    #[must_use]
    pub fn record(&self) -> Record {
        self.shared.record()
    }

    /// The counts of the record, without copying the rest.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Waits until `enough` returns `true` for a copy of the record, and returns that copy.
    /// `enough` is called now and after every change.
    pub async fn until(&self, enough: impl Fn(&Record) -> bool) -> Record {
        self.shared.tasks.until(|| Some(self.record()).filter(&enough)).await
    }

    /// Waits until no exchange is open. A client may have its response a moment earlier.
    pub async fn idle(&self) {
        self.shared.tasks.until(|| (self.counts().exchanges_open == 0).then_some(())).await;
    }

    /// Adds faults for the next requests that name no call.
    ///
    /// # Panics
    /// A fault is invalid ([`Fault::check`]), or the proxy is a TCP proxy.
    #[track_caller]
    pub fn requests(&self, faults: impl IntoIterator<Item = Fault>) {
        let faults = self.checked(faults);
        self.shared.with_script(|script| script.add_requests(faults));
    }

    /// Adds faults for the next requests of this call.
    ///
    /// # Panics
    /// A fault is invalid ([`Fault::check`]), or the proxy is a TCP proxy.
    #[track_caller]
    pub fn call(&self, name: &str, faults: impl IntoIterator<Item = Fault>) {
        let faults = self.checked(faults);
        self.shared.with_script(|script| script.add_call(name, faults));
    }

    #[track_caller]
    fn checked(&self, faults: impl IntoIterator<Item = Fault>) -> Vec<Fault> {
        assert!(self.protocol == Protocol::Http, "a TCP proxy sees no requests");
        let faults: Vec<_> = faults.into_iter().collect();
        if let Err(invalid) = faults.iter().try_for_each(Fault::check) {
            panic!("{invalid}");
        }
        faults
    }

    /// Adds a rule for requests that no list has a fault for, behind the rules that are there.
    ///
    /// # Panics
    /// The rule is invalid ([`ProxyRule::check`]), or the proxy is a TCP proxy.
    #[track_caller]
    pub fn rule(&self, rule: ProxyRule) {
        assert!(self.protocol == Protocol::Http, "a TCP proxy sees no requests");
        if let Err(invalid) = rule.check() {
            panic!("{invalid}");
        }
        self.shared.with_script(|script| script.add_rule(rule));
    }

    /// Adds faults for the next connections.
    ///
    /// # Panics
    /// A fault is invalid ([`ConnectionFault::check`]).
    #[track_caller]
    pub fn connections(&self, faults: impl IntoIterator<Item = ConnectionFault>) {
        let faults: Vec<_> = faults.into_iter().collect();
        if let Err(invalid) = faults.iter().try_for_each(ConnectionFault::check) {
            panic!("{invalid}");
        }
        self.shared.with_script(|script| script.add_connections(faults));
    }

    /// Removes all faults and rules that are left.
    pub fn clear(&self) {
        self.shared.with_script(|script| *script = Script::new());
    }

    /// Refuses further connections (`ECONNREFUSED`) until
    /// [`accept_connections`](Handle::accept_connections). Open ones go on. Returns when it is so.
    pub async fn refuse_connections(&self) {
        self.set_connections(Connections::Refused).await;
    }

    /// Accepts connections again; returns when it is so, after the refusals of the script.
    pub async fn accept_connections(&self) {
        self.set_connections(Connections::Accepted).await;
    }

    async fn set_connections(&self, wanted: Connections) {
        self.shared.wanted.send_replace(wanted);
        // It cannot fail: `shared` owns the sender.
        let _ = self.shared.present.subscribe().wait_for(|present| *present == wanted).await;
    }

    /// Closes every connection, waits for all tasks, and returns the record.
    pub async fn shutdown(self) -> Record {
        self.shared.tasks.stop();
        let over = |counts: Counts| counts.exchanges_open == 0 && counts.connections_open == 0;
        self.shared.tasks.until(|| over(self.counts()).then(|| self.record())).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.tasks.stop();
    }
}
