//! A virtual clock in milliseconds since the start of a test, and scripted operations.
#![allow(dead_code)] // each test file uses its part

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use redial::testing::{self, block_on};
use redial::time::Sleeper;
use redial::{Failure, Policy, StopReason, ms, time::Ns};

/// Nanoseconds in a millisecond.
pub(crate) const MS: Ns = 1_000_000;

/// Virtual time since the start of the test.
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
    /// Milliseconds since the start of the test.
    pub(crate) fn ms(&self) -> f64 {
        (self.now() - self.began) as f64 / MS as f64
    }

    /// Advances the clock while nothing runs.
    pub(crate) fn advance(&self, millis: u64) {
        block_on(testing::Clock.sleep(ms(millis)));
    }

    /// Runs a future to its end; the clock jumps to the next timer when the future waits.
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

/// The outcomes of attempts in the order of their starts, and the times of their starts and cancellations.
/// The last step repeats.
pub(crate) struct Script<T> {
    clock: Clock,
    steps: Vec<(u64, T)>,
    starts: Mutex<Vec<f64>>,
    cancels: Arc<Mutex<Vec<f64>>>,
}

/// The attempt never has an outcome.
pub(crate) const HANG: u64 = u64::MAX;

impl<T: Clone> Script<T> {
    /// The steps: the milliseconds until the outcome ([`HANG`]: never), and the outcome.
    pub(crate) fn new(clock: &Clock, steps: impl Into<Vec<(u64, T)>>) -> Self {
        let (starts, cancels) = Default::default();
        Script { clock: *clock, steps: steps.into(), starts, cancels }
    }

    /// Starts the next attempt.
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

    /// The start times of attempts, in milliseconds.
    pub(crate) fn starts(&self) -> Vec<f64> {
        self.starts.lock().expect("one thread").clone()
    }

    /// The times at which running attempts were dropped, in milliseconds.
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

/// Plays a call whose attempts all end immediately with this outcome. Returns the start times of the
/// attempts and the time of the end, in milliseconds, and the stop reason.
pub(crate) fn play_repeated(
    policy: &Policy,
    outcome: Result<(), Failure>,
    seed: u64,
) -> (Vec<f64>, f64, StopReason) {
    let clock = Clock::default();
    let script = Script::new(&clock, [(0, outcome)]);
    let call = policy.retry(|| script.attempt()).when(|failure| Some(*failure));
    let result = clock.run(call.sleeping_on(clock).seed(seed).into_future());
    let stop_reason = result.map_or_else(|error| error.stop_reason(), |()| StopReason::Succeeded);
    (script.starts(), clock.ms(), stop_reason)
}

/// The times between consecutive starts.
pub(crate) fn delays(starts: &[f64]) -> Vec<f64> {
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Runs futures concurrently, and polls them in this order.
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
