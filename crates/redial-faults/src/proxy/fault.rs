//! Faults: what happens to one request, or to one connection.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::grpc::StatusNumber;
use crate::grpc::answer::percent_encoded;
use crate::grpc::json::values::header_value;

/// The largest body of a response that a script writes out.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A fault or a rule that cannot be played, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFault(pub(super) String);

impl fmt::Display for InvalidFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidFault {}

/// How a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakKind {
    /// A TCP reset.
    Reset,
    /// Closed in an orderly way (FIN): a truncated response for the client.
    Close,
    /// Open, but no further byte is sent or read for the request.
    Stall,
}

/// Where in an exchange the connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakPoint {
    /// Before the head of the response.
    BeforeResponse,
    /// When this many bytes of the request's body have arrived.
    RequestBytes(u64),
    /// Behind this many bytes of the response's body.
    ResponseBytes(u64),
}

/// Whether the upstream server sees the request of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Upstream {
    /// It never sees it.
    #[default]
    Skipped,
    /// It processes the request; its response is read to the end and discarded.
    Contacted,
}

/// The response of the proxy in place of the upstream server's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum FaultAction {
    /// The upstream server's response is passed on.
    #[default]
    Pass,
    Respond(Response),
    Break(BreakKind, BreakPoint),
}

/// What happens to one HTTP request.
///
/// ```
/// use std::time::Duration;
/// use redial_faults::grpc::StatusNumber;
/// use redial_faults::proxy::Fault;
///
/// // Answered by the proxy; the server sees nothing.
/// let busy = Fault::status(429).header("retry-after", "1").body("slow down");
/// // The server does the work, and the client cannot know it.
/// let lost = Fault::reset().after_upstream();
/// let half = Fault::close().at_response_bytes(100);
/// let slow = Fault::pass().delay(Duration::from_millis(50));
/// let grpc = Fault::grpc_status(StatusNumber::UNAVAILABLE).message("try later");
/// # for fault in [busy, lost, half, slow, grpc] { fault.check()?; }
/// # Ok::<(), redial_faults::proxy::InvalidFault>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a fault does nothing until it is part of a script"]
pub struct Fault {
    pub(super) delay: Duration,
    pub(super) delay_response: Duration,
    pub(super) upstream: Upstream,
    pub(super) action: FaultAction,
    invalid: Option<InvalidFault>,
}

impl Fault {
    /// No fault: the request and its response are passed on.
    pub fn pass() -> Fault {
        Fault::default()
    }

    /// A response with this HTTP status, without headers and without a body.
    pub fn status(status: u16) -> Fault {
        let known = StatusCode::from_u16(status).ok().filter(|it| it.as_u16() >= 200);
        let response = Response {
            status: known.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let fault = Fault::with(FaultAction::Respond(response));
        match known {
            Some(_) => fault,
            None => fault.refused(format!("{status} is no final status of HTTP: 200 to 999")),
        }
    }

    /// A gRPC status as a Trailers-Only response.
    pub fn grpc_status(status: StatusNumber) -> Fault {
        let mut fault = Fault::status(200).header("grpc-status", &status.0.to_string());
        if let FaultAction::Respond(response) = &mut fault.action {
            let grpc = HeaderValue::from_static("application/grpc");
            response.headers.insert(CONTENT_TYPE, grpc);
        }
        fault
    }

    /// A connection reset before the response.
    pub fn reset() -> Fault {
        Fault::with(FaultAction::Break(BreakKind::Reset, BreakPoint::BeforeResponse))
    }

    /// A connection that is closed before the response.
    pub fn close() -> Fault {
        Fault::with(FaultAction::Break(BreakKind::Close, BreakPoint::BeforeResponse))
    }

    /// No response, on a connection that stays open until the client closes it.
    pub fn stall() -> Fault {
        Fault::with(FaultAction::Break(BreakKind::Stall, BreakPoint::BeforeResponse))
    }

    fn with(action: FaultAction) -> Fault {
        Fault { action, ..Fault::default() }
    }

    /// Waits this long before the request is forwarded or answered.
    pub fn delay(mut self, delay: Duration) -> Fault {
        self.delay = delay;
        self
    }

    /// Waits this long before the head of the response is sent.
    pub fn delay_response(mut self, delay: Duration) -> Fault {
        self.delay_response = delay;
        self
    }

    /// Lets the upstream server process the request first: its response is read to the end and
    /// discarded, then the fault happens.
    pub fn after_upstream(mut self) -> Fault {
        self.upstream = Upstream::Contacted;
        self
    }

    /// Adds a header to the response of [`status`](Fault::status).
    pub fn header(mut self, name: &str, value: &str) -> Fault {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("{name:?} is no name of a header"));
        match (name, header_value(value)) {
            (Ok(name), Ok(value)) => {
                if let FaultAction::Respond(response) = &mut self.action {
                    response.headers.append(name, value);
                    return self;
                }
                self.refused("headers belong to a fault with a status".to_owned())
            }
            (Err(text), _) | (_, Err(text)) => self.refused(text),
        }
    }

    /// Sets the body of the response of [`status`](Fault::status).
    pub fn body(mut self, body: impl Into<Bytes>) -> Fault {
        if let FaultAction::Respond(response) = &mut self.action {
            response.body = body.into();
            return self;
        }
        self.refused("a body belongs to a fault with a status".to_owned())
    }

    /// Sets the status message (`grpc-message`, percent-encoded) of
    /// [`grpc_status`](Fault::grpc_status).
    pub fn message(self, text: &str) -> Fault {
        self.header("grpc-message", &percent_encoded(text))
    }

