//! The record: everything that passed, and which faults were injected.
//!
//! Times count from the proxy's start, on tokio's clock.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, Version};

use super::fault::{ConnectionFault, Fault};
use super::script::FaultSource;

/// A snapshot of everything recorded so far.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The kept exchanges, in order of arrival.
    pub exchanges: Vec<Exchange>,
    /// The kept connections, in order of arrival.
    pub connections: Vec<Connection>,
    /// Totals, including entries that are no longer kept.
    pub counts: Counts,
}

/// Totals since the start of the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// HTTP requests that have arrived.
    pub exchanges: u64,
    /// Requests that are not answered yet.
    pub exchanges_open: u64,
    /// Requests that the upstream server saw.
    pub forwarded: u64,
    /// Requests that got a fault.
    pub faults: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that are open at this moment.
    pub connections_open: u64,
    /// Connections that got a fault.
    pub connection_faults: u64,
}

/// A request and its response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exchange {
    /// Its number among all requests, from 1, in order of arrival.
    pub number: u64,
    /// The number of its connection, from 1.
    pub connection: u64,
    /// The version of HTTP.
    pub version: Version,
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub path: String,
    /// The headers of the request, as the client sent them.
    pub headers: HeaderMap,
    /// The call that its header `x-redial-call` names.
    pub call: Option<String>,
    /// When its head came.
    pub arrived: Duration,
    /// How many bytes of its body were read.
    pub request_bytes: u64,
    /// FNV-1a (64 bits) of those bytes: equal for attempts with the same body.
    pub request_digest: u64,
    /// When it was forwarded; `None` if the upstream server did not see it.
    pub forwarded: Option<Duration>,
    /// The status of the upstream server's response.
    pub upstream_status: Option<StatusCode>,
    /// The status that the client was sent.
    pub status: Option<StatusCode>,
    /// How many bytes of a response's body were sent to the client.
    pub response_bytes: u64,
    /// The fault, if there was one.
    pub fault: Option<Fault>,
    /// Where the fault came from.
    pub source: Option<FaultSource>,
    /// When and how it ended; `None` while it is open.
    pub end: Option<ExchangeEnd>,
}

/// The end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeEnd {
    /// When.
    pub at: Duration,
    /// How.
    pub outcome: ExchangeOutcome,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExchangeOutcome {
    /// The whole response was written to the connection.
    Answered,
    /// The proxy reset the connection.
    Reset,
    /// The proxy closed the connection.
    Closed,
    /// The client closed the connection, or cancelled the stream.
    ClientGone,
    /// The upstream server could not be reached, or failed; the client got status 502 or a
    /// truncated response.
    UpstreamFailed,
    /// The proxy was stopped.
    Stopped,
}

/// A connection from a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Connection {
    /// Its number, from 1.
    pub number: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// When it was accepted.
    pub opened: Duration,
    /// When it was closed; `None` while it is open.
    pub closed: Option<Duration>,
    /// How many bytes the client sent.
    pub bytes_up: u64,
    /// How many bytes the client was sent.
    pub bytes_down: u64,
    /// The fault, if there was one.
    pub fault: Option<ConnectionFault>,
}
