//! The replay buffer: keeps the frames of a streaming request until the call commits to an attempt.
//!
//! The buffer polls the application's body only when an attempt needs a frame that is not buffered
//! yet, so the fastest attempt determines the backpressure on the application. Each attempt has its own
//! read position; frames are reference counted, not copied. On commit, the frames that the winner has
//! read are freed at once and the others as it reads them; new frames pass through unbuffered (G25).
//!
//! Attempts are read by the tasks of their connections, while the caller's task decides about the call.
//! A frame that exceeds the limit is therefore set aside, the caller is woken, and readers that need
//! the frame wait until the state machine has committed the call to an attempt.
//!
//! Invariants: each attempt gets every frame once, in order. Only open attempts read, and closing an
//! attempt wakes it. The reservation equals the bytes in `frames`, and is empty after commit.
//!
//! Locks: `inner` is taken before the lock of the wakers. Under either lock no waker runs, nothing of
//! the application is dropped and its body is not polled: wakers and drops are left to [`Deferred`],
//! and the body is taken out for polling. (A body may own the response of its own call and drop it
//! while it is polled, which releases this buffer.)

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

use crate::buffer_limits::Reservation;
use crate::call::request_too_large;
use crate::message_size::{MessageSizeLimit, TooLarge};
use crate::sync::{Mutex, lock};
use crate::{BoxError, transport_error};
use reader_wakers::{Deferred, ReaderWakers};
use replay::{EarlyEnd, Read};
pub use replay::{Replay, ReplayError};

/// Maximum run of empty frames that are skipped before the task yields.
pub(crate) const EMPTY_FRAMES_MAX: u32 = 32;

/// What the caller must handle.
#[derive(Debug)]
pub(crate) enum Signal {
    None,
    /// The buffer is full. Names the open attempt that has sent most, if there is one (G24).
    Full(Option<u32>),
    /// The request body failed.
    Failed(Failure),
}

/// Why the request body failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It returned an error or panicked.
    Body(BoxError),
    /// It contains a message over the size limit of the config (G41).
    TooLarge(TooLarge),
    /// A frame would be lost because of a bug in this module.
    Internal,
}

impl Failure {
    /// The status code of the call.
    pub(crate) fn code(&self) -> Code {
        match self {
            Failure::Body(error) => transport_error::application_code(&**error),
            Failure::TooLarge(_) => Code::ResourceExhausted,
            Failure::Internal => Code::Internal,
        }
    }

    /// The status message.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Body(error) => transport_error::chain_text(&**error),
            Failure::TooLarge(too_large) => request_too_large(*too_large).1,
            Failure::Internal => {
                "a frame of the request was lost (a bug in redial-grpc)".to_owned()
            }
        }
    }
}

/// A request body that is still being sent, whatever its type.
pub(crate) trait RequestBodyHandle: Send + Sync {
    /// Takes its failure; each failure is returned once.
    fn take_failure(&self) -> Option<Failure>;

