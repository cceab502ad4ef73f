//! Plays one answer on one stream.
//!
//! Invariant: whatever a player waits for, it goes on reading the request as far as its answer lets
//! it, and it stops when nothing more can be done to the stream.

mod request;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::request::Gate;
use super::act::{Act, Headers, Payload};
use super::answer::{Answer, GRPC_MESSAGE, GRPC_STATUS};
use super::inbox::{Inbox, PREFIX_BYTES};
use super::record::{How, Reset};
use super::script::Given;
use super::shared::Shared;
use super::status_number::StatusNumber;
use super::wire::{Over, Sent, Wire};

pub(super) struct Player {
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    news: Arc<Notify>,
    number: u64,
    id: u32,
    arrived: Instant,
    on_pipe: bool,
    body: RecvStream,
    /// Nothing more comes from the body.
    body_over: bool,
    inbox: Inbox,
    /// How many bytes the client may send before we open the window further, and how many messages
    /// it may; `None`: the window is left to `h2`.
    gate: Option<Gate>,
    respond: SendResponse<Bytes>,
    send: Option<SendStream<Bytes>>,
    sent: Sent,
    /// This stream sent itself away, and its answer goes on all the same.
    went_away: Option<Reason>,
}

impl Player {
    pub(super) fn new(
        shared: Arc<Shared>,
        wire: Arc<Wire>,
        number: u64,
        body: RecvStream,
        respond: SendResponse<Bytes>,
        on_pipe: bool,
    ) -> Player {
        let id = respond.stream_id().as_u32();
        Player {
            news: wire.news(id),
            inbox: Inbox::new(shared.options.payload_bytes_kept),
            shared,
            wire,
            number,
            id,
            arrived: Instant::now(),
            on_pipe,
            body,
            body_over: false,
            gate: None,
            respond,
            send: None,
            sent: Sent::default(),
            went_away: None,
        }
    }

    /// Plays the answer to its end.
    pub(super) async fn play(mut self, given: Given) {
        let how = match self.answer(&given.answer, given.door_next).await {
            Ok(how) => how,
            Err(over) => self.noted(over),
        };
        let Player { shared, wire, number, id, .. } = &self;
        // First the wire, so that whoever waits for the record finds the stream gone there too.
        wire.forget(*id);
        shared.end(*number, how);
    }

    fn noted(&self, over: Over) -> How {
        match over {
            Over::Reset(at, reason) => {
                let at = self.shared.moment(at);
                self.shared.note(self.number, |stream| stream.reset = Some(Reset { at, reason }));
                How::ResetByClient(reason)
            }
            Over::GoneAway(reason) => How::GoneAway(reason),
            // For a client that was sent away the stream was over before the connection was.
            Over::Closed => self.went_away.map_or(How::Closed, How::GoneAway),
            Over::ClosedByClient => self.went_away.map_or(How::ClosedByClient, How::GoneAway),
        }
    }

    async fn answer(&mut self, answer: &Answer, retire: bool) -> Result<How, Over> {
        if answer.echoes() {
            self.inbox.keep_for_echo();
        }
        self.open_window(answer.accepts);
        self.wait_for(answer.once).await?;
        let mut how = None;
        for (place, step) in answer.steps.iter().enumerate() {
            // What ended before its script did has only its connection left.
            if how.is_some() && !matches!(step.act, Act::GoAway(_) | Act::Close(_)) {
                continue;
            }
            self.wait(step.after).await?;
            self.wait_sent().await?;
            if retire && place + 1 == answer.steps.len() {
                self.wire.retire(self.id);
            }
            how = self.act(&step.act).await?.or(how);
        }
        let Some(how) = how else {
            // It hangs, or the client has been told that it was never processed.
            return match self.went_away {
                Some(reason) => Ok(How::GoneAway(reason)),
                None => self.until(|_| false, None).await.map(|()| How::Closed),
            };
        };
        if how != How::Closed {
            self.wait_sent().await?;
        }
        if matches!(how, How::Answered(_)) && !self.inbox.half_closed {
            // As servers of gRPC do: nobody is going to read the rest of the request.
            self.reset(Reason::NO_ERROR);
        }
        Ok(how)
    }

