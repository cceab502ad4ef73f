//! Plans and simulations in the background: how many at the same time, how long, and how they stop.
//!
//! A run is computed on blocking threads, in a pool of its own, so that a simulation does not hold up
//! plans. It asks every few milliseconds whether it has to stop: because its page is gone (the future of
//! its request is dropped), because its time is over, or because the server ends.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use redial_sim::Watch;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::request::Refusal;

/// The runs of one kind.
pub(super) struct Runs {
    pool: Arc<rayon::ThreadPool>,
    /// Permits to compute.
    computing: Arc<Semaphore>,
    /// Permits to run or wait.
    admission: Arc<Semaphore>,
    admitted_max: usize,
    time_max: Duration,
    closing: Arc<AtomicBool>,
}

impl Runs {
    pub(super) fn new(
        at_once: usize,
        waiting: usize,
        time_max: Duration,
        closing: Arc<AtomicBool>,
    ) -> io::Result<Runs> {
        let pool = rayon::ThreadPoolBuilder::new().build().map_err(io::Error::other)?;
        let admitted_max = at_once + waiting;
        Ok(Runs {
            pool: Arc::new(pool),
            computing: Arc::new(Semaphore::new(at_once)),
            admission: Arc::new(Semaphore::new(admitted_max)),
            admitted_max,
            time_max,
            closing,
        })
    }

    /// The runs that compute or wait.
    pub(super) fn count(&self) -> usize {
        self.admitted_max - self.admission.available_permits()
    }

    /// Permits one more run, unless too many wait.
    pub(super) fn admit(&self) -> Result<RunPermit, Refusal> {
        self.admission.clone().try_acquire_owned().map(RunPermit).map_err(|_| {
            let text = "too many runs are waiting; close other pages of this server";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
        })
    }

    /// Waits for its turn and computes. A future that is dropped stops the computation.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        permit: RunPermit,
        progress: Progress,
        work: impl FnOnce(&Watch<'_>) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = self.computing.clone().acquire_owned().await.map_err(|_| Refusal::internal())?;
        let (pool, closing) = (self.pool.clone(), self.closing.clone());
        let dropped = SetOnDrop::default();
        let is_dropped = dropped.0.clone();
        let deadline = Instant::now() + self.time_max;
        progress.start();
        let computed = tokio::task::spawn_blocking(move || {
            let watch = |share| {
                progress.set(share);
                let is_over = is_dropped.load(Ordering::Relaxed)
                    || closing.load(Ordering::Relaxed)
                    || Instant::now() >= deadline;
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let result = pool.install(|| work(&watch));
            // A run whose page is gone keeps its turn until it has stopped.
            drop((turn, permit));
            result
        });
        computed.await.map_err(|_| Refusal::internal())
    }

    /// Why a run was stopped whose page still waits.
    pub(super) fn stopped(&self) -> String {
        if self.closing.load(Ordering::Relaxed) {
            return "`redial ui` has ended".to_owned();
        }
        let seconds = self.time_max.as_secs_f64();
        format!("stopped after {seconds} s; the command has no such limit")
    }
}

/// The permit of one run to compute or wait.
pub(super) struct RunPermit(
    #[expect(dead_code, reason = "it is given back on drop")] OwnedSemaphorePermit,
);

/// Sets its flag when it is dropped.
#[derive(Default)]
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How much of a run is done.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<AtomicU32>);

/// The state of a run that waits for its turn.
const WAITS: u32 = u32::MAX;

impl Progress {
    pub(super) fn new() -> Progress {
        Progress(Arc::new(AtomicU32::new(WAITS)))
    }

    fn start(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn set(&self, share: f64) {
        self.0.fetch_max((share * 1000.0) as u32, Ordering::Relaxed);
    }

    /// The share that is done, from 0 to 1; `None` while the run waits for its turn.
    pub(super) fn share(&self) -> Option<f64> {
        match self.0.load(Ordering::Relaxed) {
            WAITS => None,
            thousandths => Some(f64::from(thousandths) / 1000.0),
        }
    }
}