    /// Releases the body and its buffered frames.
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

/// The buffered request body and its readers.
pub(crate) struct ReplayBuffer<B> {
    inner: Mutex<Inner<B>>,
    reader_wakers: Arc<ReaderWakers>,
}

struct Inner<B> {
    /// `None` while a reader polls it, and after the end.
    source: Option<B>,
    /// A reader waits because another one is polling the source.
    reader_waiting: bool,
    frames: VecDeque<Bytes>,
    /// How many frames are gone, which the committed attempt has read.
    freed: u64,
    /// A frame over the limit, which waits for commit.
    overflow: Option<Bytes>,
    /// The only attempt that may read: the one that the call is committed to, or the first if retries are
    /// off.
    restricted_to: Option<u32>,
    /// The open attempts.
    open: Vec<Progress>,
    end: Option<End>,
    failure: Option<Failure>,
    caller_waker: Option<Waker>,
    reservation: Reservation,
    size_limit: Option<MessageSizeLimit>,
}

/// Read position of an attempt.
struct Progress {
    attempt: u32,
    /// Index of its next frame.
    next: u64,
    /// How many frames its connection has written. A connection takes one frame before flow control
    /// lets it write, so a frame counts when the connection asks for the next one.
    written: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The application has sent everything (half-close).
    HalfClosed,
    Failed,
    /// The call is over, or its committed attempt has closed.
    Released,
}

/// Resources of others, to be dropped after the lock is released.
type Freed<B> = (Option<B>, VecDeque<Bytes>, Option<Bytes>, Option<Waker>);

impl<B> ReplayBuffer<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// `frames` have been read from `source` already and are counted by `reservation`.
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
            freed: 0,
            overflow: None,
            restricted_to: None,
            open: Vec::new(),
            end: None,
            failure: None,
            caller_waker: None,
            reservation,
            size_limit,
        };
        ReplayBuffer { inner: Mutex::new(inner), reader_wakers: Arc::default() }
    }

    /// Opens a body for this attempt. After commit to another attempt, or after release, it returns an
    /// error when it is read.
    pub(crate) fn open(self: &Arc<Self>, attempt: u32) -> Replay<B> {
        let mut inner = lock(&self.inner);
        if inner.restricted_to.is_none() && inner.end != Some(End::Released) {
            inner.open.push(Progress { attempt, next: 0, written: 0 });
        }
        drop(inner);
        Replay::buffered(self.clone(), attempt)
    }

    /// The next signal for the caller; if there is none, the caller is woken when that changes.
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

    fn read(&self, attempt: u32, cx: &mut Context<'_>) -> (Poll<Read>, Deferred) {
        let mut deferred = Deferred::default();
        let mut guard = lock(&self.inner);
        // A frame with data takes two iterations: one to poll the source, one to return it.
        for _ in 0..EMPTY_FRAMES_MAX + 2 {
            let inner = &mut *guard;
            let Some(index) = inner.open.iter().position(|it| it.attempt == attempt) else {
                return (Poll::Ready(Read::EndedEarly(EarlyEnd::Cancelled)), deferred);
            };
            inner.open[index].written = inner.open[index].next;
            if let Some(bytes) = inner.next_frame(index) {
                let next = inner.open[index].next;
                let last = inner.end == Some(End::HalfClosed) && next == inner.frames_read();
                return (Poll::Ready(Read::Frame(bytes, last)), deferred);
            }
            match inner.end {
                Some(End::HalfClosed) => return (Poll::Ready(Read::End), deferred),
                Some(End::Failed) => {
                    return (Poll::Ready(Read::EndedEarly(EarlyEnd::Failed)), deferred);
                }
                Some(End::Released) => {
                    return (Poll::Ready(Read::EndedEarly(EarlyEnd::Cancelled)), deferred);
                }
                None => {}
            }
            // Registered before polling: otherwise the source could become ready before there is a waker.
            deferred.drop(self.reader_wakers.register(attempt, cx.waker()));
            if inner.overflow.is_some() {
                return (Poll::Pending, deferred);
            }
            let Some(mut source) = inner.source.take() else {
                // The reader that polls the source wakes this one afterwards.
                inner.reader_waiting = true;
                return (Poll::Pending, deferred);
            };
            let sole_reader = inner.open.len() == 1;
            drop(guard);
            let polled = if sole_reader {
                poll_source(&mut source, cx)
            } else {
                // The source wakes all readers: the one that polled last may be stalled by flow control,
                // or gone, when a frame arrives.
                poll_source(
                    &mut source,
                    &mut Context::from_waker(&Waker::from(self.reader_wakers.clone())),
                )
            };
            guard = lock(&self.inner);
            let inner = &mut *guard;
            let handled = inner.handle_polled(source, polled, &mut deferred);
            let others = !sole_reader || inner.open.len() > 1;
            if std::mem::take(&mut inner.reader_waiting) || handled.is_ready() && others {
                deferred.wake(self.reader_wakers.take_others(attempt));
            }
            if handled.is_pending() {
                return (Poll::Pending, deferred);
            }
            if inner.failure.is_some() || inner.is_full() {
                deferred.wake(inner.caller_waker.take());
            }
        }
        drop(guard);
        deferred.wake([cx.waker().clone()]);
        (Poll::Pending, deferred)
    }
}

impl<B> ReplayBuffer<B> {
    /// Restricts the buffer to this attempt, because the call is committed to it or retries are off:
    /// cancels the other readers and frees the frames that it has read. Only the first commit has an
    /// effect.
    pub(crate) fn commit(&self, attempt: u32) {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        let mut freed = None;
        if inner.restricted_to.is_none() && inner.end != Some(End::Released) {
            inner.restricted_to = Some(attempt);
            inner.open.retain(|it| it.attempt == attempt);
            inner.reservation.release();
            freed = Some(match inner.open.first() {
                Some(committed) => {
                    let next = committed.next;
                    (None, inner.take_read(next), None, None)
                }
                None => inner.release(),
            });
        }
        drop(guard);
        if freed.is_some() {
            self.reader_wakers.wake_all();
        }
        drop(freed);
    }

    /// Ends the call: cancels all readers and frees everything.
    pub(crate) fn release(&self) {
        let mut inner = lock(&self.inner);
        inner.open.clear();
        inner.reservation.release();
        let freed = inner.release();
        drop(inner);
        self.reader_wakers.wake_all();
        drop(freed);
    }

