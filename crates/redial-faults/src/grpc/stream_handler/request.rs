//! Reading the request: flow control, and waiting for parts of it.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::StreamHandler;
use crate::grpc::action::WaitFor;
use crate::grpc::connection::WINDOW_BYTES;
use crate::grpc::request_decoder::RequestDecoder;
use crate::grpc::wire::StreamEnded;

/// How often the handler yields before it assumes that nothing more arrives at this instant. A byte
/// needs about ten turns from the client's task to here, including the window update.
const QUIET_TURNS: u32 = 64;
/// How long a TCP connection must be idle for the same assumption.
const QUIET: Duration = Duration::from_millis(20);

/// How far the window is opened beyond the data read so far. `h2` counts the window too, and
/// assumes [`WINDOW_BYTES`]; it updates after half of that at most, so a quarter may be in flight.
const WINDOW_AHEAD_BYTES: u64 = WINDOW_BYTES as u64 / 4;

/// The window of a stream that accepts a limited number of messages.
pub(super) struct WindowLimit {
    accepts: u64,
    /// How many bytes the client may send in total.
    opened: u64,
}

impl StreamHandler {
    /// Lets the client send: without a limit, or this many messages.
    pub(super) fn open_window(&mut self, accepts: Option<u64>) {
        let Some(accepts) = accepts else {
            self.wire.open_window(self.id, WINDOW_BYTES);
            return;
        };
        self.wire.limit_window(self.id);
        self.window_limit = Some(WindowLimit { accepts, opened: 0 });
        self.extend_window();
    }

    /// Opens the window exactly to the known end of the next message.
    fn extend_window(&mut self) {
        let Some(window_limit) = &mut self.window_limit else { return };
        if self.decoder.messages >= window_limit.accepts {
            return;
        }
        let window_ahead = self.decoder.bytes_missing().min(WINDOW_AHEAD_BYTES);
        let more = (self.decoder.bytes + window_ahead).saturating_sub(window_limit.opened);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        window_limit.opened += u64::from(more);
        self.wire.open_window(self.id, more);
    }

    fn on_data(&mut self, data: Option<Result<Bytes, h2::Error>>) {
        match data {
            Some(Ok(bytes)) => {
                // It cannot fail: this many bytes were just received.
                let _ = self.body.flow_control().release_capacity(bytes.len());
                let payloads = self.decoder.decode(&bytes);
                self.extend_window();
                let RequestDecoder { messages, bytes, digest, .. } = self.decoder;
                self.shared.update_stream(self.number, |stream| {
                    stream.payloads.extend(payloads);
                    (stream.messages, stream.bytes, stream.digest) = (messages, bytes, digest);
                });
            }
            None => {
                self.body_ended = true;
                self.decoder.half_closed = true;
                let now = self.shared.tasks.now();
                self.shared.update_stream(self.number, |stream| stream.half_closed = Some(now));
            }
            // The wire recorded the reason.
            Some(Err(_)) => self.body_ended = true,
        }
    }

    /// Why the stream has ended, if so.
    fn ended(&self) -> Option<StreamEnded> {
        match self.wire.stream_ended(self.id)? {
            StreamEnded::GoneAway(_) if self.goaway_reason.is_some() => {
                self.wire.connection_ended()
            }
            ended => Some(ended),
        }
    }

    /// Reads the request until `ready` or until `moment`.
    pub(super) async fn until(
        &mut self,
        ready: impl Fn(&StreamHandler) -> bool,
        moment: Option<Instant>,
    ) -> Result<(), StreamEnded> {
        loop {
            if ready(self) {
                return Ok(());
            }
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            tokio::select! {
                biased;
                data = self.body.data(), if !self.body_ended => self.on_data(data),
                () = self.notify.notified() => {}
                () = sleep_until(moment.unwrap_or(self.arrived)), if moment.is_some() => return Ok(()),
            }
        }
    }

    /// Waits until this long after the stream's arrival; a time beyond the clock's range never
    /// comes.
    pub(super) async fn wait(&mut self, after: Duration) -> Result<(), StreamEnded> {
        let moment = self.arrived.checked_add(after);
        if moment.is_some_and(|moment| moment <= Instant::now()) {
            return Ok(());
        }
        self.until(|_| false, moment).await
    }

    /// Waits until everything this stream sent is written to the socket.
    pub(super) async fn wait_sent(&mut self) -> Result<(), StreamEnded> {
        let sent = self.sent;
        self.until(move |it| it.wire.has_sent(it.id, sent), None).await
    }

    pub(super) async fn wait_for(&mut self, once: WaitFor) -> Result<(), StreamEnded> {
        match once {
            WaitFor::Headers => Ok(()),
            WaitFor::Request => self.until(|it| it.decoder.half_closed, None).await,
            WaitFor::Messages(least) => {
                self.until(|it| it.decoder.half_closed || it.decoder.messages >= least, None).await
            }
            WaitFor::Idle if self.on_pipe => self.wait_until_idle().await,
            WaitFor::Idle => self.wait_for_idle_time().await,
        }
    }

    /// Reads everything that arrives at this instant of the clock.
    async fn wait_until_idle(&mut self) -> Result<(), StreamEnded> {
        let mut turns = 0;
        while turns < QUIET_TURNS && !self.decoder.half_closed {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            match self.data_now().await {
                Some(data) => {
                    self.on_data(data);
                    turns = 0;
                }
                None => {
                    tokio::task::yield_now().await;
                    turns += 1;
                }
            }
        }
        Ok(())
    }

    /// What has come of the body and was not taken yet.
    async fn data_now(&mut self) -> Option<Option<Result<Bytes, h2::Error>>> {
        if self.body_ended {
            return None;
        }
        poll_fn(|cx| match self.body.poll_data(cx) {
            Poll::Ready(data) => Poll::Ready(Some(data)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    async fn wait_for_idle_time(&mut self) -> Result<(), StreamEnded> {
        loop {
            let before = self.decoder.bytes;
            let changed =
                move |it: &StreamHandler| it.decoder.half_closed || it.decoder.bytes > before;
            self.until(changed, Some(Instant::now() + QUIET)).await?;
            if self.decoder.half_closed || self.decoder.bytes == before {
                return Ok(());
            }
        }
    }
}
