//! Goal: what the header of the tape promises, for readers at any speed. Method: a body that the
//! test writes, readers that are polled by hand, and wakers that count; no runtime.

use std::sync::Weak;

use super::script::{Got, Item, Script, Source, Task, Woken};
use super::*;
use crate::meter::Meter;

const OVER: Got = Poll::Ready(Some(Err(ReplayError(Early::OverLimitAction))));
const FAILED: Got = Poll::Ready(Some(Err(ReplayError(Early::Failed))));
const END: Got = Poll::Ready(None);

/// A limit that no test here reaches.
const ROOMY: u64 = 1000;

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(1 << 20))
}

fn roomy() -> (Script, Arc<Meter>, Arc<Tape<Source>>) {
    limited(ROOMY)
}

fn limited(limit: u64) -> (Script, Arc<Meter>, Arc<Tape<Source>>) {
    let (script, meter) = (Script::default(), meter());
    let tape = script.tape(&meter, limit);
    (script, meter, tape)
}

fn data(bytes: &'static [u8]) -> Got {
    Poll::Ready(Some(Ok(Bytes::from_static(bytes))))
}

/// An application that sends what it reads elsewhere hears the status that it would without us.
/// Red: `evidence::of(&**error).1` in `Failure::code`.
#[test]
fn the_status_of_a_body_that_fails_is_not_that_of_a_connection() {
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
struct Caller(Arc<Woken>);

impl Caller {
    fn signal(&self, tape: &Tape<Source>) -> Signal {
        tape.signal(&Context::from_waker(&Waker::from(self.0.clone())))
    }

    fn hears_nothing(&self, tape: &Tape<Source>) {
        assert!(matches!(self.signal(tape), Signal::Quiet));
    }
}

impl Tape<Source> {
    /// How many frames are kept, and how much room there is for them.
    fn kept(&self) -> (usize, usize) {
        let inner = lock(&self.inner);
        (inner.frames.len(), inner.frames.capacity())
    }
}

#[test]
fn readers_at_different_speeds_get_the_same_frames_in_order() {
    let (script, meter, tape) = roomy();
    let written: Vec<_> = ["a", "bc", "def", "g"].map(Bytes::from).to_vec();
    let (mut fast, mut slow) = (Task::open(&tape, 1), Task::open(&tape, 2));
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
    let mut late = Task::open(&tape, 3);
    read[1].extend([slow.frame(), slow.frame()]);
    let third: Vec<_> = written.iter().map(|_| late.frame()).collect();
    for read in [&read[0], &read[1], &third] {
        assert_eq!(*read, written);
        // Shared, not copied.
        assert!(read.iter().zip(&written).all(|(read, frame)| read.as_ptr() == frame.as_ptr()));
    }
    assert_eq!(meter.used(), 7, "counted once, whoever read it");
}

#[test]
fn the_source_is_asked_only_for_what_somebody_wants() {
    let (script, _, tape) = roomy();
    for bytes in ["a", "b", "c"] {
        script.data(bytes);
    }
    let (mut fast, mut slow) = (Task::open(&tape, 1), Task::open(&tape, 2));
    assert_eq!(script.asked(), 0, "nobody has read");
    assert_eq!((fast.frame(), script.asked()), ("a".into(), 1));
    assert_eq!((fast.frame(), script.asked()), ("b".into(), 2));
    assert_eq!((slow.frame(), slow.frame()), ("a".into(), "b".into()));
    assert_eq!((script.asked(), script.left()), (2, 1), "what is kept is not asked for again");
    assert_eq!((slow.frame(), script.asked()), ("c".into(), 3));
    assert_eq!((slow.poll(), script.asked()), (Poll::Pending, 4));
    assert_eq!((fast.frame(), script.asked()), ("c".into(), 4));
}

#[test]
fn what_was_read_before_the_call_comes_first() {
    let (script, meter) = (Script::default(), meter());
    let mut held = Held::new(meter.clone(), 3);
    assert!(held.add(3));
    let frames = VecDeque::from([Bytes::from("ab"), Bytes::from("c")]);
    let tape = Arc::new(Tape::new(script.body(), frames, held, None));
    let mut reader = Task::open(&tape, 1);
    assert_eq!((reader.frame(), reader.frame(), script.asked()), ("ab".into(), "c".into(), 0));
    script.data("d");
    assert_eq!(reader.poll(), Poll::Pending, "the limit counts what was read before");
    tape.choose(1);
    assert_eq!(reader.frame(), "d");
    assert_eq!(meter.used(), 0);
}

#[test]
fn the_half_close_is_replayed() {
    let (script, _, tape) = roomy();
    script.data("a");
    script.write(Item::End);
    let mut first = Task::open(&tape, 1);
    assert_eq!(first.frame(), "a");
    assert!(!first.body.is_end_stream(), "more could have come");
    assert_eq!(first.poll(), END);
    assert!(first.body.is_end_stream());
    tape.close(1);
    let mut second = Task::open(&tape, 2);
    assert!(!second.body.is_end_stream());
    assert_eq!(second.frame(), "a");
    assert!(second.body.is_end_stream(), "it is known to be the last");
    assert_eq!((second.poll(), script.asked()), (END, 2));
}

#[test]
fn a_body_without_frames_is_replayed_as_one() {
    let (script, _, tape) = roomy();
    script.write(Item::End);
    for attempt in 1..=2 {
        let mut reader = Task::open(&tape, attempt);
        assert_eq!((reader.poll(), reader.poll()), (END, END));
    }
    assert_eq!(script.asked(), 1, "a body is not asked after its end");
}

#[test]
fn a_frame_over_the_limit_waits_and_wakes_the_caller_once() {
    let (script, meter, tape) = limited(4);
    let caller = Caller::default();
    caller.hears_nothing(&tape);
    let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
    for bytes in ["abcd", "e", "f"] {
        script.data(bytes);
    }
    assert_eq!(first.frame(), "abcd");
    assert_eq!(caller.0.times(), 0, "the limit may be reached");
    assert_eq!((first.poll(), caller.0.times()), (Poll::Pending, 1));
    assert_eq!((second.frame(), second.poll()), ("abcd".into(), Poll::Pending));
    assert_eq!((first.poll(), caller.0.times()), (Poll::Pending, 0));
    assert_eq!((script.left(), meter.used()), (1, 4), "nothing is asked for beyond it");
    for _ in 0..2 {
        assert!(matches!(caller.signal(&tape), Signal::Full(Some(1))), "until it has chosen");
    }
    assert_eq!((first.times(), second.times()), (0, 0));
    tape.choose(1);
    assert_eq!((first.times(), second.times()), (1, 1));
    assert_eq!((second.poll(), second.poll()), (OVER, END));
    assert_eq!(
        (first.frame(), first.frame(), first.poll()),
        ("e".into(), "f".into(), Poll::Pending)
    );
    caller.hears_nothing(&tape);
    assert_eq!((caller.0.times(), meter.used()), (0, 0));
}

#[test]
fn full_names_the_attempt_that_was_sent_most_and_of_equals_the_lowest() {
    // What each attempt reads before the limit is passed, and who is named.
    for (reads, most) in [
        (&[1, 3, 2][..], Some(2)),
        (&[3, 3, 1], Some(1)),
        (&[0, 3, 3], Some(2)),
        (&[3], Some(1)),
        (&[], None),
    ] {
        let (script, _, tape) = limited(3);
        let caller = Caller::default();
        (0..4).for_each(|_| script.data("x"));
        // Opened in the opposite order: that must not matter.
        let mut readers: Vec<_> =
            (1..=reads.len() as u32).rev().map(|attempt| Task::open(&tape, attempt)).collect();
        readers.reverse();
        for (reader, times) in readers.iter_mut().zip(reads) {
            (0..*times).for_each(|_| assert_eq!(reader.frame(), "x"));
        }
        let mut filler = Task::open(&tape, 9);
        while filler.poll().is_ready() {}
        drop(filler);
        match caller.signal(&tape) {
            Signal::Full(named) => assert_eq!(named, most, "{reads:?}"),
            other => panic!("{other:?}"),
        }
    }
}

/// hyper takes a frame before flow control lets it write one.
#[test]
fn buffer_full_ignores_the_frame_that_a_connection_holds() {
    let (script, _, tape) = limited(1);
    (0..2).for_each(|_| script.data("x"));
    let (mut stalled, mut healthy) = (Task::open(&tape, 1), Task::open(&tape, 2));
    assert_eq!(stalled.frame(), "x");
    assert_eq!((healthy.frame(), healthy.poll()), ("x".into(), Poll::Pending));
    assert!(matches!(Caller::default().signal(&tape), Signal::Full(Some(2))));
    // Once it asks for more, it has written as much, and is the lower one.
    assert_eq!(stalled.poll(), Poll::Pending);
    assert!(matches!(Caller::default().signal(&tape), Signal::Full(Some(1))));
    tape.choose(1);
    assert_eq!(stalled.frame(), "x", "what it took is not sent again");
}

#[test]
fn an_attempt_that_was_closed_is_not_the_one_that_was_sent_most() {
    let (script, _, tape) = limited(2);
    (0..3).for_each(|_| script.data("x"));
    let (mut most, mut less) = (Task::open(&tape, 1), Task::open(&tape, 2));
    assert_eq!((most.frame(), most.frame(), most.poll()), ("x".into(), "x".into(), Poll::Pending));
    assert_eq!(less.frame(), "x");
    tape.close(1);
    assert!(matches!(Caller::default().signal(&tape), Signal::Full(Some(2))));
}

#[test]
fn limits_of_call_and_channel_may_be_reached_and_not_passed() {
    for (own, channel) in [(10, 100), (100, 10)] {
        for (size, fits) in [(9, true), (10, true), (11, false)] {
            let (script, meter) = (Script::default(), Arc::new(Meter::new(channel)));
            let tape = script.tape(&meter, own);
            script.data(vec![7; size]);
            let mut reader = Task::open(&tape, 1);
            assert_eq!(reader.poll().is_ready(), fits, "{size} of {own} and {channel}");
            assert_eq!(meter.used(), if fits { size as u64 } else { 0 });
        }
    }
}

#[test]
fn calls_of_one_channel_share_its_limit_until_they_are_chosen_or_over() {
    let meter = Arc::new(Meter::new(10));
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let script = Script::default();
            (script.tape(&meter, 10), script)
        })
        .collect();
    let mut readers: Vec<_> = calls.iter().map(|(tape, _)| Task::open(tape, 1)).collect();
    calls.iter().for_each(|(_, script)| script.data("123456"));
    assert_eq!(readers[0].frame(), "123456");
    assert_eq!(readers[1].poll(), Poll::Pending);
    calls[0].0.choose(1);
    assert_eq!(readers[1].poll(), Poll::Pending, "what did not fit is not tried again");
    assert_eq!(readers[2].frame(), "123456");
    assert_eq!(meter.used(), 6);
    calls[2].0.end();
    assert_eq!(meter.used(), 0);
}

