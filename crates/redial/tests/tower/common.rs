//! A scripted service that checks tower's contract: it is called only when it is ready.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use redial::ms;
use tokio::time::Instant;
use tower::Service;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Busy,
    NotReady,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Failed::Busy => "busy",
            Failed::NotReady => "not ready",
        })
    }
}

impl std::error::Error for Failed {}

/// Every error is retried.
pub(crate) fn always(_: &Failed) -> bool {
    true
}

pub(crate) type Answer = Result<u32, Failed>;

/// What the clones of a [`Scripted`] service share.
#[derive(Default)]
pub(crate) struct Shared {
    /// How long each attempt takes and how it ends, in the order of starts. The last one repeats.
    answers: Vec<(Duration, Answer)>,
    /// How long a clone takes to become ready; the last one repeats.
    readiness: Vec<(Duration, Result<(), Failed>)>,
    /// The clone and the time in milliseconds of each call.
    calls: Mutex<Vec<(usize, u128)>>,
    clones: Mutex<usize>,
}

type Sleep = Pin<Box<tokio::time::Sleep>>;

pub(crate) struct Scripted {
    shared: Arc<Shared>,
    start: Instant,
    /// The number of the clone, from 0.
    number: usize,
    state: State,
}

enum State {
    New,
    Waiting(Sleep, Result<(), Failed>),
    Ready,
}

impl Scripted {
    /// Attempts end at once.
    pub(crate) fn answers(answers: &[Answer]) -> Self {
        Scripted::timed(&answers.iter().map(|answer| (0, *answer)).collect::<Vec<_>>())
    }

    /// Attempts take this many milliseconds.
    pub(crate) fn timed(answers: &[(u64, Answer)]) -> Self {
        let answers = answers.iter().map(|(millis, answer)| (ms(*millis), *answer)).collect();
        Scripted::new(Shared { answers, ..Shared::default() })
    }

    /// The clones become ready after this many milliseconds, in the order in which they are asked.
    pub(crate) fn ready_after(self, readiness: &[(u64, Result<(), Failed>)]) -> Self {
        let readiness = readiness.iter().map(|(millis, end)| (ms(*millis), *end)).collect();
        let answers = self.shared.answers.clone();
        Scripted::new(Shared { answers, readiness, ..Shared::default() })
    }

    fn new(shared: Shared) -> Self {
        let (shared, start) = (Arc::new(shared), Instant::now());
        Scripted { shared, start, number: 0, state: State::New }
    }

    /// The clone and the time in milliseconds of each call.
    pub(crate) fn log(&self) -> impl Fn() -> Vec<(usize, u128)> + use<> {
        let shared = self.shared.clone();
        move || shared.calls.lock().unwrap().clone()
    }
}

fn nth_or_last<T: Copy>(list: &[T], index: usize) -> Option<T> {
    list.get(index).or(list.last()).copied()
}

impl Clone for Scripted {
    fn clone(&self) -> Self {
        let mut clones = self.shared.clones.lock().unwrap();
        *clones += 1;
        let (shared, number) = (self.shared.clone(), *clones);
        Scripted { shared, start: self.start, number, state: State::New }
    }
}

impl Service<u32> for Scripted {
    type Response = u32;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        loop {
            match &mut self.state {
                State::Ready => return Poll::Ready(Ok(())),
                State::Waiting(sleep, end) => {
                    std::task::ready!(sleep.as_mut().poll(cx));
                    (*end)?;
                    self.state = State::Ready;
                }
                State::New => {
                    let called = self.shared.calls.lock().unwrap().len();
                    self.state = match nth_or_last(&self.shared.readiness, called) {
                        Some((delay, end)) if delay > Duration::ZERO || end.is_err() => {
                            State::Waiting(Box::pin(tokio::time::sleep(delay)), end)
                        }
                        _ => State::Ready,
                    };
                }
            }
        }
    }

    fn call(&mut self, _request: u32) -> Self::Future {
        assert!(matches!(self.state, State::Ready), "clone {} is not ready", self.number);
        self.state = State::New;
        let mut calls = self.shared.calls.lock().unwrap();
        let answer = nth_or_last(&self.shared.answers, calls.len());
        calls.push((self.number, self.start.elapsed().as_millis()));
        let (delay, answer) = answer.expect("an answer");
        Box::pin(async move {
            if delay > Duration::ZERO {
                tokio::time::sleep(delay).await;
            }
            answer
        })
    }
}
