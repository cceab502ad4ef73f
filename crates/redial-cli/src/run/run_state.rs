//! What the attempts of a run, its signals and its report share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::attempt_end::{Exit, ExitRules, LastBecause, Patterns};
use super::output::{Held, OutputError, Stream};
use super::process::{Process, Program};
use super::process_group::Group;

/// A run of a command.
#[derive(Debug)]
pub(super) struct RunState {
    pub(super) program: Program,
    pub(super) rules: ExitRules,
    pub(super) patterns: Patterns,
    /// The processes that have not ended.
    live: watch::Sender<Vec<Group>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The output of the last attempt, if it is held back.
    held: Option<Held>,
    last: Option<LastBecause>,
    /// The ends of attempts, with their numbers.
    exits: Vec<(u32, Exit)>,
}

/// Counts a process until it has ended.
#[derive(Debug)]
pub(super) struct Live(watch::Sender<Vec<Group>>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.send_modify(|groups| {
            groups.pop();
        });
    }
}

impl RunState {
    pub(super) fn new(program: Program, rules: ExitRules, patterns: Patterns) -> Arc<Self> {
        let live = watch::Sender::new(Vec::new());
        Arc::new(RunState { program, rules, patterns, live, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the command once.
    pub(super) async fn attempt(self: Arc<Self>, number: u32) -> Exit {
        // A retry waits for this already; a process never runs beside the next one.
        self.idle().await;
        self.release_output(Stream::Err);
        let exit = match Process::start(&self, number) {
            Ok(process) => process.wait().await,
            Err(end) => Exit { end, matched: Default::default(), last: self.last() },
        };
        self.lock().exits.push((number, exit.clone()));
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
    pub(super) fn release_output(&self, stream: Stream) {
        let held = self.lock().held.take();
        if let Some(Err(error)) = held.map(|held| held.release_to(stream)) {
            self.not_written(&error);
        }
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

    /// Makes the running attempt the last one. The first reason counts, unless output is lost.
    pub(super) fn set_last(&self, because: LastBecause) {
        let last = &mut self.lock().last;
        if last.is_none() || because == LastBecause::OutputLost {
            *last = Some(because);
        }
    }

    pub(super) fn last(&self) -> Option<LastBecause> {
        self.lock().last
    }

    /// The end of an attempt, if its process has ended by itself.
    pub(super) fn exit(&self, attempt: u32) -> Option<Exit> {
        let state = self.lock();
        state.exits.iter().find(|(number, _)| *number == attempt).map(|(_, exit)| exit.clone())
    }
}
