//! The violations that were found, and counts of what happened.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits the list of violations.
const VIOLATIONS_MAX: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    texts: Mutex<Vec<String>>,
    streams: AtomicU64,
    failures: AtomicU64,
    ends: Mutex<BTreeMap<String, u64>>,
}

impl Faults {
    pub(crate) fn report(&self, text: String) {
        let mut texts = self.texts.lock().unwrap();
        if texts.len() < VIOLATIONS_MAX {
            texts.push(text);
        }
    }

    /// Counts a stream that has ended at a server.
    pub(crate) fn seen_stream(&self, unavailable: bool) {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(unavailable.into(), Ordering::Relaxed);
    }

    pub(crate) fn consecutive_failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Counts a call by its result.
    pub(crate) fn ended(&self, how: String) {
        *self.ends.lock().unwrap().entry(how).or_default() += 1;
    }

    pub(crate) fn streams(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    pub(crate) fn ends(&self) -> BTreeMap<String, u64> {
        self.ends.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn none(&self) {
        let texts = self.texts.lock().unwrap();
        assert!(texts.is_empty(), "{}", texts.join("\n"));
    }
}