    async fn act(&mut self, act: &Act) -> Result<Option<How>, Over> {
        match act {
            Act::Headers(headers) => Ok(self.headers(headers)),
            Act::Message(Payload::Bytes(payload)) => Ok(self.message(payload)),
            Act::Message(Payload::Echo) => self.echo_one().await,
            Act::Message(Payload::EchoRest) => self.echo_rest().await,
            Act::Data(bytes) => Ok(self.data(bytes.clone(), false)),
            Act::Trailers(fields) => Ok(self.trailers(fields.clone())),
            Act::EndStream => {
                let failed = self.data(Bytes::new(), true);
                Ok(failed.or(Some(How::Answered(None))))
            }
            Act::Reset(reason) => {
                self.reset(*reason);
                Ok(Some(How::Reset(*reason)))
            }
            Act::GoAway(go_away) => {
                self.wire.go_away(self.id, go_away);
                if let Some(Over::GoneAway(reason)) = self.wire.over(self.id) {
                    self.went_away = Some(reason);
                }
                Ok(None)
            }
            Act::Close(how) => {
                self.wire.close(*how);
                Ok(Some(How::Closed))
            }
            // A script gives doors to connections.
            Act::Door(_) => Ok(None),
        }
    }

    fn headers(&mut self, headers: &Headers) -> Option<How> {
        let Headers { status, fields, end_stream } = headers;
        let mut response = Response::new(());
        *response.status_mut() = *status;
        *response.headers_mut() = fields.clone();
        match self.respond.send_response(response, *end_stream) {
            Ok(send) => self.send = Some(send),
            Err(_) => return self.broken(),
        }
        self.sent.headers += 1;
        self.sent.ends += u32::from(*end_stream);
        end_stream.then(|| How::Answered(status_of(fields)))
    }

    fn message(&mut self, payload: &Bytes) -> Option<How> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut message = BytesMut::with_capacity(PREFIX_BYTES + payload.len());
        message.put_u8(0);
        message.put_u32(length);
        message.put_slice(payload);
        self.data(message.freeze(), false)
    }

    fn data(&mut self, bytes: Bytes, end_stream: bool) -> Option<How> {
        let length = bytes.len() as u64;
        match self.send.as_mut().map(|send| send.send_data(bytes, end_stream)) {
            Some(Ok(())) => {}
            _ => return self.broken(),
        }
        self.sent.data += length;
        self.sent.ends += u32::from(end_stream);
        None
    }

    fn trailers(&mut self, fields: HeaderMap) -> Option<How> {
        let status = status_of(&fields);
        match self.send.as_mut().map(|send| send.send_trailers(fields)) {
            Some(Ok(())) => {}
            _ => return self.broken(),
        }
        self.sent.headers += 1;
        self.sent.ends += 1;
        Some(How::Answered(status))
    }

    fn reset(&mut self, reason: Reason) {
        match &mut self.send {
            Some(send) => send.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
        self.sent.ends += 1;
    }

    /// `h2` does not send that, because the stream is over already, or because the script asks for
    /// what HTTP/2 does not know.
    fn broken(&mut self) -> Option<How> {
        self.reset(Reason::INTERNAL_ERROR);
        Some(How::Reset(Reason::INTERNAL_ERROR))
    }

    async fn echo_one(&mut self) -> Result<Option<How>, Over> {
        self.until(|it| it.inbox.has_echo() || it.inbox.half_closed, None).await?;
        Ok(self.echo_next())
    }

    async fn echo_rest(&mut self) -> Result<Option<How>, Over> {
        loop {
            self.until(|it| it.inbox.has_echo() || it.inbox.half_closed, None).await?;
            if let Some(how) = self.echo_next() {
                return Ok(Some(how));
            }
            if !self.inbox.has_echo() && self.inbox.half_closed {
                return Ok(None);
            }
            // What is not on the socket yet waits here and not in `h2`.
            self.wait_sent().await?;
        }
    }

    fn echo_next(&mut self) -> Option<How> {
        if self.inbox.overflows() {
            let mut fields = HeaderMap::new();
            fields.insert(GRPC_STATUS, StatusNumber::RESOURCE_EXHAUSTED.0.into());
            let text = http::HeaderValue::from_static("more than an echo can hold");
            fields.insert(GRPC_MESSAGE, text);
            return self.trailers(fields);
        }
        let message = self.inbox.next_echo()?;
        self.message(&message)
    }
}

/// The status among these fields, if it is a number.
fn status_of(fields: &HeaderMap) -> Option<StatusNumber> {
    fields.get(GRPC_STATUS)?.to_str().ok()?.parse().ok().map(StatusNumber)
}
