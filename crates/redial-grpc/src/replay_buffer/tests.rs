//! Unit tests of the invariants in the head of the replay buffer, with readers at any speed. The test
//! writes the body, polls the readers by hand and counts wakes; there is no runtime.

use std::sync::Weak;

use super::scripted_body::{
    CountingWaker, Item, PolledData, ScriptedBody, ScriptedSource, TestReader,
};
use super::*;
use crate::buffer_limits::BufferLimit;

const CANCELLED: PolledData = Poll::Ready(Some(Err(ReplayError(EarlyEnd::Cancelled))));
const FAILED: PolledData = Poll::Ready(Some(Err(ReplayError(EarlyEnd::Failed))));
const END: PolledData = Poll::Ready(None);

/// A limit that no test here reaches.
const LARGE_LIMIT: u64 = 1000;

fn buffer_limit() -> Arc<BufferLimit> {
    Arc::new(BufferLimit::new(1 << 20))
}

fn unlimited() -> (ScriptedBody, Arc<BufferLimit>, Arc<ReplayBuffer<ScriptedSource>>) {
    limited(LARGE_LIMIT)
}

fn limited(limit: u64) -> (ScriptedBody, Arc<BufferLimit>, Arc<ReplayBuffer<ScriptedSource>>) {
    let (script, buffer_limit) = (ScriptedBody::default(), buffer_limit());
    let buffer = script.buffer(&buffer_limit, limit);
    (script, buffer_limit, buffer)
}

fn data(bytes: &'static [u8]) -> PolledData {
    Poll::Ready(Some(Ok(Bytes::from_static(bytes))))
}

/// The body of a proxy may itself be a response from another server. Its error must not be classified
/// as an error of this call's connection.
#[test]
fn request_body_error_is_not_classified_as_transport_error() {
    let lost = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert_eq!(Failure::Body(lost().into()).code(), Code::Unknown);
    #[cfg(feature = "tonic")]
    {
        let unknown = tonic::Status::from_error(lost().into());
        assert_eq!(unknown.code(), tonic::Code::Unknown);
        assert_eq!(Failure::Body(unknown.into()).code(), Code::Unknown);
        assert_eq!(Failure::Body(tonic::Status::aborted("").into()).code(), Code::Aborted);
    }
}

/// The task of the caller.
#[derive(Default)]
struct Caller(Arc<CountingWaker>);

impl Caller {
    fn signal(&self, buffer: &ReplayBuffer<ScriptedSource>) -> Signal {
        buffer.poll_signal(&Context::from_waker(&Waker::from(self.0.clone())))
    }

    fn assert_no_signal(&self, buffer: &ReplayBuffer<ScriptedSource>) {
        assert!(matches!(self.signal(buffer), Signal::None));
    }
}

impl ReplayBuffer<ScriptedSource> {
    /// Number of buffered frames, and the capacity for them.
    fn buffered(&self) -> (usize, usize) {
        let inner = lock(&self.inner);
        (inner.frames.len(), inner.frames.capacity())
    }
}

#[test]
fn replay_gives_all_readers_the_same_frames_in_order() {
    let (script, buffer_limit, buffer) = unlimited();
    let written: Vec<_> = ["a", "bc", "def", "g"].map(Bytes::from).to_vec();
    let (mut fast, mut slow) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    let mut read = [Vec::new(), Vec::new()];
    for (number, frame) in written.iter().enumerate() {
        script.data(frame.clone());
        read[0].push(fast.frame());
        if number % 2 == 1 {
            read[1].push(slow.frame());
        }
    }
    script.write(Item::End);
    assert_eq!(fast.poll(), END);
    let mut late = TestReader::open(&buffer, 3);
    read[1].extend([slow.frame(), slow.frame()]);
    let third: Vec<_> = written.iter().map(|_| late.frame()).collect();
    for read in [&read[0], &read[1], &third] {
        assert_eq!(*read, written);
        // Shared, not copied.
        assert!(read.iter().zip(&written).all(|(read, frame)| read.as_ptr() == frame.as_ptr()));
    }
    assert_eq!(buffer_limit.used(), 7, "counted once for all readers");
}

#[test]
fn replay_polls_the_source_only_for_a_waiting_reader() {
    let (script, _, buffer) = unlimited();
    for bytes in ["a", "b", "c"] {
        script.data(bytes);
    }
    let (mut fast, mut slow) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    assert_eq!(script.polls(), 0, "no reader has polled");
    assert_eq!((fast.frame(), script.polls()), ("a".into(), 1));
    assert_eq!((fast.frame(), script.polls()), ("b".into(), 2));
    assert_eq!((slow.frame(), slow.frame()), ("a".into(), "b".into()));
    assert_eq!(
        (script.polls(), script.unread_frames()),
        (2, 1),
        "buffered frames are not polled again"
    );
    assert_eq!((slow.frame(), script.polls()), ("c".into(), 3));
    assert_eq!((slow.poll(), script.polls()), (Poll::Pending, 4));
    assert_eq!((fast.frame(), script.polls()), ("c".into(), 4));
}

