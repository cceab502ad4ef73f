//! What can be done to a stream, as data.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, StatusCode};

/// One thing that is done to a stream, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// How long after the stream's arrival.
    pub after: Duration,
    /// What is done.
    pub act: Act,
}

/// One thing that can be done to a stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Act {
    /// Response headers.
    Headers(Headers),
    /// A gRPC message, with its prefix.
    Message(Payload),
    /// Bytes as they are, without a prefix.
    Data(Bytes),
    /// Trailers, with `END_STREAM`.
    Trailers(HeaderMap),
    /// `END_STREAM` alone, without trailers.
    EndStream,
    /// `RST_STREAM`.
    Reset(Reason),
    /// GOAWAY.
    GoAway(GoAway),
    /// The end of the connection.
    Close(Close),
    /// What the client meets when it connects for this attempt: no stream arrives.
    Door(Door),
}

/// Response headers.
#[derive(Clone, Debug, PartialEq)]
pub struct Headers {
    /// The HTTP status.
    pub status: StatusCode,
    /// The fields.
    pub fields: HeaderMap,
    /// Whether they end the stream.
    pub end_stream: bool,
}

/// What a message of the server holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// These bytes.
    Bytes(Bytes),
    /// The next message of the request that was not sent back yet. It is waited for; if the request
    /// ends without one, nothing is sent.
    Echo,
    /// Each message of the request as it comes, until the request ends.
    EchoRest,
}

/// A GOAWAY frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The last stream that the server says it may have processed.
    pub last: LastStream,
    /// Its error code.
    pub reason: Reason,
    /// Its debug data.
    pub debug: Bytes,
}

/// The last stream id of a GOAWAY, seen from the stream whose answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStream {
    /// The stream before it: this one was not processed.
    Below,
    /// This stream: it may have been processed.
    This,
    /// The largest id there is, as a server that only wants no more streams says first.
    Above,
    /// This number.
    Id(u32),
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// What was written arrives, then the end.
    Orderly,
    /// At once: on TCP with a reset, and what is under way is lost.
    Abrupt,
}

/// What of the request must be there before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Once {
    /// Its headers, and nothing more.
    Headers,
    /// Its headers, and what the client sends together with them: on a pipe all that comes in the
    /// same moment of the clock; on TCP it waits until the request has ended, or nothing more of it
    /// came for 20 ms.
    #[default]
    Quiet,
    /// That many whole messages, or its end.
    Messages(u64),
    /// All of it: the client's half-close.
    Request,
}

/// What a client meets when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Door {
    /// A server.
    #[default]
    Open,
    /// Nobody: the connection is refused. On the pipe only, since a listening socket cannot do it.
    Refused,
    /// The connection is accepted and closed at once.
    ClosedAtOnce,
    /// The connection is accepted, and closed when the client has sent its preface.
    ClosedAfterPreface,
    /// The connection is accepted, and nothing ever comes.
    Silent,
}

impl Door {
    /// Whether no request can be written behind it.
    pub(super) const fn is_shut(self) -> bool {
        matches!(self, Door::Refused | Door::ClosedAtOnce | Door::ClosedAfterPreface)
    }
}
