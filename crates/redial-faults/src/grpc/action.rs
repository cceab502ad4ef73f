//! The actions of a script, as data.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, StatusCode};

/// One action and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerStep {
    /// The time since the stream's arrival.
    pub after: Duration,
    /// What to do then.
    pub action: Action,
}

/// An action on a stream or on its connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Response headers.
    Headers(ResponseHeaders),
    /// A gRPC message, with its prefix.
    Message(Payload),
    /// Raw DATA bytes, without a gRPC message prefix.
    Data(Bytes),
    /// Trailers, with `END_STREAM`.
    Trailers(HeaderMap),
    /// `END_STREAM` alone, without trailers.
    EndStream,
    /// `RST_STREAM`.
    Reset(Reason),
    /// GOAWAY.
    GoAway(GoAway),
    /// Closes the connection.
    Close(Close),
    /// What happens when the client connects for this attempt; no stream arrives.
    OnConnect(OnConnect),
}

/// Response headers.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseHeaders {
    /// The HTTP status.
    pub status: StatusCode,
    /// The fields.
    pub fields: HeaderMap,
    /// Whether they end the stream.
    pub end_stream: bool,
}

/// The payload of a response message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// These bytes.
    Bytes(Bytes),
    /// The next request message that was not echoed yet. The server waits for it; if the request
    /// ends first, nothing is sent.
    Echo,
    /// Every further request message as it arrives, until the request ends.
    EchoRest,
}

/// A GOAWAY frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The last stream that the server may have processed.
    pub last: LastStream,
    /// Its error code.
    pub reason: Reason,
    /// Its debug data.
    pub debug: Bytes,
}

/// The last stream id of a GOAWAY, relative to the stream whose script sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStream {
    /// The stream before it: this one was not processed.
    Below,
    /// This stream: it may have been processed.
    This,
    /// The largest possible id, as in the first GOAWAY of a graceful shutdown.
    Above,
    /// A fixed id.
    Id(u32),
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Gracefully: everything written so far is delivered first.
    Graceful,
    /// Immediately: a TCP reset, and unsent data is lost.
    Abrupt,
}

/// The part of the request that must arrive before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WaitFor {
    /// The request headers only.
    Headers,
    /// The headers and what the client sends with them: on a pipe everything that arrives at the
    /// same instant of the clock; on TCP until the request ends or pauses for 20 ms.
    #[default]
    Idle,
    /// This many complete messages, or the end of the request.
    Messages(u64),
    /// The whole request, up to the client's half-close.
    Request,
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnConnect {
    /// It is served.
    #[default]
    Serve,
    /// It is refused. On a pipe only, since a listening socket cannot refuse.
    Refuse,
    /// It is accepted and closed immediately.
    CloseImmediately,
    /// It is accepted, and closed after the client's HTTP/2 preface.
    CloseAfterPreface,
    /// It is accepted, and the server never sends anything.
    SendNothing,
}

impl OnConnect {
    /// Whether the client can never write a request.
    pub(super) const fn prevents_requests(self) -> bool {
        matches!(
            self,
            OnConnect::Refuse | OnConnect::CloseImmediately | OnConnect::CloseAfterPreface
        )
    }
}