#[test]
fn replay_starts_with_frames_read_before_the_call() {
    let (script, buffer_limit) = (ScriptedBody::default(), buffer_limit());
    let mut reservation = Reservation::new(buffer_limit.clone(), 3);
    assert!(reservation.add(3));
    let frames = VecDeque::from([Bytes::from("ab"), Bytes::from("c")]);
    let buffer = Arc::new(ReplayBuffer::new(script.body(), frames, reservation, None));
    let mut reader = TestReader::open(&buffer, 1);
    assert_eq!((reader.frame(), reader.frame(), script.polls()), ("ab".into(), "c".into(), 0));
    script.data("d");
    assert_eq!(reader.poll(), Poll::Pending, "the limit includes frames read before the call");
    buffer.commit(1);
    assert_eq!(reader.frame(), "d");
    assert_eq!(buffer_limit.used(), 0);
}

#[test]
fn replay_repeats_the_half_close() {
    let (script, _, buffer) = unlimited();
    script.data("a");
    script.write(Item::End);
    let mut first = TestReader::open(&buffer, 1);
    assert_eq!(first.frame(), "a");
    assert!(!first.body.is_end_stream(), "the end is not known yet");
    assert_eq!(first.poll(), END);
    assert!(first.body.is_end_stream());
    buffer.close(1);
    let mut second = TestReader::open(&buffer, 2);
    assert!(!second.body.is_end_stream());
    assert_eq!(second.frame(), "a");
    assert!(second.body.is_end_stream(), "it is known to be the last");
    assert_eq!((second.poll(), script.polls()), (END, 2));
}

#[test]
fn replay_of_an_empty_body_is_empty() {
    let (script, _, buffer) = unlimited();
    script.write(Item::End);
    for attempt in 1..=2 {
        let mut reader = TestReader::open(&buffer, attempt);
        assert_eq!((reader.poll(), reader.poll()), (END, END));
    }
    assert_eq!(script.polls(), 1, "a body is not polled after its end");
}

#[test]
fn replay_frame_over_the_limit_wakes_the_caller_once() {
    let (script, buffer_limit, buffer) = limited(4);
    let caller = Caller::default();
    caller.assert_no_signal(&buffer);
    let (mut first, mut second) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    for bytes in ["abcd", "e", "f"] {
        script.data(bytes);
    }
    assert_eq!(first.frame(), "abcd");
    assert_eq!(caller.0.take_wakes(), 0, "the limit is inclusive");
    assert_eq!((first.poll(), caller.0.take_wakes()), (Poll::Pending, 1));
    assert_eq!((second.frame(), second.poll()), ("abcd".into(), Poll::Pending));
    assert_eq!((first.poll(), caller.0.take_wakes()), (Poll::Pending, 0));
    assert_eq!(
        (script.unread_frames(), buffer_limit.used()),
        (1, 4),
        "no frame is polled beyond the limit"
    );
    for _ in 0..2 {
        assert!(matches!(caller.signal(&buffer), Signal::Full(Some(1))), "until commit");
    }
    assert_eq!((first.take_wakes(), second.take_wakes()), (0, 0));
    buffer.commit(1);
    assert_eq!((first.take_wakes(), second.take_wakes()), (1, 1));
    assert_eq!((second.poll(), second.poll()), (CANCELLED, END));
    assert_eq!(
        (first.frame(), first.frame(), first.poll()),
        ("e".into(), "f".into(), Poll::Pending)
    );
    caller.assert_no_signal(&buffer);
    assert_eq!((caller.0.take_wakes(), buffer_limit.used()), (0, 0));
}

/// Not reachable through readers: they do not poll the source while a frame waits for the commit.
#[test]
fn replay_frame_that_would_be_lost_fails_the_request() {
    let (_script, _, buffer) = limited(1);
    let mut reader = buffer.open(1);
    {
        let mut inner = lock(&buffer.inner);
        assert!(inner.store(Bytes::from_static(b"over")).is_none());
        let refused = inner.store(Bytes::from_static(b"next"));
        assert_eq!(refused.as_deref(), Some(&b"next"[..]));
    }
    let failure = buffer.take_failure().expect("the request body has failed");
    assert_eq!(failure.code(), Code::Internal);
    let polled = Pin::new(&mut reader).poll_frame(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(Err(ReplayError(EarlyEnd::Failed))))));
}

