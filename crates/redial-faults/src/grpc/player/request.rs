//! What a player does with the request: how much of it is let in, and waiting for it.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::Player;
use crate::grpc::act::Once;
use crate::grpc::connection::WINDOW_BYTES;
use crate::grpc::inbox::Inbox;
use crate::grpc::wire::Over;

/// How often a player lets all others run before it believes that nothing more comes in this
/// moment. A byte needs some ten turns from a client's task to here, with the window that opens.
const QUIET_TURNS: u32 = 64;
/// How long nothing must have come over TCP for the same belief.
const QUIET: Duration = Duration::from_millis(20);

/// How far a gate is opened ahead of what was read. `h2` counts the window too, and believes that it
/// is [`WINDOW_BYTES`]; it answers half of that late at most, and as much as this may be under way.
const AHEAD_BYTES: u64 = WINDOW_BYTES as u64 / 4;

/// How far the client may send on a stream that takes so many messages.
pub(super) struct Gate {
    accepts: u64,
    /// How many bytes the client has been allowed to send.
    opened: u64,
}

impl Player {
    /// Says how far the client may send: without bounds, or so many messages.
    pub(super) fn open_window(&mut self, accepts: Option<u64>) {
        let Some(accepts) = accepts else {
            self.wire.open_window(self.id, WINDOW_BYTES);
            return;
        };
        self.wire.gate(self.id);
        self.gate = Some(Gate { accepts, opened: 0 });
        self.open_gate();
    }

    /// Opens the window to the end of what is known of the next message, and not a byte further.
    fn open_gate(&mut self) {
        let Some(gate) = &mut self.gate else { return };
        if self.inbox.messages >= gate.accepts {
            return;
        }
        let ahead = self.inbox.lacking().min(AHEAD_BYTES);
        let more = (self.inbox.bytes + ahead).saturating_sub(gate.opened);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        gate.opened += u64::from(more);
        self.wire.open_window(self.id, more);
    }

    fn took(&mut self, data: Option<Result<Bytes, h2::Error>>) {
        match data {
            Some(Ok(bytes)) => {
                // It cannot fail: so much has just come.
                let _ = self.body.flow_control().release_capacity(bytes.len());
                let payloads = self.inbox.take(&bytes);
                self.open_gate();
                let Inbox { messages, bytes, digest, .. } = self.inbox;
                self.shared.note(self.number, |stream| {
                    stream.payloads.extend(payloads);
                    (stream.messages, stream.bytes, stream.digest) = (messages, bytes, digest);
                });
            }
            None => {
                self.body_over = true;
                self.inbox.half_closed = true;
                let now = self.shared.now();
                self.shared.note(self.number, |stream| stream.half_closed = Some(now));
            }
            // The wire knows why.
            Some(Err(_)) => self.body_over = true,
        }
    }

    /// Why nothing more can be done.
    fn over(&self) -> Option<Over> {
        match self.wire.over(self.id)? {
            Over::GoneAway(_) if self.went_away.is_some() => self.wire.ended(),
            over => Some(over),
        }
    }

    /// Reads the request until `ready`, or until the moment has come.
    pub(super) async fn until(
        &mut self,
        ready: impl Fn(&Player) -> bool,
        moment: Option<Instant>,
    ) -> Result<(), Over> {
        loop {
            if ready(self) {
                return Ok(());
            }
            if let Some(over) = self.over() {
                return Err(over);
            }
            tokio::select! {
                biased;
                data = self.body.data(), if !self.body_over => self.took(data),
                () = self.news.notified() => {}
                () = sleep_until(moment.unwrap_or(self.arrived)), if moment.is_some() => return Ok(()),
            }
        }
    }

    /// Waits until that long after the stream's arrival; what no clock reaches is for ever.
    pub(super) async fn wait(&mut self, after: Duration) -> Result<(), Over> {
        let moment = self.arrived.checked_add(after);
        if moment.is_some_and(|moment| moment <= Instant::now()) {
            return Ok(());
        }
        self.until(|_| false, moment).await
    }

    /// Waits until what this stream has sent so far is on the socket.
    pub(super) async fn wait_sent(&mut self) -> Result<(), Over> {
        let sent = self.sent;
        self.until(move |it| it.wire.has_sent(it.id, sent), None).await
    }

    pub(super) async fn wait_for(&mut self, once: Once) -> Result<(), Over> {
        match once {
            Once::Headers => Ok(()),
            Once::Request => self.until(|it| it.inbox.half_closed, None).await,
            Once::Messages(least) => {
                self.until(|it| it.inbox.half_closed || it.inbox.messages >= least, None).await
            }
            Once::Quiet if self.on_pipe => self.quiet_moment().await,
            Once::Quiet => self.quiet_time().await,
        }
    }

    /// Takes all that comes in this moment of the clock.
    async fn quiet_moment(&mut self) -> Result<(), Over> {
        let mut turns = 0;
        while turns < QUIET_TURNS && !self.inbox.half_closed {
            if let Some(over) = self.over() {
                return Err(over);
            }
            match self.data_now().await {
                Some(data) => {
                    self.took(data);
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
        if self.body_over {
            return None;
        }
        poll_fn(|cx| match self.body.poll_data(cx) {
            Poll::Ready(data) => Poll::Ready(Some(data)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    async fn quiet_time(&mut self) -> Result<(), Over> {
        loop {
            let before = self.inbox.bytes;
            let changed = move |it: &Player| it.inbox.half_closed || it.inbox.bytes > before;
            self.until(changed, Some(Instant::now() + QUIET)).await?;
            if self.inbox.half_closed || self.inbox.bytes == before {
                return Ok(());
            }
        }
    }
}