    /// Closes the body of this attempt.
    pub(crate) fn close(&self, attempt: u32) {
        let mut inner = lock(&self.inner);
        inner.open.retain(|it| it.attempt != attempt);
        let freed = (inner.restricted_to == Some(attempt)).then(|| inner.release());
        drop(inner);
        // A connection that waits for this body would keep the stream open, so it is woken.
        if let Some(waker) = self.reader_wakers.remove(attempt) {
            waker.wake();
        }
        drop(freed);
    }
}

impl<B> Inner<B> {
    /// Whether a frame waits for commit.
    fn is_full(&self) -> bool {
        self.overflow.is_some() && self.restricted_to.is_none()
    }

    /// Number of frames that were read from the source.
    fn frames_read(&self) -> u64 {
        self.freed + self.frames.len() as u64 + u64::from(self.overflow.is_some())
    }

    /// The next frame of the open attempt at this index, if it is buffered.
    fn next_frame(&mut self, index: usize) -> Option<Bytes> {
        let progress = &mut self.open[index];
        let bytes = if self.restricted_to.is_some() {
            // Only the committed attempt is open, and the frames that it has read are freed.
            let bytes = self.frames.pop_front().or_else(|| self.overflow.take())?;
            self.freed += 1;
            bytes
        } else {
            // Nothing is freed before the commit.
            self.frames.get(usize::try_from(progress.next).ok()?)?.clone()
        };
        progress.next += 1;
        Some(bytes)
    }

    /// Takes the frames that the committed attempt has read, with their capacity.
    fn take_read(&mut self, next: u64) -> VecDeque<Bytes> {
        let read = usize::try_from(next).unwrap_or(usize::MAX).min(self.frames.len());
        let rest = self.frames.split_off(read);
        self.freed = read as u64;
        std::mem::replace(&mut self.frames, rest)
    }

    /// Takes everything, since no reader needs it.
    fn release(&mut self) -> Freed<B> {
        self.end = Some(End::Released);
        let frames = std::mem::take(&mut self.frames);
        // No further signal can occur, so the caller's waker is dropped as well.
        (self.source.take(), frames, self.overflow.take(), self.caller_waker.take())
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.end = Some(End::Failed);
    }

    /// Stores a frame, or sets it aside if it exceeds the limit. Returns a frame with a message over the
    /// size limit.
    fn store(&mut self, bytes: Bytes) -> Option<Bytes> {
        if let Some(Err(too_large)) =
            self.size_limit.as_mut().map(|size_limit| size_limit.check(&bytes))
        {
            self.fail(Failure::TooLarge(too_large));
            return Some(bytes);
        }
        if self.overflow.is_some() {
            // The source is not polled while a frame waits for the commit.
            self.fail(Failure::Internal);
            return Some(bytes);
        }
        // After commit frames pass through and are not counted.
        if self.restricted_to.is_some() || self.reservation.add(bytes.len() as u64) {
            self.frames.push_back(bytes);
        } else {
            self.overflow = Some(bytes);
        }
        None
    }
}

/// Result of polling the source, or its panic.
type PolledSource = Result<Poll<Option<Result<Frame<Bytes>, BoxError>>>, Box<dyn Any + Send>>;

/// Polls the source for the next frame.
fn poll_source<B>(source: &mut B, cx: &mut Context<'_>) -> PolledSource
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    // A panic would unwind into the task of a connection, which other calls share, and the caller
    // would never learn why its call failed. The source is not polled again after a panic.
    catch_unwind(AssertUnwindSafe(|| Pin::new(source).poll_frame(cx).map_err(Into::into)))
}

impl<B: Send + 'static> Inner<B> {
    /// Puts the source back and handles its result.
    fn handle_polled(
        &mut self,
        source: B,
        polled: PolledSource,
        deferred: &mut Deferred,
    ) -> Poll<()> {
        if self.end == Some(End::Released) {
            // The buffer was released while the source was polled, possibly by the source itself.
            deferred.drop(Some((source, polled)));
            return Poll::Ready(());
        }
        self.source = Some(source);
        match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Some(Ok(frame)))) => deferred.drop(self.accept_frame(frame)),
            Ok(Poll::Ready(Some(Err(error)))) => self.fail(Failure::Body(error)),
            Ok(Poll::Ready(None)) => self.end = Some(End::HalfClosed),
            Err(panic) => {
                self.fail(Failure::Body(panicked(&*panic)));
                deferred.drop(Some(panic));
            }
        }
        Poll::Ready(())
    }

    /// Stores the data of a frame; returns what must be dropped outside the lock.
    fn accept_frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match frame.into_data() {
            Ok(bytes) if bytes.has_remaining() => self.store(bytes).map(Frame::data),
            // gRPC requests have no trailers, and empty frames carry nothing.
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