#[test]
fn buffer_full_prefers_most_frames_then_lowest_attempt() {
    // Frames that each attempt reads before the buffer is full, and the attempt that is named.
    for (reads, most) in [
        (&[1, 3, 2][..], Some(2)),
        (&[3, 3, 1], Some(1)),
        (&[0, 3, 3], Some(2)),
        (&[3], Some(1)),
        (&[], None),
    ] {
        let (script, _, buffer) = limited(3);
        let caller = Caller::default();
        (0..4).for_each(|_| script.data("x"));
        // Opened in reverse order, which must not matter.
        let mut readers: Vec<_> = (1..=reads.len() as u32)
            .rev()
            .map(|attempt| TestReader::open(&buffer, attempt))
            .collect();
        readers.reverse();
        for (reader, take_wakes) in readers.iter_mut().zip(reads) {
            (0..*take_wakes).for_each(|_| assert_eq!(reader.frame(), "x"));
        }
        let mut filler = TestReader::open(&buffer, 9);
        while filler.poll().is_ready() {}
        drop(filler);
        match caller.signal(&buffer) {
            Signal::Full(named) => assert_eq!(named, most, "{reads:?}"),
            other => panic!("{other:?}"),
        }
    }
}

/// hyper takes a frame before flow control lets it write one.
#[test]
fn buffer_full_ignores_the_frame_that_a_connection_holds() {
    let (script, _, buffer) = limited(1);
    (0..2).for_each(|_| script.data("x"));
    let (mut stalled, mut healthy) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    assert_eq!(stalled.frame(), "x");
    assert_eq!((healthy.frame(), healthy.poll()), ("x".into(), Poll::Pending));
    assert!(matches!(Caller::default().signal(&buffer), Signal::Full(Some(2))));
    // When it asks for more, it has written as much as the other one and has the lower number.
    assert_eq!(stalled.poll(), Poll::Pending);
    assert!(matches!(Caller::default().signal(&buffer), Signal::Full(Some(1))));
    buffer.commit(1);
    assert_eq!(stalled.frame(), "x", "a frame is not returned twice");
}

#[test]
fn buffer_full_ignores_closed_attempts() {
    let (script, _, buffer) = limited(2);
    (0..3).for_each(|_| script.data("x"));
    let (mut most, mut less) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    assert_eq!((most.frame(), most.frame(), most.poll()), ("x".into(), "x".into(), Poll::Pending));
    assert_eq!(less.frame(), "x");
    buffer.close(1);
    assert!(matches!(Caller::default().signal(&buffer), Signal::Full(Some(2))));
}

#[test]
fn buffer_limits_of_call_and_channel_are_inclusive() {
    for (own, channel) in [(10, 100), (100, 10)] {
        for (size, fits) in [(9, true), (10, true), (11, false)] {
            let (script, buffer_limit) =
                (ScriptedBody::default(), Arc::new(BufferLimit::new(channel)));
            let buffer = script.buffer(&buffer_limit, own);
            script.data(vec![7; size]);
            let mut reader = TestReader::open(&buffer, 1);
            assert_eq!(reader.poll().is_ready(), fits, "{size} of {own} and {channel}");
            assert_eq!(buffer_limit.used(), if fits { size as u64 } else { 0 });
        }
    }
}

#[test]
fn buffer_limit_is_shared_until_calls_commit_or_end() {
    let buffer_limit = Arc::new(BufferLimit::new(10));
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let script = ScriptedBody::default();
            (script.buffer(&buffer_limit, 10), script)
        })
        .collect();
    let mut readers: Vec<_> = calls.iter().map(|(buffer, _)| TestReader::open(buffer, 1)).collect();
    calls.iter().for_each(|(_, script)| script.data("123456"));
    assert_eq!(readers[0].frame(), "123456");
    assert_eq!(readers[1].poll(), Poll::Pending);
    calls[0].0.commit(1);
    assert_eq!(readers[1].poll(), Poll::Pending, "a frame over the limit is not reserved again");
    assert_eq!(readers[2].frame(), "123456");
    assert_eq!(buffer_limit.used(), 6);
    calls[2].0.release();
    assert_eq!(buffer_limit.used(), 0);
}

#[test]
fn commit_lets_the_winner_continue_and_cancels_other_readers() {
    let (script, buffer_limit, buffer) = limited(5);
    for bytes in ["a", "b", "c", "d", "e", "too much", "more"] {
        script.data(bytes);
    }
    script.write(Item::End);
    let (mut fast, mut slow) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    while fast.poll().is_ready() {}
    assert_eq!((slow.frame(), slow.frame()), ("a".into(), "b".into()));
    assert_eq!(buffer.buffered().0, 5);
    buffer.commit(2);
    assert_eq!(
        (buffer.buffered().0, buffer_limit.used()),
        (3, 0),
        "what it was sent is freed at once"
    );
    assert_eq!(fast.poll(), CANCELLED);
    for (bytes, unread_frames) in [("c", 2), ("d", 1), ("e", 0), ("too much", 0), ("more", 0)] {
        assert_eq!(
            (slow.frame(), buffer.buffered().0),
            (bytes.into(), unread_frames),
            "the others are freed as they are read"
        );
    }
    assert_eq!((slow.poll(), buffer_limit.used()), (END, 0));
}

