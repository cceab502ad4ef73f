//! What the tasks of one server share: the script as far as it is used up, and the record.
//!
//! Invariant: a number in the counts changes together with the entry that it counts, so that
//! nobody sees one without the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::act::Door;
use super::record::{Connection, Counts, End, How, Record, Stream};
use super::script::{Given, Met, Script};
use super::server::CONNECTIONS_OPEN_MAX;

/// What a server is told beside its script.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) concurrent_streams: Option<u32>,
    pub(super) streams_kept: usize,
    pub(super) payload_bytes_kept: u64,
    pub(super) pipe_bytes: usize,
    pub(super) on_end: Option<OnEnd>,
}

type OnEndFn = dyn Fn(&Stream) + Send + Sync;

/// Who is told of each stream that has ended.
#[derive(Clone)]
pub(super) struct OnEnd(pub(super) Arc<OnEndFn>);

impl fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnEnd(..)")
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    start: Instant,
    pub(super) options: Options,
    state: Mutex<State>,
    changed: Notify,
    stop: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    script: Script,
    streams: VecDeque<Stream>,
    connections: VecDeque<Connection>,
    counts: Counts,
}

impl Shared {
    pub(super) fn new(script: Script, options: Options) -> Arc<Shared> {
        let state = State {
            script,
            streams: VecDeque::new(),
            connections: VecDeque::new(),
            counts: Counts::default(),
        };
        Arc::new(Shared {
            start: Instant::now(),
            options,
            state: Mutex::new(state),
            changed: Notify::new(),
            stop: watch::Sender::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked (a user's callback is called without the lock) left whole entries.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment, since the server's start.
    pub(super) fn moment(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.start)
    }

    pub(super) fn now(&self) -> Duration {
        self.moment(Instant::now())
    }

    pub(super) fn with_script<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        f(&mut self.state().script)
    }

    /// A connection is asked for: its number and what it meets.
    pub(super) fn connect(&self) -> (u64, Met) {
        let opened = self.now();
        let mut state = self.state();
        let met = if state.counts.connections_open < CONNECTIONS_OPEN_MAX {
            state.script.meet()
        } else {
            Met { door: Door::ClosedAtOnce, ..Met::default() }
        };
        state.counts.connections += 1;
        state.counts.connections_open += 1;
        let number = state.counts.connections;
        let (door, attempt) = (met.door, met.attempt.clone());
        state.connections.push_back(Connection { number, door, attempt, opened, closed: None });
        forget_oldest(&mut state.connections, self.options.streams_kept, |it| it.closed.is_some());
        drop(state);
        self.changed.notify_waiters();
        (number, met)
    }

    pub(super) fn disconnected(&self, number: u64) {
        let now = self.now();
        let mut state = self.state();
        state.counts.connections_open = state.counts.connections_open.saturating_sub(1);
        if let Ok(place) = state.connections.binary_search_by_key(&number, |it| it.number) {
            state.connections[place].closed = Some(now);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A stream has arrived: its number, and the answer it gets unless it is turned away.
    pub(super) fn arrive(&self, mut stream: Stream, turned_away: bool) -> (u64, Option<Given>) {
        let mut state = self.state();
        state.counts.streams += 1;
        state.counts.streams_open += 1;
        stream.number = state.counts.streams;
        let given = (!turned_away).then(|| state.script.next(stream.call.as_deref()));
        if let Some(given) = &given {
            stream.attempt = Some(given.attempt);
            stream.scripted = given.scripted;
            state.counts.streams_unscripted += u64::from(!given.scripted);
        }
        let number = stream.number;
        state.streams.push_back(stream);
        forget_oldest(&mut state.streams, self.options.streams_kept, |it| it.end.is_some());
        drop(state);
        self.changed.notify_waiters();
        (number, given)
    }

    /// Notes something about a stream.
    pub(super) fn note(&self, number: u64, note: impl FnOnce(&mut Stream)) {
        let mut state = self.state();
        if let Ok(place) = state.streams.binary_search_by_key(&number, |it| it.number) {
            note(&mut state.streams[place]);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A stream has ended.
    pub(super) fn end(&self, number: u64, how: How) {
        let at = self.now();
        let mut state = self.state();
        state.counts.streams_open = state.counts.streams_open.saturating_sub(1);
        let mut ended = None;
        if let Ok(place) = state.streams.binary_search_by_key(&number, |it| it.number) {
            let stream = &mut state.streams[place];
            stream.end = Some(End { at, how });
            ended = self.options.on_end.is_some().then(|| stream.clone());
        }
        drop(state);
        if let (Some(OnEnd(on_end)), Some(stream)) = (&self.options.on_end, ended) {
            on_end(&stream);
        }
        self.changed.notify_waiters();
    }

    pub(super) fn record(&self) -> Record {
        let state = self.state();
        Record {
            streams: state.streams.iter().cloned().collect(),
            connections: state.connections.iter().cloned().collect(),
            counts: state.counts,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Comes when `look` has found what it looks for. It looks again after every change.
    pub(super) async fn until<T>(&self, mut look: impl FnMut(&Shared) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(self) {
                return found;
            }
            changed.await;
        }
    }

    /// Asks every task to end.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Comes when every task is to end.
    pub(super) async fn stopped(&self) {
        // The sender is ours, so it does not go before us.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

/// Forgets the oldest that is over while there are more than `max`; what is open stays.
fn forget_oldest<T>(list: &mut VecDeque<T>, max: usize, over: impl Fn(&T) -> bool) {
    while list.len() > max
        && let Some(place) = list.iter().position(&over)
    {
        list.remove(place);
    }
}
