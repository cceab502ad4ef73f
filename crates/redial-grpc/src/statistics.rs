//! The statistics of calls, per method (decision G31), read from the notes of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redial_core::{Event, Grant, HedgeAt, LatencyEstimator, StopReason};
use redial_service_config::{Counted, Counters, Statistics, Tally};

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
use crate::observe::MethodLabels;

/// What happened to the calls of one method so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodStatistics {
    /// What A6 counts: retries made and failed, their histogram, transparent replacements.
    pub retries: Statistics,
    /// Calls that a throttle refused a retry or hedge.
    pub throttled: u64,
    /// Calls that another attempt than the first won, while attempts ran at once.
    pub hedges_won: u64,
    /// Calls that lost their retries because what they wrote could not be kept.
    pub buffers_full: u64,
}

/// The counters of a method, which many calls add to at once.
// Each publishes nothing but itself, so every access is relaxed.
#[derive(Debug)]
pub(crate) struct MethodCounters {
    /// `/package.Service/Method`, or `*` for those that are counted together.
    pub(crate) path: Box<str>,
    /// The name of the server, if the layer has one.
    pub(crate) target: Option<Arc<str>>,
    retries: Counters,
    throttled: AtomicU64,
    hedges_won: AtomicU64,
    buffers_full: AtomicU64,
    /// How long its attempts take, if hedges are to follow that. It is kept when a config is
    /// swapped: the method stays what it is.
    pub(crate) estimator: Option<LatencyEstimator>,
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    pub(crate) labels: MethodLabels,
}

impl MethodCounters {
    /// Those of the method with this path, of the server with this name.
    pub(crate) fn named(path: &str, target: Option<Arc<str>>) -> Self {
        MethodCounters {
            path: path.into(),
            target,
            retries: Counters::default(),
            throttled: AtomicU64::new(0),
            hedges_won: AtomicU64::new(0),
            buffers_full: AtomicU64::new(0),
            estimator: None,
            #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
            labels: MethodLabels::named(path),
        }
    }

    /// The same with a pace.
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

/// Something that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatisticsEvent {
    /// What A6 counts.
    Counted(Counted),
    /// The throttle refused a retry or hedge, for the first time in this call.
    Throttled,
    HedgeWon,
    BufferFull,
}

/// What is remembered of a call so that its notes can be counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallTally {
    tally: Tally,
    throttled: bool,
    /// The attempt that runs as number 1: the first, or what replaces it.
    first: u32,
    /// The attempt that the call belongs to.
    committed: Option<u32>,
}

impl CallTally {
    /// Says what a note of the call adds.
    #[inline]
    pub(crate) fn record(
        &mut self,
        event: &Event,
        hedged: bool,
        mut count: impl FnMut(StatisticsEvent),
    ) {
        self.tally.record(event, |counted| count(StatisticsEvent::Counted(counted)));
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