#[test]
fn commit_is_final() {
    let (script, _, buffer) = unlimited();
    script.data("a");
    let (mut first, mut second) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    buffer.commit(2);
    buffer.commit(1);
    assert_eq!((first.poll(), second.frame()), (CANCELLED, "a".into()));
}

#[test]
fn commit_makes_a_long_stream_use_constant_memory() {
    let (script, buffer_limit, buffer) = limited(100);
    let mut reader = TestReader::open(&buffer, 1);
    let frame = Bytes::from_static(b"1234567890");
    (0..11).for_each(|_| script.data(frame.clone()));
    while reader.poll().is_ready() {}
    buffer.commit(1);
    assert_eq!(reader.frame(), frame, "the frame over the limit");
    for _ in 0..100_000 {
        script.data(frame.clone());
        assert_eq!(reader.frame(), frame);
        let (frames, room) = buffer.buffered();
        assert!(
            frames == 0 && room <= 4 && buffer_limit.used() == 0,
            "{frames} frames, room for {room}"
        );
    }
}

#[test]
fn replay_closed_reader_is_woken_and_never_polls_the_source() {
    let (script, _, buffer) = unlimited();
    let mut alone = TestReader::open(&buffer, 1);
    assert_eq!(alone.poll(), Poll::Pending);
    buffer.close(1);
    assert_eq!(alone.take_wakes(), 1, "a waiting body would keep its stream open");
    script.data("a");
    let polls = script.polls();
    assert_eq!((alone.poll(), alone.poll()), (CANCELLED, END));
    assert_eq!((script.polls(), script.unread_frames()), (polls, 1));
    assert_eq!(TestReader::open(&buffer, 2).frame(), "a", "the next attempt gets the frame");
}

#[test]
fn replay_closed_reader_gets_no_buffered_frames() {
    let (script, _, buffer) = unlimited();
    script.data("a");
    let (mut first, mut second) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    assert_eq!(first.frame(), "a");
    buffer.close(2);
    assert_eq!(second.poll(), CANCELLED);
}

#[test]
fn replay_stalled_or_dropped_reader_does_not_starve_others() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Last {
        Stalls,
        IsClosed,
        IsDropped,
    }
    for becomes in [Last::Stalls, Last::IsClosed, Last::IsDropped] {
        let (script, _, buffer) = unlimited();
        let (mut first, mut last) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
        assert_eq!((first.poll(), last.poll()), (Poll::Pending, Poll::Pending));
        let waker = last.waker.clone();
        match becomes {
            Last::Stalls => {}
            Last::IsClosed => buffer.close(2),
            Last::IsDropped => drop(last),
        }
        assert_eq!(first.take_wakes(), 0, "{becomes:?}");
        waker.take_wakes();
        script.data("a");
        assert_eq!(first.take_wakes(), 1, "{becomes:?}");
        assert_eq!(waker.take_wakes(), usize::from(becomes == Last::Stalls), "{becomes:?}");
        assert_eq!(first.frame(), "a");
    }
}

#[test]
fn replay_waiting_reader_is_woken_by_another_readers_result() {
    for item in [Item::Data(Bytes::from("a")), Item::End, Item::Fail] {
        let (script, _, buffer) = unlimited();
        let (mut waits, mut finds) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
        assert_eq!((waits.poll(), finds.poll()), (Poll::Pending, Poll::Pending));
        script.write_without_wake(item);
        let found = finds.poll();
        assert!(found.is_ready());
        assert_eq!(
            (waits.take_wakes(), finds.take_wakes()),
            (1, 0),
            "a reader does not wake itself"
        );
        assert_eq!(waits.poll(), found);
    }
}

#[test]
fn replay_reader_moved_to_another_task_is_woken_there() {
    let (script, _, buffer) = unlimited();
    let (mut moved, mut other) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    assert_eq!((moved.poll(), other.poll()), (Poll::Pending, Poll::Pending));
    let before = std::mem::replace(&mut moved.waker, CountingWaker::new());
    assert_eq!(moved.poll(), Poll::Pending);
    script.data("a");
    assert_eq!((before.take_wakes(), moved.take_wakes(), other.take_wakes()), (0, 1, 1));
    assert_eq!(Arc::strong_count(&before), 1, "the waker of the previous task is dropped");
}

