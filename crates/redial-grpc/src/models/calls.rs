//! The tape and the meter.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use loom::thread::{self, JoinHandle};

use super::{block_on, model};
use crate::meter::{Held, Meter};
use crate::tape::script::{self, Item, Script, Source, Woken};
use crate::tape::{Failure, Replay, Signal, Tape};

const ROOMY: u64 = 100;

fn call(limit: u64) -> (Script, Arc<Meter>, Arc<Tape<Source>>) {
    let (script, meter) = (Script::default(), Arc::new(Meter::new(ROOMY)));
    let tape = script.tape(&meter, limit);
    (script, meter, tape)
}

/// Everything that a body gives, and whether it ended well.
fn read(mut body: Replay<Source>) -> (Vec<Bytes>, bool) {
    let mut frames = Vec::new();
    loop {
        match block_on(|cx| Pin::new(&mut body).poll_frame(cx)) {
            Some(Ok(frame)) => frames.push(frame.into_data().unwrap()),
            Some(Err(_)) => return (frames, false),
            None => return (frames, true),
        }
    }
}

/// A connection that reads this attempt's body.
fn reader(tape: &Arc<Tape<Source>>, attempt: u32) -> JoinHandle<(Vec<Bytes>, bool)> {
    let body = tape.open(attempt);
    thread::spawn(move || read(body))
}

fn write(script: &Script, frames: &[&'static str]) {
    frames.iter().for_each(|frame| script.data(*frame));
    script.write(Item::End);
}

/// Waits until the caller must know something.
fn signal(tape: &Tape<Source>) -> Signal {
    block_on(|cx: &mut Context<'_>| match tape.signal(cx) {
        Signal::Quiet => Poll::Pending,
        signal => Poll::Ready(signal),
    })
}

// Breaks if a reader is parked after the source was asked instead of before.
#[test]
fn two_readers_and_a_writer_lose_no_wake() {
    model(|| {
        let (script, meter, tape) = call(ROOMY);
        let readers = [reader(&tape, 1), reader(&tape, 2)];
        write(&script, &["a"]);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), (vec![Bytes::from("a")], true));
        }
        assert_eq!(meter.used(), 1);
    });
}

// Breaks if who finds that another reader asks the source does not say that it waits (`wanted`), or
// if the source is given the waker of who asks although others wait.
#[test]
fn a_reader_that_stalls_or_goes_takes_no_wake_with_it() {
    for goes in [false, true] {
        model(move || {
            let (script, _, tape) = call(ROOMY);
            let first = reader(&tape, 1);
            let mut body = tape.open(2);
            let stalls = thread::spawn(move || {
                let got = script::poll(&mut body, &Waker::from(Woken::new()));
                (!goes).then_some((body, got))
            });
            script.data("a");
            let stalled = stalls.join().unwrap();
            script.write(Item::End);
            assert_eq!(first.join().unwrap(), (vec![Bytes::from("a")], true));
            drop(stalled);
        });
    }
}

// Breaks if `choose` wakes the waiting before `chosen` is written, or if `signal` leaves its waker
// under another lock than the one under which it looked.
#[test]
fn a_frame_that_does_not_fit_waits_for_the_choice_and_no_longer() {
    model(|| {
        let (script, meter, tape) = call(1);
        write(&script, &["a", "b"]);
        let reader = reader(&tape, 1);
        assert!(matches!(signal(&tape), Signal::Full(Some(1))));
        tape.choose(1);
        assert_eq!(reader.join().unwrap(), (vec![Bytes::from("a"), Bytes::from("b")], true));
        assert_eq!(meter.used(), 0);
    });
}

// Breaks if who pulls a frame does not wake the others: a source may be found ready before it has
// woken anybody.
#[test]
fn what_one_reader_finds_reaches_the_other() {
    model(|| {
        let (script, _, tape) = call(ROOMY);
        let waits = reader(&tape, 1);
        let finds = tape.open(2);
        script.slip(Item::Data(Bytes::from("a")));
        script.slip(Item::End);
        assert_eq!(read(finds), (vec![Bytes::from("a")], true));
        assert_eq!(waits.join().unwrap(), (vec![Bytes::from("a")], true));
    });
}

