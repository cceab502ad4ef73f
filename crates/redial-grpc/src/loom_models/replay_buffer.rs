//! The replay buffer and the buffer limit.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use loom::thread::{self, JoinHandle};

use super::{block_on, model};
use crate::buffer_limits::{BufferLimit, Reservation};
use crate::replay_buffer::scripted_body::{
    self, CountingWaker, Item, ScriptedBody, ScriptedSource,
};
use crate::replay_buffer::{Failure, Replay, ReplayBuffer, Signal};

const LARGE_LIMIT: u64 = 100;

fn call(limit: u64) -> (ScriptedBody, Arc<BufferLimit>, Arc<ReplayBuffer<ScriptedSource>>) {
    let (script, buffer_limit) = (ScriptedBody::default(), Arc::new(BufferLimit::new(LARGE_LIMIT)));
    let buffer = script.buffer(&buffer_limit, limit);
    (script, buffer_limit, buffer)
}

/// Reads all frames of a body, and whether it ended without an error.
fn read(mut body: Replay<ScriptedSource>) -> (Vec<Bytes>, bool) {
    let mut frames = Vec::new();
    loop {
        match block_on(|cx| Pin::new(&mut body).poll_frame(cx)) {
            Some(Ok(frame)) => frames.push(frame.into_data().unwrap()),
            Some(Err(_)) => return (frames, false),
            None => return (frames, true),
        }
    }
}

/// A connection that reads the body of this attempt.
fn reader(
    buffer: &Arc<ReplayBuffer<ScriptedSource>>,
    attempt: u32,
) -> JoinHandle<(Vec<Bytes>, bool)> {
    let body = buffer.open(attempt);
    thread::spawn(move || read(body))
}

fn write(script: &ScriptedBody, frames: &[&'static str]) {
    frames.iter().for_each(|frame| script.data(*frame));
    script.write(Item::End);
}

/// Waits for the next signal to the caller.
fn signal(buffer: &ReplayBuffer<ScriptedSource>) -> Signal {
    block_on(|cx: &mut Context<'_>| match buffer.poll_signal(cx) {
        Signal::None => Poll::Pending,
        signal => Poll::Ready(signal),
    })
}

// A reader registers its waker before it polls the source.
#[test]
fn replay_two_readers_and_a_writer_lose_no_wakeup() {
    model(|| {
        let (script, buffer_limit, buffer) = call(LARGE_LIMIT);
        let readers = [reader(&buffer, 1), reader(&buffer, 2)];
        write(&script, &["a"]);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), (vec![Bytes::from("a")], true));
        }
        assert_eq!(buffer_limit.used(), 1);
    });
}

// A reader that finds the source taken by another reader must be woken afterwards, and the source
// must wake all waiting readers, not only the one that polled it.
#[test]
fn replay_stalled_or_dropped_reader_loses_no_wakeup() {
    for dropped in [false, true] {
        model(move || {
            let (script, _, buffer) = call(LARGE_LIMIT);
            let first = reader(&buffer, 1);
            let mut body = buffer.open(2);
            let stalls = thread::spawn(move || {
                let got = scripted_body::poll(&mut body, &Waker::from(CountingWaker::new()));
                (!dropped).then_some((body, got))
            });
            script.data("a");
            let stalled = stalls.join().unwrap();
            script.write(Item::End);
            assert_eq!(first.join().unwrap(), (vec![Bytes::from("a")], true));
            drop(stalled);
        });
    }
}

// `commit` sets the committed attempt before it wakes readers, and `poll_signal` registers the
// caller's waker under the same lock under which it checks for a signal.
#[test]
fn replay_overflowing_frame_waits_only_until_commit() {
    model(|| {
        let (script, buffer_limit, buffer) = call(1);
        write(&script, &["a", "b"]);
        let reader = reader(&buffer, 1);
        assert!(matches!(signal(&buffer), Signal::Full(Some(1))));
        buffer.commit(1);
        assert_eq!(reader.join().unwrap(), (vec![Bytes::from("a"), Bytes::from("b")], true));
        assert_eq!(buffer_limit.used(), 0);
    });
}

// The reader that gets a frame wakes the others: the source may be ready before it wakes any task.
#[test]
fn replay_frame_found_by_one_reader_reaches_the_other() {
    model(|| {
        let (script, _, buffer) = call(LARGE_LIMIT);
        let waits = reader(&buffer, 1);
        let finds = buffer.open(2);
        script.write_without_wake(Item::Data(Bytes::from("a")));
        script.write_without_wake(Item::End);
        assert_eq!(read(finds), (vec![Bytes::from("a")], true));
        assert_eq!(waits.join().unwrap(), (vec![Bytes::from("a")], true));
    });
}

