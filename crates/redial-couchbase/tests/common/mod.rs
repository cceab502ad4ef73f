//! A scripted double of a server: each attempt meets what the script says, on tokio's paused clock.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redial::ms;
use redial_couchbase::{AttemptError, Error, Orchestrator, RequestAttempt, Response};

/// What an attempt meets, and after how long.
#[derive(Clone)]
pub(crate) enum Meets {
    Answer(u64, Result<(), AttemptError>),
    Nothing,
}

/// Success at once.
pub(crate) fn ok() -> Meets {
    Meets::Answer(0, Ok(()))
}

/// That failure at once.
pub(crate) fn fails(cause: impl Into<AttemptError>) -> Meets {
    after(0, cause)
}

/// That failure after so many milliseconds.
pub(crate) fn after(millis: u64, cause: impl Into<AttemptError>) -> Meets {
    Meets::Answer(millis, Err(cause.into()))
}

/// That KV status at once.
pub(crate) fn status(status: u16) -> Meets {
    fails(Response::kv(status))
}

/// The script, and when its attempts started.
pub(crate) struct Server {
    begin: tokio::time::Instant,
    state: Mutex<(VecDeque<Meets>, Vec<u64>)>,
}

impl Server {
    pub(crate) fn new(script: impl IntoIterator<Item = Meets>) -> Self {
        let state = Mutex::new((script.into_iter().collect(), Vec::new()));
        Server { begin: tokio::time::Instant::now(), state }
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).expect("a short test")
    }

    /// The moments at which attempts started, in milliseconds.
    pub(crate) fn starts(&self) -> Vec<u64> {
        self.state.lock().expect("no panic").1.clone()
    }

    pub(crate) async fn answer(&self, _attempt: RequestAttempt) -> Result<(), AttemptError> {
        let meets = {
            let (script, starts) = &mut *self.state.lock().expect("no panic");
            starts.push(self.now());
            script.pop_front().expect("an attempt more than the script has")
        };
        match meets {
            Meets::Answer(millis, answer) => {
                tokio::time::sleep(ms(millis)).await;
                answer
            }
            Meets::Nothing => std::future::pending().await,
        }
    }
}

/// What the log hook heard: the line's text and its delay.
pub(crate) type Lines = Arc<Mutex<Vec<(String, Option<Duration>)>>>;

/// The orchestrator with a hook that keeps the lines.
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