#[test]
fn the_chosen_one_reads_on_where_it_was_and_the_others_hear_that_it_is_over() {
    let (script, meter, tape) = limited(5);
    for bytes in ["a", "b", "c", "d", "e", "too much", "more"] {
        script.data(bytes);
    }
    script.write(Item::End);
    let (mut fast, mut slow) = (Task::open(&tape, 1), Task::open(&tape, 2));
    while fast.poll().is_ready() {}
    assert_eq!((slow.frame(), slow.frame()), ("a".into(), "b".into()));
    assert_eq!(tape.kept().0, 5);
    tape.choose(2);
    assert_eq!((tape.kept().0, meter.used()), (3, 0), "what it was sent is freed at once");
    assert_eq!(fast.poll(), OVER);
    for (bytes, left) in [("c", 2), ("d", 1), ("e", 0), ("too much", 0), ("more", 0)] {
        assert_eq!((slow.frame(), tape.kept().0), (bytes.into(), left), "the rest as it is sent");
    }
    assert_eq!((slow.poll(), meter.used()), (END, 0));
}

#[test]
fn the_first_choice_stands() {
    let (script, _, tape) = roomy();
    script.data("a");
    let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
    tape.choose(2);
    tape.choose(1);
    assert_eq!((first.poll(), second.frame()), (OVER, "a".into()));
}

