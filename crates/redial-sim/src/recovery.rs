//! When goodput is back after the last disturbance.
//!
//! Before the first disturbance, the mean goodput is the norm; without goodput before it, the calls that
//! clients make after the last one. A run has recovered at the first moment after the last disturbance from
//! which goodput stays at nine tenths of the norm, in every window until the end. A window has five
//! seconds, or as many as a hundred calls need. Poisson arrivals vary, so three standard deviations are
//! allowed on top. A burst has no goodput to return to.

use crate::model::{Disturbance, Load, Simulation};
use crate::report::Point;

/// The share of the goodput before the disturbance that counts as recovered.
const SHARE: f64 = 0.9;
/// The window, in seconds; at least one interval.
const WINDOW_SECONDS: f64 = 5.0;
/// The calls of a window at the norm, at least. With fewer, no goodput at all is within the allowance.
const WINDOW_CALLS: f64 = 100.0;
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
    let last = simulation.disturbances.iter().map(Disturbance::end).max();
    let (Some(first), Some(last)) = (first, last) else { return Recovery::NotDisturbed };
    if matches!(simulation.clients.load, Load::Burst { .. }) {
        return Recovery::NotDisturbed;
    }
    let index = |seconds: f64| (seconds / interval).floor() as usize;
    let goodput: Vec<f64> = series.iter().map(|point| point.goodput_per_second).collect();
    let before = &goodput[..index(first.as_secs_f64()).min(goodput.len())];
    let from = (last.as_secs_f64() / interval).ceil() as usize;
    if from >= goodput.len() {
        return Recovery::Never;
    }
    let norm = mean(before.iter().copied());
    let norm = norm.filter(|norm| *norm > 0.0);
    let norm = norm.or_else(|| mean(series[from..].iter().map(|point| point.calls_per_second)));
    let norm = norm.unwrap_or(0.0);
    let seconds = WINDOW_SECONDS.max(WINDOW_CALLS / norm);
    let window = ((seconds / interval).ceil() as usize).clamp(1, goodput.len() - from);
    let seconds = window as f64 * interval;
    // A run can end before the window does; there is no recovery without goodput.
    let least = SHARE * norm - DEVIATIONS * (norm / seconds).sqrt();
    let least = least.max(f64::MIN_POSITIVE);
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

fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

trait RPosition: Iterator {
    fn rposition(self, is: impl Fn(Self::Item) -> bool) -> Option<usize>;
}

impl<I: Iterator> RPosition for I {
    fn rposition(self, is: impl Fn(I::Item) -> bool) -> Option<usize> {
        self.enumerate().filter_map(|(index, item)| is(item).then_some(index)).last()
    }
}
