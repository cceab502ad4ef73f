//! The answer to one attempt: timed steps on its stream.
//!
//! Every time counts from the arrival of the request headers. A step never overtakes the one before
//! it, and starts when the earlier frames are written. An answer that ends without `END_STREAM`,
//! reset or close leaves the stream open: a hang.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::action::{
    Action, AnswerStep, Close, GoAway, LastStream, OnConnect, Payload, ResponseHeaders, WaitFor,
};
use super::status_number::StatusNumber;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(super) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The scripted answer to one attempt.
///
/// ```
/// use std::time::Duration;
/// use redial_faults::grpc::{Answer, Close, LastStream, Reason, StatusNumber};
///
/// let ms = Duration::from_millis;
/// // A retryable failure with pushback.
/// let _ = Answer::trailers_only(StatusNumber::UNAVAILABLE).text("busy").pushback("50").after(ms(5));
/// // Response headers commit the client to this attempt.
/// let _ = Answer::headers().after(ms(1)).message("abc").trailers(StatusNumber::INTERNAL).after(ms(9));
/// // Transport faults.
/// let _ = Answer::reset(Reason::REFUSED_STREAM);
/// let _ = Answer::go_away(LastStream::Below, Reason::NO_ERROR).then_close(Close::Graceful);
/// let _ = Answer::hang();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub(super) wait_for: WaitFor,
    pub(super) accepts: Option<u64>,
    pub(super) steps: Vec<AnswerStep>,
}

#[track_caller]
fn value(bytes: impl AsRef<[u8]>) -> HeaderValue {
    HeaderValue::from_bytes(bytes.as_ref()).expect("a header value has no control characters")
}

/// A status message as `grpc-message` carries it.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

impl Answer {
    /// An answer made of these steps.
    #[must_use]
    pub fn of(steps: impl IntoIterator<Item = AnswerStep>) -> Answer {
        Answer { wait_for: WaitFor::default(), accepts: None, steps: steps.into_iter().collect() }
    }

    fn first(action: Action) -> Answer {
        Answer::of([AnswerStep { after: Duration::ZERO, action }])
    }

    fn then(mut self, action: Action) -> Answer {
        let after = self.steps.last().map_or(Duration::ZERO, |step| step.after);
        self.steps.push(AnswerStep { after, action });
        self
    }