// Breaks if `choose` looks up how much the chosen one was sent under one lock, and frees that under
// the next.
#[test]
fn a_choice_in_the_middle_of_reads_loses_and_repeats_nothing() {
    model(|| {
        let (script, meter, tape) = call(ROOMY);
        write(&script, &["a", "b"]);
        let readers = [reader(&tape, 1), reader(&tape, 2)];
        tape.choose(2);
        assert_eq!(meter.used(), 0);
        let [loser, chosen] = readers.map(|reader| reader.join().unwrap());
        let all = [Bytes::from("a"), Bytes::from("b")];
        assert_eq!(chosen, (all.to_vec(), true));
        assert!(all.starts_with(&loser.0) && (!loser.1 || loser.0.len() == 2), "{loser:?}");
        assert_eq!(meter.used(), 0, "nothing counts after the choice");
    });
}

// Breaks if `close` wakes the reader before it is off the list, or not at all.
#[test]
fn a_reader_that_is_closed_hears_of_it() {
    for chosen in [false, true] {
        model(move || {
            let (script, _, tape) = call(ROOMY);
            let reader = reader(&tape, 1);
            if chosen {
                tape.choose(1);
            }
            tape.close(1);
            assert_eq!(reader.join().unwrap(), (vec![], false));
            assert_eq!(script.is_dropped(), chosen, "others may need it, unless it was chosen");
        });
    }
}

// Breaks if `end` wakes the waiting before it takes the source away, or if who asks the source puts
// it back after the end. (Who asks it in that moment drops it, with the answer.)
#[test]
fn the_end_reaches_whoever_reads_and_frees_everything() {
    model(|| {
        let (script, meter, tape) = call(ROOMY);
        script.data("a");
        let readers = [reader(&tape, 1), reader(&tape, 2)];
        tape.end();
        assert_eq!(meter.used(), 0);
        for reader in readers {
            let (frames, whole) = reader.join().unwrap();
            assert!(frames.len() <= 1 && !whole);
        }
        assert!(script.is_dropped());
        assert_eq!(meter.used(), 0, "nobody counts anything after the end");
    });
}

// Breaks if `signal` leaves its waker under another lock than the one under which it looked.
#[test]
fn the_caller_hears_of_a_failure() {
    model(|| {
        let (script, _, tape) = call(ROOMY);
        let reader = reader(&tape, 1);
        script.write(Item::Fail);
        assert!(matches!(signal(&tape), Signal::Failed(Failure::Body(_))));
        assert_eq!(reader.join().unwrap(), (vec![], false));
    });
}

// Breaks if `Meter::add` adds with `fetch_add` after it has looked, or stores what it computed.
#[test]
fn two_calls_never_pass_the_limit_and_give_everything_back() {
    model(|| {
        let meter = Arc::new(Meter::new(10));
        let calls = [6, 5].map(|bytes| {
            let meter = meter.clone();
            thread::spawn(move || {
                let mut held = Held::new(meter.clone(), 10);
                let fits = held.add(bytes);
                assert!(meter.used() <= 10);
                (fits, held)
            })
        });
        assert!(meter.used() <= 10);
        let calls = calls.map(|call| call.join().unwrap());
        assert_eq!(calls.iter().filter(|(fits, _)| *fits).count(), 1, "one fits, and one does");
        drop(calls);
        assert_eq!(meter.used(), 0);
    });
}

// Breaks if `Held::release` takes off what it has counted with a load and a store.
#[test]
fn what_one_call_gives_back_while_another_adds_is_exact() {
    model(|| {
        let meter = Arc::new(Meter::new(10));
        let mut first = Held::new(meter.clone(), 10);
        assert!(first.add(4));
        let other = {
            let meter = meter.clone();
            thread::spawn(move || {
                let mut held = Held::new(meter, 10);
                assert!(held.add(6), "it fits beside the other");
                held
            })
        };
        first.release();
        let other = other.join().unwrap();
        assert_eq!(meter.used(), 6);
        drop(other);
        assert_eq!(meter.used(), 0);
    });
}

// Breaks as the meter's own model does; here two tapes use it.
#[test]
fn two_tapes_of_one_channel_count_exactly() {
    model(|| {
        let meter = Arc::new(Meter::new(3));
        let calls = [1, 2].map(|_| {
            let meter = meter.clone();
            thread::spawn(move || {
                let script = Script::default();
                let held = Held::new(meter.clone(), 3);
                let tape = Arc::new(Tape::new(script.body(), VecDeque::new(), held, None));
                script.data("ab");
                let mut body = tape.open(1);
                let fits = script::poll(&mut body, Waker::noop()).is_ready();
                assert!(meter.used() <= 3);
                (fits, tape, body)
            })
        });
        let calls = calls.map(|call| call.join().unwrap());
        assert_eq!(calls.iter().filter(|(fits, ..)| *fits).count(), 1);
        assert_eq!(meter.used(), 2);
        drop(calls);
        assert_eq!(meter.used(), 0);
    });
}
