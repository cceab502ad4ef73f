//! The record: everything the clients sent.
//!
//! Times count from the server's start, on tokio's clock.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::HeaderMap;

use super::action::OnConnect;
use super::status_number::StatusNumber;

/// A snapshot of everything recorded so far.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The kept streams, in order of arrival.
    pub streams: Vec<StreamRecord>,
    /// The kept connections, in order of arrival.
    pub connections: Vec<Connection>,
    /// Totals, including entries that are no longer kept.
    pub counts: Counts,
}

/// Totals since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Streams that have arrived.
    pub streams: u64,
    /// Streams that are open at this moment.
    pub streams_open: u64,
    /// Streams that got the default answer.
    pub streams_unscripted: u64,
    /// Connections that clients requested.
    pub connections: u64,
    /// Connections that are open at this moment.
    pub connections_open: u64,
}

/// A stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamRecord {
    /// Its number among all streams, from 1, in order of arrival.
    pub number: u64,
    /// The number of its connection, from 1.
    pub connection: u64,
    /// Its id there.
    pub id: u32,
    /// The call that its header named.
    pub call: Option<String>,
    /// Its number among the attempts of its call, from 1; attempts without a stream count too. A
    /// rejected stream has none.
    pub attempt: Option<u64>,
    /// Whether the script had an answer for it.
    pub scripted: bool,
    /// When its headers came.
    pub arrived: Duration,
    /// `/package.Service/Method`.
    pub path: String,
    /// Its request headers without the pseudo-headers.
    pub headers: HeaderMap,
    /// How many whole messages were read.
    pub messages: u64,
    /// How many bytes of the request's body were read, prefixes included.
    pub bytes: u64,
    /// FNV-1a (64 bits) of those bytes: equal for attempts with the same body.
    pub digest: u64,
    /// The kept payloads of the first messages.
    pub payloads: Vec<Bytes>,
    /// When the client's half-close came.
    pub half_closed: Option<Duration>,
    /// When and with which code the client reset it.
    pub reset: Option<Reset>,
    /// When and how it ended; `None` while it is open.
    pub end: Option<StreamEnd>,
}

/// `RST_STREAM` from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// When it came.
    pub at: Duration,
    /// Its code.
    pub reason: Reason,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// When.
    pub at: Duration,
    /// How it ended.
    pub outcome: StreamOutcome,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamOutcome {
    /// The server ended it with `END_STREAM`, and with this status if it sent a numeric one.
    Answered(Option<StatusNumber>),
    /// The server reset it.
    Reset(Reason),
    /// The client reset it.
    ResetByClient(Reason),
    /// It was above the last stream of a GOAWAY.
    GoneAway(Reason),
    /// It was refused because too many streams were open.
    TooManyStreams,
    /// The server closed the connection.
    Closed,
    /// The client closed the connection, or it broke.
    ClosedByClient,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// Its number, from 1.
    pub number: u64,
    /// How it was treated.
    pub on_connect: OnConnect,
    /// The attempt that it consumed, if its connect action belonged to one: the name of the call
    /// and the number of the attempt.
    pub attempt: Option<(Option<String>, u64)>,
    /// When the client requested it.
    pub opened: Duration,
    /// When it was closed; `None` while it is open.
    pub closed: Option<Duration>,
}

impl StreamRecord {
    /// `grpc-previous-rpc-attempts`, if present once and numeric.
    #[must_use]
    pub fn previous_attempts(&self) -> Option<u64> {
        self.number_of("grpc-previous-rpc-attempts")
    }

    /// `grpc-timeout`, if present once and valid: up to eight digits and a unit.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        timeout(&self.headers)
    }

    fn number_of(&self, name: &str) -> Option<u64> {
        whole(only(&self.headers, name)?)
    }
}

/// Parses `grpc-timeout`, if present once and valid: up to eight digits and a unit.
#[must_use]
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = only(headers, "grpc-timeout")?;
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    if digits.len() > TIMEOUT_DIGITS_MAX {
        return None;
    }
    let number = whole(digits)?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The value of a header that is present exactly once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

/// The longest number in a `grpc-timeout` (gRPC over HTTP/2, "Requests").
const TIMEOUT_DIGITS_MAX: usize = 8;

/// A number of digits alone.
fn whole(digits: &str) -> Option<u64> {
    let only_digits = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    only_digits.then(|| digits.parse().ok())?
}