#[test]
fn replay_caller_moved_to_another_task_is_woken_there() {
    let (script, _, buffer) = limited(0);
    let (before, after) = (Caller::default(), Caller::default());
    before.assert_no_signal(&buffer);
    before.assert_no_signal(&buffer);
    after.assert_no_signal(&buffer);
    assert_eq!(Arc::strong_count(&before.0), 1, "the waker of the previous task is dropped");
    script.data("a");
    assert_eq!(TestReader::open(&buffer, 1).poll(), Poll::Pending);
    assert_eq!((before.0.take_wakes(), after.0.take_wakes()), (0, 1));
}

#[test]
fn request_body_failure_reaches_all_readers_and_caller_once() {
    let (script, buffer_limit, buffer) = unlimited();
    let caller = Caller::default();
    caller.assert_no_signal(&buffer);
    let (mut first, mut second, mut slow) =
        (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2), TestReader::open(&buffer, 3));
    script.data("a");
    assert_eq!((first.frame(), second.frame()), ("a".into(), "a".into()));
    assert_eq!((first.poll(), second.poll()), (Poll::Pending, Poll::Pending));
    script.write(Item::Fail);
    assert_eq!((first.take_wakes(), second.take_wakes()), (1, 1));
    assert_eq!((first.poll(), first.poll(), caller.0.take_wakes()), (FAILED, END, 1));
    match caller.signal(&buffer) {
        Signal::Failed(Failure::Body(error)) => assert_eq!(error.to_string(), "the disk is gone"),
        other => panic!("{other:?}"),
    }
    caller.assert_no_signal(&buffer);
    assert_eq!((second.poll(), second.poll()), (FAILED, END));
    assert_eq!((slow.frame(), slow.poll()), ("a".into(), FAILED), "after the buffered frames");
    assert_eq!(TestReader::open(&buffer, 4).frame(), "a");
    assert_eq!((caller.0.take_wakes(), script.polls()), (0, 4), "woken once, and not polled again");
    buffer.release();
    assert_eq!(buffer_limit.used(), 0);
}

#[test]
fn request_body_failure_after_commit_reaches_the_caller() {
    let (script, _, buffer) = unlimited();
    let caller = Caller::default();
    let mut reader = TestReader::open(&buffer, 1);
    buffer.commit(1);
    caller.assert_no_signal(&buffer);
    script.write(Item::Fail);
    assert_eq!((reader.poll(), caller.0.take_wakes()), (FAILED, 1));
    assert!(matches!(caller.signal(&buffer), Signal::Failed(Failure::Body(_))));
}

#[test]
fn request_body_failure_can_be_taken_and_released_after_commit() {
    let (script, _, buffer) = unlimited();
    let (caller, mut reader) = (Caller::default(), TestReader::open(&buffer, 1));
    buffer.commit(1);
    let body: Arc<dyn RequestBodyHandle> = buffer.clone();
    assert!(body.take_failure().is_none());
    script.write(Item::Fail);
    assert_eq!(reader.poll(), FAILED);
    assert!(matches!(body.take_failure(), Some(Failure::Body(_))));
    assert!(body.take_failure().is_none(), "once");
    caller.assert_no_signal(&buffer);
    assert!(!script.is_dropped());
    body.release_body();
    assert!(script.is_dropped());
}

