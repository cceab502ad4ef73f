//! Model-based test: random interleavings of writes, reads, commits and releases behave like a simple
//! model. Input bytes are decoded into steps, which run against the replay buffer and against a model
//! without wakers, locks or memory limits. After every step the test compares the buffered frames and
//! the polls of the source, and checks that no task sleeps that could make progress.
//!
//! It is a unit test because the replay buffer is private. This run is bounded; for a coverage-guided
//! run use `cargo bolero test -p redial-grpc
//! replay_buffer::interleavings::replay_matches_the_model_in_every_interleaving`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::scripted_body::{
    CountingWaker, Item, PolledData, ScriptedBody, ScriptedSource, TestReader,
};
use super::*;
use crate::buffer_limits::BufferLimit;

/// Buffer limit of the channel in bytes.
const CHANNEL: u64 = 40;

/// Maximum number of concurrent readers.
const READERS_MAX: usize = 4;

/// An item written by the application, in the model.
#[derive(Clone, Debug)]
enum ModelItem {
    Data(Bytes),
    /// An empty frame, or trailers.
    Empty,
    WakeThenPend,
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

/// The model of a replay buffer.
#[derive(Clone, Debug, Default)]
struct Model {
    unread: VecDeque<ModelItem>,
    /// All frames polled so far, from the first one on.
    pulled: Vec<Bytes>,
    /// The last frame of `pulled` exceeded the limit.
    overflow: bool,
    /// `Some(true)` after the half-close, `Some(false)` after a failure.
    end: Option<bool>,
    /// A failure that the caller has not seen yet.
    unreported_failure: bool,
    committed: Option<u32>,
    released: bool,
    readers: BTreeMap<u32, Cursor>,
    /// Reserved bytes, and the limit of this call.
    buffered: u64,
    limit: u64,
    /// Bytes reserved by another call of the channel.
    other: u64,
}

impl Model {
    fn is_full(&self) -> bool {
        self.overflow && self.committed.is_none() && !self.released
    }

    fn read(&mut self, attempt: u32) -> PolledData {
        let mut cursor = self.readers[&attempt];
        let got = self.read_at(&mut cursor);
        cursor.done |= !matches!(got, Poll::Pending | Poll::Ready(Some(Ok(_))));
        self.readers.insert(attempt, cursor);
        got
    }

    fn read_at(&mut self, cursor: &mut Cursor) -> PolledData {
        if cursor.done {
            return Poll::Ready(None);
        }
        if !cursor.open {
            return Poll::Ready(Some(Err(ReplayError(EarlyEnd::Cancelled))));
        }
        cursor.written = cursor.next;
        for _ in 0..EMPTY_FRAMES_MAX + 2 {
            let available = self.pulled.len() - usize::from(self.is_full());
            if cursor.next < available {
                cursor.next += 1;
                cursor.done = self.end == Some(true) && cursor.next == self.pulled.len();
                return Poll::Ready(Some(Ok(self.pulled[cursor.next - 1].clone())));
            }
            match self.end {
                Some(true) => return Poll::Ready(None),
                Some(false) => return Poll::Ready(Some(Err(ReplayError(EarlyEnd::Failed)))),
                None if self.is_full() => return Poll::Pending,
                None => {}
            }
            match self.unread.pop_front() {
                None | Some(ModelItem::WakeThenPend) => return Poll::Pending,
                Some(ModelItem::Empty) => {}
                Some(ModelItem::End) => self.end = Some(true),
                Some(ModelItem::Fail) => (self.end, self.unreported_failure) = (Some(false), true),
                Some(ModelItem::Data(bytes)) => {
                    let size = bytes.len() as u64;
                    self.pulled.push(bytes);
                    let room = self.limit.min(CHANNEL - self.other);
                    if self.committed.is_none() {
                        self.overflow = self.buffered + size > room;
                        self.buffered += if self.overflow { 0 } else { size };
                    }
                }
            }
        }
        Poll::Pending
    }

