//! The progress bar of a simulation, a sweep, a plan, a check or a run of scenarios that takes longer than a
//! second.

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
                    let bar = bar.get_or_insert_with(|| new_bar(1000, SIMULATING));
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

/// Counts the files or scenarios that are done, with a bar on standard error if that is a terminal.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: Option<ProgressBar>,
    template: &'static str,
    total: u64,
    done: u64,
    began: Instant,
    has_terminal: bool,
}

impl Steps {
    /// The steps of a check.
    pub(crate) fn checking(files: usize) -> Steps {
        Steps::new(files, "checking {wide_bar} {pos} of {len} files")
    }

    /// The steps of a run of scenarios.
    pub(crate) fn playing(scenarios: usize) -> Steps {
        Steps::new(scenarios, "playing {wide_bar} {pos} of {len} scenarios, {eta} left")
    }

    /// Steps without a bar.
    pub(crate) fn hidden() -> Steps {
        let mut steps = Steps::new(0, "");
        steps.has_terminal = false;
        steps
    }

    fn new(total: usize, template: &'static str) -> Steps {
        Steps {
            bar: None,
            template,
            total: total as u64,
            done: 0,
            began: Instant::now(),
            has_terminal: io::stderr().is_terminal(),
        }
    }

    /// One more is done.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if self.has_terminal && self.began.elapsed() >= PATIENCE {
            let bar = self.bar.get_or_insert_with(|| new_bar(self.total, self.template));
            bar.set_position(self.done);
        }
    }

    /// Prints something while the bar is hidden.
    pub(crate) fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

const SIMULATING: &str = "simulating {wide_bar} {percent} % {eta} left";

fn new_bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
