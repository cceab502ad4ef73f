//! What a wire knows: the bytes on their way, and each stream at the level of frames.
//!
//! Invariant: `written <= queued`, and what lies between them is in `out`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use h2::Reason;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Over, Sent};
use crate::grpc::act::Close;
use crate::grpc::frames::{self, Head, PREFACE_BYTES, Piece, Splitter};
use crate::grpc::io::Io;
use crate::grpc::server::STREAMS_OPEN_MAX;

#[derive(Debug)]
pub(super) struct State {
    /// `None` once the connection is over.
    pub(super) io: Option<Io>,
    /// Whole frames and the beginning of one, on their way to the socket.
    pub(super) out: BytesMut,
    /// How many bytes went into `out`, and how many of them the socket took.
    pub(super) queued: u64,
    pub(super) written: u64,
    /// Streams that wait for the socket to take what was queued up to a position.
    pub(super) marks: VecDeque<(u64, u32)>,
    pub(super) outbound: Splitter,
    /// The first settings of `h2`, until they are whole.
    pub(super) settings: Option<BytesMut>,
    /// Frames of our own that wait for the end of one of `h2`.
    pub(super) injected: VecDeque<(u32, Bytes)>,
    /// Whether the frame of `h2` that is under way goes on to the socket.
    pub(super) passing: bool,
    pub(super) inbound: Splitter,
    /// The beginning of a payload of which we read only that.
    pub(super) peeked: Vec<u8>,
    pub(super) streams: HashMap<u32, Wired>,
    pub(super) stream_highest: u32,
    pub(super) open: u32,
    pub(super) concurrent_max: Option<u32>,
    /// Streams above this id were sent away, and why.
    pub(super) gone_above: Option<(u32, Reason)>,
    /// Wakes the task that drives `h2`.
    pub(super) driver: Option<Waker>,
    pub(super) close: Option<Close>,
    pub(super) retiring: bool,
    pub(super) over: Option<Over>,
}

/// What is known of a stream at the level of frames.
#[derive(Debug, Default)]
pub(super) struct Wired {
    pub(super) news: Arc<Notify>,
    pub(super) sent: Sent,
    /// The position up to which the socket must have taken bytes for `sent` to be true.
    pub(super) mark: u64,
    pub(super) half_closed: bool,
    pub(super) reset: Option<(Instant, Reason)>,
    /// Its window is opened by hand alone.
    pub(super) gated: bool,
    /// It was one more than the limit when it came.
    pub(super) too_many: bool,
    pub(super) closed: bool,
    /// Nobody plays it any more.
    pub(super) done: bool,
}

impl State {
    pub(super) fn new(io: Io, concurrent_max: Option<u32>) -> State {
        State {
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
        }
    }

    pub(super) fn close_stream(&mut self, id: u32) {
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
    pub(super) fn inject(&mut self, id: u32, frame: Bytes) {
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
    pub(super) fn note_out(&mut self, mut bytes: &[u8]) {
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
    pub(super) fn note_in(&mut self, mut bytes: &[u8]) {
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
    pub(super) fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
