//! What the attempts of a run, its signals and its report share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redial::Event;
use redial::time::Ns;
use tokio::sync::watch;

use super::attempt_end::{Exit, ExitRules, LastBecause, Patterns};
use super::output::{Held, OutputError, Stream, on_thread};
use super::process::{Process, Program};
use super::process_group::Group;
use super::record::Record;

/// A run of a command.
#[derive(Debug)]
pub(super) struct RunState {
    pub(super) program: Program,
    pub(super) rules: ExitRules,
    pub(super) patterns: Patterns,
    /// The processes that have not ended.
    live: watch::Sender<Vec<Group>>,
    last: watch::Sender<Option<LastBecause>>,
    /// The first signal that asked this program to end.
    signal: watch::Sender<Option<i32>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The output of the last attempt, if it is held back.
    held: Option<Held>,
    record: Record,
}

/// Counts a process until it has ended.
#[derive(Debug)]
pub(super) struct Live(watch::Sender<Vec<Group>>);

impl Live {
    /// The command was waited for.
    pub(super) fn command_has_ended(&self) {
        self.0.send_modify(|groups| groups.iter_mut().for_each(Group::command_has_ended));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.send_modify(|groups| {
            groups.pop();
        });
    }
}

impl RunState {
    pub(super) fn new(
        program: Program,
        rules: ExitRules,
        patterns: Patterns,
        record: Record,
    ) -> Arc<Self> {
        Arc::new(RunState {
            program,
            rules,
            patterns,
            live: watch::Sender::default(),
            last: watch::Sender::default(),
            signal: watch::Sender::default(),
            state: Mutex::new(State { held: None, record }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the command once.
    pub(super) async fn attempt(self: Arc<Self>, number: u32) -> Exit {
        // A retry waits for this already; a process never runs beside the next one.
        self.idle().await;
        self.release_output(Stream::Err).await;
        let exit = match self.last() {
            // It came after the decision to retry.
            Some(because) => Exit::refused(because),
            None => match Process::start(&self, number) {
                Ok(process) => process.wait().await,
                Err(end) => Exit { end, matched: Default::default(), last: self.last() },
            },
        };
        self.lock().record.process_ended(number, exit.clone());
        exit
    }

    /// Waits until no process is left.
    pub(super) async fn idle(&self) {
        // The sender is in `self`, so there is always an answer.
        let _ = self.live.subscribe().wait_for(Vec::is_empty).await;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.live.borrow().is_empty()
    }

    /// Counts a process. One runs at a time.
    pub(super) fn live(&self, group: Group) -> Live {
        self.live.send_modify(|groups| groups.push(group));
        Live(self.live.clone())
    }

    /// The running process.
    #[cfg(unix)]
    pub(super) fn running(&self) -> Option<Group> {
        self.live.borrow().last().copied()
    }

    /// Keeps the output of the running attempt.
    pub(super) fn hold(&self, held: Held) {
        self.lock().held = Some(held);
    }

    /// Writes the output that is held back.
    pub(super) async fn release_output(self: &Arc<Self>, stream: Stream) {
        let held = self.lock().held.take();
        let Some(held) = held.filter(|held| !held.is_empty(stream)) else { return };
        let run = self.clone();
        on_thread(move || {
            if let Err(error) = held.release_to(stream) {
                run.not_written(&error);
            }
        })
        .await;
    }

    /// Output cannot be written. A reader of standard error that is gone must not end the retries.
    pub(super) fn not_written(&self, error: &OutputError) {
        let OutputError { stream, error } = error;
        match (error.kind(), stream) {
            (io::ErrorKind::BrokenPipe, Stream::Out) => self.set_last(LastBecause::OutputClosed),
            (io::ErrorKind::BrokenPipe, Stream::Err) => {}
            _ => {
                print_error!("redial: the output cannot be written: {error}");
                self.set_last(LastBecause::OutputLost);
            }
        }
    }

    /// Makes the running attempt the last one. The first reason counts, unless input or output is
    /// lost.
    pub(super) fn set_last(&self, because: LastBecause) {
        self.last.send_if_modified(|last| {
            let counts = last.is_none() || because.is_loss();
            if counts {
                *last = Some(because);
            }
            counts
        });
    }

    pub(super) fn last(&self) -> Option<LastBecause> {
        *self.last.borrow()
    }

    /// Waits until input is lost.
    pub(super) async fn input_lost(&self) {
        let is_lost = |last: &Option<LastBecause>| *last == Some(LastBecause::InputLost);
        let _ = self.last.subscribe().wait_for(is_lost).await;
    }

    /// A signal asks this program to end.
    pub(super) fn end_by(&self, signal: i32) {
        self.set_last(LastBecause::Signal(signal));
        self.signal.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(signal);
            is_first
        });
    }

    /// Waits for a signal that asks this program to end, and then for this time.
    pub(super) async fn ended_for(&self, time: Duration) -> i32 {
        let mut signals = self.signal.subscribe();
        let signal = signals.wait_for(Option::is_some).await.ok().and_then(|signal| *signal);
        tokio::time::sleep(time).await;
        signal.unwrap_or_default()
    }

    /// Records an event of the call.
    pub(super) fn event(&self, at: Ns, event: &Event) {
        self.lock().record.event(at, event);
    }

    /// How the process of an attempt ended, as text, if the event is its outcome.
    pub(super) fn outcome_text(&self, event: &Event) -> Option<String> {
        self.lock().record.outcome_text(event)
    }

    /// What is known about the attempts.
    pub(super) fn record<T>(&self, read: impl FnOnce(&Record) -> T) -> T {
        read(&self.lock().record)
    }
}
