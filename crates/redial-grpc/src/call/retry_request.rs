//! The request of a call, kept for retries, hedges and transparent retries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body;

use super::attempt::RunningAttempt;
use super::buffered_message::BufferedMessage;
use super::request_head::{DefaultHead, RequestHead};
use crate::BoxError;
use crate::client_adapter::ClientAdapter;
use crate::observe::SentBytes;
use crate::replay_buffer::{Replay, ReplayBuffer};

/// The request of a call, from which the requests of further attempts are built.
pub(super) struct RetryRequest<B> {
    pub(super) head: RequestHead,
    pub(super) body: RetryBody<B>,
}

/// The request body, as far as it is kept.
pub(super) enum RetryBody<B> {
    /// It cannot be sent again: retries are disabled, it does not fit into the buffer, or the call is
    /// committed.
    NotKept,
    /// The message of a unary request.
    Message(BufferedMessage),
    /// A streaming request.
    Stream(Arc<ReplayBuffer<B>>),
}

impl<B> RetryRequest<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// The request of an attempt with this remaining time; `None` if the request is not kept.
    pub(super) fn build(
        &self,
        default_head: Option<&DefaultHead>,
        attempt: RunningAttempt,
        remaining: Option<Duration>,
        sent_bytes: SentBytes,
        adapter: &impl ClientAdapter<B>,
    ) -> Option<Request<B>> {
        let body = match &self.body {
            RetryBody::NotKept => return None,
            RetryBody::Message(message) => Replay::complete(message.to_bytes()),
            RetryBody::Stream(buffer) => buffer.open(attempt.attempt),
        };
        let body = adapter.wrap(body.counted(sent_bytes));
        self.head.request(default_head, attempt.number, remaining, body)
    }
}

impl<B> RetryRequest<B> {
    /// The replay buffer of a streaming request.
    pub(super) fn replay_buffer(&self) -> Option<&Arc<ReplayBuffer<B>>> {
        match &self.body {
            RetryBody::Stream(buffer) => Some(buffer),
            RetryBody::NotKept | RetryBody::Message(_) => None,
        }
    }

    /// The call is committed to this attempt: nothing is kept for others.
    pub(super) fn commit(&mut self, attempt: u32) {
        match &self.body {
            RetryBody::Stream(buffer) => buffer.commit(attempt),
            RetryBody::NotKept | RetryBody::Message(_) => self.body = RetryBody::NotKept,
        }
    }

    /// An attempt is over. A connection may still own its body, which must not take further frames.
    pub(super) fn close(&self, attempt: u32) {
        if let Some(buffer) = self.replay_buffer() {
            buffer.close(attempt);
        }
    }

    /// The call is over.
    pub(super) fn release(&mut self) {
        if let Some(buffer) = self.replay_buffer() {
            buffer.release();
        }
        self.body = RetryBody::NotKept;
    }
}