    /// Trailers-Only: the status in a HEADERS frame that ends the stream.
    #[must_use]
    pub fn trailers_only(code: StatusNumber) -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        fields.insert(GRPC_STATUS, HeaderValue::from(code.0));
        Answer::first(Action::Headers(ResponseHeaders {
            status: StatusCode::OK,
            fields,
            end_stream: true,
        }))
    }

    /// Response headers; add further steps to this.
    #[must_use]
    pub fn headers() -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        Answer::first(Action::Headers(ResponseHeaders {
            status: StatusCode::OK,
            fields,
            end_stream: false,
        }))
    }

    /// Adds response headers that do not end the stream.
    #[must_use]
    pub fn then_headers(self) -> Answer {
        let headers = Answer::headers().steps.remove(0).action;
        self.then(headers)
    }

    /// Headers, one message, OK.
    #[must_use]
    pub fn reply(payload: impl Into<Bytes>) -> Answer {
        Answer::headers().message(payload).trailers(StatusNumber::OK)
    }

    /// Headers, then an echo of every message, then OK when the request ends.
    #[must_use]
    pub fn echo() -> Answer {
        Answer::headers().then(Action::Message(Payload::EchoRest)).trailers(StatusNumber::OK)
    }

    /// A plain HTTP response, as from a proxy: status, content type and body.
    ///
    /// # Panics
    /// The content type cannot stand in a header.
    #[must_use]
    #[track_caller]
    pub fn http(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, value(content_type));
        Answer::first(Action::Headers(ResponseHeaders { status, fields, end_stream: false }))
            .data(body)
            .then_end_stream()
    }

    /// An HTTP response without a content type and without a body.
    #[must_use]
    pub fn http_empty(status: StatusCode) -> Answer {
        let fields = HeaderMap::new();
        Answer::first(Action::Headers(ResponseHeaders { status, fields, end_stream: true }))
    }

    /// `RST_STREAM`.
    #[must_use]
    pub fn reset(reason: Reason) -> Answer {
        Answer::first(Action::Reset(reason))
    }

    /// GOAWAY, after which the connection stays open.
    #[must_use]
    pub fn go_away(last: LastStream, reason: Reason) -> Answer {
        Answer::first(Action::GoAway(GoAway { last, reason, debug: Bytes::new() }))
    }

    /// Closes the connection.
    #[must_use]
    pub fn close(how: Close) -> Answer {
        Answer::first(Action::Close(how))
    }

    /// No response.
    #[must_use]
    pub fn hang() -> Answer {
        Answer::of([])
    }

    /// What happens when the client connects for this attempt.
    ///
    /// No stream arrives: the next connection consumes the attempt. To force a new connection, the
    /// answer to the previous attempt also sends a GOAWAY. An attempt that still arrives over an
    /// existing connection gets the default answer.
    #[must_use]
    pub fn on_connect(action: OnConnect) -> Answer {
        Answer::first(Action::OnConnect(action))
    }

    /// The connection of this attempt is accepted, and closed before the server reads a request.
    ///
    /// No stream arrives. On a pipe hyper sees the end before it writes a request; over TCP this is
    /// a race.
    #[must_use]
    pub fn unsent() -> Answer {
        Answer::on_connect(OnConnect::CloseAfterPreface)
    }

    /// The connection of this attempt is refused.
    #[must_use]
    pub fn unconnected() -> Answer {
        Answer::on_connect(OnConnect::Refuse)
    }

    /// Adds a message.
    #[must_use]
    pub fn message(self, payload: impl Into<Bytes>) -> Answer {
        self.then(Action::Message(Payload::Bytes(payload.into())))
    }

    /// Adds the next message of the request.
    #[must_use]
    pub fn echo_one(self) -> Answer {
        self.then(Action::Message(Payload::Echo))
    }

    /// Adds raw DATA bytes, without a gRPC message prefix.
    #[must_use]
    pub fn data(self, bytes: impl Into<Bytes>) -> Answer {
        self.then(Action::Data(bytes.into()))
    }

    /// Adds trailers with this status.
    #[must_use]
    pub fn trailers(self, code: StatusNumber) -> Answer {
        let mut fields = HeaderMap::new();
        fields.insert(GRPC_STATUS, HeaderValue::from(code.0));
        self.then(Action::Trailers(fields))
    }

    /// Adds `END_STREAM` without trailers.
    #[must_use]
    pub fn then_end_stream(self) -> Answer {
        self.then(Action::EndStream)
    }

    /// Adds `RST_STREAM`.
    #[must_use]
    pub fn then_reset(self, reason: Reason) -> Answer {
        self.then(Action::Reset(reason))
    }

    /// Adds GOAWAY.
    #[must_use]
    pub fn then_go_away(self, last: LastStream, reason: Reason) -> Answer {
        self.then(Action::GoAway(GoAway { last, reason, debug: Bytes::new() }))
    }

    /// Adds the end of the connection.
    #[must_use]
    pub fn then_close(self, how: Close) -> Answer {
        self.then(Action::Close(how))
    }

    /// Sets the debug data of the last GOAWAY.
    #[must_use]
    pub fn debug(mut self, bytes: impl Into<Bytes>) -> Answer {
        let go_away = self.steps.iter_mut().rev().find_map(|step| match &mut step.action {
            Action::GoAway(go_away) => Some(go_away),
            _ => None,
        });
        if let Some(go_away) = go_away {
            go_away.debug = bytes.into();
        }
        self
    }

    /// Sets the time of the last step, counted from the stream's arrival.
    #[must_use]
    pub fn after(mut self, after: Duration) -> Answer {
        if let Some(step) = self.steps.last_mut() {
            step.after = after;
        }
        self
    }

    fn fields(&mut self) -> Option<&mut HeaderMap> {
        self.steps.iter_mut().rev().find_map(|step| match &mut step.action {
            Action::Headers(headers) => Some(&mut headers.fields),
            Action::Trailers(fields) => Some(fields),
            _ => None,
        })
    }

    /// Adds a field to the last headers or trailers. Without any it has no effect; the same holds
    /// for [`pushback`](Answer::pushback) and [`text`](Answer::text).
    ///
    /// # Panics
    /// The name or the value is not valid in a header.
    #[must_use]
    #[track_caller]
    pub fn metadata(mut self, name: &str, bytes: impl AsRef<[u8]>) -> Answer {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("it is the name of a header");
        if let Some(fields) = self.fields() {
            fields.append(name, value(bytes));
        }
        self
    }

    /// Adds a header `grpc-retry-pushback-ms` with these bytes; repeated calls add several.
    ///
    /// # Panics
    /// The value is not valid in a header.
    #[must_use]
    #[track_caller]
    pub fn pushback(self, bytes: impl AsRef<[u8]>) -> Answer {
        self.metadata(PUSHBACK.as_str(), bytes)
    }

    /// Sets the status message (`grpc-message`, percent-encoded).
    #[must_use]
    pub fn text(mut self, text: &str) -> Answer {
        let encoded = percent_encoded(text);
        if let Some(fields) = self.fields() {
            fields.insert(GRPC_MESSAGE, value(encoded));
        }
        self
    }

    /// Removes a field of the last headers or trailers; `content-type` and `grpc-status` too.
    #[must_use]
    pub fn without(mut self, name: &str) -> Answer {
        if let Some(fields) = self.fields() {
            fields.remove(name);
        }
        self
    }

    /// Clears `END_STREAM` on the last headers.
    #[must_use]
    pub fn without_end_stream(mut self) -> Answer {
        let headers = self.steps.iter_mut().rev().find_map(|step| match &mut step.action {
            Action::Headers(headers) => Some(headers),
            _ => None,
        });
        if let Some(headers) = headers {
            headers.end_stream = false;
        }
        self
    }

    /// Sets the part of the request that must arrive before the first step.
    #[must_use]
    pub fn wait_for(mut self, part: WaitFor) -> Answer {
        self.wait_for = part;
        self
    }

    /// Reads this many messages; after that the stream's window stays closed.
    #[must_use]
    pub fn accepts(mut self, messages: u64) -> Answer {
        self.accepts = Some(messages);
        self
    }
}
