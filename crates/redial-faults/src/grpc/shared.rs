//! The state that all tasks of a server share: the remaining script and the record.
//!
//! Invariant: the counts and the entries that they count change under one lock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::action::OnConnect;
use super::record::{Connection, Counts, Record, StreamEnd, StreamOutcome, StreamRecord};
use super::script::{ConnectPlan, NextAnswer, Script};
use super::server::CONNECTIONS_OPEN_MAX;
use crate::tasks::{Tasks, forget_oldest};

/// The options of a server.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) concurrent_streams: Option<u32>,
    pub(super) streams_kept: usize,
    pub(super) payload_bytes_kept: u64,
    pub(super) pipe_bytes: usize,
    pub(super) on_end: Option<OnEnd>,
}

type OnEndFn = dyn Fn(&StreamRecord) + Send + Sync;

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
    pub(super) tasks: Tasks<State>,
    pub(super) options: Options,
}

#[derive(Debug)]
pub(super) struct State {
    script: Script,
    streams: VecDeque<StreamRecord>,
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
        Arc::new(Shared { tasks: Tasks::new(state), options })
    }

    pub(super) fn with_script<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        f(&mut self.tasks.state().script)
    }

    /// Records a new connection: its number and how to treat it.
    pub(super) fn connect(&self) -> (u64, ConnectPlan) {
        let opened = self.tasks.now();
        let mut state = self.tasks.state();
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
        self.tasks.notify();
        (number, plan)
    }

    pub(super) fn disconnected(&self, number: u64) {
        let now = self.tasks.now();
        let mut state = self.tasks.state();
        state.counts.connections_open = state.counts.connections_open.saturating_sub(1);
        if let Ok(index) = state.connections.binary_search_by_key(&number, |it| it.number) {
            state.connections[index].closed = Some(now);
        }
        drop(state);
        self.tasks.notify();
    }

    /// Records a new stream: its number, and its answer unless it is rejected.
    pub(super) fn arrive(
        &self,
        mut stream: StreamRecord,
        rejected: bool,
    ) -> (u64, Option<NextAnswer>) {
        let mut state = self.tasks.state();
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
        self.tasks.notify();
        (number, next)
    }

    /// Updates the record of a stream.
    pub(super) fn update_stream(&self, number: u64, update: impl FnOnce(&mut StreamRecord)) {
        let mut state = self.tasks.state();
        if let Ok(index) = state.streams.binary_search_by_key(&number, |it| it.number) {
            update(&mut state.streams[index]);
        }
        drop(state);
        self.tasks.notify();
    }

    /// Records the end of a stream.
    pub(super) fn end(&self, number: u64, outcome: StreamOutcome) {
        let at = self.tasks.now();
        let mut state = self.tasks.state();
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
        self.tasks.notify();
    }

    pub(super) fn record(&self) -> Record {
        let state = self.tasks.state();
        Record {
            streams: state.streams.iter().cloned().collect(),
            connections: state.connections.iter().cloned().collect(),
            counts: state.counts,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.tasks.state().counts
    }
}