    fn commit(&mut self, attempt: u32) {
        if self.committed.is_some() || self.released {
            return;
        }
        (self.committed, self.buffered) = (Some(attempt), 0);
        for (other, cursor) in &mut self.readers {
            cursor.open &= *other == attempt;
        }
        self.released = !self.readers.get(&attempt).is_some_and(|cursor| cursor.open);
    }

    fn close(&mut self, attempt: u32) {
        if let Some(cursor) = self.readers.get_mut(&attempt) {
            cursor.open = false;
        }
        self.released |= self.committed == Some(attempt);
    }

    fn end(&mut self) {
        (self.released, self.buffered) = (true, 0);
        self.readers.values_mut().for_each(|cursor| cursor.open = false);
    }

    /// The signal for the caller: a failure, or the attempt that has sent most when the buffer is full.
    fn signal(&self) -> (bool, Option<Option<u32>>) {
        let open = self.readers.iter().filter(|(_, cursor)| cursor.open);
        let most = open.max_by_key(|(attempt, cursor)| (cursor.written, u32::MAX - **attempt));
        let full = self.is_full() && !self.unreported_failure;
        (self.unreported_failure, full.then(|| most.map(|(attempt, _)| *attempt)))
    }

    /// Number of buffered frames.
    fn buffered_frames(&self) -> usize {
        match self.committed {
            _ if self.released => 0,
            None => self.pulled.len(),
            Some(committed) => self.pulled.len() - self.readers[&committed].next,
        }
    }
}

/// The replay buffer, its users and the model.
struct Harness {
    script: ScriptedBody,
    buffer_limit: Arc<BufferLimit>,
    buffer: Arc<ReplayBuffer<ScriptedSource>>,
    model: Model,
    /// The readers, and whether each of them is waiting.
    tasks: BTreeMap<u32, (TestReader, bool)>,
    caller: Arc<CountingWaker>,
    caller_waiting: bool,
    other: Reservation,
    /// The last attempt opened.
    attempt: u32,
    /// The byte of the next frame, so that all frames differ.
    next_byte: u8,
}

impl Harness {
    fn new(limit: u8) -> Self {
        let (script, buffer_limit) = (ScriptedBody::default(), Arc::new(BufferLimit::new(CHANNEL)));
        let limit = u64::from(limit) % (CHANNEL + 20);
        Harness {
            buffer: script.buffer(&buffer_limit, limit),
            model: Model { limit, ..Model::default() },
            script,
            tasks: BTreeMap::new(),
            caller: CountingWaker::new(),
            caller_waiting: false,
            other: Reservation::new(buffer_limit.clone(), CHANNEL),
            buffer_limit,
            attempt: 0,
            next_byte: 0,
        }
    }

    fn write(&mut self, item: Item, written: ModelItem) {
        // No writes after the end, or to a body that has been dropped.
        let ended = |written: &ModelItem| matches!(written, ModelItem::End | ModelItem::Fail);
        if self.model.end.is_none() && !self.model.released && !self.model.unread.iter().any(ended)
        {
            self.script.write(item);
            self.model.unread.push_back(written);
        }
    }

    /// Picks one of the readers.
    fn pick(&self, argument: u8) -> Option<u32> {
        let index = usize::from(argument) % self.tasks.len().max(1);
        self.tasks.keys().nth(index).copied()
    }

