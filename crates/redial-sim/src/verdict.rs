//! What happened, in a sentence.

use crate::model::Simulation;
use crate::recovery::Recovery;
use crate::report::PolicyReport;

/// Offered load above this multiple of the calls is worth a word.
const AMPLIFIED: f64 = 1.05;
/// A share of the calls that is worth a word.
const NOTABLE: f64 = 0.001;

/// What happened under one policy.
pub(crate) fn verdict(
    simulation: &Simulation,
    report: &PolicyReport,
    recovery: Recovery,
) -> String {
    match recovery {
        Recovery::NotDisturbed => steady(simulation, report),
        Recovery::After(seconds) if seconds < 1.0 => {
            format!("recovered at once when the disturbance ended{}", amplified(report))
        }
        Recovery::After(seconds) => {
            format!("recovered {seconds:.0} s after the disturbance ended{}", amplified(report))
        }
        Recovery::Never => never(simulation, report),
    }
}

fn never(simulation: &Simulation, report: &PolicyReport) -> String {
    let ended = simulation.disturbances.iter().map(|it| it.at + it.lasts).max();
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
    let ended = report.succeeded + report.failed;
    let share = report.succeeded as f64 / ended.max(1) as f64;
    let mut text = format!("{} of calls succeeded", percent(share));
    text.push_str(&amplified(report));
    let last = simulation.services.len() - 1;
    if let Some(capacity) = simulation.capacity(last)
        && report.offered_per_second > capacity * 1.005
    {
        let times = report.offered_per_second / capacity;
        text.push_str(&format!("; at the end offered load is {times:.2} times capacity"));
    }
    text
}

/// The amplification, and the calls that the throttle refused to retry.
fn amplified(report: &PolicyReport) -> String {
    let mut text = String::new();
    if report.amplification > AMPLIFIED {
        text.push_str(&format!(", with {:.2} requests per call", report.amplification));
    }
    let throttled = report.stop_reasons.get("throttled").copied().unwrap_or(0);
    let share = throttled as f64 / report.calls.max(1) as f64;
    if share > NOTABLE {
        text.push_str(&format!("; the throttle refused a retry of {} of calls", percent(share)));
    }
    text
}

/// A share as a percentage, with as many digits as it needs next to 0 and 100.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent == 0.0 || percent == 100.0 => format!("{percent:.0} %"),
        0.1..=99.9 => format!("{percent:.1} %"),
        _ => format!("{percent:.3} %"),
    }
}
