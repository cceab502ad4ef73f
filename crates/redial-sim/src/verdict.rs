//! What happened, in a sentence.

use std::fmt::Write as _;

use crate::model::{Disturbance, Load, Simulation};
use crate::recovery::Recovery;
use crate::report::PolicyReport;

/// Offered load above this multiple of the calls is worth a word.
const AMPLIFIED: f64 = 1.05;
/// A share of the calls that is worth a word.
const NOTABLE: f64 = 0.001;
/// The window of the peak load, in seconds.
const PEAK_SECONDS: f64 = 5.0;

/// What happened under one policy.
pub(crate) fn verdict(
    simulation: &Simulation,
    report: &PolicyReport,
    recovery: Recovery,
) -> String {
    let mut text = match recovery {
        Recovery::NotDisturbed => steady(simulation, report),
        Recovery::After(seconds) if seconds < 1.0 => {
            String::from("recovered at once when the disturbance ended")
        }
        Recovery::After(seconds) => {
            format!("recovered {seconds:.0} s after the disturbance ended")
        }
        Recovery::Never => return never(simulation, report),
    };
    add_load(&mut text, simulation, report, recovery);
    let throttled = report.stop_reasons.get("throttled").copied().unwrap_or(0);
    let share = throttled as f64 / report.calls.max(1) as f64;
    if share > NOTABLE {
        let _ = write!(text, "; the throttle refused a retry of {} of calls", percent(share));
    }
    text
}

fn never(simulation: &Simulation, report: &PolicyReport) -> String {
    let ended = simulation.disturbances.iter().map(Disturbance::end).max();
    let left = simulation.duration.saturating_sub(ended.unwrap_or_default()).as_secs_f64();
    let last = simulation.services.len() - 1;
    let calls = final_calls(report);
    let cause = match simulation.capacity(last) {
        Some(capacity) if report.offered_per_second > capacity && calls <= capacity => format!(
            "retries kept offered load at {:.1} times capacity",
            report.offered_per_second / capacity
        ),
        Some(capacity) if calls > capacity => {
            format!("calls alone are {:.2} times capacity", calls / capacity)
        }
        _ => format!(
            "{:.0} of {calls:.0} calls per second succeed at the end",
            report.goodput_per_second
        ),
    };
    format!("did not recover within {left:.0} s after the disturbance ended: {cause}")
}

/// The calls per second of clients at the end of the run.
fn final_calls(report: &PolicyReport) -> f64 {
    let count = report.series.len().div_ceil(10).max(1);
    let last = &report.series[report.series.len().saturating_sub(count)..];
    last.iter().map(|point| point.calls_per_second).sum::<f64>() / count as f64
}

fn steady(simulation: &Simulation, report: &PolicyReport) -> String {
    // Calls that are in flight at the end count only if all of them started at once.
    let calls = match simulation.clients.load {
        Load::Burst { .. } => report.calls,
        _ => report.succeeded + report.failed,
    };
    let share = report.succeeded as f64 / calls.max(1) as f64;
    let mut text = format!("{} of calls succeeded", percent(share));
    if report.succeeded > 0 {
        let _ = write!(text, ", 99 % of them within {}", millis(report.latency.p99_ms));
    }
    if let Load::Burst { at } = simulation.clients.load {
        let took = report.last_end_seconds - at.as_secs_f64();
        let unfinished = report.calls - report.succeeded - report.failed;
        match unfinished {
            0 => {
                let _ = write!(text, ", the last after {took:.0} s");
            }
            _ => {
                let share = unfinished as f64 / report.calls.max(1) as f64;
                let _ = write!(text, "; {} have not ended", percent(share));
            }
        }
    }
    text
}

/// The load that retries and hedges add.
fn add_load(text: &mut String, simulation: &Simulation, report: &PolicyReport, recovery: Recovery) {
    let last = simulation.services.len() - 1;
    let interval = simulation.series_interval().as_secs_f64();
    let peak = peak(report, interval);
    if recovery != Recovery::NotDisturbed && peak > AMPLIFIED {
        let _ = write!(text, "; at the peak there were {peak:.1} requests per call");
    } else if report.amplification > AMPLIFIED {
        let _ = write!(text, ", with {:.2} requests per call", report.amplification);
    }
    if recovery == Recovery::NotDisturbed
        && let Some(capacity) = simulation.capacity(last)
        && report.offered_per_second > capacity * 1.005
    {
        let times = report.offered_per_second / capacity;
        let _ = write!(text, "; at the end offered load is {times:.2} times capacity");
    }
}

/// The largest number of requests per call in a window.
fn peak(report: &PolicyReport, interval: f64) -> f64 {
    let window = ((PEAK_SECONDS / interval).ceil() as usize).clamp(1, report.series.len().max(1));
    let ratio = |points: &[crate::report::Point]| {
        let offered: f64 = points.iter().map(|point| point.offered_per_second).sum();
        let calls: f64 = points.iter().map(|point| point.calls_per_second).sum();
        if calls > 0.0 { offered / calls } else { 0.0 }
    };
    report.series.windows(window).map(ratio).fold(0.0, f64::max)
}

fn millis(ms: f64) -> String {
    match ms {
        1000.0.. => format!("{:.1} s", ms / 1000.0),
        10.0.. => format!("{ms:.0} ms"),
        _ => format!("{ms:.1} ms"),
    }
}

/// A share as a percentage, with more digits next to 0 and 100.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent == 0.0 || percent == 100.0 => format!("{percent:.0} %"),
        0.1..99.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.3} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_percentages_are_exact_next_to_the_ends() {
        let cases = [(0.0, "0 %"), (1.0, "100 %"), (0.5, "50.0 %"), (0.99999, "99.999 %")];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
        assert_eq!([0.5, 20.0, 2500.0].map(millis), ["0.5 ms", "20 ms", "2.5 s"]);
    }
}