    /// Lets the connection fail when this many bytes of the request's body have arrived. The
    /// upstream server does not see the request.
    pub fn at_request_bytes(self, bytes: u64) -> Fault {
        self.at(BreakPoint::RequestBytes(bytes))
    }

    /// Lets the connection fail behind this many bytes of the upstream server's response body. A
    /// shorter response passes unharmed.
    pub fn at_response_bytes(self, bytes: u64) -> Fault {
        self.at(BreakPoint::ResponseBytes(bytes))
    }

    fn at(mut self, wanted: BreakPoint) -> Fault {
        if let FaultAction::Break(_, point) = &mut self.action {
            *point = wanted;
            return self;
        }
        self.refused("a position belongs to a reset, a close or a stall".to_owned())
    }

    /// Keeps the first problem.
    fn refused(mut self, text: String) -> Fault {
        self.invalid.get_or_insert(InvalidFault(text));
        self
    }

    /// Whether the request passes without delay.
    pub(super) fn is_pass(&self) -> bool {
        *self == Fault::pass()
    }

    /// Checks the fault.
    ///
    /// # Errors
    /// It contradicts itself, HTTP does not allow it, or its body exceeds [`BODY_BYTES_MAX`].
    pub fn check(&self) -> Result<(), InvalidFault> {
        let refuse = |text: String| Err(InvalidFault(text));
        if let Some(invalid) = &self.invalid {
            return Err(invalid.clone());
        }
        let after_upstream = self.upstream == Upstream::Contacted;
        match &self.action {
            FaultAction::Respond(response) => {
                if response.body.len() > BODY_BYTES_MAX {
                    return refuse(format!("a body has at most {BODY_BYTES_MAX} bytes"));
                }
                for name in [CONTENT_LENGTH, TRANSFER_ENCODING] {
                    if response.headers.contains_key(&name) {
                        return refuse(format!("the proxy sets {name} itself: remove the header"));
                    }
                }
                Ok(())
            }
            FaultAction::Break(_, BreakPoint::RequestBytes(_)) if after_upstream => {
                refuse("a fault inside the request's body cannot come after the upstream".into())
            }
            FaultAction::Break(_, BreakPoint::ResponseBytes(_)) if after_upstream => {
                refuse("a fault inside the response's body already comes after the upstream".into())
            }
            FaultAction::Pass if after_upstream => refuse(
                "without a status, reset, close or stall nothing follows the upstream".into(),
            ),
            FaultAction::Break(..) | FaultAction::Pass => Ok(()),
        }
    }
}

/// What happens to one connection, whatever it carries.
///
/// ```
/// use std::time::Duration;
/// use redial_faults::proxy::ConnectionFault;
///
/// let refused = ConnectionFault::reset();
/// let cut = ConnectionFault::close().at_down_bytes(1000);
/// let slow = ConnectionFault::pass().latency(Duration::from_millis(20));
/// # let _ = (refused, cut, slow);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a fault does nothing until it is part of a script"]
pub struct ConnectionFault {
    pub(super) delay: Duration,
    pub(super) latency: Duration,
    pub(super) breaks: Option<(BreakKind, ConnectionPoint)>,
    invalid: Option<InvalidFault>,
}

/// Where a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPoint {
    /// After this many bytes from the client.
    Up(u64),
    /// After this many bytes to the client.
    Down(u64),
}

impl ConnectionFault {
    /// No fault.
    pub fn pass() -> ConnectionFault {
        ConnectionFault::default()
    }

    /// Accepted, and reset immediately.
    pub fn reset() -> ConnectionFault {
        ConnectionFault::breaking(BreakKind::Reset)
    }

    /// Accepted, and closed immediately.
    pub fn close() -> ConnectionFault {
        ConnectionFault::breaking(BreakKind::Close)
    }

    /// Accepted, and never answered.
    pub fn stall() -> ConnectionFault {
        ConnectionFault::breaking(BreakKind::Stall)
    }

    fn breaking(kind: BreakKind) -> ConnectionFault {
        let breaks = Some((kind, ConnectionPoint::Up(0)));
        ConnectionFault { breaks, ..ConnectionFault::default() }
    }

    /// Waits this long before anything is read or the upstream server is contacted.
    pub fn delay(mut self, delay: Duration) -> ConnectionFault {
        self.delay = delay;
        self
    }

    /// Delays every write to the client by this long.
    pub fn latency(mut self, latency: Duration) -> ConnectionFault {
        self.latency = latency;
        self
    }

    /// Lets it fail when exactly this many bytes from the client were read.
    pub fn at_up_bytes(self, bytes: u64) -> ConnectionFault {
        self.at(ConnectionPoint::Up(bytes))
    }

    /// Lets it fail when exactly this many bytes were written to the client.
    pub fn at_down_bytes(self, bytes: u64) -> ConnectionFault {
        self.at(ConnectionPoint::Down(bytes))
    }

    fn at(mut self, wanted: ConnectionPoint) -> ConnectionFault {
        match &mut self.breaks {
            Some((_, point)) => *point = wanted,
            None => {
                let text = "a position belongs to a reset, a close or a stall";
                self.invalid = Some(InvalidFault(text.to_owned()));
            }
        }
        self
    }

    pub(super) fn is_pass(&self) -> bool {
        *self == ConnectionFault::pass()
    }

    /// Checks the fault.
    ///
    /// # Errors
    /// It has a position, and does not say what happens there.
    pub fn check(&self) -> Result<(), InvalidFault> {
        self.invalid.clone().map_or(Ok(()), Err)
    }
}
