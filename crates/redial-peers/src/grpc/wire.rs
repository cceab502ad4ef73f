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

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use h2::Reason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::answer::{Close, GoAway, LastStream};
use super::frames::{self, Head, PREFACE_BYTES, Piece, STREAM_ID_MAX, Splitter};
use super::io::Io;
use super::server::STREAMS_OPEN_MAX;

/// How many bytes may wait for the socket before `h2` has to wait too.
const OUT_BYTES_MAX: usize = 64 * 1024;

/// One connection's wire.
#[derive(Debug)]
pub(super) struct Wire {
    state: Mutex<State>,
    /// Wakes the connection's task when something of the connection itself has changed.
    news: Notify,
}

#[derive(Debug)]
struct State {
    /// `None` once the connection is over.
    io: Option<Io>,
    /// Whole frames and the beginning of one, on their way to the socket.
    out: BytesMut,
    /// How many bytes went into `out`, and how many of them the socket took.
    queued: u64,
    written: u64,
    /// Streams that wait for the socket to take what was queued up to a position.
    marks: VecDeque<(u64, u32)>,
    outbound: Splitter,
    /// The first settings of `h2`, until they are whole.
    settings: Option<BytesMut>,
    /// Frames of our own that wait for the end of one of `h2`.
    injected: VecDeque<(u32, Bytes)>,
    /// Whether the frame of `h2` that is under way goes on to the socket.
    passing: bool,
    inbound: Splitter,
    /// The beginning of a payload of which we read only that.
    peeked: Vec<u8>,
    streams: HashMap<u32, Wired>,
    stream_highest: u32,
    open: u32,
    concurrent_max: Option<u32>,
    /// Streams above this id were sent away, and why.
    gone_above: Option<(u32, Reason)>,
    /// Wakes the task that drives `h2`.
    driver: Option<Waker>,
    close: Option<Close>,
    retiring: bool,
    over: Option<Over>,
}

/// What is known of a stream at the level of frames.
#[derive(Debug, Default)]
struct Wired {
    news: Arc<Notify>,
    sent: Sent,
    /// The position up to which the socket must have taken bytes for `sent` to be true.
    mark: u64,
    half_closed: bool,
    reset: Option<(Instant, Reason)>,
    /// Its window is opened by hand alone.
    gated: bool,
    /// It was one more than the limit when it came.
    too_many: bool,
    closed: bool,
    /// Nobody plays it any more.
    done: bool,
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
        let state = State {
            io: Some(io),
            out: BytesMut::new(),
            queued: 0,
            written: 0,
            marks: VecDeque::new(),
            outbound: Splitter::new(0),
            settings: Some(BytesMut::new()),
            injected: VecDeque::new(),
            passing: true,
            inbound: Splitter::new(PREFACE_BYTES),
            peeked: Vec::new(),
            streams: HashMap::new(),
            stream_highest: 0,
            open: 0,
            concurrent_max,
            gone_above: None,
            driver: None,
            close: None,
            retiring: false,
            over: None,
        };
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

impl State {
    fn close_stream(&mut self, id: u32) {
        let Some(wired) = self.streams.get_mut(&id) else { return };
        if !wired.closed {
            wired.closed = true;
            self.open = self.open.saturating_sub(1);
        }
        if wired.done {
            self.streams.remove(&id);
        }
    }

