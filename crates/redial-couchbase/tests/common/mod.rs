//! A scripted fake server: each attempt gets the next outcome of the script, on tokio's paused clock.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redial::ms;
use redial_couchbase::{AttemptError, Error, Orchestrator, RequestAttempt, Response};

/// The outcome of an attempt and its delay.
#[derive(Clone)]
pub(crate) enum AttemptOutcome {
    Answer(u64, Result<(), AttemptError>),
    Nothing,
}

/// Immediate success.
pub(crate) fn ok() -> AttemptOutcome {
    AttemptOutcome::Answer(0, Ok(()))
}

/// An immediate failure.
pub(crate) fn fails(cause: impl Into<AttemptError>) -> AttemptOutcome {
    after(0, cause)
}

/// A failure after a number of milliseconds.
pub(crate) fn after(millis: u64, cause: impl Into<AttemptError>) -> AttemptOutcome {
    AttemptOutcome::Answer(millis, Err(cause.into()))
}

/// An immediate KV status.
pub(crate) fn status(status: u16) -> AttemptOutcome {
    fails(Response::kv(status))
}

/// The script and the start times of its attempts.
pub(crate) struct Server {
    begin: tokio::time::Instant,
    state: Mutex<(VecDeque<AttemptOutcome>, Vec<u64>)>,
}

impl Server {
    pub(crate) fn new(script: impl IntoIterator<Item = AttemptOutcome>) -> Self {
        let state = Mutex::new((script.into_iter().collect(), Vec::new()));
        Server { begin: tokio::time::Instant::now(), state }
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).expect("a short test")
    }

    /// The start times of attempts, in milliseconds.
    pub(crate) fn starts(&self) -> Vec<u64> {
        self.state.lock().expect("no panic").1.clone()
    }

    pub(crate) async fn answer(&self, _attempt: RequestAttempt) -> Result<(), AttemptError> {
        let outcome = {
            let (script, starts) = &mut *self.state.lock().expect("no panic");
            starts.push(self.now());
            script.pop_front().expect("an attempt more than the script has")
        };
        match outcome {
            AttemptOutcome::Answer(millis, answer) => {
                tokio::time::sleep(ms(millis)).await;
                answer
            }
            AttemptOutcome::Nothing => std::future::pending().await,
        }
    }
}

/// The lines of the log hook: text and delay.
pub(crate) type Lines = Arc<Mutex<Vec<(String, Option<Duration>)>>>;

/// The orchestrator with a hook that collects the lines.
pub(crate) fn logged(orchestrator: Orchestrator) -> (Orchestrator, Lines) {
    let lines = Lines::default();
    let kept = lines.clone();
    let orchestrator = orchestrator.on_log(move |_, line| {
        kept.lock().expect("no panic").push((line.to_string(), line.delay()));
    });
    (orchestrator, lines)
}

pub(crate) fn texts(lines: &Lines) -> Vec<String> {
    lines.lock().expect("no panic").iter().map(|(text, _)| text.clone()).collect()
}

pub(crate) fn delays(lines: &Lines) -> Vec<Option<u64>> {
    let lines = lines.lock().expect("no panic");
    lines.iter().map(|(_, delay)| delay.map(|it| it.as_millis() as u64)).collect()
}

/// The error of a request that must have one.
pub(crate) fn error<T: std::fmt::Debug>(
    result: Result<T, Error<AttemptError>>,
) -> Error<AttemptError> {
    result.expect_err("the request fails")
}
