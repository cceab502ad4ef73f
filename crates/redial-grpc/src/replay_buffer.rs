//! The tape: what the application wrote, kept once, for every attempt that may still need it.
//!
//! A tape pulls frames from the application's body when an attempt asks for one that is not there
//! yet, so that nobody is asked to write faster than the fastest attempt reads. Each attempt has a
//! cursor; frames are shared by reference. Once the call belongs to one attempt, what that one was
//! sent is freed, the rest as it is sent, and new frames pass without being kept (G25).
//!
//! Attempts are read by the tasks of their connections, while the call is decided in the task of
//! the caller. So a frame that does not fit is put aside, the caller is woken, and whoever wants
//! that frame waits until the machine has chosen.
//!
//! Invariants: a frame is handed to an attempt once, in order; only attempts that were opened and
//! not closed read, and an attempt that is closed is woken to hear of it; what counts against the
//! limits is what `frames` holds, and nothing after the choice. Lock order: `inner`, then the
//! alarm's; nobody is woken, nothing of the application's is dropped and its body is not asked under
//! either: the first two are left for [`Deferred`], and who asks the body has taken it out. (A body
//! may own the response of its own call, and drop it while it is asked, which ends the tape.)

#[cfg(all(test, not(loom)))]
mod interleavings;
mod reader_wakers;
mod replay;
#[cfg(test)]
pub(crate) mod scripted_body;
#[cfg(all(test, not(loom)))]
mod tests;

use std::any::Any;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use redial_service_config::Code;

use crate::body::request_too_large;
use crate::buffer_limits::Reservation;
use crate::message_size::{MessageSizeLimit, TooLarge};
use crate::sync::{Mutex, lock};
use crate::{BoxError, transport_error};
use reader_wakers::{Deferred, ReaderWakers};
use replay::{EarlyEnd, Read};
pub use replay::{Replay, ReplayError};

/// How many frames that say nothing are passed over before others get a turn.
pub(crate) const EMPTY_FRAMES_MAX: u32 = 32;

/// What the caller must know about.
#[derive(Debug)]
pub(crate) enum Signal {
    /// Nothing.
    None,
    /// A frame does not fit; the attempt to which most was written, if one is open (G24).
    Full(Option<u32>),
    /// The application's body ended before its end.
    Failed(Failure),
}

/// Why the application's body ended before its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It failed.
    Body(BoxError),
    /// It holds a message that is larger than its config allows (G41).
    TooLarge(TooLarge),
}

impl Failure {
    /// The status that it means.
    pub(crate) fn code(&self) -> Code {
        match self {
            Failure::Body(error) => transport_error::application_code(&**error),
            Failure::TooLarge(_) => Code::ResourceExhausted,
        }
    }

    /// What happened, in words.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Body(error) => transport_error::chain_text(&**error),
            Failure::TooLarge(too_large) => request_too_large(*too_large).1,
        }
    }
}

/// A body that may fail while others read it.
pub(crate) trait RequestBodyHandle: Send + Sync {
    /// Why it ended before its end; told once.
    fn take_failure(&self) -> Option<Failure>;

    /// Nobody needs it any more.
    fn release_body(&self);
}

impl<B: Send> RequestBodyHandle for ReplayBuffer<B> {
    fn take_failure(&self) -> Option<Failure> {
        lock(&self.inner).failure.take()
    }

    fn release_body(&self) {
        self.release();
    }
}

/// What the application wrote, and who reads it.
pub(crate) struct ReplayBuffer<B> {
    inner: Mutex<Inner<B>>,
    reader_wakers: Arc<ReaderWakers>,
}

struct Inner<B> {
    /// `None` while a reader asks it, and once nobody will ask it again.
    source: Option<B>,
    /// A reader came while another one asked the source, and waits.
    reader_waiting: bool,
    frames: VecDeque<Bytes>,
    /// The index of the first frame that is kept.
    first: u64,
    /// A frame that does not fit waits here for the choice.
    overflow: Option<Bytes>,
    /// The attempt that the call belongs to.
    committed: Option<u32>,
    /// The attempts that may read.
    open: Vec<Progress>,
    end: Option<End>,
    failure: Option<Failure>,
    caller_waker: Option<Waker>,
    reservation: Reservation,
    size_limit: Option<MessageSizeLimit>,
}

/// How far an attempt has read.
struct Progress {
    attempt: u32,
    /// The index of its next frame.
    next: u64,
    /// How many frames its connection has written. A connection takes one frame before flow control
    /// lets it write, so a frame counts when the connection asks for the next one.
    written: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The application has written all of it.
    HalfClosed,
    Failed,
    /// Nobody needs what the application writes any more.
    Released,
}

/// Everything that a tape holds of others, to be dropped under no lock.
type Freed<B> = (Option<B>, VecDeque<Bytes>, Option<Bytes>, Option<Waker>);

