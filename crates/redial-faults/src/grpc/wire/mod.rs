//! The wire between the socket and `h2`: sees every frame, and adds those that `h2` cannot send.
//!
//! `h2` speaks HTTP/2 for the server: header compression, messages, trailers. It never sends a
//! GOAWAY with any last stream, holds no window shut at an exact byte, and does not say what it
//! refused. So it does not hold the socket; it reads and writes here, where frames are told apart
//! by their heads and
//! - SETTINGS get our limit of streams and an initial window of 0, so that each stream's window is
//!   opened by hand: exactly as far as its answer wants to read;
//! - frames of our own go out between those of `h2`;
//! - resets, ends and what has left the server are noted when they pass.
//!
//! Invariant: the bytes of a frame are never mixed with those of another, and frames that change
//! the state of header compression always pass.

mod state;
mod tap;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::Reason;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::state::State;
pub(super) use self::tap::Tap;
use super::act::{Close, GoAway, LastStream};
use super::frames::{self, STREAM_ID_MAX};
use super::io::Io;

/// One connection's wire.
#[derive(Debug)]
pub(super) struct Wire {
    state: Mutex<State>,
    /// Wakes the connection's task when something of the connection itself has changed.
    news: Notify,
}

/// How much of a stream has left the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sent {
    /// Blocks of header fields, the trailers among them.
    pub(super) headers: u32,
    /// Bytes of DATA.
    pub(super) data: u64,
    /// Frames that end it: `END_STREAM` or a reset.
    pub(super) ends: u32,
}

/// Why nothing more can be done to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The client reset it.
    Reset(Instant, Reason),
    /// A GOAWAY was sent with a lower last stream.
    GoneAway(Reason),
    /// The server ended the connection.
    Closed,
    /// The connection ended otherwise.
    ClosedByClient,
}

impl Wire {
    pub(super) fn new(io: Io, concurrent_max: Option<u32>) -> Arc<Wire> {
        let state = State::new(io, concurrent_max);
        Arc::new(Wire { state: Mutex::new(state), news: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves counters that are at worst out of date.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end that `h2` holds.
    pub(super) fn tap(self: &Arc<Self>) -> Tap {
        Tap(self.clone())
    }

    /// What wakes the player of a stream when something passes that concerns it.
    pub(super) fn news(&self, id: u32) -> Arc<Notify> {
        self.state().streams.entry(id).or_default().news.clone()
    }

    /// Whether the stream was one more than the limit when it came.
    pub(super) fn too_many(&self, id: u32) -> bool {
        self.state().streams.get(&id).is_some_and(|wired| wired.too_many)
    }

    /// Why nothing more can be done to this stream, if so.
    pub(super) fn over(&self, id: u32) -> Option<Over> {
        let state = self.state();
        if let Some((at, reason)) = state.streams.get(&id).and_then(|wired| wired.reset) {
            return Some(Over::Reset(at, reason));
        }
        match state.gone_above {
            Some((last, reason)) if id > last => Some(Over::GoneAway(reason)),
            _ => state.over,
        }
    }

    /// Why nothing more can be done to any stream, if so.
    pub(super) fn ended(&self) -> Option<Over> {
        self.state().over
    }

    /// Whether the socket has taken that much of this stream, and all that we injected.
    pub(super) fn has_sent(&self, id: u32, sent: Sent) -> bool {
        let state = self.state();
        let Some(wired) = state.streams.get(&id) else { return false };
        let Sent { headers, data, ends } = wired.sent;
        let passed = headers >= sent.headers && data >= sent.data && ends >= sent.ends;
        passed && state.written >= wired.mark && state.injected.is_empty()
    }

    /// From now on the stream's window is opened by [`Wire::open_window`] alone.
    pub(super) fn gate(&self, id: u32) {
        self.state().streams.entry(id).or_default().gated = true;
    }

    /// Lets the client send that many bytes more on this stream.
    pub(super) fn open_window(&self, id: u32, bytes: u32) {
        if bytes > 0 {
            self.state().inject(id, frames::window_update(id, bytes));
        }
    }

    /// Sends a GOAWAY on behalf of a stream. What is above its last stream is over.
    pub(super) fn go_away(&self, id: u32, go_away: &GoAway) {
        let GoAway { last, reason, debug } = go_away;
        let last = match last {
            LastStream::Below => id.saturating_sub(2),
            LastStream::This => id,
            LastStream::Above => STREAM_ID_MAX,
            LastStream::Id(id) => id & STREAM_ID_MAX,
        };
        let mut state = self.state();
        if state.gone_above.is_none_or(|(above, _)| last < above) {
            state.gone_above = Some((last, *reason));
        }
        let above: Vec<u32> = state.streams.keys().filter(|id| **id > last).copied().collect();
        for id in above {
            if let Some(wired) = state.streams.get(&id) {
                wired.news.notify_one();
            }
            state.close_stream(id);
        }
        state.inject(id, frames::go_away(last, *reason, debug));
    }

    /// Tells the client to open no more streams; the connection ends with its last one.
    pub(super) fn retire(&self, id: u32) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.retiring, true) {
            state.inject(id, frames::go_away(STREAM_ID_MAX, Reason::NO_ERROR, b""));
        }
    }

    /// Asks for the connection's end. The first one to ask says how.
    pub(super) fn close(&self, how: Close) {
        self.state().close.get_or_insert(how);
        self.news.notify_one();
    }

    /// Comes when the connection is to be ended, and says how.
    pub(super) async fn closing(&self) -> Close {
        loop {
            let close = {
                let state = self.state();
                let retired = state.retiring && state.streams.values().all(|wired| wired.done);
                state.close.or(retired.then_some(Close::Orderly))
            };
            match close {
                Some(how) => return how,
                None => self.news.notified().await,
            }
        }
    }

    /// Takes the socket and what still waits for it, and tells every stream that it is over.
    pub(super) fn take(&self, over: Over) -> Option<(Io, Bytes)> {
        let mut state = self.state();
        state.over.get_or_insert(over);
        for wired in state.streams.values() {
            wired.news.notify_one();
        }
        let out = state.out.split().freeze();
        state.io.take().map(|io| (io, out))
    }

    /// The stream's player is done with it.
    pub(super) fn forget(&self, id: u32) {
        let mut state = self.state();
        if let Some(wired) = state.streams.get_mut(&id) {
            wired.done = true;
            if wired.closed {
                state.streams.remove(&id);
            }
        }
        if state.retiring {
            self.news.notify_one();
        }
    }
}
