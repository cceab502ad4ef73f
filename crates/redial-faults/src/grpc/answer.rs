//! What the server does to one stream: steps, each at its moment.
//!
//! Rule: every time counts from the stream's arrival (its request headers). A step never overtakes
//! the one before it, and begins when what was sent before it is on the wire. After the last step
//! nothing more comes: an answer that ends without `END_STREAM`, reset or close is a hang.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::act::{Act, Close, Door, GoAway, Headers, LastStream, Once, Payload, Step};
use super::status_number::StatusNumber;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(super) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What becomes of one attempt.
///
/// ```
/// use std::time::Duration;
/// use redial_faults::grpc::{Answer, Close, LastStream, Reason, StatusNumber};
///
/// let ms = Duration::from_millis;
/// // A failure that a client may repeat, and when.
/// let _ = Answer::trailers_only(StatusNumber::UNAVAILABLE).text("busy").pushback("50").after(ms(5));
/// // Headers first: from then on the call belongs to this attempt.
/// let _ = Answer::headers().after(ms(1)).message("abc").trailers(StatusNumber::INTERNAL).after(ms(9));
/// // Faults of the connection.
/// let _ = Answer::reset(Reason::REFUSED_STREAM);
/// let _ = Answer::go_away(LastStream::Below, Reason::NO_ERROR).then_close(Close::Orderly);
/// let _ = Answer::hang();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub(super) once: Once,
    pub(super) accepts: Option<u64>,
    pub(super) steps: Vec<Step>,
}

#[track_caller]
fn value(bytes: impl AsRef<[u8]>) -> HeaderValue {
    HeaderValue::from_bytes(bytes.as_ref()).expect("a header value has no control characters")
}

impl Answer {
    /// An answer of these steps.
    #[must_use]
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Answer {
        Answer { once: Once::default(), accepts: None, steps: steps.into_iter().collect() }
    }

    fn first(act: Act) -> Answer {
        Answer::of([Step { after: Duration::ZERO, act }])
    }

    fn then(mut self, act: Act) -> Answer {
        let after = self.steps.last().map_or(Duration::ZERO, |step| step.after);
        self.steps.push(Step { after, act });
        self
    }

