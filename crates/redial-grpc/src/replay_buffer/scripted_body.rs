//! A request body controlled by the test, and counting wakers.
// The loom models use only a part of it.
#![cfg_attr(loom, allow(dead_code))]

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use super::{Replay, ReplayBuffer, ReplayError};
use crate::buffer_limits::{BufferLimit, Reservation};
use crate::message_size::MessageSizeLimit;
use crate::sync::{Mutex, lock};

/// What the body returns when it is polled.
#[derive(Debug)]
pub(crate) enum Item {
    Data(Bytes),
    Trailers,
    Fail,
    Panic,
    /// Wakes the poller and returns `Pending`.
    WakeThenPend,
    End,
}

/// The test's handle to a body that others read.
#[derive(Clone, Default)]
pub(crate) struct ScriptedBody(Arc<Mutex<ScriptState>>);

#[derive(Default)]
struct ScriptState {
    items: VecDeque<Item>,
    polls: usize,
    waker: Option<Waker>,
    dropped: bool,
}

impl ScriptedBody {
    pub(crate) fn write(&self, item: Item) {
        let mut state = lock(&self.0);
        state.items.push_back(item);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Adds an item without waking the reader, like a timer that is due but has not fired.
    pub(crate) fn write_without_wake(&self, item: Item) {
        lock(&self.0).items.push_back(item);
    }

    pub(crate) fn data(&self, bytes: impl Into<Bytes>) {
        self.write(Item::Data(bytes.into()));
    }

    /// How often the body was polled.
    pub(crate) fn polls(&self) -> usize {
        lock(&self.0).polls
    }

    /// Number of items that have not been read.
    pub(crate) fn unread_frames(&self) -> usize {
        lock(&self.0).items.len()
    }

    /// Whether the body has been dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        lock(&self.0).dropped
    }

    pub(crate) fn body(&self) -> ScriptedSource {
        ScriptedSource(self.clone())
    }

    /// A replay buffer for this body, with the buffer limit of one call.
    pub(crate) fn buffer(
        &self,
        buffer_limit: &Arc<BufferLimit>,
        limit: u64,
    ) -> Arc<ReplayBuffer<ScriptedSource>> {
        self.sized_buffer(buffer_limit, limit, None)
    }

    pub(crate) fn sized_buffer(
        &self,
        buffer_limit: &Arc<BufferLimit>,
        limit: u64,
        size_limit: Option<MessageSizeLimit>,
    ) -> Arc<ReplayBuffer<ScriptedSource>> {
        let reservation = Reservation::new(buffer_limit.clone(), limit);
        Arc::new(ReplayBuffer::new(self.body(), VecDeque::new(), reservation, size_limit))
    }
}

/// The body that the replay buffer reads.
pub(crate) struct ScriptedSource(ScriptedBody);

impl Body for ScriptedSource {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let mut state = lock(&self.0.0);
        state.polls += 1;
        match state.items.pop_front() {
            Some(Item::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Item::Trailers) => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
            Some(Item::Fail) => Poll::Ready(Some(Err("the disk is gone"))),
            Some(Item::Panic) => {
                drop(state);
                panic!("the body is broken");
            }
            Some(Item::WakeThenPend) => {
                drop(state);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Item::End) => Poll::Ready(None),
            None => {
                // Like a channel: only the last poller is woken.
                let before = state.waker.replace(cx.waker().clone());
                drop(state);
                drop(before);
                Poll::Pending
            }
        }
    }
}

impl Drop for ScriptedSource {
    fn drop(&mut self) {
        lock(&self.0.0).dropped = true;
    }
}

#[derive(Default)]
pub(crate) struct CountingWaker(AtomicUsize);

impl CountingWaker {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Number of wakes since the last call.
    pub(crate) fn take_wakes(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The result of polling a body, comparable.
pub(crate) type PolledData = Poll<Option<Result<Bytes, ReplayError>>>;

/// A reader with a task of its own.
pub(crate) struct TestReader {
    pub(crate) body: Replay<ScriptedSource>,
    pub(crate) waker: Arc<CountingWaker>,
}

impl TestReader {
    pub(crate) fn open(buffer: &Arc<ReplayBuffer<ScriptedSource>>, attempt: u32) -> Self {
        TestReader { body: buffer.open(attempt), waker: CountingWaker::new() }
    }

    pub(crate) fn poll(&mut self) -> PolledData {
        poll(&mut self.body, &Waker::from(self.waker.clone()))
    }

    /// The next frame, which must be available.
    pub(crate) fn frame(&mut self) -> Bytes {
        match self.poll() {
            Poll::Ready(Some(Ok(bytes))) => bytes,
            other => panic!("no frame: {other:?}"),
        }
    }

    /// Number of wakes of its task since the last call.
    pub(crate) fn take_wakes(&self) -> usize {
        self.waker.take_wakes()
    }
}

pub(crate) fn poll(body: &mut Replay<ScriptedSource>, waker: &Waker) -> PolledData {
    Pin::new(body).poll_frame(&mut Context::from_waker(waker)).map(|frame| {
        frame.map(|frame| frame.map(|frame| frame.into_data().expect("trailers are skipped")))
    })
}
