//! What a run measures: totals, a time series and the latency of calls.

use hdrhistogram::Histogram;
use redial_core::{Ns, StopReason};

/// The longest latency that is distinguished, in microseconds: an hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// The counts of one interval of the time series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Interval {
    /// Calls that clients started.
    pub(crate) calls: u64,
    /// Calls of clients that succeeded, by the time of their end.
    pub(crate) succeeded: u64,
    /// Calls of clients that failed.
    pub(crate) failed: u64,
    /// Calls of clients that ended because the throttle refused a retry.
    pub(crate) throttled: u64,
    /// The mean tokens of the clients' throttles.
    pub(crate) tokens: Option<f64>,
    /// The median and the 99th percentile of the latency of calls that succeeded, in microseconds.
    pub(crate) percentiles_us: Option<(u64, u64)>,
}

/// The counts of one service.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceCounts {
    /// Requests that arrived, by interval.
    pub(crate) offered: Vec<u64>,
    /// The requests that waited in all queues at the end of each interval.
    pub(crate) queued: Vec<u64>,
    /// The mean tokens of the throttles of its servers, by interval; empty without a throttle.
    pub(crate) tokens: Vec<Option<f64>>,
    /// Calls to the service, and attempts that its callers started.
    pub(crate) calls: u64,
    pub(crate) attempts: u64,
    /// Requests that were rejected because the queue was full.
    pub(crate) rejected: u64,
    /// Requests that the server dropped because the caller no longer waited.
    pub(crate) dropped: u64,
    /// Requests that the server finished although the caller no longer waited.
    pub(crate) wasted: u64,
}

/// Everything that a run measures.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) intervals: Vec<Interval>,
    /// The index of the current interval.
    pub(crate) current: usize,
    pub(crate) services: Vec<ServiceCounts>,
    /// Client calls that ended, by stop reason in the order of [`StopReason::ALL`].
    pub(crate) stop_reasons: [u64; StopReason::ALL.len()],
    /// Client calls that started, and attempts of those that ended.
    pub(crate) calls: u64,
    pub(crate) ended_attempts: u64,
    /// The latency of client calls that succeeded until the end of the last interval, in microseconds.
    pub(crate) latency_us: Histogram<u64>,
    /// The same in the current interval.
    interval_latency_us: Histogram<u64>,
    /// When the last call of a client ended.
    pub(crate) last_end: Ns,
    /// Events that were processed.
    pub(crate) events: u64,
}

impl Metrics {
    pub(crate) fn new(intervals: usize, services: usize) -> Metrics {
        let intervals = vec![Interval::default(); intervals.max(1)];
        let counts = ServiceCounts {
            offered: vec![0; intervals.len()],
            queued: vec![0; intervals.len()],
            ..ServiceCounts::default()
        };
        let latency_us = Histogram::new_with_max(LATENCY_MAX_US, 3)
            .unwrap_or_else(|_| unreachable!("three digits up to an hour are valid"));
        Metrics {
            intervals,
            current: 0,
            services: vec![counts; services],
            stop_reasons: [0; StopReason::ALL.len()],
            calls: 0,
            ended_attempts: 0,
            interval_latency_us: latency_us.clone(),
            latency_us,
            last_end: 0,
            events: 0,
        }
    }

    #[inline]
    pub(crate) fn call_started(&mut self) {
        self.calls += 1;
        self.intervals[self.current].calls += 1;
    }

    #[inline]
    pub(crate) fn call_ended(&mut self, reason: StopReason, attempts: u32, took: Ns, now: Ns) {
        self.last_end = now;
        self.ended_attempts += u64::from(attempts);
        self.stop_reasons[reason as usize] += 1;
        let interval = &mut self.intervals[self.current];
        if reason == StopReason::Succeeded {
            interval.succeeded += 1;
            self.interval_latency_us.saturating_record(took / 1000);
        } else {
            interval.failed += 1;
            interval.throttled += u64::from(reason == StopReason::Throttled);
        }
    }

    /// Sets the percentiles of the current interval, and adds its latencies to those of the run.
    pub(crate) fn end_interval(&mut self) {
        let latency = &mut self.interval_latency_us;
        if !latency.is_empty() {
            let at = |quantile| latency.value_at_quantile(quantile);
            self.intervals[self.current].percentiles_us = Some((at(0.5), at(0.99)));
            self.latency_us += &*latency;
            latency.reset();
        }
    }

    #[inline]
    pub(crate) fn offered(&mut self, service: usize) {
        self.services[service].offered[self.current] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_stop_reasons_are_indexed_by_their_order() {
        for (index, reason) in StopReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }

    #[test]
    fn metrics_count_ends_by_interval_and_reason() {
        let mut metrics = Metrics::new(2, 1);
        metrics.call_started();
        metrics.call_ended(StopReason::Succeeded, 2, 5_000_000, 5_000_000);
        metrics.end_interval();
        metrics.current = 1;
        metrics.call_ended(StopReason::Throttled, 1, 1, 9);
        metrics.end_interval();
        let percentiles = metrics.intervals[0].percentiles_us;
        assert!(percentiles.is_some_and(|(p50, p99)| p50 == p99 && (4950..=5050).contains(&p50)));
        assert_eq!(metrics.intervals[1].percentiles_us, None);
        assert_eq!((metrics.intervals[0].succeeded, metrics.intervals[1].throttled), (1, 1));
        assert_eq!(metrics.ended_attempts, 3);
        assert_eq!(metrics.latency_us.len(), 1);
        assert!((4990..=5010).contains(&metrics.latency_us.max()));
    }
}
