//! The statistics of A6 per method (decision G31), derived from the notes of calls.
//!
//! Invariant: what counts is decided in [`StatisticsRecorder::event`] alone. Whoever keeps the numbers (atomics in
//! a layer, plain ones in a test) only adds what it says.

use std::sync::atomic::{AtomicU64, Ordering};

use redial_core::{Directive, Event};

/// The buckets of the histogram: each retry adds one to the last bucket that it reaches.
pub const BUCKETS: [u32; 8] = [1, 2, 3, 4, 5, 10, 100, 1000];

/// Something that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedRetry {
    /// A retry or hedge started: which of the call's it is, from 1.
    Retry(u32),
    /// A retry or hedge ended with a status that is not OK.
    Failed,
    /// A transparent replacement started.
    Transparent,
}

/// What is remembered of a call so that its notes can be counted: 16 bytes.
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
    /// The attempt that runs as number 1, by its place in the order of starts.
    first: u32,
    /// The highest number so far: what starts with a lower one or the same is a replacement.
    highest: u32,
    /// A retry that failed, unless the next note says that it is replaced.
    failed: Option<u32>,
}

impl StatisticsRecorder {
    /// Says what this note of the call adds. The failure of an attempt is known to be one when the
    /// next note is not its replacement, so it is counted then; a call's last note is its end.
    #[inline]
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
                self.failed = Some(attempt)
            }
            _ => {}
        }
    }
}

/// The statistics of a method at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Retries and hedges that started.
    pub retries: u64,
    /// Those of them that ended with a status that is not OK.
    pub failed: u64,
    /// How many of them were the first, second, ... of their call, by [`BUCKETS`].
    pub histogram: [u64; BUCKETS.len()],
    /// Transparent replacements that started.
    pub transparent: u64,
}

/// The counters of a method, which many calls add to at once.
// Each counter publishes nothing but itself, so every access is relaxed.
#[derive(Debug, Default)]
pub struct StatisticsCounters {
    retries: AtomicU64,
    failed: AtomicU64,
    histogram: [AtomicU64; BUCKETS.len()],
    transparent: AtomicU64,
}

impl StatisticsCounters {
    /// Counts.
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

    /// The numbers as they are now. They are read one by one: while calls run, one may be ahead of
    /// another.
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
