//! The state of a wire: buffered bytes, and each stream at frame level.
//!
//! Invariant: `written <= queued`, and `out` holds the bytes between them.

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

use super::{Sent, StreamEnded};
use crate::grpc::action::Close;
use crate::grpc::frames::{self, FrameHeader, FramePart, FrameSplitter, PREFACE_BYTES};
use crate::grpc::io::Io;
use crate::grpc::server::STREAMS_OPEN_MAX;

#[derive(Debug)]
pub(super) struct State {
    /// `None` once the connection is over.
    pub(super) io: Option<Io>,
    /// Frames to write to the socket; the last one may be incomplete.
    pub(super) out: BytesMut,
    /// How many bytes were added to `out`, and how many of them the socket accepted.
    pub(super) queued: u64,
    pub(super) written: u64,
    /// Streams that wait until the socket has accepted the bytes up to a position.
    pub(super) marks: VecDeque<(u64, u32)>,
    pub(super) outbound: FrameSplitter,
    /// The first SETTINGS of `h2`, until complete.
    pub(super) settings: Option<BytesMut>,
    /// Injected frames that wait for the end of a frame of `h2`.
    pub(super) injected: VecDeque<(u32, Bytes)>,
    /// Whether the current frame of `h2` is forwarded to the socket.
    pub(super) passing: bool,
    pub(super) inbound: FrameSplitter,
    /// The first bytes of an inbound payload.
    pub(super) payload_start: Vec<u8>,
    pub(super) streams: HashMap<u32, StreamState>,
    pub(super) stream_highest: u32,
    pub(super) open: u32,
    pub(super) concurrent_max: Option<u32>,
    /// The last stream id of the lowest GOAWAY, and its reason.
    pub(super) goaway_above: Option<(u32, Reason)>,
    /// Wakes the task that drives `h2`.
    pub(super) driver: Option<Waker>,
    pub(super) close: Option<Close>,
    pub(super) retiring: bool,
    pub(super) connection_end: Option<StreamEnded>,
}

