//! When goodput is back after the last disturbance.
//!
//! Before the first disturbance, the mean goodput is the norm. A run has recovered at the first moment
//! after the last disturbance from which goodput stays at nine tenths of the norm, in every window of
//! five seconds until the end. Poisson arrivals vary, so three standard deviations are allowed on top.

use crate::model::Simulation;
use crate::report::Point;

/// The share of the goodput before the disturbance that counts as recovered.
const SHARE: f64 = 0.9;
/// The window, in seconds; at least one interval.
const WINDOW_SECONDS: f64 = 5.0;
/// The allowance for random arrivals, in standard deviations.
const DEVIATIONS: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Recovery {
    NotDisturbed,
    /// Recovered after this many seconds.
    After(f64),
    /// Not within the run.
    Never,
}

impl Recovery {
    pub(crate) const fn after_seconds(self) -> Option<f64> {
        match self {
            Recovery::After(seconds) => Some(seconds),
            Recovery::NotDisturbed | Recovery::Never => None,
        }
    }
}

pub(crate) fn recovery(simulation: &Simulation, series: &[Point]) -> Recovery {
    let interval = simulation.series_interval().as_secs_f64();
    let first = simulation.disturbances.iter().map(|it| it.at).min();
    let last = simulation.disturbances.iter().map(|it| it.at + it.lasts).max();
    let (Some(first), Some(last)) = (first, last) else { return Recovery::NotDisturbed };
    let index = |seconds: f64| (seconds / interval).floor() as usize;
    let goodput: Vec<f64> = series.iter().map(|point| point.goodput_per_second).collect();
    let before = &goodput[..index(first.as_secs_f64()).min(goodput.len())];
    let from = (last.as_secs_f64() / interval).ceil() as usize;
    if before.is_empty() || from >= goodput.len() {
        return Recovery::Never;
    }
    let norm = before.iter().sum::<f64>() / before.len() as f64;
    let window = ((WINDOW_SECONDS / interval).ceil() as usize).clamp(1, goodput.len() - from);
    let seconds = window as f64 * interval;
    let least = SHARE * norm - DEVIATIONS * (norm / seconds).sqrt();
    // The last window that is too low, if any.
    let windows = goodput[from..].windows(window);
    let low = windows.map(|it| it.iter().sum::<f64>() / window as f64).rposition(|it| it < least);
    match low {
        None => Recovery::After(0.0),
        Some(low) if low + window >= goodput.len() - from => Recovery::Never,
        // In a window that is low only at its start, goodput returns at its end.
        Some(low) => {
            let recovered = (low..).find(|&at| goodput[from + at] >= least).unwrap_or(low + 1);
            Recovery::After(recovered as f64 * interval)
        }
    }
}

trait RPosition: Iterator {
    fn rposition(self, is: impl Fn(Self::Item) -> bool) -> Option<usize>;
}

impl<I: Iterator> RPosition for I {
    fn rposition(self, is: impl Fn(I::Item) -> bool) -> Option<usize> {
        self.enumerate().filter_map(|(index, item)| is(item).then_some(index)).last()
    }
}
