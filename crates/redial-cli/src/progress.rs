//! The progress bar of a simulation, a sweep or a plan that takes longer than a second.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use redial_sim::Error;

/// How long a run may take before a bar appears.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the bar is drawn.
const STEP: Duration = Duration::from_millis(100);

/// Does the work, which reports the share that is done, with a bar on standard error if that is a
/// terminal.
pub(crate) fn with_bar<T: Send>(
    work: impl FnOnce(&(dyn Fn(f64) + Sync)) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    if !io::stderr().is_terminal() {
        return work(&|_| {});
    }
    let done = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let done = &done;
        scope.spawn(move || {
            let progress = |share: f64| {
                done.fetch_max((share * 1000.0) as u64, Ordering::Relaxed);
            };
            // The receiver waits for this result.
            let _ = sender.send(work(&progress));
        });
        // Drawn by this thread, which holds the lock of standard error.
        let mut bar: Option<ProgressBar> = None;
        loop {
            match receiver.recv_timeout(STEP) {
                Ok(result) => {
                    if let Some(bar) = bar {
                        bar.finish_and_clear();
                    }
                    return result;
                }
                Err(mpsc::RecvTimeoutError::Timeout) if began.elapsed() < PATIENCE => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let bar = bar.get_or_insert_with(new_bar);
                    bar.set_position(done.load(Ordering::Relaxed));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::Invalid {
                        path: String::new(),
                        problem: "the simulation stopped without a result".to_owned(),
                    });
                }
            }
        }
    })
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("simulating {wide_bar} {percent} % {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