    /// A status in the headers, which end the stream.
    #[must_use]
    pub fn trailers_only(code: StatusNumber) -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        fields.insert(GRPC_STATUS, HeaderValue::from(code.0));
        Answer::first(Act::Headers(Headers { status: StatusCode::OK, fields, end_stream: true }))
    }

    /// Response headers, and more to come.
    #[must_use]
    pub fn headers() -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        Answer::first(Act::Headers(Headers { status: StatusCode::OK, fields, end_stream: false }))
    }

    /// Adds response headers, with more to come.
    #[must_use]
    pub fn then_headers(self) -> Answer {
        let headers = Answer::headers().steps.remove(0).act;
        self.then(headers)
    }

    /// Headers, one message, OK.
    #[must_use]
    pub fn reply(payload: impl Into<Bytes>) -> Answer {
        Answer::headers().message(payload).trailers(StatusNumber::OK)
    }

    /// Headers, every message sent back as it comes, OK when the request has ended.
    #[must_use]
    pub fn echo() -> Answer {
        Answer::headers().then(Act::Message(Payload::EchoRest)).trailers(StatusNumber::OK)
    }

    /// An HTTP response that is not gRPC's: this status, a content type and a body.
    ///
    /// # Panics
    /// The content type cannot stand in a header.
    #[must_use]
    #[track_caller]
    pub fn http(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, value(content_type));
        Answer::first(Act::Headers(Headers { status, fields, end_stream: false }))
            .data(body)
            .then_end_stream()
    }

    /// An HTTP response without a content type and without a body.
    #[must_use]
    pub fn http_empty(status: StatusCode) -> Answer {
        let fields = HeaderMap::new();
        Answer::first(Act::Headers(Headers { status, fields, end_stream: true }))
    }

    /// `RST_STREAM`.
    #[must_use]
    pub fn reset(reason: Reason) -> Answer {
        Answer::first(Act::Reset(reason))
    }

    /// GOAWAY, after which the connection stays open.
    #[must_use]
    pub fn go_away(last: LastStream, reason: Reason) -> Answer {
        Answer::first(Act::GoAway(GoAway { last, reason, debug: Bytes::new() }))
    }

    /// The end of the connection.
    #[must_use]
    pub fn close(how: Close) -> Answer {
        Answer::first(Act::Close(how))
    }

    /// Nothing, ever.
    #[must_use]
    pub fn hang() -> Answer {
        Answer::of([])
    }

    /// What the client meets when it connects for this attempt.
    ///
    /// No stream arrives, so the attempt is used up by the next connection. If the attempt before
    /// it came over a connection, that one is retired with its answer. An attempt that comes over
    /// another connection all the same is answered as one that is not in the script.
    #[must_use]
    pub fn door(door: Door) -> Answer {
        Answer::first(Act::Door(door))
    }

    /// The connection of this attempt is accepted, and closed before the server reads a request.
    ///
    /// No stream arrives. On a pipe hyper's clients see the end before they write a request; over
    /// TCP that is a matter of luck.
    #[must_use]
    pub fn unsent() -> Answer {
        Answer::door(Door::ClosedAfterPreface)
    }

    /// The connection of this attempt is refused.
    #[must_use]
    pub fn unconnected() -> Answer {
        Answer::door(Door::Refused)
    }

    /// Adds a message.
    #[must_use]
    pub fn message(self, payload: impl Into<Bytes>) -> Answer {
        self.then(Act::Message(Payload::Bytes(payload.into())))
    }

    /// Adds the next message of the request.
    #[must_use]
    pub fn echo_one(self) -> Answer {
        self.then(Act::Message(Payload::Echo))
    }

    /// Adds bytes as they are, without a prefix.
    #[must_use]
    pub fn data(self, bytes: impl Into<Bytes>) -> Answer {
        self.then(Act::Data(bytes.into()))
    }

    /// Adds trailers with this status.
    #[must_use]
    pub fn trailers(self, code: StatusNumber) -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(GRPC_STATUS, HeaderValue::from(code.0));
        self.then(Act::Trailers(fields))
    }

    /// Adds `END_STREAM` without trailers.
    #[must_use]
    pub fn then_end_stream(self) -> Answer {
        self.then(Act::EndStream)
    }

    /// Adds `RST_STREAM`.
    #[must_use]
    pub fn then_reset(self, reason: Reason) -> Answer {
        self.then(Act::Reset(reason))
    }

    /// Adds GOAWAY.
    #[must_use]
    pub fn then_go_away(self, last: LastStream, reason: Reason) -> Answer {
        self.then(Act::GoAway(GoAway { last, reason, debug: Bytes::new() }))
    }

    /// Adds the end of the connection.
    #[must_use]
    pub fn then_close(self, how: Close) -> Answer {
        self.then(Act::Close(how))
    }

    /// The debug data of the GOAWAY that was added last.
    #[must_use]
    pub fn debug(mut self, bytes: impl Into<Bytes>) -> Answer {
        let go_away = self.steps.iter_mut().rev().find_map(|step| match &mut step.act {
            Act::GoAway(go_away) => Some(go_away),
            _ => None,
        });
        if let Some(go_away) = go_away {
            go_away.debug = bytes.into();
        }
        self
    }

    /// The last step is done that long after the stream's arrival.
    #[must_use]
    pub fn after(mut self, after: Duration) -> Answer {
        if let Some(step) = self.steps.last_mut() {
            step.after = after;
        }
        self
    }

    fn fields(&mut self) -> Option<&mut HeaderMap> {
        self.steps.iter_mut().rev().find_map(|step| match &mut step.act {
            Act::Headers(headers) => Some(&mut headers.fields),
            Act::Trailers(fields) => Some(fields),
            _ => None,
        })
    }

    /// Adds a field to the headers or trailers that were added last; without any it has no effect,
    /// and neither have [`pushback`](Answer::pushback) and [`text`](Answer::text).
    ///
    /// # Panics
    /// The name or the value cannot stand in a header.
    #[must_use]
    #[track_caller]
    pub fn metadata(mut self, name: &str, bytes: impl AsRef<[u8]>) -> Answer {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("it is the name of a header");
        if let Some(fields) = self.fields() {
            fields.append(name, value(bytes));
        }
        self
    }

    /// Adds `grpc-retry-pushback-ms` with these bytes; each call adds one more.
    ///
    /// # Panics
    /// The value cannot stand in a header.
    #[must_use]
    #[track_caller]
    pub fn pushback(self, bytes: impl AsRef<[u8]>) -> Answer {
        self.metadata(PUSHBACK.as_str(), bytes)
    }

    /// The status message (`grpc-message`, percent-encoded as gRPC wants it).
    #[must_use]
    pub fn text(mut self, text: &str) -> Answer {
        let mut encoded = String::with_capacity(text.len());
        for byte in text.bytes() {
            match byte {
                b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
                _ => encoded.push_str(&format!("%{byte:02X}")),
            }
        }
        if let Some(fields) = self.fields() {
            fields.insert(GRPC_MESSAGE, value(encoded));
        }
        self
    }

    /// Removes a field of the headers or trailers that were added last, `content-type` and
    /// `grpc-status` among them.
    #[must_use]
    pub fn without(mut self, name: &str) -> Answer {
        if let Some(fields) = self.fields() {
            fields.remove(name);
        }
        self
    }

    /// The headers that were added last do not end the stream.
    #[must_use]
    pub fn without_end_stream(mut self) -> Answer {
        let headers = self.steps.iter_mut().rev().find_map(|step| match &mut step.act {
            Act::Headers(headers) => Some(headers),
            _ => None,
        });
        if let Some(headers) = headers {
            headers.end_stream = false;
        }
        self
    }

    /// What of the request must be there before the first step.
    #[must_use]
    pub fn once(mut self, once: Once) -> Answer {
        self.once = once;
        self
    }

    /// Takes that many messages; then the stream's window stays shut.
    #[must_use]
    pub fn accepts(mut self, messages: u64) -> Answer {
        self.accepts = Some(messages);
        self
    }
}
