//! A body that a test writes, and wakers that count.
// The models need a part of it.
#![cfg_attr(loom, allow(dead_code))]

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use super::{Replay, ReplayError, Tape};
use crate::meter::{Held, Meter};
use crate::sizes::Sizes;
use crate::sync::{Mutex, lock};

/// What the body does when it is asked.
#[derive(Debug)]
pub(crate) enum Item {
    Data(Bytes),
    Trailers,
    Fail,
    Panic,
    /// Wakes who asks, and has nothing.
    Ring,
    End,
}

/// A body that a test writes while others read it.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Desk>>);

#[derive(Default)]
struct Desk {
    items: VecDeque<Item>,
    asked: usize,
    waker: Option<Waker>,
    dropped: bool,
}

impl Script {
    pub(crate) fn write(&self, item: Item) {
        let mut desk = lock(&self.0);
        desk.items.push_back(item);
        let waker = desk.waker.take();
        drop(desk);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// As if whoever asks next finds it before anybody is woken, as with a timer that is due.
    pub(crate) fn slip(&self, item: Item) {
        lock(&self.0).items.push_back(item);
    }

    pub(crate) fn data(&self, bytes: impl Into<Bytes>) {
        self.write(Item::Data(bytes.into()));
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        lock(&self.0).asked
    }

    /// How much of what was written nobody has asked for yet.
    pub(crate) fn left(&self) -> usize {
        lock(&self.0).items.len()
    }

    /// Whether nobody holds the body any more.
    pub(crate) fn is_dropped(&self) -> bool {
        lock(&self.0).dropped
    }

    pub(crate) fn body(&self) -> Source {
        Source(self.clone())
    }

    /// A tape of it, for a call that may keep so many bytes.
    pub(crate) fn tape(&self, meter: &Arc<Meter>, limit: u64) -> Arc<Tape<Source>> {
        self.sized_tape(meter, limit, None)
    }

    pub(crate) fn sized_tape(
        &self,
        meter: &Arc<Meter>,
        limit: u64,
        sizes: Option<Sizes>,
    ) -> Arc<Tape<Source>> {
        let held = Held::new(meter.clone(), limit);
        Arc::new(Tape::new(self.body(), VecDeque::new(), held, sizes))
    }
}

/// The body that a tape reads.
pub(crate) struct Source(Script);

impl Body for Source {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let mut desk = lock(&self.0.0);
        desk.asked += 1;
        match desk.items.pop_front() {
            Some(Item::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Item::Trailers) => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
            Some(Item::Fail) => Poll::Ready(Some(Err("the disk is gone"))),
            Some(Item::Panic) => {
                drop(desk);
                panic!("the body is broken");
            }
            Some(Item::Ring) => {
                drop(desk);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Item::End) => Poll::Ready(None),
            None => {
                // As channels do: who asks last is woken.
                let before = desk.waker.replace(cx.waker().clone());
                drop(desk);
                drop(before);
                Poll::Pending
            }
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        lock(&self.0.0).dropped = true;
    }
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct Woken(AtomicUsize);

impl Woken {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How often it was woken since this was last asked.
    pub(crate) fn times(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What a body gives, in a form that can be compared.
pub(crate) type Got = Poll<Option<Result<Bytes, ReplayError>>>;

/// A reader with its own task.
pub(crate) struct Task {
    pub(crate) body: Replay<Source>,
    pub(crate) woken: Arc<Woken>,
}

impl Task {
    pub(crate) fn open(tape: &Arc<Tape<Source>>, attempt: u32) -> Self {
        Task { body: tape.open(attempt), woken: Woken::new() }
    }

    pub(crate) fn poll(&mut self) -> Got {
        poll(&mut self.body, &Waker::from(self.woken.clone()))
    }

    /// The next frame, which is there.
    pub(crate) fn frame(&mut self) -> Bytes {
        match self.poll() {
            Poll::Ready(Some(Ok(bytes))) => bytes,
            other => panic!("no frame: {other:?}"),
        }
    }

    /// How often its task was woken since this was last asked.
    pub(crate) fn times(&self) -> usize {
        self.woken.times()
    }
}

pub(crate) fn poll(body: &mut Replay<Source>, waker: &Waker) -> Got {
    Pin::new(body).poll_frame(&mut Context::from_waker(waker)).map(|frame| {
        frame.map(|frame| frame.map(|frame| frame.into_data().expect("trailers are passed over")))
    })
}
