//! Statistics per method (decision G31), counted from the events of the state machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redial_core::{Event, Grant, HedgeAt, LatencyEstimator, StopReason};
use redial_service_config::{CountedRetry, Statistics, StatisticsCounters, StatisticsRecorder};

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
use crate::observe::MethodLabels;

/// Statistics of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodStatistics {
    /// The statistics of A6: retries, their histogram, and transparent retries.
    pub retries: Statistics,
    /// Calls with a retry or hedge refused by the throttle.
    pub throttled: u64,
    /// Hedged calls won by another attempt than the first.
    pub hedges_won: u64,
    /// Calls that could not be retried because the request exceeded the buffer limit.
    pub buffers_full: u64,
}

/// The counters of a method, shared by all its calls.
// They publish no other data, so all accesses are relaxed.
#[derive(Debug)]
pub(crate) struct MethodCounters {
    /// `/package.Service/Method`, or `*` for methods that are counted together.
    pub(crate) path: Box<str>,
    /// Name of the server, if set.
    pub(crate) target: Option<Arc<str>>,
    retries: StatisticsCounters,
    throttled: AtomicU64,
    hedges_won: AtomicU64,
    buffers_full: AtomicU64,
    /// Latency estimator, if hedging follows latency. It survives config updates, which do not change
    /// the latency of a method.
    pub(crate) estimator: Option<LatencyEstimator>,
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    pub(crate) labels: MethodLabels,
}

impl MethodCounters {
    /// The counters of a path and server.
    pub(crate) fn named(path: &str, target: Option<Arc<str>>) -> Self {
        MethodCounters {
            path: path.into(),
            target,
            retries: StatisticsCounters::default(),
            throttled: AtomicU64::new(0),
            hedges_won: AtomicU64::new(0),
            buffers_full: AtomicU64::new(0),
            estimator: None,
            #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
            labels: MethodLabels::named(path),
        }
    }

    /// Adds a latency estimator.
    pub(crate) fn with_estimator(mut self, at: Option<HedgeAt>) -> Self {
        self.estimator = at.map(LatencyEstimator::new);
        self
    }

    pub(crate) fn add(&self, counted_event: StatisticsEvent) {
        let counter = match counted_event {
            StatisticsEvent::Counted(counted) => return self.retries.add(counted),
            StatisticsEvent::Throttled => &self.throttled,
            StatisticsEvent::HedgeWon => &self.hedges_won,
            StatisticsEvent::BufferFull => &self.buffers_full,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> MethodStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MethodStatistics {
            retries: self.retries.read(),
            throttled: read(&self.throttled),
            hedges_won: read(&self.hedges_won),
            buffers_full: read(&self.buffers_full),
        }
    }
}

/// An event that the statistics count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatisticsEvent {
    /// One of A6's statistics.
    Counted(CountedRetry),
    /// The throttle refused a retry or hedge, for the first time in this call.
    Throttled,
    HedgeWon,
    BufferFull,
}

/// State of a call needed to count its events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallTally {
    recorder: StatisticsRecorder,
    throttled: bool,
    /// The attempt with number 1: the first attempt or its transparent retry.
    first: u32,
    /// The attempt that the call is committed to.
    committed: Option<u32>,
}

impl CallTally {
    /// Calls `count` for each statistics event that follows from this event.
    pub(crate) fn record(
        &mut self,
        event: &Event,
        hedged: bool,
        mut count: impl FnMut(StatisticsEvent),
    ) {
        self.recorder.record(event, |counted| count(StatisticsEvent::Counted(counted)));
        match *event {
            Event::ThrottleAnswered(Grant::Refused) if !self.throttled => {
                self.throttled = true;
                count(StatisticsEvent::Throttled);
            }
            Event::NotReplayable => count(StatisticsEvent::BufferFull),
            Event::AttemptStarted { attempt, number: 1 } => self.first = attempt,
            Event::Committed { attempt } => self.committed = Some(attempt),
            Event::CallEnded { stop_reason: StopReason::Succeeded, attempt }
                if hedged && self.committed.or(attempt).is_some_and(|it| it != self.first) =>
            {
                count(StatisticsEvent::HedgeWon);
            }
            _ => {}
        }
    }
}
