//! Sits between the socket and `h2`: inspects every frame, and injects those that `h2` cannot send.
//!
//! `h2` implements HTTP/2 for the server: header compression, messages, trailers. It cannot send a
//! GOAWAY with an arbitrary last stream, close a window at an exact byte, or report which streams
//! it refused. So it does not own the socket; it reads and writes here, where frames are parsed and
//! - SETTINGS get our stream limit and an initial window of 0, so that the handler controls each
//!   stream's window to the byte;
//! - injected frames are written between those of `h2`;
//! - resets, stream ends and sent frames are recorded as they pass.
//!
//! Invariant: the bytes of a frame are never mixed with those of another, and frames that change
//! the state of header compression always pass.

mod intercepted_io;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::Reason;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) use self::intercepted_io::InterceptedIo;
use self::state::State;
use super::action::{Close, GoAway, LastStream};
use super::frames::{self, STREAM_ID_MAX};
use super::io::Io;

/// One connection's wire.
#[derive(Debug)]
pub(super) struct Wire {
    state: Mutex<State>,
    /// Wakes the connection's task when the connection is to be closed.
    notify: Notify,
}

/// How much of a stream was written to the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sent {
    /// Header blocks, including trailers.
    pub(super) headers: u32,
    /// Bytes of DATA.
    pub(super) data: u64,
    /// Frames that end the stream: `END_STREAM` or a reset.
    pub(super) ends: u32,
}

/// Why a stream has ended before its answer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnded {
    /// The client reset it.
    Reset(Instant, Reason),
    /// A GOAWAY had a lower last stream id.
    GoneAway(Reason),
    /// The server closed the connection.
    Closed,
    /// The client closed the connection, or it broke.
    ClosedByClient,
}

impl Wire {
    pub(super) fn new(io: Io, concurrent_max: Option<u32>) -> Arc<Wire> {
        let state = State::new(io, concurrent_max);
        Arc::new(Wire { state: Mutex::new(state), notify: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held leaves at worst outdated counters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The I/O object that `h2` uses instead of the socket.
    pub(super) fn intercepted_io(self: &Arc<Self>) -> InterceptedIo {
        InterceptedIo(self.clone())
    }

    /// Wakes the handler of a stream when a frame concerns it.
    pub(super) fn notify(&self, id: u32) -> Arc<Notify> {
        self.state().streams.entry(id).or_default().notify.clone()
    }

    /// Whether the stream exceeded the limit when it arrived.
    pub(super) fn over_limit(&self, id: u32) -> bool {
        self.state().streams.get(&id).is_some_and(|stream| stream.over_limit)
    }

    /// Why this stream has ended, if so.
    pub(super) fn stream_ended(&self, id: u32) -> Option<StreamEnded> {
        let state = self.state();
        if let Some((at, reason)) = state.streams.get(&id).and_then(|stream| stream.reset) {
            return Some(StreamEnded::Reset(at, reason));
        }
        match state.goaway_above {
            Some((last, reason)) if id > last => Some(StreamEnded::GoneAway(reason)),
            _ => state.connection_end,
        }
    }

    /// Why all streams have ended, if so.
    pub(super) fn connection_ended(&self) -> Option<StreamEnded> {
        self.state().connection_end
    }

    /// Whether the socket has accepted this much of the stream and all injected frames.
    pub(super) fn has_sent(&self, id: u32, sent: Sent) -> bool {
        let state = self.state();
        let Some(stream) = state.streams.get(&id) else { return false };
        let Sent { headers, data, ends } = stream.sent;
        let passed = headers >= sent.headers && data >= sent.data && ends >= sent.ends;
        passed && state.written >= stream.mark && state.injected.is_empty()
    }

    /// From now on only [`Wire::open_window`] opens the stream's window.
    pub(super) fn limit_window(&self, id: u32) {
        self.state().streams.entry(id).or_default().window_limited = true;
    }

    /// Lets the client send this many more bytes on the stream.
    pub(super) fn open_window(&self, id: u32, bytes: u32) {
        if bytes > 0 {
            self.state().inject(id, frames::window_update(id, bytes));
        }
    }

    /// Sends a GOAWAY on behalf of a stream, which ends all streams above its last id.
    pub(super) fn go_away(&self, id: u32, go_away: &GoAway) {
        let GoAway { last, reason, debug } = go_away;
        let last = match last {
            LastStream::Below => id.saturating_sub(2),
            LastStream::This => id,
            LastStream::Above => STREAM_ID_MAX,
            LastStream::Id(id) => id & STREAM_ID_MAX,
        };
        let mut state = self.state();
        if state.goaway_above.is_none_or(|(above, _)| last < above) {
            state.goaway_above = Some((last, *reason));
        }
        let above: Vec<u32> = state.streams.keys().filter(|id| **id > last).copied().collect();
        for id in above {
            if let Some(stream) = state.streams.get(&id) {
                stream.notify.notify_one();
            }
            state.close_stream(id);
        }
        state.inject(id, frames::go_away(last, *reason, debug));
    }

    /// Asks the client to open no more streams; the connection closes after the last one.
    pub(super) fn retire(&self, id: u32) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.retiring, true) {
            state.inject(id, frames::go_away(STREAM_ID_MAX, Reason::NO_ERROR, b""));
        }
    }

    /// Requests that the connection is closed. The first request decides how.
    pub(super) fn close(&self, how: Close) {
        self.state().close.get_or_insert(how);
        self.notify.notify_one();
    }

    /// Waits until the connection is to be closed, and returns how.
    pub(super) async fn closing(&self) -> Close {
        loop {
            let close = {
                let state = self.state();
                let retired = state.retiring && state.streams.values().all(|stream| stream.done);
                state.close.or(retired.then_some(Close::Graceful))
            };
            match close {
                Some(how) => return how,
                None => self.notify.notified().await,
            }
        }
    }

    /// Takes the socket and the unwritten bytes, and ends every stream.
    pub(super) fn take(&self, end: StreamEnded) -> Option<(Io, Bytes)> {
        let mut state = self.state();
        state.connection_end.get_or_insert(end);
        for stream in state.streams.values() {
            stream.notify.notify_one();
        }
        let out = state.out.split().freeze();
        state.io.take().map(|io| (io, out))
    }

    /// The stream's handler has finished.
    pub(super) fn forget(&self, id: u32) {
        let mut state = self.state();
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.done = true;
            if stream.closed {
                state.streams.remove(&id);
            }
        }
        if state.retiring {
            self.notify.notify_one();
        }
    }
}