/// A stream at frame level.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    pub(super) notify: Arc<Notify>,
    pub(super) sent: Sent,
    /// `sent` is accurate once the socket has accepted the bytes up to this position.
    pub(super) mark: u64,
    pub(super) half_closed: bool,
    pub(super) reset: Option<(Instant, Reason)>,
    /// Only the handler opens its window.
    pub(super) window_limited: bool,
    /// It exceeded the stream limit when it arrived.
    pub(super) over_limit: bool,
    pub(super) closed: bool,
    /// Its handler has finished.
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
            outbound: FrameSplitter::new(0),
            settings: Some(BytesMut::new()),
            injected: VecDeque::new(),
            passing: true,
            inbound: FrameSplitter::new(PREFACE_BYTES),
            payload_start: Vec::new(),
            streams: HashMap::new(),
            stream_highest: 0,
            open: 0,
            concurrent_max,
            goaway_above: None,
            driver: None,
            close: None,
            retiring: false,
            connection_end: None,
        }
    }

    pub(super) fn close_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.closed {
            stream.closed = true;
            self.open = self.open.saturating_sub(1);
        }
        if stream.done {
            self.streams.remove(&id);
        }
    }

    /// Queues a frame that is not from `h2`; the stream can wait for it.
    pub(super) fn inject(&mut self, id: u32, frame: Bytes) {
        self.injected.push_back((id, frame));
        self.flush_injected();
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Injected frames go between two frames of `h2`, and never before its SETTINGS.
    fn flush_injected(&mut self) {
        if self.outbound.between_frames() && self.settings.is_none() {
            while let Some((id, frame)) = self.injected.pop_front() {
                self.queue(&frame);
                self.mark(id);
            }
        }
    }

    /// Wakes the stream when the socket has accepted everything queued so far.
    fn mark(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.mark = self.queued;
            self.marks.push_back((self.queued, id));
        }
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.queued += bytes.len() as u64;
        self.out.extend_from_slice(bytes);
    }

    /// Whether a frame of `h2` is forwarded to the socket.
    fn passes(&self, head: FrameHeader) -> bool {
        let stream = self.streams.get(&head.stream);
        match head.kind {
            frames::SETTINGS => self.settings.is_none() || !head.is_settings(),
            // After a GOAWAY the client has discarded the streams above its last id.
            frames::RST_STREAM => self.goaway_above.is_none_or(|(last, _)| head.stream <= last),
            frames::WINDOW_UPDATE => stream.is_none_or(|stream| !stream.window_limited),
            _ => true,
        }
    }

    /// Processes the bytes that `h2` writes.
    pub(super) fn process_outbound(&mut self, mut bytes: &[u8]) {
        let mut outbound = std::mem::replace(&mut self.outbound, FrameSplitter::new(0));
        while let Some(piece) = outbound.next(&mut bytes) {
            match piece {
                FramePart::Preface(_) => {}
                FramePart::FrameHeader(head, raw) => {
                    self.passing = self.passes(head);
                    if self.passing {
                        self.queue(&raw);
                    }
                }
                FramePart::Payload(_, payload) if self.passing => self.queue(payload),
                FramePart::Payload(head, payload) => {
                    if let (frames::SETTINGS, Some(settings)) = (head.kind, &mut self.settings) {
                        settings.extend_from_slice(payload);
                    }
                }
                FramePart::End(head) => {
                    if head.is_settings()
                        && let Some(theirs) = self.settings.take()
                    {
                        self.queue(&frames::settings(&theirs, self.concurrent_max));
                    }
                    self.frame_sent(head);
                }
            }
            if outbound.between_frames() && !self.injected.is_empty() {
                self.outbound = outbound;
                self.flush_injected();
                outbound = std::mem::replace(&mut self.outbound, FrameSplitter::new(0));
            }
        }
        self.outbound = outbound;
    }

    fn frame_sent(&mut self, head: FrameHeader) {
        let Some(stream) = self.streams.get_mut(&head.stream) else { return };
        match head.kind {
            frames::HEADERS => stream.sent.headers += 1,
            frames::DATA => stream.sent.data += head.length as u64,
            frames::RST_STREAM => {}
            _ => return,
        }
        let reset = head.kind == frames::RST_STREAM;
        if reset || head.ends_stream() {
            stream.sent.ends += 1;
        }
        let closed = reset || (head.ends_stream() && stream.half_closed);
        self.mark(head.stream);
        if closed {
            self.close_stream(head.stream);
        }
    }

    /// Processes the bytes that the client sends.
    pub(super) fn process_inbound(&mut self, mut bytes: &[u8]) {
        let mut inbound = std::mem::replace(&mut self.inbound, FrameSplitter::new(0));
        while let Some(piece) = inbound.next(&mut bytes) {
            match piece {
                FramePart::Preface(_) => {}
                FramePart::FrameHeader(head, _) => {
                    self.payload_start.clear();
                    if head.kind == frames::HEADERS {
                        self.headers_received(head.stream);
                    }
                }
                FramePart::Payload(head, payload) if head.kind == frames::RST_STREAM => {
                    let missing = 4_usize.saturating_sub(self.payload_start.len());
                    self.payload_start.extend_from_slice(&payload[..missing.min(payload.len())]);
                }
                FramePart::Payload(..) => {}
                FramePart::End(head) => self.frame_received(head),
            }
        }
        self.inbound = inbound;
    }

    fn headers_received(&mut self, id: u32) {
        if id <= self.stream_highest {
            return;
        }
        self.stream_highest = id;
        let max = self.concurrent_max.unwrap_or(STREAMS_OPEN_MAX).min(STREAMS_OPEN_MAX);
        let over_limit = self.open >= max;
        self.open += 1;
        self.streams.insert(id, StreamState { over_limit, ..StreamState::default() });
    }

    fn frame_received(&mut self, head: FrameHeader) {
        let Some(stream) = self.streams.get_mut(&head.stream) else { return };
        if head.kind == frames::RST_STREAM
            && let Ok(code) = <[u8; 4]>::try_from(self.payload_start.as_slice())
        {
            let reason = Reason::from(u32::from_be_bytes(code));
            stream.reset.get_or_insert((Instant::now(), reason));
            stream.notify.notify_one();
            self.close_stream(head.stream);
        } else if head.ends_stream() {
            stream.half_closed = true;
            if stream.sent.ends > 0 {
                self.close_stream(head.stream);
            }
        }
    }

    /// Writes to the socket until it blocks; ready when everything is written.
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
            if let Some(stream) = self.streams.get(&id) {
                stream.notify.notify_one();
            }
        }
        done
    }
}