    /// Queues a frame of our own, for which the stream can wait.
    fn inject(&mut self, id: u32, frame: Bytes) {
        self.injected.push_back((id, frame));
        self.place_injected();
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Frames of our own go out where one of `h2` has ended, and never before its settings.
    fn place_injected(&mut self) {
        if self.outbound.between_frames() && self.settings.is_none() {
            while let Some((id, frame)) = self.injected.pop_front() {
                self.queue(&frame);
                self.mark(id);
            }
        }
    }

    /// The stream's news are true when the socket has taken what is queued now.
    fn mark(&mut self, id: u32) {
        if let Some(wired) = self.streams.get_mut(&id) {
            wired.mark = self.queued;
            self.marks.push_back((self.queued, id));
        }
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.queued += bytes.len() as u64;
        self.out.extend_from_slice(bytes);
    }

    /// Whether a frame of `h2` goes on to the socket.
    fn passes(&self, head: Head) -> bool {
        let wired = self.streams.get(&head.stream);
        match head.kind {
            frames::SETTINGS => self.settings.is_none() || !head.is_settings(),
            // The client has forgotten what it was sent away with.
            frames::RST_STREAM => self.gone_above.is_none_or(|(last, _)| head.stream <= last),
            frames::WINDOW_UPDATE => wired.is_none_or(|wired| !wired.gated),
            _ => true,
        }
    }

    /// Takes what `h2` writes.
    fn note_out(&mut self, mut bytes: &[u8]) {
        let mut outbound = std::mem::replace(&mut self.outbound, Splitter::new(0));
        while let Some(piece) = outbound.next(&mut bytes) {
            match piece {
                Piece::Preface(_) => {}
                Piece::Head(head, raw) => {
                    self.passing = self.passes(head);
                    if self.passing {
                        self.queue(&raw);
                    }
                }
                Piece::Payload(_, payload) if self.passing => self.queue(payload),
                Piece::Payload(head, payload) => {
                    if let (frames::SETTINGS, Some(settings)) = (head.kind, &mut self.settings) {
                        settings.extend_from_slice(payload);
                    }
                }
                Piece::End(head) => {
                    if head.is_settings()
                        && let Some(theirs) = self.settings.take()
                    {
                        self.queue(&frames::settings(&theirs, self.concurrent_max));
                    }
                    self.frame_out(head);
                }
            }
            if outbound.between_frames() && !self.injected.is_empty() {
                self.outbound = outbound;
                self.place_injected();
                outbound = std::mem::replace(&mut self.outbound, Splitter::new(0));
            }
        }
        self.outbound = outbound;
    }

    fn frame_out(&mut self, head: Head) {
        let Some(wired) = self.streams.get_mut(&head.stream) else { return };
        match head.kind {
            frames::HEADERS => wired.sent.headers += 1,
            frames::DATA => wired.sent.data += head.length as u64,
            frames::RST_STREAM => {}
            _ => return,
        }
        let reset = head.kind == frames::RST_STREAM;
        if reset || head.ends_stream() {
            wired.sent.ends += 1;
        }
        let closed = reset || (head.ends_stream() && wired.half_closed);
        self.mark(head.stream);
        if closed {
            self.close_stream(head.stream);
        }
    }

    /// Sees what the client sends.
    fn note_in(&mut self, mut bytes: &[u8]) {
        let mut inbound = std::mem::replace(&mut self.inbound, Splitter::new(0));
        while let Some(piece) = inbound.next(&mut bytes) {
            match piece {
                Piece::Preface(_) => {}
                Piece::Head(head, _) => {
                    self.peeked.clear();
                    if head.kind == frames::HEADERS {
                        self.headers_in(head.stream);
                    }
                }
                Piece::Payload(head, payload) if head.kind == frames::RST_STREAM => {
                    let missing = 4_usize.saturating_sub(self.peeked.len());
                    self.peeked.extend_from_slice(&payload[..missing.min(payload.len())]);
                }
                Piece::Payload(..) => {}
                Piece::End(head) => self.frame_in(head),
            }
        }
        self.inbound = inbound;
    }

    fn headers_in(&mut self, id: u32) {
        if id <= self.stream_highest {
            return;
        }
        self.stream_highest = id;
        let max = self.concurrent_max.unwrap_or(STREAMS_OPEN_MAX).min(STREAMS_OPEN_MAX);
        let too_many = self.open >= max;
        self.open += 1;
        self.streams.insert(id, Wired { too_many, ..Wired::default() });
    }

    fn frame_in(&mut self, head: Head) {
        let Some(wired) = self.streams.get_mut(&head.stream) else { return };
        if head.kind == frames::RST_STREAM
            && let Ok(code) = <[u8; 4]>::try_from(self.peeked.as_slice())
        {
            let reason = Reason::from(u32::from_be_bytes(code));
            wired.reset.get_or_insert((Instant::now(), reason));
            wired.news.notify_one();
            self.close_stream(head.stream);
        } else if head.ends_stream() {
            wired.half_closed = true;
            if wired.sent.ends > 0 {
                self.close_stream(head.stream);
            }
        }
    }

    /// Hands bytes to the socket until it takes no more; ready when it has taken all.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State { io, out, written, .. } = self;
        let Some(io) = io else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        let done = loop {
            if out.is_empty() {
                break Poll::Ready(Ok(()));
            }
            match Pin::new(&mut *io).poll_write(cx, out) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(taken)) => {
                    out.advance(taken);
                    *written += taken as u64;
                }
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        while let Some((mark, id)) = self.marks.front().copied()
            && mark <= self.written
        {
            self.marks.pop_front();
            if let Some(wired) = self.streams.get(&id) {
                wired.news.notify_one();
            }
        }
        done
    }
}

/// The wire's end that `h2` holds instead of a socket.
#[derive(Debug)]
pub(super) struct Tap(Arc<Wire>);

impl AsyncRead for Tap {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        state.driver = Some(cx.waker().clone());
        // `h2` has nothing to write perhaps, but we may; an error of the socket shows when reading.
        let _ = state.poll_out(cx);
        let before = buf.filled().len();
        let Some(io) = &mut state.io else { return Poll::Ready(Ok(())) };
        ready!(Pin::new(io).poll_read(cx, buf))?;
        state.note_in(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.state();
        if state.io.is_none() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.out.len() >= OUT_BYTES_MAX {
            ready!(state.poll_out(cx))?;
        }
        state.note_out(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        ready!(state.poll_out(cx))?;
        match &mut state.io {
            Some(io) => Pin::new(io).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        ready!(state.poll_out(cx))?;
        match &mut state.io {
            Some(io) => Pin::new(io).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