impl<B> ReplayBuffer<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// A tape of what was read of the source already, which `reservation` counts, and the source itself.
    pub(crate) fn new(
        source: B,
        frames: VecDeque<Bytes>,
        reservation: Reservation,
        size_limit: Option<MessageSizeLimit>,
    ) -> Self {
        let inner = Inner {
            source: Some(source),
            reader_waiting: false,
            frames,
            first: 0,
            overflow: None,
            committed: None,
            open: Vec::new(),
            end: None,
            failure: None,
            caller_waker: None,
            reservation,
            size_limit,
        };
        ReplayBuffer { inner: Mutex::new(inner), reader_wakers: Arc::default() }
    }

    /// A body for this attempt, which may read from now on; once the call belongs to another
    /// attempt or is over, one that says so.
    pub(crate) fn open(self: &Arc<Self>, attempt: u32) -> Replay<B> {
        let mut inner = lock(&self.inner);
        if inner.committed.is_none() && inner.end != Some(End::Released) {
            inner.open.push(Progress { attempt, next: 0, written: 0 });
        }
        drop(inner);
        Replay::buffered(self.clone(), attempt)
    }

    /// What the caller must know; if nothing, it is woken when that changes.
    pub(crate) fn poll_signal(&self, cx: &Context<'_>) -> Signal {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        if let Some(failure) = inner.failure.take() {
            return Signal::Failed(failure);
        }
        if inner.is_full() {
            let most = inner.open.iter().max_by_key(|it| (it.written, Reverse(it.attempt)));
            return Signal::Full(most.map(|most| most.attempt));
        }
        let before = match &inner.caller_waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => inner.caller_waker.replace(cx.waker().clone()),
        };
        drop(guard);
        drop(before);
        Signal::None
    }

    fn read(&self, attempt: u32, next: &mut u64, cx: &mut Context<'_>) -> (Poll<Read>, Deferred) {
        let mut after = Deferred::default();
        let mut guard = lock(&self.inner);
        // A frame that says something takes two turns: it is asked for, and handed out.
        for _ in 0..EMPTY_FRAMES_MAX + 2 {
            let inner = &mut *guard;
            let Some(index) = inner.open.iter().position(|it| it.attempt == attempt) else {
                return (Poll::Ready(Read::EndedEarly(EarlyEnd::Cancelled)), after);
            };
            inner.open[index].written = *next;
            if let Some(bytes) = inner.frame(*next) {
                *next += 1;
                inner.open[index].next = *next;
                let last = inner.end == Some(End::HalfClosed) && *next == inner.written();
                return (Poll::Ready(Read::Frame(bytes, last)), after);
            }
            match inner.end {
                Some(End::HalfClosed) => return (Poll::Ready(Read::End), after),
                Some(End::Failed) => {
                    return (Poll::Ready(Read::EndedEarly(EarlyEnd::Failed)), after);
                }
                Some(End::Released) => {
                    return (Poll::Ready(Read::EndedEarly(EarlyEnd::Cancelled)), after);
                }
                None => {}
            }
            // Before the source is asked, or its answer could come before there is anybody to wake.
            after.drop(self.reader_wakers.register(attempt, cx.waker()));
            if inner.overflow.is_some() {
                return (Poll::Pending, after);
            }
            let Some(mut source) = inner.source.take() else {
                // Who asks it now wakes us with the answer, or to ask it ourselves.
                inner.reader_waiting = true;
                return (Poll::Pending, after);
            };
            let sole_reader = inner.open.len() == 1;
            drop(guard);
            let polled = if sole_reader {
                poll_source(&mut source, cx)
            } else {
                // All that wait: who asked last may be stalled by its connection, or gone, when the
                // source has something.
                poll_source(
                    &mut source,
                    &mut Context::from_waker(&Waker::from(self.reader_wakers.clone())),
                )
            };
            guard = lock(&self.inner);
            let inner = &mut *guard;
            let handled = inner.handle_polled(source, polled, &mut after);
            let others = !sole_reader || inner.open.len() > 1;
            if std::mem::take(&mut inner.reader_waiting) || handled.is_ready() && others {
                after.wake(self.reader_wakers.take_others(attempt));
            }
            if handled.is_pending() {
                return (Poll::Pending, after);
            }
            if inner.failure.is_some() || inner.is_full() {
                after.wake(inner.caller_waker.take());
            }
        }
        drop(guard);
        after.wake([cx.waker().clone()]);
        (Poll::Pending, after)
    }
}

impl<B> ReplayBuffer<B> {
    /// The call belongs to this attempt.
    pub(crate) fn commit(&self, attempt: u32) {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        let mut freed = None;
        if inner.committed.is_none() && inner.end != Some(End::Released) {
            inner.committed = Some(attempt);
            inner.open.retain(|it| it.attempt == attempt);
            inner.reservation.release();
            freed = Some(match inner.open.first() {
                Some(committed) => (None, inner.take_sent(committed.next), None, None),
                None => inner.release(),
            });
        }
        drop(guard);
        self.reader_wakers.wake_all();
        drop(freed);
    }

