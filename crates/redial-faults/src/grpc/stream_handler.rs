//! Runs the scripted answer of one stream.
//!
//! Invariant: while a handler waits, it keeps reading the request up to the limit of its answer,
//! and it stops as soon as the stream has ended.

mod request;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::request::WindowLimit;
use super::action::{Action, Payload, ResponseHeaders};
use super::answer::{Answer, GRPC_MESSAGE, GRPC_STATUS};
use super::record::{Reset, StreamOutcome};
use super::request_decoder::{PREFIX_BYTES, RequestDecoder};
use super::script::NextAnswer;
use super::shared::Shared;
use super::status_number::StatusNumber;
use super::wire::{Sent, StreamEnded, Wire};

pub(super) struct StreamHandler {
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    notify: Arc<Notify>,
    number: u64,
    id: u32,
    arrived: Instant,
    on_pipe: bool,
    body: RecvStream,
    /// The body has ended or failed.
    body_ended: bool,
    decoder: RequestDecoder,
    /// The limit on messages and bytes that the client may send; `None`: `h2` manages the window.
    window_limit: Option<WindowLimit>,
    respond: SendResponse<Bytes>,
    send: Option<SendStream<Bytes>>,
    sent: Sent,
    /// The reason of a GOAWAY by which this stream excluded itself; its answer continues.
    goaway_reason: Option<Reason>,
}

impl StreamHandler {
    pub(super) fn new(
        shared: Arc<Shared>,
        wire: Arc<Wire>,
        number: u64,
        body: RecvStream,
        respond: SendResponse<Bytes>,
        on_pipe: bool,
    ) -> StreamHandler {
        let id = respond.stream_id().as_u32();
        StreamHandler {
            notify: wire.notify(id),
            decoder: RequestDecoder::new(shared.options.payload_bytes_kept),
            shared,
            wire,
            number,
            id,
            arrived: Instant::now(),
            on_pipe,
            body,
            body_ended: false,
            window_limit: None,
            respond,
            send: None,
            sent: Sent::default(),
            goaway_reason: None,
        }
    }

    /// Runs the answer to its end.
    pub(super) async fn run(mut self, next: NextAnswer) {
        let outcome = match self.answer(&next.answer, next.next_needs_connection).await {
            Ok(outcome) => outcome,
            Err(ended) => self.record_end(ended),
        };
        let StreamHandler { shared, wire, number, id, .. } = &self;
        // The wire first: once the record has the end, the stream must be gone from the wire too.
        wire.forget(*id);
        shared.end(*number, outcome);
    }

    fn record_end(&self, ended: StreamEnded) -> StreamOutcome {
        match ended {
            StreamEnded::Reset(at, reason) => {
                let at = self.shared.tasks.since_start(at);
                self.shared
                    .update_stream(self.number, |stream| stream.reset = Some(Reset { at, reason }));
                StreamOutcome::ResetByClient(reason)
            }
            StreamEnded::GoneAway(reason) => StreamOutcome::GoneAway(reason),
            // After a GOAWAY that excluded it, the stream ended before the connection did.
            StreamEnded::Closed => {
                self.goaway_reason.map_or(StreamOutcome::Closed, StreamOutcome::GoneAway)
            }
            StreamEnded::ClosedByClient => {
                self.goaway_reason.map_or(StreamOutcome::ClosedByClient, StreamOutcome::GoneAway)
            }
        }
    }

    async fn answer(
        &mut self,
        answer: &Answer,
        retire: bool,
    ) -> Result<StreamOutcome, StreamEnded> {
        if answer.echoes() {
            self.decoder.keep_for_echo();
        }
        self.open_window(answer.accepts);
        self.wait_for(answer.wait_for).await?;
        let mut outcome = None;
        for (index, step) in answer.steps.iter().enumerate() {
            // After the end of the stream only actions on the connection remain.
            if outcome.is_some() && !matches!(step.action, Action::GoAway(_) | Action::Close(_)) {
                continue;
            }
            self.wait(step.after).await?;
            self.wait_sent().await?;
            if retire && index + 1 == answer.steps.len() {
                self.wire.retire(self.id);
            }
            outcome = self.run_action(&step.action).await?.or(outcome);
        }
        let Some(outcome) = outcome else {
            // It hangs, or a GOAWAY marked it as unprocessed.
            return match self.goaway_reason {
                Some(reason) => Ok(StreamOutcome::GoneAway(reason)),
                None => self.until(|_| false, None).await.map(|()| StreamOutcome::Closed),
            };
        };
        if outcome != StreamOutcome::Closed {
            self.wait_sent().await?;
        }
        if matches!(outcome, StreamOutcome::Answered(_)) && !self.decoder.half_closed {
            // As gRPC servers do: the rest of the request will not be read.
            self.reset(Reason::NO_ERROR);
        }
        Ok(outcome)
    }