// `commit` reads the winner's position and frees its frames under one lock.
#[test]
fn commit_during_reads_loses_and_repeats_no_frame() {
    model(|| {
        let (script, buffer_limit, buffer) = call(LARGE_LIMIT);
        write(&script, &["a", "b"]);
        let readers = [reader(&buffer, 1), reader(&buffer, 2)];
        buffer.commit(2);
        assert_eq!(buffer_limit.used(), 0);
        let [loser, winner] = readers.map(|reader| reader.join().unwrap());
        let all = [Bytes::from("a"), Bytes::from("b")];
        assert_eq!(winner, (all.to_vec(), true));
        assert!(all.starts_with(&loser.0) && (!loser.1 || loser.0.len() == 2), "{loser:?}");
        assert_eq!(buffer_limit.used(), 0, "nothing is reserved after commit");
    });
}

// `close` removes the reader before it wakes it.
#[test]
fn replay_closed_reader_is_woken() {
    for committed in [false, true] {
        model(move || {
            let (script, _, buffer) = call(LARGE_LIMIT);
            let reader = reader(&buffer, 1);
            if committed {
                buffer.commit(1);
            }
            buffer.close(1);
            assert_eq!(reader.join().unwrap(), (vec![], false));
            assert_eq!(script.is_dropped(), committed, "kept for other attempts, unless committed");
        });
    }
}

// `release` takes the source before it wakes readers. A reader that polls the source at that moment
// drops it together with its result.
#[test]
fn replay_release_reaches_all_readers_and_frees_everything() {
    model(|| {
        let (script, buffer_limit, buffer) = call(LARGE_LIMIT);
        script.data("a");
        let readers = [reader(&buffer, 1), reader(&buffer, 2)];
        buffer.release();
        assert_eq!(buffer_limit.used(), 0);
        for reader in readers {
            let (frames, whole) = reader.join().unwrap();
            assert!(frames.len() <= 1 && !whole);
        }
        assert!(script.is_dropped());
        assert_eq!(buffer_limit.used(), 0, "nothing is reserved after release");
    });
}

// `poll_signal` registers the caller's waker under the same lock under which it checks for a signal.
#[test]
fn request_body_failure_wakes_the_caller() {
    model(|| {
        let (script, _, buffer) = call(LARGE_LIMIT);
        let reader = reader(&buffer, 1);
        script.write(Item::Fail);
        assert!(matches!(signal(&buffer), Signal::Failed(Failure::Body(_))));
        assert_eq!(reader.join().unwrap(), (vec![], false));
    });
}

// `BufferLimit::add` checks and adds in one atomic step.
#[test]
fn buffer_limit_holds_for_two_concurrent_calls() {
    model(|| {
        let buffer_limit = Arc::new(BufferLimit::new(10));
        let calls = [6, 5].map(|bytes| {
            let buffer_limit = buffer_limit.clone();
            thread::spawn(move || {
                let mut reservation = Reservation::new(buffer_limit.clone(), 10);
                let fits = reservation.add(bytes);
                assert!(buffer_limit.used() <= 10);
                (fits, reservation)
            })
        });
        assert!(buffer_limit.used() <= 10);
        let calls = calls.map(|call| call.join().unwrap());
        assert_eq!(calls.iter().filter(|(fits, _)| *fits).count(), 1, "exactly one call fits");
        drop(calls);
        assert_eq!(buffer_limit.used(), 0);
    });
}

// `Reservation::release` subtracts in one atomic step.
#[test]
fn buffer_limit_concurrent_release_and_reserve_are_exact() {
    model(|| {
        let buffer_limit = Arc::new(BufferLimit::new(10));
        let mut first = Reservation::new(buffer_limit.clone(), 10);
        assert!(first.add(4));
        let other = {
            let buffer_limit = buffer_limit.clone();
            thread::spawn(move || {
                let mut reservation = Reservation::new(buffer_limit, 10);
                assert!(reservation.add(6), "both calls fit");
                reservation
            })
        };
        first.release();
        let other = other.join().unwrap();
        assert_eq!(buffer_limit.used(), 6);
        drop(other);
        assert_eq!(buffer_limit.used(), 0);
    });
}

// The same limit, used by two replay buffers.
#[test]
fn buffer_limit_two_replay_buffers_count_exactly() {
    model(|| {
        let buffer_limit = Arc::new(BufferLimit::new(3));
        let calls = [1, 2].map(|_| {
            let buffer_limit = buffer_limit.clone();
            thread::spawn(move || {
                let script = ScriptedBody::default();
                let reservation = Reservation::new(buffer_limit.clone(), 3);
                let buffer =
                    Arc::new(ReplayBuffer::new(script.body(), VecDeque::new(), reservation, None));
                script.data("ab");
                let mut body = buffer.open(1);
                let fits = scripted_body::poll(&mut body, Waker::noop()).is_ready();
                assert!(buffer_limit.used() <= 3);
                (fits, buffer, body)
            })
        });
        let calls = calls.map(|call| call.join().unwrap());
        assert_eq!(calls.iter().filter(|(fits, ..)| *fits).count(), 1);
        assert_eq!(buffer_limit.used(), 2);
        drop(calls);
        assert_eq!(buffer_limit.used(), 0);
    });
}
