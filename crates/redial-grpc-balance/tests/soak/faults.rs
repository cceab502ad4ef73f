//! What was found to be wrong, and how often what happened.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// More of the same say nothing new.
const KEPT: usize = 20;

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
        if texts.len() < KEPT {
            texts.push(text);
        }
    }

    /// A stream has ended at a server, with UNAVAILABLE or in another way.
    pub(crate) fn seen_stream(&self, unavailable: bool) {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(unavailable.into(), Ordering::Relaxed);
    }

    pub(crate) fn consecutive_failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// A call has ended in this way.
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