    async fn run_action(&mut self, action: &Action) -> Result<Option<StreamOutcome>, StreamEnded> {
        match action {
            Action::Headers(headers) => Ok(self.headers(headers)),
            Action::Message(Payload::Bytes(payload)) => Ok(self.message(payload)),
            Action::Message(Payload::Echo) => self.echo_one().await,
            Action::Message(Payload::EchoRest) => self.echo_rest().await,
            Action::Data(bytes) => Ok(self.data(bytes.clone(), false)),
            Action::Trailers(fields) => Ok(self.trailers(fields.clone())),
            Action::EndStream => {
                let failed = self.data(Bytes::new(), true);
                Ok(failed.or(Some(StreamOutcome::Answered(None))))
            }
            Action::Reset(reason) => {
                self.reset(*reason);
                Ok(Some(StreamOutcome::Reset(*reason)))
            }
            Action::GoAway(go_away) => {
                self.wire.go_away(self.id, go_away);
                if let Some(StreamEnded::GoneAway(reason)) = self.wire.stream_ended(self.id) {
                    self.goaway_reason = Some(reason);
                }
                Ok(None)
            }
            Action::Close(how) => {
                self.wire.close(*how);
                Ok(Some(StreamOutcome::Closed))
            }
            // Applied when the client connects.
            Action::OnConnect(_) => Ok(None),
        }
    }

    fn headers(&mut self, headers: &ResponseHeaders) -> Option<StreamOutcome> {
        let ResponseHeaders { status, fields, end_stream } = headers;
        let mut response = Response::new(());
        *response.status_mut() = *status;
        *response.headers_mut() = fields.clone();
        match self.respond.send_response(response, *end_stream) {
            Ok(send) => self.send = Some(send),
            Err(_) => return self.broken(),
        }
        self.sent.headers += 1;
        self.sent.ends += u32::from(*end_stream);
        end_stream.then(|| StreamOutcome::Answered(status_of(fields)))
    }

    fn message(&mut self, payload: &Bytes) -> Option<StreamOutcome> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut message = BytesMut::with_capacity(PREFIX_BYTES + payload.len());
        message.put_u8(0);
        message.put_u32(length);
        message.put_slice(payload);
        self.data(message.freeze(), false)
    }

    fn data(&mut self, bytes: Bytes, end_stream: bool) -> Option<StreamOutcome> {
        let length = bytes.len() as u64;
        match self.send.as_mut().map(|send| send.send_data(bytes, end_stream)) {
            Some(Ok(())) => {}
            _ => return self.broken(),
        }
        self.sent.data += length;
        self.sent.ends += u32::from(end_stream);
        None
    }

    fn trailers(&mut self, fields: HeaderMap) -> Option<StreamOutcome> {
        let status = status_of(&fields);
        match self.send.as_mut().map(|send| send.send_trailers(fields)) {
            Some(Ok(())) => {}
            _ => return self.broken(),
        }
        self.sent.headers += 1;
        self.sent.ends += 1;
        Some(StreamOutcome::Answered(status))
    }

    fn reset(&mut self, reason: Reason) {
        match &mut self.send {
            Some(send) => send.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
        self.sent.ends += 1;
    }

    /// `h2` refused to send, because the stream has ended or because HTTP/2 forbids it.
    fn broken(&mut self) -> Option<StreamOutcome> {
        self.reset(Reason::INTERNAL_ERROR);
        Some(StreamOutcome::Reset(Reason::INTERNAL_ERROR))
    }

    async fn echo_one(&mut self) -> Result<Option<StreamOutcome>, StreamEnded> {
        self.until(|it| it.decoder.has_echo() || it.decoder.half_closed, None).await?;
        Ok(self.echo_next())
    }

    async fn echo_rest(&mut self) -> Result<Option<StreamOutcome>, StreamEnded> {
        loop {
            self.until(|it| it.decoder.has_echo() || it.decoder.half_closed, None).await?;
            if let Some(outcome) = self.echo_next() {
                return Ok(Some(outcome));
            }
            if !self.decoder.has_echo() && self.decoder.half_closed {
                return Ok(None);
            }
            // Backpressure: wait for the socket here instead of buffering in `h2`.
            self.wait_sent().await?;
        }
    }

    fn echo_next(&mut self) -> Option<StreamOutcome> {
        if self.decoder.overflows() {
            let mut fields = HeaderMap::new();
            fields.insert(GRPC_STATUS, StatusNumber::RESOURCE_EXHAUSTED.0.into());
            let text = http::HeaderValue::from_static("more than an echo can hold");
            fields.insert(GRPC_MESSAGE, text);
            return self.trailers(fields);
        }
        let message = self.decoder.next_echo()?;
        self.message(&message)
    }
}

/// The status among these fields, if it is a number.
fn status_of(fields: &HeaderMap) -> Option<StatusNumber> {
    fields.get(GRPC_STATUS)?.to_str().ok()?.parse().ok().map(StatusNumber)
}
