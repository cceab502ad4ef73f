//! The result of a simulation: figures and time series per policy, and sentences that explain them.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use redial_core::StopReason;
use serde::Serialize;

use crate::engine::{Metrics, ServiceCounts};
use crate::model::Simulation;
use crate::recovery::{self, Recovery};
use crate::verdict;

/// The share of the run, at its end, over which the final rates are taken.
const FINAL_SHARE: f64 = 0.1;

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationReport {
    /// The name of the simulation.
    pub name: String,
    /// What was simulated.
    pub about: String,
    /// The seed.
    pub seed: u64,
    /// The length of the run in seconds of virtual time.
    pub duration_seconds: f64,
    /// The interval of the time series, in seconds.
    pub interval_seconds: f64,
    /// When the last disturbance ended; `None` without one.
    pub disturbance_ended_at_seconds: Option<f64>,
    /// The start and end of each disturbance, in seconds.
    pub disturbances: Vec<(f64, f64)>,
    /// The names and capacities of the services.
    pub services: Vec<ServiceInfo>,
    /// The results, in the order of the simulation's policies.
    pub policies: Vec<PolicyReport>,
}

/// A service of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceInfo {
    /// The name.
    pub name: String,
    /// The requests per second that it can work on; `None` if that is not limited.
    pub capacity_per_second: Option<f64>,
}

/// The result of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    /// The name of the policy.
    pub name: String,
    /// What happened, in a sentence.
    pub verdict: String,
    /// Requests per second that arrive at the last service, in the final tenth of the run.
    pub offered_per_second: f64,
    /// Calls of clients per second that succeed, in the final tenth of the run.
    pub goodput_per_second: f64,
    /// The time from the end of the last disturbance until goodput was back for good; `None`: not
    /// within the run, or there was no disturbance.
    pub recovered_after_seconds: Option<f64>,
    /// Whether there was a disturbance to recover from.
    pub was_disturbed: bool,
    /// Calls that clients started, over the whole run.
    pub calls: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Requests that arrived at the last service, per call of a client.
    pub amplification: f64,
    /// Attempts of the clients, per call that ended.
    pub attempts_per_call: f64,
    /// How calls ended: the number by stop reason.
    pub stop_reasons: BTreeMap<&'static str, u64>,
    /// The latency of calls that succeeded.
    pub latency: Latency,
    /// The counts of each service.
    pub services: Vec<ServiceReport>,
    /// The time series.
    pub series: Vec<Point>,
    /// When the last call ended, in seconds.
    pub last_end_seconds: f64,
    /// Events that the simulator processed.
    pub events: u64,
}

/// Latency percentiles, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The median.
    pub p50_ms: f64,
    /// The 90th percentile.
    pub p90_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The 99.9th percentile.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Latency {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: histogram.max() as f64 / 1000.0,
        }
    }
}

/// The counts of one service under one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceReport {
    /// The name.
    pub name: String,
    /// Calls to it.
    pub calls: u64,
    /// Attempts of those calls.
    pub attempts: u64,
    /// Requests that it rejected because its queue was full.
    pub rejected: u64,
    /// Requests that it dropped because the caller no longer waited.
    pub dropped: u64,
    /// Requests that it finished although the caller no longer waited.
    pub wasted: u64,
    /// Requests that arrived per second, by interval.
    pub offered_per_second: Vec<f64>,
    /// Requests that waited in its queues at the end of each interval.
    pub queued: Vec<u64>,
    /// The mean tokens in the throttles of its servers, for their calls to the next service, at the end of
    /// each interval; empty without a throttle.
    pub tokens: Vec<Option<f64>>,
}

/// A point of the time series: the rates of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The start of the interval, in seconds.
    pub at_seconds: f64,
    /// Requests per second that arrived at the last service.
    pub offered_per_second: f64,
    /// Calls of clients that succeeded, per second.
    pub goodput_per_second: f64,
    /// Calls that clients started, per second.
    pub calls_per_second: f64,
    /// Calls that failed, per second.
    pub failed_per_second: f64,
    /// Calls that the throttle refused to retry, per second.
    pub throttled_per_second: f64,
    /// Requests that arrived at the last service, per call that a client started; `None` without calls.
    pub amplification: Option<f64>,
    /// The median latency of the calls that succeeded; `None` if none did.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the same.
    pub p99_ms: Option<f64>,
    /// The mean tokens in the throttles of clients, at the end of the interval.
    pub tokens: Option<f64>,
}

