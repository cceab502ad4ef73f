//! The state that all tasks of a proxy share: the remaining script and the record.
//!
//! Invariant: the counts and the entries that they count change under one lock.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::fault::{ConnectionFault, Fault};
use super::listener::Connections;
use super::record::{Connection, Counts, Exchange, ExchangeEnd, ExchangeOutcome, Record};
use super::script::{FAULT_HEADER, FaultSource, Script};
use crate::grpc::CALL_HEADER;
use crate::grpc::request_decoder::FNV_START;
use crate::grpc::shared::forget_oldest;

type OnEndFn = dyn Fn(Ended<'_>) + Send + Sync;

/// What has ended, for [`Proxy::on_end`](super::Proxy::on_end).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ended<'r> {
    /// A request was answered or failed.
    Exchange(&'r Exchange),
    /// A connection was closed.
    Connection(&'r Connection),
}

/// A callback for each ended exchange and connection.
#[derive(Clone)]
pub(super) struct OnEnd(pub(super) Arc<OnEndFn>);

impl fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnEnd(..)")
    }
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) to: String,
    pub(super) kept: usize,
    pub(super) on_end: Option<OnEnd>,
}

#[derive(Debug)]
pub(super) struct Shared {
    start: Instant,
    pub(super) options: Options,
    state: Mutex<State>,
    changed: Notify,
    stop: watch::Sender<bool>,
    /// What the handle asks for.
    pub(super) wanted: watch::Sender<Connections>,
    /// What happens to new connections now.
    pub(super) present: watch::Sender<Connections>,
}

#[derive(Debug)]
struct State {
    script: Script,
    exchanges: VecDeque<Exchange>,
    connections: VecDeque<Connection>,
    counts: Counts,
}

impl Shared {
    pub(super) fn new(script: Script, options: Options) -> Arc<Shared> {
        let state = State {
            script,
            exchanges: VecDeque::new(),
            connections: VecDeque::new(),
            counts: Counts::default(),
        };
        Arc::new(Shared {
            start: Instant::now(),
            options,
            state: Mutex::new(state),
            changed: Notify::new(),
            stop: watch::Sender::new(false),
            wanted: watch::Sender::new(Connections::Accepted),
            present: watch::Sender::new(Connections::Refused),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves complete entries: the user's callback runs without the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.start)
    }

    pub(super) fn with_script<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        f(&mut self.state().script)
    }

    /// Records a new connection: its number and its fault. `None` if too many are open.
    pub(super) fn connect(&self, peer: SocketAddr, max: u64) -> Option<(u64, ConnectionFault)> {
        let opened = self.now();
        let mut state = self.state();
        if state.counts.connections_open >= max {
            return None;
        }
        let fault = state.script.next_connection();
        state.counts.connections += 1;
        state.counts.connections_open += 1;
        state.counts.connection_faults += u64::from(!fault.is_pass());
        let number = state.counts.connections;
        state.connections.push_back(Connection {
            number,
            peer,
            opened,
            closed: None,
            bytes_up: 0,
            bytes_down: 0,
            fault: (!fault.is_pass()).then(|| fault.clone()),
        });
        forget_oldest(&mut state.connections, self.options.kept, |it| it.closed.is_some());
        drop(state);
        self.changed.notify_waiters();
        Some((number, fault))
    }

    pub(super) fn disconnected(&self, number: u64, bytes_up: u64, bytes_down: u64) {
        let now = self.now();
        let mut state = self.state();
        state.counts.connections_open = state.counts.connections_open.saturating_sub(1);
        let mut ended = None;
        if let Ok(index) = state.connections.binary_search_by_key(&number, |it| it.number) {
            let connection = &mut state.connections[index];
            connection.closed = Some(now);
            (connection.bytes_up, connection.bytes_down) = (bytes_up, bytes_down);
            ended = self.options.on_end.is_some().then(|| connection.clone());
        }
        drop(state);
        if let (Some(OnEnd(on_end)), Some(connection)) = (&self.options.on_end, &ended) {
            on_end(Ended::Connection(connection));
        }
        self.changed.notify_waiters();
    }

    /// Records a new request: its number and its fault. A fault in its header replaces the script's.
    pub(super) fn arrive(
        &self,
        connection: u64,
        head: &Parts,
        by_header: Option<Fault>,
    ) -> (u64, Fault) {
        let arrived = self.now();
        let mut state = self.state();
        let (fault, source) = match by_header {
            Some(fault) => (fault, Some(FaultSource::Header)),
            None => state.script.next_request(head),
        };
        let faulty = !fault.is_pass();
        state.counts.exchanges += 1;
        state.counts.exchanges_open += 1;
        state.counts.faults += u64::from(faulty);
        let number = state.counts.exchanges;
        let mut headers = head.headers.clone();
        headers.remove(FAULT_HEADER);
        state.exchanges.push_back(Exchange {
            number,
            connection,
            version: head.version,
            method: head.method.clone(),
            path: head.uri.path_and_query().map_or("", |it| it.as_str()).to_owned(),
            call: headers
                .get(CALL_HEADER)
                .map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned()),
            headers,
            arrived,
            request_bytes: 0,
            request_digest: FNV_START,
            forwarded: None,
            upstream_status: None,
            status: None,
            response_bytes: 0,
            fault: faulty.then(|| fault.clone()),
            source: source.filter(|_| faulty),
            end: None,
        });
        forget_oldest(&mut state.exchanges, self.options.kept, |it| it.end.is_some());
        drop(state);
        self.changed.notify_waiters();
        (number, fault)
    }