#[test]
fn a_long_stream_after_the_commit_holds_constant_memory() {
    let (script, meter, tape) = limited(100);
    let mut reader = Task::open(&tape, 1);
    let frame = Bytes::from_static(b"1234567890");
    (0..11).for_each(|_| script.data(frame.clone()));
    while reader.poll().is_ready() {}
    tape.choose(1);
    assert_eq!(reader.frame(), frame, "the one that did not fit");
    for _ in 0..100_000 {
        script.data(frame.clone());
        assert_eq!(reader.frame(), frame);
        let (frames, room) = tape.kept();
        assert!(frames == 0 && room <= 4 && meter.used() == 0, "{frames} frames, room for {room}");
    }
}

#[test]
fn a_closed_reader_is_told_and_never_touches_the_source() {
    let (script, _, tape) = roomy();
    let mut alone = Task::open(&tape, 1);
    assert_eq!(alone.poll(), Poll::Pending);
    tape.close(1);
    assert_eq!(alone.times(), 1, "a body that waits keeps its stream open");
    script.data("a");
    let asked = script.asked();
    assert_eq!((alone.poll(), alone.poll()), (OVER, END));
    assert_eq!((script.asked(), script.left()), (asked, 1));
    assert_eq!(Task::open(&tape, 2).frame(), "a", "the next attempt gets what it did not take");
}

