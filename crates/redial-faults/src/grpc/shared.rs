//! The state that all tasks of a server share: the remaining script and the record.
//!
//! Invariant: the counts and the entries that they count change under one lock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::action::OnConnect;
use super::record::{Connection, Counts, Record, Stream, StreamEnd, StreamOutcome};
use super::script::{ConnectPlan, NextAnswer, Script};
use super::server::CONNECTIONS_OPEN_MAX;

/// The options of a server.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) concurrent_streams: Option<u32>,
    pub(super) streams_kept: usize,
    pub(super) payload_bytes_kept: u64,
    pub(super) pipe_bytes: usize,
    pub(super) on_end: Option<OnEnd>,
}

type OnEndFn = dyn Fn(&Stream) + Send + Sync;

/// A callback for each ended stream.
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
        // A panic leaves complete entries: the user's callback runs without the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the server's start.
    pub(super) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.start)
    }

    pub(super) fn now(&self) -> Duration {
        self.since_start(Instant::now())
    }

    pub(super) fn with_script<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        f(&mut self.state().script)
    }

    /// Records a new connection: its number and how to treat it.
    pub(super) fn connect(&self) -> (u64, ConnectPlan) {
        let opened = self.now();
        let mut state = self.state();
        let plan = if state.counts.connections_open < CONNECTIONS_OPEN_MAX {
            state.script.plan_connection()
        } else {
            ConnectPlan { on_connect: OnConnect::CloseImmediately, ..ConnectPlan::default() }
        };
        state.counts.connections += 1;
        state.counts.connections_open += 1;
        let number = state.counts.connections;
        let (on_connect, attempt) = (plan.on_connect, plan.attempt.clone());
        state.connections.push_back(Connection {
            number,
            on_connect,
            attempt,
            opened,
            closed: None,
        });
        forget_oldest(&mut state.connections, self.options.streams_kept, |it| it.closed.is_some());
        drop(state);
        self.changed.notify_waiters();
        (number, plan)
    }

    pub(super) fn disconnected(&self, number: u64) {
        let now = self.now();
        let mut state = self.state();
        state.counts.connections_open = state.counts.connections_open.saturating_sub(1);
        if let Ok(index) = state.connections.binary_search_by_key(&number, |it| it.number) {
            state.connections[index].closed = Some(now);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records a new stream: its number, and its answer unless it is rejected.
    pub(super) fn arrive(&self, mut stream: Stream, rejected: bool) -> (u64, Option<NextAnswer>) {
        let mut state = self.state();
        state.counts.streams += 1;
        state.counts.streams_open += 1;
        stream.number = state.counts.streams;
        let next = (!rejected).then(|| state.script.next(stream.call.as_deref()));
        if let Some(next) = &next {
            stream.attempt = Some(next.attempt);
            stream.scripted = next.scripted;
            state.counts.streams_unscripted += u64::from(!next.scripted);
        }
        let number = stream.number;
        state.streams.push_back(stream);
        forget_oldest(&mut state.streams, self.options.streams_kept, |it| it.end.is_some());
        drop(state);
        self.changed.notify_waiters();
        (number, next)
    }

    /// Updates the record of a stream.
    pub(super) fn update_stream(&self, number: u64, update: impl FnOnce(&mut Stream)) {
        let mut state = self.state();
        if let Ok(index) = state.streams.binary_search_by_key(&number, |it| it.number) {
            update(&mut state.streams[index]);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records the end of a stream.
    pub(super) fn end(&self, number: u64, outcome: StreamOutcome) {
        let at = self.now();
        let mut state = self.state();
        state.counts.streams_open = state.counts.streams_open.saturating_sub(1);
        let mut ended = None;
        if let Ok(index) = state.streams.binary_search_by_key(&number, |it| it.number) {
            let stream = &mut state.streams[index];
            stream.end = Some(StreamEnd { at, outcome });
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

    /// Waits until `look` returns a value; it is called after every change.
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

    /// Stops every task.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the server is stopped.
    pub(super) async fn stopped(&self) {
        // It cannot fail: `self` owns the sender.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

/// Removes the oldest finished entries above `max`; open ones stay.
pub(crate) fn forget_oldest<T>(
    list: &mut VecDeque<T>,
    max: usize,
    is_finished: impl Fn(&T) -> bool,
) {
    while list.len() > max
        && let Some(index) = list.iter().position(&is_finished)
    {
        list.remove(index);
    }
}
