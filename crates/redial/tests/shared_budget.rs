//! A program with more call sites than default budgets: the event that reports it is emitted once.
//!
//! 517 call sites, each written out because a call site is a source location. A program of its own,
//! because the table of budgets is global and this test fills it.
#![cfg(feature = "tracing")]

use std::fmt;
use std::sync::{Arc, Mutex};

use redial::throttle::call_sites_share_a_budget;
use redial::{Policy, Throttle};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects the warnings, each as its message and call site.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["message", "call_site"].contains(&field.name()) {
            self.0.push_str(&format!("{value:?} "));
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut Line(&mut line));
        self.0.lock().expect("not poisoned").push(line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[track_caller]
fn here() -> Throttle {
    Throttle::here()
}

#[test]
fn tracing_shared_budget_is_reported_once() {
    #[rustfmt::skip]
    let call_sites = [
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
    ];
    let warnings = Warnings::default();
    let shared = || -> Vec<String> {
        let all = warnings.0.lock().expect("not poisoned").clone();
        all.into_iter().filter(|line| line.contains("share a retry budget")).collect()
    };
    tracing::subscriber::with_default(warnings.clone(), || {
        for (nth, throttle) in call_sites.into_iter().enumerate() {
            let policy = Policy::immediate().attempts(2).throttle(throttle).build();
            let _ = policy.retry(|| Err::<(), _>(())).when(|()| true).call();
            assert_eq!(call_sites_share_a_budget(), nth >= 511);
            assert_eq!(shared().len(), usize::from(nth >= 511), "call site {nth}");
        }
    });
    assert!(shared()[0].contains("shared_budget.rs:"), "{:?}", shared());
}