    /// Updates the record of an exchange.
    pub(super) fn update(&self, number: u64, update: impl FnOnce(&mut Exchange)) {
        let mut state = self.state();
        if let Ok(index) = state.exchanges.binary_search_by_key(&number, |it| it.number) {
            update(&mut state.exchanges[index]);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that the upstream server gets to see an exchange.
    pub(super) fn forwarded(&self, number: u64) {
        let now = self.now();
        self.state().counts.forwarded += 1;
        self.update(number, |it| it.forwarded = Some(now));
    }

    pub(super) fn answered_by_upstream(&self, number: u64, status: StatusCode) {
        self.update(number, |it| it.upstream_status = Some(status));
    }

    /// Records the end of an exchange.
    pub(super) fn end(&self, number: u64, outcome: ExchangeOutcome) {
        let at = self.now();
        let mut state = self.state();
        state.counts.exchanges_open = state.counts.exchanges_open.saturating_sub(1);
        let mut ended = None;
        if let Ok(index) = state.exchanges.binary_search_by_key(&number, |it| it.number) {
            let exchange = &mut state.exchanges[index];
            exchange.end = Some(ExchangeEnd { at, outcome });
            ended = self.options.on_end.is_some().then(|| exchange.clone());
        }
        drop(state);
        if let (Some(OnEnd(on_end)), Some(exchange)) = (&self.options.on_end, &ended) {
            on_end(Ended::Exchange(exchange));
        }
        self.changed.notify_waiters();
    }

    pub(super) fn record(&self) -> Record {
        let state = self.state();
        Record {
            exchanges: state.exchanges.iter().cloned().collect(),
            connections: state.connections.iter().cloned().collect(),
            counts: state.counts,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Waits until `look` returns a value; it is called after every change.
    pub(super) async fn until<T>(&self, mut look: impl FnMut(&Shared) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(self) {
                return found;
            }
            changed.await;
        }
    }

    /// What happens to new connections from now on, and when that changes.
    pub(super) fn connections(&self) -> (Connections, Option<Instant>) {
        let now = self.now();
        let (refused, change) = self.with_script(|script| script.refusal(now));
        let connections = if refused { Connections::Refused } else { *self.wanted.borrow() };
        (connections, change.and_then(|at| self.start.checked_add(at)))
    }

    /// Stops every task.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the proxy is stopped.
    pub(super) async fn stopped(&self) {
        // It cannot fail: `self` owns the sender.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::CONNECTIONS_OPEN_MAX;

    #[test]
    fn proxy_limits_open_connections() {
        let options = Options { to: String::new(), kept: 1, on_end: None };
        let shared = Shared::new(Script::new(), options);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        for number in 1..=CONNECTIONS_OPEN_MAX {
            assert_eq!(shared.connect(peer, CONNECTIONS_OPEN_MAX).unwrap().0, number);
        }
        assert!(shared.connect(peer, CONNECTIONS_OPEN_MAX).is_none());
        shared.disconnected(1, 0, 0);
        assert!(shared.connect(peer, CONNECTIONS_OPEN_MAX).is_some());
        assert_eq!(shared.counts().connections_open, CONNECTIONS_OPEN_MAX);
    }
}