#[test]
fn a_closed_reader_gets_nothing_of_what_is_kept() {
    let (script, _, tape) = roomy();
    script.data("a");
    let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
    assert_eq!(first.frame(), "a");
    tape.close(2);
    assert_eq!(second.poll(), OVER);
}

#[test]
fn whoever_the_source_would_wake_does_not_starve_the_others() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Last {
        Stalls,
        IsClosed,
        IsDropped,
    }
    for becomes in [Last::Stalls, Last::IsClosed, Last::IsDropped] {
        let (script, _, tape) = roomy();
        let (mut first, mut last) = (Task::open(&tape, 1), Task::open(&tape, 2));
        assert_eq!((first.poll(), last.poll()), (Poll::Pending, Poll::Pending));
        let woken = last.woken.clone();
        match becomes {
            Last::Stalls => {}
            Last::IsClosed => tape.close(2),
            Last::IsDropped => drop(last),
        }
        assert_eq!(first.times(), 0, "{becomes:?}");
        woken.times();
        script.data("a");
        assert_eq!(first.times(), 1, "{becomes:?}");
        assert_eq!(woken.times(), usize::from(becomes == Last::Stalls), "{becomes:?}");
        assert_eq!(first.frame(), "a");
    }
}

#[test]
fn who_waits_hears_of_what_another_reader_found() {
    for item in [Item::Data(Bytes::from("a")), Item::End, Item::Fail] {
        let (script, _, tape) = roomy();
        let (mut waits, mut finds) = (Task::open(&tape, 1), Task::open(&tape, 2));
        assert_eq!((waits.poll(), finds.poll()), (Poll::Pending, Poll::Pending));
        script.slip(item);
        let found = finds.poll();
        assert!(found.is_ready());
        assert_eq!((waits.times(), finds.times()), (1, 0), "nobody wakes itself");
        assert_eq!(waits.poll(), found);
    }
}

#[test]
fn a_reader_that_moves_to_another_task_is_woken_there() {
    let (script, _, tape) = roomy();
    let (mut moved, mut other) = (Task::open(&tape, 1), Task::open(&tape, 2));
    assert_eq!((moved.poll(), other.poll()), (Poll::Pending, Poll::Pending));
    let before = std::mem::replace(&mut moved.woken, Woken::new());
    assert_eq!(moved.poll(), Poll::Pending);
    script.data("a");
    assert_eq!((before.times(), moved.times(), other.times()), (0, 1, 1));
    assert_eq!(Arc::strong_count(&before), 1, "nobody keeps the task that it left");
}

#[test]
fn a_caller_that_moves_to_another_task_is_woken_there() {
    let (script, _, tape) = limited(0);
    let (before, after) = (Caller::default(), Caller::default());
    before.hears_nothing(&tape);
    before.hears_nothing(&tape);
    after.hears_nothing(&tape);
    assert_eq!(Arc::strong_count(&before.0), 1, "nobody keeps the task that it left");
    script.data("a");
    assert_eq!(Task::open(&tape, 1).poll(), Poll::Pending);
    assert_eq!((before.0.times(), after.0.times()), (0, 1));
}