    fn step(&mut self, kind: u8, argument: u8) {
        let picked = self.pick(argument);
        match (kind % 32, picked) {
            (0..=6, _) => {
                self.next_byte = self.next_byte.wrapping_add(1);
                let bytes = Bytes::from(vec![self.next_byte; usize::from(argument % 12) + 1]);
                self.write(Item::Data(bytes.clone()), ModelItem::Data(bytes));
            }
            (7, _) => self.write(Item::Data(Bytes::new()), ModelItem::Empty),
            (8, _) => self.write(Item::Trailers, ModelItem::Empty),
            (9, _) => self.write(Item::WakeThenPend, ModelItem::WakeThenPend),
            (10, _) if argument < 40 => self.write(Item::Fail, ModelItem::Fail),
            (10, _) if argument < 200 => self.write(Item::End, ModelItem::End),
            (11..=13, _) if self.tasks.len() < READERS_MAX => self.open(),
            (14..=23, Some(attempt)) => self.read(attempt),
            (24, Some(attempt)) => {
                self.buffer.close(attempt);
                self.model.close(attempt);
            }
            (25, Some(attempt)) => {
                self.tasks.remove(&attempt);
                self.model.close(attempt);
            }
            (26..=28, _) => self.signal(),
            (29, Some(attempt)) if argument < 128 => {
                self.buffer.commit(attempt);
                self.model.commit(attempt);
            }
            (29, _) if argument > 250 => {
                // An attempt whose body was dropped, or that never existed.
                self.buffer.commit(self.attempt);
                self.model.commit(self.attempt);
            }
            (30, _) if argument > 240 => {
                self.buffer.release();
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
        self.tasks.insert(self.attempt, (TestReader::open(&self.buffer, self.attempt), false));
        let open = self.model.committed.is_none() && !self.model.released;
        self.model.readers.insert(self.attempt, Cursor { next: 0, written: 0, open, done: false });
    }

    fn read(&mut self, attempt: u32) {
        let Some((task, waiting)) = self.tasks.get_mut(&attempt) else { return };
        task.take_wakes();
        let got = task.poll();
        assert_eq!(got, self.model.read(attempt), "attempt {attempt}");
        assert_eq!(task.body.is_end_stream(), self.model.readers[&attempt].done);
        *waiting = got.is_pending();
    }

    fn signal(&mut self) {
        let wakes = self.caller.take_wakes();
        assert!(wakes <= 1, "the caller was woken {wakes} times");
        let signal =
            self.buffer.poll_signal(&Context::from_waker(&Waker::from(self.caller.clone())));
        let observed = match signal {
            Signal::None => (false, None),
            Signal::Full(most) => (false, Some(most)),
            Signal::Failed(_) => (true, None),
        };
        assert_eq!(observed, self.model.signal());
        self.model.unreported_failure = false;
        self.caller_waiting = observed == (false, None);
    }

    fn check(&self) {
        let model = &self.model;
        let inner = lock(&self.buffer.inner);
        assert_eq!(
            inner.frames.len() + usize::from(inner.overflow.is_some()),
            model.buffered_frames()
        );
        drop(inner);
        assert_eq!(self.buffer_limit.used(), model.buffered + model.other);
        assert_eq!(self.script.is_dropped(), model.released);
        assert_eq!(
            self.script.unread_frames(),
            model.unread.len(),
            "the source was polled only as needed"
        );
        for (attempt, (task, waiting)) in &self.tasks {
            if *waiting && !task.waker.is_woken() {
                let next = model.clone().read(*attempt);
                assert_eq!(
                    next,
                    Poll::Pending,
                    "attempt {attempt} sleeps although it could make progress"
                );
            }
        }
        if self.caller_waiting && !self.caller.is_woken() {
            assert_eq!(
                model.signal(),
                (false, None),
                "the caller sleeps although there is a signal"
            );
        }
    }

    fn finish(self) {
        let Harness { script, buffer_limit, buffer, tasks, other, next_byte, .. } = self;
        drop(other);
        // Both drop orders.
        if next_byte % 2 == 0 {
            drop(buffer);
            drop(tasks);
        } else {
            drop(tasks);
            drop(buffer);
        }
        assert_eq!((buffer_limit.used(), script.is_dropped()), (0, true));
    }
}

fn run_steps(input: &[u8]) {
    let Some((limit, steps)) = input.split_first() else { return };
    let mut harness = Harness::new(*limit);
    for step in steps.chunks_exact(2) {
        harness.step(step[0], step[1]);
        harness.check();
    }
    harness.finish();
}

#[test]
fn replay_matches_the_model_in_every_interleaving() {
    bolero::check!()
        .with_test_time(Duration::from_secs(4))
        .with_iterations(100_000)
        .with_max_len(400)
        .for_each(run_steps);
}
