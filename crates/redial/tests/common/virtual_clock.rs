//! What the tests of the designs share: the virtual clock, counted in milliseconds from a test's
//! start, and operations that follow a script.
#![allow(dead_code)] // each test file uses its part

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use redial::testing::{self, block_on};
use redial::{Sleeper, ms, time::Ns};

/// Nanoseconds in a millisecond.
pub(crate) const MS: Ns = 1_000_000;

/// Virtual time since the test began, to the nanosecond.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    began: Ns,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { began: testing::Clock.now() }
    }
}

impl Clock {
    /// Milliseconds since the test began.
    pub(crate) fn ms(&self) -> f64 {
        (self.now() - self.began) as f64 / MS as f64
    }

    /// Lets time pass when nothing runs.
    pub(crate) fn advance(&self, millis: u64) {
        block_on(testing::Clock.sleep(ms(millis)));
    }

    /// Runs a future to its end; time jumps whenever nothing else can happen.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }
}

impl Sleeper for Clock {
    type Sleep = testing::Sleep;
    fn now(&self) -> Ns {
        testing::Clock.now()
    }
    fn sleep_until(&self, at: Ns) -> testing::Sleep {
        testing::Clock.sleep_until(at)
    }
}

/// What attempts meet, in the order in which they start, and when they started and were cancelled.
/// The last step repeats.
pub(crate) struct Script<T> {
    clock: Clock,
    steps: Vec<(u64, T)>,
    starts: Mutex<Vec<f64>>,
    cancels: Arc<Mutex<Vec<f64>>>,
}

/// The outcome never comes.
pub(crate) const HANG: u64 = u64::MAX;

impl<T: Clone> Script<T> {
    /// Each step: after how many milliseconds ([`HANG`]: never), and with what.
    pub(crate) fn new(clock: &Clock, steps: impl Into<Vec<(u64, T)>>) -> Self {
        let (starts, cancels) = Default::default();
        Script { clock: *clock, steps: steps.into(), starts, cancels }
    }

    /// The next attempt.
    pub(crate) fn attempt(&self) -> impl Future<Output = T> + use<T> {
        let mut starts = self.starts.lock().expect("one thread");
        let index = starts.len().min(self.steps.len() - 1);
        starts.push(self.clock.ms());
        let (after, outcome) = self.steps[index].clone();
        let clock = self.clock;
        let mut guard = Guard { clock, cancels: Some(self.cancels.clone()) };
        async move {
            match after {
                HANG => std::future::pending().await,
                after => testing::Clock.sleep(ms(after)).await,
            }
            guard.cancels.take();
            outcome
        }
    }

    /// When attempts started, in milliseconds.
    pub(crate) fn starts(&self) -> Vec<f64> {
        self.starts.lock().expect("one thread").clone()
    }

    /// When attempts were dropped while they ran, in milliseconds.
    pub(crate) fn cancels(&self) -> Vec<f64> {
        self.cancels.lock().expect("one thread").clone()
    }
}

struct Guard {
    clock: Clock,
    cancels: Option<Arc<Mutex<Vec<f64>>>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(cancels) = &self.cancels {
            cancels.lock().expect("one thread").push(self.clock.ms());
        }
    }
}

/// Runs futures side by side, in their order.
pub(crate) async fn all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut outputs: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if let Some(running) = future
                && let Poll::Ready(value) = running.as_mut().poll(cx)
            {
                (*future, *output) = (None, Some(value));
            }
        }
        if futures.iter().all(Option::is_none) {
            Poll::Ready(outputs.iter_mut().filter_map(Option::take).collect())
        } else {
            Poll::Pending
        }
    })
    .await
}

/// Equal to within a thousandth.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.001
}