#[test]
fn a_failure_of_the_body_is_heard_by_all_and_told_once() {
    let (script, meter, tape) = roomy();
    let caller = Caller::default();
    caller.hears_nothing(&tape);
    let (mut first, mut second, mut slow) =
        (Task::open(&tape, 1), Task::open(&tape, 2), Task::open(&tape, 3));
    script.data("a");
    assert_eq!((first.frame(), second.frame()), ("a".into(), "a".into()));
    assert_eq!((first.poll(), second.poll()), (Poll::Pending, Poll::Pending));
    script.write(Item::Fail);
    assert_eq!((first.times(), second.times()), (1, 1));
    assert_eq!((first.poll(), first.poll(), caller.0.times()), (FAILED, END, 1));
    match caller.signal(&tape) {
        Signal::Failed(Failure::Body(error)) => assert_eq!(error.to_string(), "the disk is gone"),
        other => panic!("{other:?}"),
    }
    caller.hears_nothing(&tape);
    assert_eq!((second.poll(), second.poll()), (FAILED, END));
    assert_eq!((slow.frame(), slow.poll()), ("a".into(), FAILED), "after what came before it");
    assert_eq!(Task::open(&tape, 4).frame(), "a");
    assert_eq!((caller.0.times(), script.asked()), (0, 4), "once, and asked no more");
    tape.end();
    assert_eq!(meter.used(), 0);
}

#[test]
fn a_failure_after_the_choice_is_told_too() {
    let (script, _, tape) = roomy();
    let caller = Caller::default();
    let mut reader = Task::open(&tape, 1);
    tape.choose(1);
    caller.hears_nothing(&tape);
    script.write(Item::Fail);
    assert_eq!((reader.poll(), caller.0.times()), (FAILED, 1));
    assert!(matches!(caller.signal(&tape), Signal::Failed(Failure::Body(_))));
}

#[test]
fn whoever_holds_the_response_can_ask_for_a_failure_and_let_go() {
    let (script, _, tape) = roomy();
    let (caller, mut reader) = (Caller::default(), Task::open(&tape, 1));
    tape.choose(1);
    let body: Arc<dyn MayFail> = tape.clone();
    assert!(body.failure().is_none());
    script.write(Item::Fail);
    assert_eq!(reader.poll(), FAILED);
    assert!(matches!(body.failure(), Some(Failure::Body(_))));
    assert!(body.failure().is_none(), "once");
    caller.hears_nothing(&tape);
    assert!(!script.is_dropped());
    body.abandon();
    assert!(script.is_dropped());
}