    /// The call is over: nobody reads any more.
    pub(crate) fn release(&self) {
        let mut inner = lock(&self.inner);
        inner.open.clear();
        inner.reservation.release();
        let freed = inner.release();
        drop(inner);
        self.reader_wakers.wake_all();
        drop(freed);
    }

    /// This attempt reads no more.
    pub(crate) fn close(&self, attempt: u32) {
        let mut inner = lock(&self.inner);
        inner.open.retain(|it| it.attempt != attempt);
        let freed = (inner.committed == Some(attempt)).then(|| inner.release());
        drop(inner);
        // A body that waits in the hands of a connection would keep its stream open.
        if let Some(waker) = self.reader_wakers.remove(attempt) {
            waker.wake();
        }
        drop(freed);
    }
}

impl<B> Inner<B> {
    /// Whether a frame waits for the choice.
    fn is_full(&self) -> bool {
        self.overflow.is_some() && self.committed.is_none()
    }

    /// How many frames the application wrote, once it has ended.
    fn written(&self) -> u64 {
        debug_assert!(self.overflow.is_none(), "the end comes after what did not fit");
        self.first + self.frames.len() as u64
    }

    /// The frame with this index, if it is there.
    fn frame(&mut self, frame_index: u64) -> Option<Bytes> {
        let index = usize::try_from(frame_index.checked_sub(self.first)?).ok()?;
        if self.committed.is_none() {
            return self.frames.get(index).cloned();
        }
        debug_assert!(index == 0, "what the chosen attempt was sent is kept");
        let bytes = self.frames.pop_front().or_else(|| self.overflow.take())?;
        self.first += 1;
        Some(bytes)
    }

    /// The frames before this one, which nobody needs; the room for them goes too.
    fn take_sent(&mut self, index: u64) -> VecDeque<Bytes> {
        debug_assert!(self.first == 0, "something was freed before the choice");
        let sent = usize::try_from(index).unwrap_or(usize::MAX);
        let rest = self.frames.split_off(sent.min(self.frames.len()));
        self.first = index;
        std::mem::replace(&mut self.frames, rest)
    }

    /// Everything, which nobody needs.
    fn release(&mut self) -> Freed<B> {
        self.end = Some(End::Released);
        let frames = std::mem::take(&mut self.frames);
        // The caller waits for nothing that could still happen.
        (self.source.take(), frames, self.overflow.take(), self.caller_waker.take())
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.end = Some(End::Failed);
    }

    /// Keeps a frame, or puts it aside if it does not fit. Gives back what is too large.
    fn store(&mut self, bytes: Bytes) -> Option<Bytes> {
        if let Some(Err(too_large)) =
            self.size_limit.as_mut().map(|size_limit| size_limit.check(&bytes))
        {
            self.fail(Failure::TooLarge(too_large));
            return Some(bytes);
        }
        debug_assert!(self.overflow.is_none(), "the source is asked before there is room");
        // After the choice nothing is kept: it passes at once.
        if self.committed.is_some() || self.reservation.add(bytes.len() as u64) {
            self.frames.push_back(bytes);
        } else {
            self.overflow = Some(bytes);
        }
        None
    }
}

/// What a source says, or how it panicked.
type PolledSource = Result<Poll<Option<Result<Frame<Bytes>, BoxError>>>, Box<dyn Any + Send>>;

/// Asks a source for what comes next.
fn poll_source<B>(source: &mut B, cx: &mut Context<'_>) -> PolledSource
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    // A panic would go up into the task of a connection, which other calls share, and the caller
    // would never hear why. The source is not asked again, so nobody sees it broken.
    catch_unwind(AssertUnwindSafe(|| Pin::new(source).poll_frame(cx).map_err(Into::into)))
}

impl<B: Send + 'static> Inner<B> {
    /// Takes back a source that was asked, and what it said.
    fn handle_polled(&mut self, source: B, polled: PolledSource, after: &mut Deferred) -> Poll<()> {
        if self.end == Some(End::Released) {
            // The call ended meanwhile, perhaps by what was asked.
            after.drop(Some((source, polled)));
            return Poll::Ready(());
        }
        self.source = Some(source);
        match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Some(Ok(frame)))) => after.drop(self.accept_frame(frame)),
            Ok(Poll::Ready(Some(Err(error)))) => self.fail(Failure::Body(error)),
            Ok(Poll::Ready(None)) => self.end = Some(End::HalfClosed),
            Err(panic) => {
                self.fail(Failure::Body(panicked(&*panic)));
                after.drop(Some(panic));
            }
        }
        Poll::Ready(())
    }

    /// Takes in a frame; gives back what is left of it.
    fn accept_frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match frame.into_data() {
            Ok(bytes) if bytes.has_remaining() => self.store(bytes).map(Frame::data),
            // A request of gRPC has no trailers, and an empty frame says nothing.
            Ok(empty) => Some(Frame::data(empty)),
            Err(trailers) => Some(trailers),
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> BoxError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    match text {
        Some(text) => format!("the request body panicked: {text}").into(),
        None => "the request body panicked".into(),
    }
}
