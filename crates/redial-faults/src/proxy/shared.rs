//! The state that all tasks of a proxy share: the remaining script and the record.
//!
//! Invariant: the counts and the entries that they count change under one lock.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use tokio::sync::watch;
use tokio::time::Instant;

use super::fault::{ConnectionFault, Fault};
use super::listener::Connections;
use super::record::{Connection, Counts, Exchange, ExchangeEnd, ExchangeOutcome, Record};
use super::script::{FAULT_HEADER, FaultSource, Script};
use crate::grpc::CALL_HEADER;
use crate::grpc::request_decoder::FNV_START;
use crate::tasks::{Tasks, forget_oldest};

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
    pub(super) tasks: Tasks<State>,
    pub(super) options: Options,
    /// What the handle asks for.
    pub(super) wanted: watch::Sender<Connections>,
    /// What happens to new connections now.
    pub(super) present: watch::Sender<Connections>,
}

#[derive(Debug)]
pub(super) struct State {
    script: Script,
    exchanges: VecDeque<Exchange>,
    connections: VecDeque<Connection>,
    counts: Counts,
}

impl State {
    /// Updates an exchange, if it is kept.
    fn update(&mut self, number: u64, update: impl FnOnce(&mut Exchange)) {
        if let Ok(index) = self.exchanges.binary_search_by_key(&number, |it| it.number) {
            update(&mut self.exchanges[index]);
        }
    }
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
            tasks: Tasks::new(state),
            options,
            wanted: watch::Sender::new(Connections::Accepted),
            present: watch::Sender::new(Connections::Refused),
        })
    }

    pub(super) fn with_script<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        f(&mut self.tasks.state().script)
    }

    /// Records a new connection: its number and its fault. `None` if too many are open.
    pub(super) fn connect(&self, peer: SocketAddr, max: u64) -> Option<(u64, ConnectionFault)> {
        let opened = self.tasks.now();
        let mut state = self.tasks.state();
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
        self.tasks.notify();
        Some((number, fault))
    }

    pub(super) fn disconnected(&self, number: u64, bytes_up: u64, bytes_down: u64) {
        let now = self.tasks.now();
        let mut state = self.tasks.state();
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
        self.tasks.notify();
    }

    /// Records a new request: its number and its fault. A fault in its header replaces the script's.
    pub(super) fn arrive(
        &self,
        connection: u64,
        head: &Parts,
        by_header: Option<Fault>,
    ) -> (u64, Fault) {
        let arrived = self.tasks.now();
        let mut state = self.tasks.state();
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
        self.tasks.notify();
        (number, fault)
    }

    /// Updates the record of an exchange.
    pub(super) fn update(&self, number: u64, update: impl FnOnce(&mut Exchange)) {
        self.tasks.state().update(number, update);
        self.tasks.notify();
    }

    /// Records that the upstream server gets to see an exchange.
    pub(super) fn forwarded(&self, number: u64) {
        let now = self.tasks.now();
        let mut state = self.tasks.state();
        state.counts.forwarded += 1;
        state.update(number, |it| it.forwarded = Some(now));
        drop(state);
        self.tasks.notify();
    }

    pub(super) fn answered_by_upstream(&self, number: u64, status: StatusCode) {
        self.update(number, |it| it.upstream_status = Some(status));
    }

    /// Records the end of an exchange.
    pub(super) fn end(&self, number: u64, outcome: ExchangeOutcome) {
        let at = self.tasks.now();
        let mut state = self.tasks.state();
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
        self.tasks.notify();
    }

    pub(super) fn record(&self) -> Record {
        let state = self.tasks.state();
        Record {
            exchanges: state.exchanges.iter().cloned().collect(),
            connections: state.connections.iter().cloned().collect(),
            counts: state.counts,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.tasks.state().counts
    }

    /// What happens to new connections from now on, and when that changes.
    pub(super) fn connections(&self) -> (Connections, Option<Instant>) {
        let now = self.tasks.now();
        let (refused, change) = self.with_script(|script| script.refusal(now));
        let connections = if refused { Connections::Refused } else { *self.wanted.borrow() };
        (connections, change.and_then(|at| self.tasks.moment(at)))
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
