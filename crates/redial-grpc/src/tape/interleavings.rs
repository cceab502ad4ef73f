//! Goal: no interleaving of writes, reads, choices and ends breaks the tape. Method: bytes become
//! steps, which are played on the tape and on a model of it that has no wakers, locks or limits on
//! memory and that says what each reader must get. After every step the two are compared: what is
//! held, what was asked of the source, and that nobody sleeps who could go on.
//!
//! It is here since the tape is private. The test is a bounded run; a coverage-guided fuzzer runs the
//! same with `cargo bolero test -p redial-grpc tape::interleavings::no_interleaving_breaks_the_tape`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::script::{Got, Item, Script, Source, Task, Woken};
use super::*;
use crate::meter::Meter;

/// How many bytes the calls of the channel may keep.
const CHANNEL: u64 = 40;

/// How many attempts read at once, at most.
const READERS_MAX: usize = 4;

/// What the application writes, as the model sees it.
#[derive(Clone, Debug)]
enum Written {
    Data(Bytes),
    /// An empty frame, or trailers.
    Empty,
    Ring,
    Fail,
    End,
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    next: usize,
    written: usize,
    open: bool,
    done: bool,
}

/// What a tape is, said simply.
#[derive(Clone, Debug, Default)]
struct Model {
    unread: VecDeque<Written>,
    /// Everything that was pulled, from the first frame on.
    pulled: Vec<Bytes>,
    /// The last frame of `pulled` did not fit.
    beyond: bool,
    /// Whether it ended well.
    end: Option<bool>,
    /// The caller has not heard yet that it failed.
    untold: bool,
    chosen: Option<u32>,
    over: bool,
    readers: BTreeMap<u32, Cursor>,
    /// What counts against the limits, and how much of them this call has.
    kept: u64,
    limit: u64,
    /// What another call of the channel keeps.
    other: u64,
}

impl Model {
    fn is_full(&self) -> bool {
        self.beyond && self.chosen.is_none() && !self.over
    }

    fn read(&mut self, attempt: u32) -> Got {
        let mut cursor = self.readers[&attempt];
        let got = self.read_at(&mut cursor);
        cursor.done |= !matches!(got, Poll::Pending | Poll::Ready(Some(Ok(_))));
        self.readers.insert(attempt, cursor);
        got
    }

    fn read_at(&mut self, cursor: &mut Cursor) -> Got {
        if cursor.done {
            return Poll::Ready(None);
        }
        if !cursor.open {
            return Poll::Ready(Some(Err(ReplayError(Early::OverLimitAction))));
        }
        cursor.written = cursor.next;
        for _ in 0..EMPTY_MAX + 2 {
            let there = self.pulled.len() - usize::from(self.is_full());
            if cursor.next < there {
                cursor.next += 1;
                cursor.done = self.end == Some(true) && cursor.next == self.pulled.len();
                return Poll::Ready(Some(Ok(self.pulled[cursor.next - 1].clone())));
            }
            match self.end {
                Some(true) => return Poll::Ready(None),
                Some(false) => return Poll::Ready(Some(Err(ReplayError(Early::Failed)))),
                None if self.is_full() => return Poll::Pending,
                None => {}
            }
            match self.unread.pop_front() {
                None | Some(Written::Ring) => return Poll::Pending,
                Some(Written::Empty) => {}
                Some(Written::End) => self.end = Some(true),
                Some(Written::Fail) => (self.end, self.untold) = (Some(false), true),
                Some(Written::Data(bytes)) => {
                    let size = bytes.len() as u64;
                    self.pulled.push(bytes);
                    let room = self.limit.min(CHANNEL - self.other);
                    if self.chosen.is_none() {
                        self.beyond = self.kept + size > room;
                        self.kept += if self.beyond { 0 } else { size };
                    }
                }
            }
        }
        Poll::Pending
    }

    fn choose(&mut self, attempt: u32) {
        if self.chosen.is_some() || self.over {
            return;
        }
        (self.chosen, self.kept) = (Some(attempt), 0);
        for (other, cursor) in &mut self.readers {
            cursor.open &= *other == attempt;
        }
        self.over = !self.readers.get(&attempt).is_some_and(|cursor| cursor.open);
    }

    fn close(&mut self, attempt: u32) {
        if let Some(cursor) = self.readers.get_mut(&attempt) {
            cursor.open = false;
        }
        self.over |= self.chosen == Some(attempt);
    }

    fn end(&mut self) {
        (self.over, self.kept) = (true, 0);
        self.readers.values_mut().for_each(|cursor| cursor.open = false);
    }

    /// What the caller sees: a failure, or that it is full and to which attempt most was written.
    fn signal(&self) -> (bool, Option<Option<u32>>) {
        let open = self.readers.iter().filter(|(_, cursor)| cursor.open);
        let most = open.max_by_key(|(attempt, cursor)| (cursor.written, u32::MAX - **attempt));
        let full = self.is_full() && !self.untold;
        (self.untold, full.then(|| most.map(|(attempt, _)| *attempt)))
    }

    /// How many frames are held.
    fn held(&self) -> usize {
        match self.chosen {
            _ if self.over => 0,
            None => self.pulled.len(),
            Some(chosen) => self.pulled.len() - self.readers[&chosen].next,
        }
    }
}

/// The tape, its users, and the model of both.
struct Play {
    script: Script,
    meter: Arc<Meter>,
    tape: Arc<Tape<Source>>,
    model: Model,
    /// The readers, and whether each waits.
    tasks: BTreeMap<u32, (Task, bool)>,
    caller: Arc<Woken>,
    caller_waits: bool,
    other: Held,
    /// The last attempt that was opened.
    attempt: u32,
    /// What is written next, so that every frame differs.
    letter: u8,
}