#[test]
fn message_size_over_the_limit_fails_the_request_body() {
    let message = |size: u8| Bytes::from([&[0, 0, 0, 0, size][..], &vec![7; size.into()]].concat());
    for committed in [false, true] {
        let (script, buffer_limit) = (ScriptedBody::default(), buffer_limit());
        let buffer =
            script.sized_buffer(&buffer_limit, LARGE_LIMIT, Some(MessageSizeLimit::new(4)));
        let caller = Caller::default();
        let mut reader = TestReader::open(&buffer, 1);
        if committed {
            buffer.commit(1);
        }
        caller.assert_no_signal(&buffer);
        for size in [4, 5, 1] {
            script.data(message(size));
        }
        assert_eq!(reader.frame(), message(4));
        assert_eq!((reader.poll(), caller.0.take_wakes()), (FAILED, 1));
        match caller.signal(&buffer) {
            Signal::Failed(Failure::TooLarge(large)) => {
                assert_eq!(large, TooLarge { size: 5, limit: 4 });
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(script.unread_frames(), 1, "not polled again");
        assert_eq!(
            buffer_limit.used(),
            if committed { 0 } else { 9 },
            "what is too large is not counted"
        );
    }
}

#[test]
fn replay_skips_empty_frames_and_trailers() {
    let (script, buffer_limit, buffer) = limited(1);
    script.data("");
    script.write(Item::Trailers);
    script.data("a");
    script.data("");
    script.write(Item::End);
    let (mut first, mut second) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    assert_eq!((first.poll(), first.poll()), (data(b"a"), END));
    assert_eq!((second.poll(), second.poll()), (data(b"a"), END));
    assert_eq!(buffer_limit.used(), 1);
}

#[test]
fn replay_yields_after_a_limited_run_of_empty_frames() {
    for (empty, ready) in [(EMPTY_FRAMES_MAX, true), (EMPTY_FRAMES_MAX + 1, false)] {
        let (script, _, buffer) = unlimited();
        (0..empty).for_each(|_| script.data(""));
        script.data("a");
        let mut reader = TestReader::open(&buffer, 1);
        assert_eq!(reader.poll().is_ready(), ready, "{empty}");
        assert_eq!(reader.take_wakes(), usize::from(!ready), "it has to be polled again");
        if !ready {
            assert_eq!(reader.frame(), "a");
        }
    }
}

#[test]
fn replay_polls_again_when_the_source_wakes_during_poll() {
    for others in [0, 2] {
        let (script, _, buffer) = unlimited();
        let mut waiting: Vec<_> =
            (2..2 + others).map(|attempt| TestReader::open(&buffer, attempt)).collect();
        waiting.iter_mut().for_each(|other| assert_eq!(other.poll(), Poll::Pending));
        let mut reader = TestReader::open(&buffer, 1);
        script.write(Item::WakeThenPend);
        waiting.iter().for_each(|other| assert_eq!(other.take_wakes(), 1));
        assert_eq!((reader.poll(), reader.take_wakes()), (Poll::Pending, 1));
        script.data("a");
        assert_eq!(reader.frame(), "a");
    }
}

#[test]
fn request_body_panic_is_a_failure_and_ends_polling() {
    let (script, buffer_limit, buffer) = unlimited();
    let caller = Caller::default();
    caller.assert_no_signal(&buffer);
    let (mut first, mut second) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    script.data("a");
    assert_eq!((first.frame(), second.frame()), ("a".into(), "a".into()));
    assert_eq!(second.poll(), Poll::Pending);
    script.write(Item::Panic);
    script.data("never read");
    second.take_wakes();
    assert_eq!((first.poll(), caller.0.take_wakes()), (FAILED, 1));
    match caller.signal(&buffer) {
        Signal::Failed(Failure::Body(error)) => {
            assert_eq!(error.to_string(), "the request body panicked: the body is broken");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(second.poll(), FAILED);
    assert_eq!((script.unread_frames(), buffer_limit.used()), (1, 1));
    drop((first, second, buffer));
    assert_eq!((buffer_limit.used(), script.is_dropped()), (0, true));
}

#[test]
fn request_body_panic_message_is_reported() {
    assert_eq!(panicked(&"a").to_string(), "the request body panicked: a");
    assert_eq!(panicked(&String::from("b")).to_string(), "the request body panicked: b");
    assert_eq!(panicked(&7).to_string(), "the request body panicked");
}

#[test]
fn replay_after_release_cancels_readers_and_frees_memory() {
    for committed in [None, Some(1)] {
        let (script, buffer_limit, buffer) = limited(1);
        script.data("a");
        script.data("beyond");
        let (mut first, mut second) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
        assert_eq!(first.frame(), "a");
        if let Some(committed) = committed {
            buffer.commit(committed);
            assert_eq!((first.frame(), first.poll()), ("beyond".into(), Poll::Pending));
        } else {
            assert_eq!(first.poll(), Poll::Pending);
        }
        buffer.release();
        buffer.release();
        assert_eq!(
            (script.is_dropped(), buffer_limit.used(), buffer.buffered()),
            (true, 0, (0, 0))
        );
        assert_eq!((first.poll(), second.poll()), (CANCELLED, CANCELLED));
        assert_eq!(
            TestReader::open(&buffer, 3).poll(),
            CANCELLED,
            "an attempt opened after release"
        );
        buffer.commit(2);
        assert_eq!(TestReader::open(&buffer, 2).poll(), CANCELLED);
        Caller::default().assert_no_signal(&buffer);
    }
}

#[test]
fn replay_release_wakes_waiting_readers() {
    let (_script, _, buffer) = unlimited();
    let caller = Caller::default();
    caller.assert_no_signal(&buffer);
    let mut alone = TestReader::open(&buffer, 1);
    assert_eq!(alone.poll(), Poll::Pending);
    buffer.release();
    assert_eq!((alone.take_wakes(), alone.poll()), (1, CANCELLED));
    assert_eq!(
        (caller.0.take_wakes(), Arc::strong_count(&caller.0)),
        (0, 1),
        "its waker is dropped"
    );
}

#[test]
fn replay_reader_opened_after_commit_is_cancelled() {
    let (script, _, buffer) = unlimited();
    (0..3).for_each(|_| script.data("x"));
    let mut committed = TestReader::open(&buffer, 1);
    assert_eq!((committed.frame(), committed.frame()), ("x".into(), "x".into()));
    buffer.commit(1);
    assert_eq!(TestReader::open(&buffer, 2).poll(), CANCELLED);
    assert_eq!((script.unread_frames(), committed.frame()), (1, "x".into()));
}

#[test]
fn replay_frees_everything_when_the_committed_reader_goes() {
    #[derive(Clone, Copy, PartialEq)]
    enum Closing {
        BeforeCommit,
        Closed,
        Dropped,
    }
    for closing in [Closing::BeforeCommit, Closing::Closed, Closing::Dropped] {
        let (script, buffer_limit, buffer) = limited(1);
        script.data("a");
        script.data("beyond");
        let (mut committed, mut other) =
            (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
        while other.poll().is_ready() {}
        assert_eq!(committed.frame(), "a");
        let mut committed = Some(committed);
        if closing == Closing::BeforeCommit {
            committed = None;
        }
        assert_eq!(
            (script.is_dropped(), buffer.buffered().0),
            (false, 1),
            "other attempts may need it"
        );
        buffer.commit(1);
        match closing {
            Closing::BeforeCommit => {}
            Closing::Closed => buffer.close(1),
            Closing::Dropped => drop(committed.take()),
        }
        assert_eq!(
            (script.is_dropped(), buffer.buffered(), buffer_limit.used()),
            (true, (0, 0), 0)
        );
        assert_eq!(other.poll(), CANCELLED);
    }
}

#[test]
fn replay_frees_everything_in_any_order_of_teardown() {
    // All orders of: commit, release, drop of the first reader, of the second, of the caller.
    let mut orders = vec![vec![]];
    for _ in 0..5 {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<u8>| {
                let rest = (0..5).filter(|step| !order.contains(step)).collect::<Vec<_>>();
                rest.into_iter().map(move |step| [&order[..], &[step]].concat())
            })
            .collect();
    }
    assert_eq!(orders.len(), 120);
    for written in 0..5 {
        for order in &orders {
            let (script, buffer_limit, buffer) = limited(2);
            (0..written).for_each(|_| script.data("x"));
            if written == 4 {
                script.write(Item::Fail);
            }
            let (mut first, mut second) =
                (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
            while matches!(first.poll(), Poll::Ready(Some(Ok(_)))) {}
            if written > 1 {
                assert!(second.poll().is_ready());
            }
            let (mut first, mut second, mut caller) = (Some(first), Some(second), Some(buffer));
            for step in order {
                match (step, &caller) {
                    (0, Some(buffer)) => buffer.commit(2),
                    (1, Some(buffer)) => buffer.release(),
                    (2, _) => drop(first.take()),
                    (3, _) => drop(second.take()),
                    (4, _) => caller = None,
                    _ => {}
                }
            }
            let state = (script.is_dropped(), buffer_limit.used());
            assert_eq!(state, (true, 0), "{written} written, {order:?}");
        }
    }
}

#[test]
fn replay_committed_reader_keeps_the_source_alive() {
    let (script, buffer_limit, buffer) = unlimited();
    script.data("a");
    let mut reader = TestReader::open(&buffer, 1);
    buffer.commit(1);
    drop(buffer);
    assert_eq!(reader.frame(), "a");
    script.data("b");
    assert_eq!((reader.frame(), buffer_limit.used()), ("b".into(), 0));
    drop(reader);
    assert!(script.is_dropped());
}

/// Checks that the lock of the buffer is free whenever it is woken or dropped.
struct LockProbe(Weak<ReplayBuffer<ScriptedSource>>, Arc<CountingWaker>);

impl LockProbe {
    fn look(&self) {
        if let Some(buffer) = self.0.upgrade() {
            assert!(buffer.inner.try_lock().is_ok(), "the lock is held");
            std::task::Wake::wake_by_ref(&self.1);
        }
    }
}

impl std::task::Wake for LockProbe {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

impl AsRef<[u8]> for LockProbe {
    fn as_ref(&self) -> &[u8] {
        b"x"
    }
}

impl Drop for LockProbe {
    fn drop(&mut self) {
        self.look();
    }
}

#[test]
fn replay_wakes_and_drops_outside_the_lock() {
    let probed = CountingWaker::new();
    let (script, _, buffer) = limited(2);
    let probe = || LockProbe(Arc::downgrade(&buffer), probed.clone());
    let waker = || Waker::from(Arc::new(probe()));
    let frame = || Bytes::from_owner(probe());
    let poll = |task: &mut TestReader| super::scripted_body::poll(&mut task.body, &waker());
    let (mut first, mut second) = (TestReader::open(&buffer, 1), TestReader::open(&buffer, 2));
    let before = || probed.take_wakes();
    before();
    // A waker is replaced, and the source wakes while it is polled.
    assert_eq!((poll(&mut first), poll(&mut second), poll(&mut second)), PENDING);
    script.write(Item::WakeThenPend);
    assert_eq!(poll(&mut second), Poll::Pending);
    assert!(before() >= 3);
    // The caller's waker as well.
    for _ in 0..3 {
        assert!(matches!(buffer.poll_signal(&Context::from_waker(&waker())), Signal::None));
    }
    assert!(before() >= 2);
    // Empty frames, frames that wake readers, and the frame over the limit.
    script.write(Item::Data(frame().slice(1..)));
    for _ in 0..3 {
        script.write(Item::Data(frame()));
    }
    while poll(&mut first).is_ready() {}
    assert!(poll(&mut second).is_ready() && before() >= 3);
    // Frames that are freed.
    buffer.commit(2);
    assert!(before() >= 2);
    while poll(&mut second).is_ready() {}
    assert!(before() >= 2);
    script.write(Item::Data(frame()));
    buffer.release();
    assert!(script.is_dropped() && before() >= 1);
    drop((first, second));
}

const PENDING: (PolledData, PolledData, PolledData) = (Poll::Pending, Poll::Pending, Poll::Pending);

#[test]
fn message_size_violation_is_dropped_outside_the_lock() {
    let probed = CountingWaker::new();
    let (script, buffer_limit) = (ScriptedBody::default(), buffer_limit());
    let buffer = script.sized_buffer(&buffer_limit, LARGE_LIMIT, Some(MessageSizeLimit::new(0)));
    script.data(&[0, 0, 0, 0][..]);
    let probe = LockProbe(Arc::downgrade(&buffer), probed.clone());
    // Its single byte completes a length prefix that exceeds the limit.
    script.write(Item::Data(Bytes::from_owner(probe)));
    let mut reader = TestReader::open(&buffer, 1);
    assert_eq!(reader.frame(), &[0, 0, 0, 0][..]);
    assert_eq!((reader.poll(), probed.take_wakes()), (FAILED, 1));
}

#[test]
fn cancelled_attempt_resets_its_stream_with_cancel() {
    use std::error::Error;
    let reason = |early| {
        let error = ReplayError(early);
        let source = error.source().map(|source| source.downcast_ref::<h2::Error>().unwrap());
        (error.to_string(), source.and_then(h2::Error::reason))
    };
    let cancel = Some(h2::Reason::CANCEL);
    assert_eq!(reason(EarlyEnd::Cancelled), ("the attempt is over".to_owned(), cancel));
    assert_eq!(reason(EarlyEnd::Failed), ("the request body failed".to_owned(), None));
}

#[test]
fn replay_of_a_complete_body_is_at_most_one_frame() {
    let mut whole = Replay::<ScriptedSource>::complete(Bytes::from("a"));
    assert!(!whole.is_end_stream());
    assert_eq!(super::scripted_body::poll(&mut whole, Waker::noop()), data(b"a"));
    assert!(whole.is_end_stream());
    assert_eq!(super::scripted_body::poll(&mut whole, Waker::noop()), END);
    assert!(Replay::<ScriptedSource>::complete(Bytes::new()).is_end_stream());
    assert_eq!(whole.size_hint().exact(), None, "hyper would send a content-length");
}

/// A source that releases its own buffer while it is polled, like a request stream that owns the
/// response of its own call and drops it.
#[derive(Default)]
struct SelfReleasingBody(Arc<Mutex<Weak<ReplayBuffer<SelfReleasingBody>>>>);

impl Body for SelfReleasingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(buffer) = lock(&self.0).upgrade() {
            assert!(RequestBodyHandle::take_failure(&*buffer).is_none());
            RequestBodyHandle::release_body(&*buffer);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"late")))))
    }
}

#[test]
fn replay_source_may_release_its_buffer_while_polled() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (source, buffer_limit) = (SelfReleasingBody::default(), buffer_limit());
        let own = source.0.clone();
        let buffer = Arc::new(ReplayBuffer::new(
            source,
            VecDeque::new(),
            Reservation::new(buffer_limit, LARGE_LIMIT),
            None,
        ));
        *lock(&own) = Arc::downgrade(&buffer);
        let mut body = buffer.open(1);
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut body).poll_frame(&mut cx);
        let over = matches!(read, Poll::Ready(Some(Err(ReplayError(EarlyEnd::Cancelled)))));
        done.send((over, lock(&buffer.inner).source.is_none())).unwrap();
    });
    let is_woken = is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("deadlock");
    assert_eq!(is_woken, (true, true));
}
