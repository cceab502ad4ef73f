//! A6's retry statistics per method (decision G31), derived from the events of calls.
//!
//! Invariant: [`StatisticsRecorder::record`] alone decides which events count. Storage (atomics in a
//! layer, plain integers in a test) only adds the increments that it reports.

use std::sync::atomic::{AtomicU64, Ordering};

use redial_core::{Directive, Event};

/// Lower bounds of the histogram's buckets: the n-th retry of a call counts in the last bucket whose
/// bound is at most n.
pub const BUCKETS: [u32; 8] = [1, 2, 3, 4, 5, 10, 100, 1000];

/// An increment of a method's [`Statistics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedRetry {
    /// A retry or hedge started; its number among the call's retries, from 1.
    Retry(u32),
    /// A retry or hedge ended with a status other than OK.
    Failed,
    /// A transparent retry started.
    Transparent,
}

/// Turns the events of one call into increments of [`Statistics`]. Its state is 16 bytes per call.
///
/// ```
/// use redial_service_config::{StatisticsCounters, StatisticsRecorder};
/// # use redial_core::Event;
/// # let events = [Event::AttemptStarted { attempt: 1, number: 1 }, Event::AttemptStarted { attempt: 2, number: 2 }];
/// let counters = StatisticsCounters::default();
/// let mut recorder = StatisticsRecorder::default();
/// for event in &events {
///     recorder.record(event, |counted| counters.add(counted));
/// }
/// assert_eq!(counters.read().retries, 1);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct StatisticsRecorder {
    /// The attempt that currently runs as number 1, as an index in the order of starts.
    first: u32,
    /// The highest attempt number so far: an attempt with the same or a lower number is a transparent
    /// retry.
    highest: u32,
    /// A retry that failed, unless the next event schedules its transparent retry.
    failed: Option<u32>,
}

impl StatisticsRecorder {
    /// Reports the increments of this event to `count`. A failed attempt counts as failed only if the
    /// next event is not its transparent retry, so it is counted one event later; the last event of a
    /// call is its end.
    pub fn record(&mut self, event: &Event, mut count: impl FnMut(CountedRetry)) {
        if let Some(failed) = self.failed.take() {
            let replaced = matches!(event, Event::TransparentRetryScheduled { attempt, .. } if *attempt == failed);
            if !replaced {
                count(CountedRetry::Failed);
            }
        }
        match *event {
            Event::AttemptStarted { attempt, number } => {
                if number == 1 {
                    self.first = attempt;
                }
                if number <= self.highest {
                    count(CountedRetry::Transparent);
                } else {
                    self.highest = number;
                    if number > 1 {
                        count(CountedRetry::Retry(number - 1));
                    }
                }
            }
            Event::AttemptOutcome { attempt, classification }
                if attempt != self.first && classification.directive != Directive::Succeed =>
            {
                self.failed = Some(attempt);
            }
            Event::AttemptTimedOut { attempt } if attempt != self.first => {
                self.failed = Some(attempt);
            }
            _ => {}
        }
    }
}

/// A snapshot of a method's retry statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Retries and hedges that started.
    pub retries: u64,
    /// Retries and hedges that ended with a status other than OK.
    pub failed: u64,
    /// How many retries were the first, second, ... of their call, by [`BUCKETS`].
    pub histogram: [u64; BUCKETS.len()],
    /// Transparent retries that started.
    pub transparent: u64,
}

/// The atomic counters of a method, shared by concurrent calls.
// No other data is published through a counter, so every access is relaxed.
#[derive(Debug, Default)]
pub struct StatisticsCounters {
    retries: AtomicU64,
    failed: AtomicU64,
    histogram: [AtomicU64; BUCKETS.len()],
    transparent: AtomicU64,
}

impl StatisticsCounters {
    /// Adds one increment.
    pub fn add(&self, counted: CountedRetry) {
        let counter = match counted {
            CountedRetry::Retry(nth) => {
                let bucket = BUCKETS.partition_point(|least| *least <= nth).saturating_sub(1);
                self.histogram[bucket].fetch_add(1, Ordering::Relaxed);
                &self.retries
            }
            CountedRetry::Failed => &self.failed,
            CountedRetry::Transparent => &self.transparent,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A snapshot. Counters are read one after the other, so while calls run the fields may be
    /// slightly out of step with each other.
    #[must_use]
    pub fn read(&self) -> Statistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            retries: read(&self.retries),
            failed: read(&self.failed),
            histogram: self.histogram.each_ref().map(read),
            transparent: read(&self.transparent),
        }
    }
}