#[test]
fn a_message_that_is_too_large_ends_the_body() {
    let message = |size: u8| Bytes::from([&[0, 0, 0, 0, size][..], &vec![7; size.into()]].concat());
    for chosen in [false, true] {
        let (script, meter) = (Script::default(), meter());
        let tape = script.sized_tape(&meter, ROOMY, Some(Sizes::new(4)));
        let caller = Caller::default();
        let mut reader = Task::open(&tape, 1);
        if chosen {
            tape.choose(1);
        }
        caller.hears_nothing(&tape);
        for size in [4, 5, 1] {
            script.data(message(size));
        }
        assert_eq!(reader.frame(), message(4));
        assert_eq!((reader.poll(), caller.0.times()), (FAILED, 1));
        match caller.signal(&tape) {
            Signal::Failed(Failure::TooLarge(large)) => {
                assert_eq!(large, TooLarge { size: 5, limit: 4 });
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(script.left(), 1, "it is asked no more");
        assert_eq!(meter.used(), if chosen { 0 } else { 9 }, "what is too large is not counted");
    }
}

#[test]
fn empty_frames_and_trailers_are_passed_over() {
    let (script, meter, tape) = limited(1);
    script.data("");
    script.write(Item::Trailers);
    script.data("a");
    script.data("");
    script.write(Item::End);
    let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
    assert_eq!((first.poll(), first.poll()), (data(b"a"), END));
    assert_eq!((second.poll(), second.poll()), (data(b"a"), END));
    assert_eq!(meter.used(), 1);
}

#[test]
fn others_get_a_turn_after_so_many_frames_that_say_nothing() {
    for (empty, ready) in [(EMPTY_MAX, true), (EMPTY_MAX + 1, false)] {
        let (script, _, tape) = roomy();
        (0..empty).for_each(|_| script.data(""));
        script.data("a");
        let mut reader = Task::open(&tape, 1);
        assert_eq!(reader.poll().is_ready(), ready, "{empty}");
        assert_eq!(reader.times(), usize::from(!ready), "it has to be asked again");
        if !ready {
            assert_eq!(reader.frame(), "a");
        }
    }
}

#[test]
fn a_body_that_wakes_while_it_is_asked_is_asked_again() {
    for others in [0, 2] {
        let (script, _, tape) = roomy();
        let mut waiting: Vec<_> =
            (2..2 + others).map(|attempt| Task::open(&tape, attempt)).collect();
        waiting.iter_mut().for_each(|other| assert_eq!(other.poll(), Poll::Pending));
        let mut reader = Task::open(&tape, 1);
        script.write(Item::Ring);
        waiting.iter().for_each(|other| assert_eq!(other.times(), 1));
        assert_eq!((reader.poll(), reader.times()), (Poll::Pending, 1));
        script.data("a");
        assert_eq!(reader.frame(), "a");
    }
}

#[test]
fn a_body_that_panics_has_failed_and_is_asked_no_more() {
    let (script, meter, tape) = roomy();
    let caller = Caller::default();
    caller.hears_nothing(&tape);
    let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
    script.data("a");
    assert_eq!((first.frame(), second.frame()), ("a".into(), "a".into()));
    assert_eq!(second.poll(), Poll::Pending);
    script.write(Item::Panic);
    script.data("never read");
    second.times();
    assert_eq!((first.poll(), caller.0.times()), (FAILED, 1));
    match caller.signal(&tape) {
        Signal::Failed(Failure::Body(error)) => {
            assert_eq!(error.to_string(), "the request body panicked: the body is broken");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(second.poll(), FAILED);
    assert_eq!((script.left(), meter.used()), (1, 1));
    drop((first, second, tape));
    assert_eq!((meter.used(), script.is_dropped()), (0, true));
}

#[test]
fn what_a_panic_said_is_told_if_it_is_text() {
    assert_eq!(panicked(&"a").to_string(), "the request body panicked: a");
    assert_eq!(panicked(&String::from("b")).to_string(), "the request body panicked: b");
    assert_eq!(panicked(&7).to_string(), "the request body panicked");
}

#[test]
fn after_the_end_nobody_reads_and_nothing_is_held() {
    for chosen in [None, Some(1)] {
        let (script, meter, tape) = limited(1);
        script.data("a");
        script.data("beyond");
        let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
        assert_eq!(first.frame(), "a");
        if let Some(chosen) = chosen {
            tape.choose(chosen);
            assert_eq!((first.frame(), first.poll()), ("beyond".into(), Poll::Pending));
        } else {
            assert_eq!(first.poll(), Poll::Pending);
        }
        tape.end();
        tape.end();
        assert_eq!((script.is_dropped(), meter.used(), tape.kept()), (true, 0, (0, 0)));
        assert_eq!((first.poll(), second.poll()), (OVER, OVER));
        assert_eq!(Task::open(&tape, 3).poll(), OVER, "an attempt that comes late");
        tape.choose(2);
        assert_eq!(Task::open(&tape, 2).poll(), OVER);
        Caller::default().hears_nothing(&tape);
    }
}

#[test]
fn who_waits_is_woken_by_the_end() {
    let (_script, _, tape) = roomy();
    let caller = Caller::default();
    caller.hears_nothing(&tape);
    let mut alone = Task::open(&tape, 1);
    assert_eq!(alone.poll(), Poll::Pending);
    tape.end();
    assert_eq!((alone.times(), alone.poll()), (1, OVER));
    assert_eq!((caller.0.times(), Arc::strong_count(&caller.0)), (0, 1), "nobody keeps its task");
}

#[test]
fn nobody_opens_a_tape_that_belongs_to_another() {
    let (script, _, tape) = roomy();
    (0..3).for_each(|_| script.data("x"));
    let mut chosen = Task::open(&tape, 1);
    assert_eq!((chosen.frame(), chosen.frame()), ("x".into(), "x".into()));
    tape.choose(1);
    assert_eq!(Task::open(&tape, 2).poll(), OVER);
    assert_eq!((script.left(), chosen.frame()), (1, "x".into()));
}

#[test]
fn what_the_chosen_one_does_not_read_nobody_holds() {
    #[derive(Clone, Copy, PartialEq)]
    enum Goes {
        BeforeTheChoice,
        Closed,
        Dropped,
    }
    for goes in [Goes::BeforeTheChoice, Goes::Closed, Goes::Dropped] {
        let (script, meter, tape) = limited(1);
        script.data("a");
        script.data("beyond");
        let (mut chosen, mut other) = (Task::open(&tape, 1), Task::open(&tape, 2));
        while other.poll().is_ready() {}
        assert_eq!(chosen.frame(), "a");
        let mut chosen = Some(chosen);
        if goes == Goes::BeforeTheChoice {
            chosen = None;
        }
        assert_eq!((script.is_dropped(), tape.kept().0), (false, 1), "others may need it");
        tape.choose(1);
        match goes {
            Goes::BeforeTheChoice => {}
            Goes::Closed => tape.close(1),
            Goes::Dropped => drop(chosen.take()),
        }
        assert_eq!((script.is_dropped(), tape.kept(), meter.used()), (true, (0, 0), 0));
        assert_eq!(other.poll(), OVER);
    }
}

#[test]
fn everything_is_given_back_in_whatever_order_things_end() {
    // Each order of: choose, end, the first reader's drop, the second's, the caller's.
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
            let (script, meter, tape) = limited(2);
            (0..written).for_each(|_| script.data("x"));
            if written == 4 {
                script.write(Item::Fail);
            }
            let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
            while matches!(first.poll(), Poll::Ready(Some(Ok(_)))) {}
            if written > 1 {
                assert!(second.poll().is_ready());
            }
            let (mut first, mut second, mut caller) = (Some(first), Some(second), Some(tape));
            for step in order {
                match (step, &caller) {
                    (0, Some(tape)) => tape.choose(2),
                    (1, Some(tape)) => tape.end(),
                    (2, _) => drop(first.take()),
                    (3, _) => drop(second.take()),
                    (4, _) => caller = None,
                    _ => {}
                }
            }
            let state = (script.is_dropped(), meter.used());
            assert_eq!(state, (true, 0), "{written} written, {order:?}");
        }
    }
}

#[test]
fn a_committed_reader_alone_keeps_what_it_needs() {
    let (script, meter, tape) = roomy();
    script.data("a");
    let mut reader = Task::open(&tape, 1);
    tape.choose(1);
    drop(tape);
    assert_eq!(reader.frame(), "a");
    script.data("b");
    assert_eq!((reader.frame(), meter.used()), ("b".into(), 0));
    drop(reader);
    assert!(script.is_dropped());
}

/// Looks, whenever it is woken, dropped or owned no more, whether the tape's lock is free.
struct Looks(Weak<Tape<Source>>, Arc<Woken>);

impl Looks {
    fn look(&self) {
        if let Some(tape) = self.0.upgrade() {
            assert!(tape.inner.try_lock().is_ok(), "this happens under the lock");
            std::task::Wake::wake_by_ref(&self.1);
        }
    }
}

impl std::task::Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

impl AsRef<[u8]> for Looks {
    fn as_ref(&self) -> &[u8] {
        b"x"
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.look();
    }
}

#[test]
fn nobody_is_woken_and_nothing_is_dropped_under_the_lock() {
    let looked = Woken::new();
    let (script, _, tape) = limited(2);
    let looks = || Looks(Arc::downgrade(&tape), looked.clone());
    let waker = || Waker::from(Arc::new(looks()));
    let frame = || Bytes::from_owner(looks());
    let poll = |task: &mut Task| super::script::poll(&mut task.body, &waker());
    let (mut first, mut second) = (Task::open(&tape, 1), Task::open(&tape, 2));
    let before = || looked.times();
    before();
    // A waker is replaced, and the source wakes while it is asked.
    assert_eq!((poll(&mut first), poll(&mut second), poll(&mut second)), PENDING);
    script.write(Item::Ring);
    assert_eq!(poll(&mut second), Poll::Pending);
    assert!(before() >= 3);
    // The caller's too.
    for _ in 0..3 {
        assert!(matches!(tape.signal(&Context::from_waker(&waker())), Signal::Quiet));
    }
    assert!(before() >= 2);
    // Frames that say nothing, frames that wake, and the one that does not fit.
    script.write(Item::Data(frame().slice(1..)));
    for _ in 0..3 {
        script.write(Item::Data(frame()));
    }
    while poll(&mut first).is_ready() {}
    assert!(poll(&mut second).is_ready() && before() >= 3);
    // Frames that are freed.
    tape.choose(2);
    assert!(before() >= 2);
    while poll(&mut second).is_ready() {}
    assert!(before() >= 2);
    script.write(Item::Data(frame()));
    tape.end();
    assert!(script.is_dropped() && before() >= 1);
    drop((first, second));
}

const PENDING: (Got, Got, Got) = (Poll::Pending, Poll::Pending, Poll::Pending);

#[test]
fn a_message_that_is_too_large_is_dropped_under_no_lock() {
    let looked = Woken::new();
    let (script, meter) = (Script::default(), meter());
    let tape = script.sized_tape(&meter, ROOMY, Some(Sizes::new(0)));
    script.data(&[0, 0, 0, 0][..]);
    let looks = Looks(Arc::downgrade(&tape), looked.clone());
    // Its one byte is the last of a length, and that length is too large.
    script.write(Item::Data(Bytes::from_owner(looks)));
    let mut reader = Task::open(&tape, 1);
    assert_eq!(reader.frame(), &[0, 0, 0, 0][..]);
    assert_eq!((reader.poll(), looked.times()), (FAILED, 1));
}

#[test]
fn an_attempt_that_is_over_resets_its_stream_as_cancelled() {
    use std::error::Error;
    let reason = |early| {
        let error = ReplayError(early);
        let source = error.source().map(|source| source.downcast_ref::<h2::Error>().unwrap());
        (error.to_string(), source.and_then(h2::Error::reason))
    };
    let cancel = Some(h2::Reason::CANCEL);
    assert_eq!(reason(Early::OverLimitAction), ("the attempt is over".to_owned(), cancel));
    assert_eq!(reason(Early::Failed), ("the request body failed".to_owned(), None));
}

#[test]
fn a_whole_body_is_one_frame_or_none() {
    let mut whole = Replay::<Source>::whole(Bytes::from("a"));
    assert!(!whole.is_end_stream());
    assert_eq!(super::script::poll(&mut whole, Waker::noop()), data(b"a"));
    assert!(whole.is_end_stream());
    assert_eq!(super::script::poll(&mut whole, Waker::noop()), END);
    assert!(Replay::<Source>::whole(Bytes::new()).is_end_stream());
    assert_eq!(whole.size_hint().exact(), None, "hyper would send a content-length");
}

/// Ends the tape that it is the source of while it is asked, as a request stream does that owns the
/// response of its own call and lets it go.
#[derive(Default)]
struct Selfish(Arc<Mutex<Weak<Tape<Selfish>>>>);

impl Body for Selfish {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(tape) = lock(&self.0).upgrade() {
            assert!(MayFail::failure(&*tape).is_none());
            MayFail::abandon(&*tape);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"late")))))
    }
}

/// Red: ask the source before `drop(guard)` in `Tape::read`, which then waits for itself.
#[test]
fn a_source_may_end_its_own_tape_while_it_is_asked() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (source, meter) = (Selfish::default(), meter());
        let own = source.0.clone();
        let tape = Arc::new(Tape::new(source, VecDeque::new(), Held::new(meter, ROOMY), None));
        *lock(&own) = Arc::downgrade(&tape);
        let mut body = tape.open(1);
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut body).poll_frame(&mut cx);
        let over = matches!(read, Poll::Ready(Some(Err(ReplayError(Early::OverLimitAction)))));
        done.send((over, lock(&tape.inner).source.is_none())).unwrap();
    });
    let seen =
        is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for itself");
    assert_eq!(seen, (true, true));
}