impl Play {
    fn new(limit: u8) -> Self {
        let (script, meter) = (Script::default(), Arc::new(Meter::new(CHANNEL)));
        let limit = u64::from(limit) % (CHANNEL + 20);
        Play {
            tape: script.tape(&meter, limit),
            model: Model { limit, ..Model::default() },
            script,
            tasks: BTreeMap::new(),
            caller: Woken::new(),
            caller_waits: false,
            other: Held::new(meter.clone(), CHANNEL),
            meter,
            attempt: 0,
            letter: 0,
        }
    }

    fn write(&mut self, item: Item, written: Written) {
        // Nobody writes after the end, nor to a body that nobody holds.
        let ended = |written: &Written| matches!(written, Written::End | Written::Fail);
        if self.model.end.is_none() && !self.model.over && !self.model.unread.iter().any(ended) {
            self.script.write(item);
            self.model.unread.push_back(written);
        }
    }

    /// One of the readers.
    fn pick(&self, argument: u8) -> Option<u32> {
        let place = usize::from(argument) % self.tasks.len().max(1);
        self.tasks.keys().nth(place).copied()
    }

    fn step(&mut self, kind: u8, argument: u8) {
        let picked = self.pick(argument);
        match (kind % 32, picked) {
            (0..=6, _) => {
                self.letter = self.letter.wrapping_add(1);
                let bytes = Bytes::from(vec![self.letter; usize::from(argument % 12) + 1]);
                self.write(Item::Data(bytes.clone()), Written::Data(bytes));
            }
            (7, _) => self.write(Item::Data(Bytes::new()), Written::Empty),
            (8, _) => self.write(Item::Trailers, Written::Empty),
            (9, _) => self.write(Item::Ring, Written::Ring),
            (10, _) if argument < 40 => self.write(Item::Fail, Written::Fail),
            (10, _) if argument < 200 => self.write(Item::End, Written::End),
            (11..=13, _) if self.tasks.len() < READERS_MAX => self.open(),
            (14..=23, Some(attempt)) => self.read(attempt),
            (24, Some(attempt)) => {
                self.tape.close(attempt);
                self.model.close(attempt);
            }
            (25, Some(attempt)) => {
                self.tasks.remove(&attempt);
                self.model.close(attempt);
            }
            (26..=28, _) => self.signal(),
            (29, Some(attempt)) if argument < 128 => {
                self.tape.choose(attempt);
                self.model.choose(attempt);
            }
            (29, _) if argument > 250 => {
                // An attempt whose body is gone, or that never was.
                self.tape.choose(self.attempt);
                self.model.choose(self.attempt);
            }
            (30, _) if argument > 240 => {
                self.tape.end();
                self.model.end();
            }
            (31, _) => {
                self.other.release();
                let bytes = u64::from(argument) % CHANNEL;
                self.model.other = if self.other.add(bytes) { bytes } else { 0 };
            }
            _ => {}
        }
    }

    fn open(&mut self) {
        self.attempt += 1;
        self.tasks.insert(self.attempt, (Task::open(&self.tape, self.attempt), false));
        let open = self.model.chosen.is_none() && !self.model.over;
        self.model.readers.insert(self.attempt, Cursor { next: 0, written: 0, open, done: false });
    }

    fn read(&mut self, attempt: u32) {
        let Some((task, waits)) = self.tasks.get_mut(&attempt) else { return };
        task.times();
        let got = task.poll();
        assert_eq!(got, self.model.read(attempt), "attempt {attempt}");
        assert_eq!(task.body.is_end_stream(), self.model.readers[&attempt].done);
        *waits = got.is_pending();
    }

    fn signal(&mut self) {
        let times = self.caller.times();
        assert!(times <= 1, "the caller was woken {times} times");
        let signal = self.tape.signal(&Context::from_waker(&Waker::from(self.caller.clone())));
        let heard = match signal {
            Signal::Quiet => (false, None),
            Signal::Full(most) => (false, Some(most)),
            Signal::Failed(_) => (true, None),
        };
        assert_eq!(heard, self.model.signal());
        self.model.untold = false;
        self.caller_waits = heard == (false, None);
    }

    fn check(&self) {
        let model = &self.model;
        let inner = lock(&self.tape.inner);
        assert_eq!(inner.frames.len() + usize::from(inner.beyond.is_some()), model.held());
        drop(inner);
        assert_eq!(self.meter.used(), model.kept + model.other);
        assert_eq!(self.script.is_dropped(), model.over);
        assert_eq!(self.script.left(), model.unread.len(), "nobody asked for more");
        for (attempt, (task, waits)) in &self.tasks {
            if *waits && !task.woken.seen() {
                let next = model.clone().read(*attempt);
                assert_eq!(next, Poll::Pending, "attempt {attempt} sleeps and could go on");
            }
        }
        if self.caller_waits && !self.caller.seen() {
            assert_eq!(model.signal(), (false, None), "the caller sleeps and should not");
        }
    }

    fn finish(self) {
        let Play { script, meter, tape, tasks, other, letter, .. } = self;
        drop(other);
        // In one order or the other.
        if letter % 2 == 0 {
            drop(tape);
            drop(tasks);
        } else {
            drop(tasks);
            drop(tape);
        }
        assert_eq!((meter.used(), script.is_dropped()), (0, true));
    }
}

fn play(input: &[u8]) {
    let Some((limit, steps)) = input.split_first() else { return };
    let mut play = Play::new(*limit);
    for step in steps.chunks_exact(2) {
        play.step(step[0], step[1]);
        play.check();
    }
    play.finish();
}

#[test]
fn no_interleaving_breaks_the_tape() {
    bolero::check!()
        .with_test_time(Duration::from_secs(4))
        .with_iterations(100_000)
        .with_max_len(400)
        .for_each(play);
}