impl SimulationReport {
    pub(crate) fn new(
        simulation: &Simulation,
        seed: u64,
        policies: Vec<PolicyReport>,
    ) -> SimulationReport {
        let span = |it: &crate::Disturbance| {
            (it.at.as_secs_f64(), it.end().min(simulation.duration).as_secs_f64())
        };
        let disturbances: Vec<_> = simulation.disturbances.iter().map(span).collect();
        let info = |(index, service): (usize, &crate::Service)| ServiceInfo {
            name: service.name.clone(),
            capacity_per_second: simulation.capacity(index),
        };
        SimulationReport {
            name: simulation.name.clone(),
            about: simulation.about.clone(),
            seed,
            duration_seconds: simulation.duration.as_secs_f64(),
            interval_seconds: simulation.series_interval().as_secs_f64(),
            disturbance_ended_at_seconds: disturbances.iter().map(|it| it.1).reduce(f64::max),
            disturbances,
            services: simulation.services.iter().enumerate().map(info).collect(),
            policies,
        }
    }
}

impl PolicyReport {
    pub(crate) fn new(simulation: &Simulation, name: &str, metrics: &Metrics) -> PolicyReport {
        let seconds = simulation.series_interval().as_secs_f64();
        let series = series(metrics, seconds);
        let recovery = recovery::recovery(simulation, &series);
        let last = simulation.services.len() - 1;
        let offered: u64 = metrics.services[last].offered.iter().sum();
        let succeeded = metrics.stop_reasons[StopReason::Succeeded as usize];
        let ended: u64 = metrics.stop_reasons.iter().sum();
        let (offered_rate, goodput_rate) = final_rates(&series);
        let mut report = PolicyReport {
            name: name.to_owned(),
            verdict: String::new(),
            offered_per_second: offered_rate,
            goodput_per_second: goodput_rate,
            recovered_after_seconds: recovery.after_seconds(),
            was_disturbed: recovery != Recovery::NotDisturbed,
            calls: metrics.calls,
            succeeded,
            failed: ended - succeeded,
            amplification: offered as f64 / metrics.calls.max(1) as f64,
            attempts_per_call: metrics.ended_attempts as f64 / ended.max(1) as f64,
            stop_reasons: stop_reasons(metrics),
            latency: Latency::of(&metrics.latency_us),
            services: simulation
                .services
                .iter()
                .zip(&metrics.services)
                .map(|(service, counts)| service_report(&service.name, counts, seconds))
                .collect(),
            series,
            last_end_seconds: Duration::from_nanos(metrics.last_end).as_secs_f64(),
            events: metrics.events,
        };
        report.verdict = verdict::verdict(simulation, &report, recovery);
        report
    }
}

fn stop_reasons(metrics: &Metrics) -> BTreeMap<&'static str, u64> {
    let counts = StopReason::ALL.into_iter().zip(metrics.stop_reasons);
    counts.filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.name(), count)).collect()
}

fn service_report(name: &str, counts: &ServiceCounts, seconds: f64) -> ServiceReport {
    ServiceReport {
        name: name.to_owned(),
        calls: counts.calls,
        attempts: counts.attempts,
        rejected: counts.rejected,
        dropped: counts.dropped,
        wasted: counts.wasted,
        offered_per_second: counts.offered.iter().map(|&it| it as f64 / seconds).collect(),
        queued: counts.queued.clone(),
        tokens: counts.tokens.clone(),
    }
}

fn series(metrics: &Metrics, seconds: f64) -> Vec<Point> {
    let last = metrics.services.last();
    let rate = |count: u64| count as f64 / seconds;
    let offered = |index: usize| last.map_or(0, |service| service.offered[index]);
    let millis = |us: u64| us as f64 / 1000.0;
    let point = |(index, interval): (usize, &crate::engine::Interval)| Point {
        at_seconds: index as f64 * seconds,
        offered_per_second: rate(offered(index)),
        amplification: (interval.calls > 0).then(|| offered(index) as f64 / interval.calls as f64),
        p50_ms: interval.percentiles_us.map(|(p50, _)| millis(p50)),
        p99_ms: interval.percentiles_us.map(|(_, p99)| millis(p99)),
        goodput_per_second: rate(interval.succeeded),
        calls_per_second: rate(interval.calls),
        failed_per_second: rate(interval.failed),
        throttled_per_second: rate(interval.throttled),
        tokens: interval.tokens,
    };
    metrics.intervals.iter().enumerate().map(point).collect()
}

/// The offered load and goodput in the last part of the run.
fn final_rates(series: &[Point]) -> (f64, f64) {
    let count = ((series.len() as f64 * FINAL_SHARE).ceil() as usize).clamp(1, series.len().max(1));
    let last = &series[series.len().saturating_sub(count)..];
    let mean = |of: fn(&Point) -> f64| last.iter().map(of).sum::<f64>() / count as f64;
    (mean(|point| point.offered_per_second), mean(|point| point.goodput_per_second))
}
