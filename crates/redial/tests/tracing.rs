//! Tracing events: the documented names and fields, and the rate limit of `gave up`.
#![cfg(feature = "tracing")]

use std::fmt;
use std::sync::{Arc, Mutex};

use redial::{Failure, Policy, Reason, Throttle, ms};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects events as `LEVEL message field=value ...`.
#[derive(Clone)]
struct Collector {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    fn new(level: Level) -> Self {
        Collector { level, lines: Arc::default() }
    }
    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("not poisoned").clone()
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            // The elapsed time is not deterministic.
            "elapsed_ms" => {}
            name => self.fields.push_str(&format!(" {name}={value:?}")),
        }
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redial" && *metadata.level() <= self.level
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let line = format!("{} {}{}", event.metadata().level(), line.message, line.fields);
        self.lines.lock().expect("not poisoned").push(line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

static POLICY: Policy = Policy::constant(ms(5)).attempts(2).throttle(Throttle::none()).build();

async fn fail() {
    let failure = Failure::throttling().because(Reason::new("SLOW_DOWN"));
    let call = POLICY.retry(|| async { Err::<(), _>(()) }).when(move |_: &()| Some(failure));
    assert!(call.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn tracing_debug_events_of_a_call() {
    let collector = Collector::new(Level::TRACE);
    let _guard = tracing::subscriber::set_default(collector.clone());
    fail().await;
    let failed = "kind=Throttling stage=Answered reason=\"SLOW_DOWN\"";
    let expected = [
        "TRACE attempt started attempt=1 number=1".to_owned(),
        format!("DEBUG attempt failed attempt=1 {failed}"),
        "DEBUG retrying after_ms=5.0 kind=Throttling reason=\"SLOW_DOWN\"".to_owned(),
        "TRACE attempt started attempt=2 number=2".to_owned(),
        format!("DEBUG attempt failed attempt=2 {failed}"),
        "DEBUG call ended why=\"attempts\" attempt=2".to_owned(),
    ];
    let lines = collector.lines();
    assert_eq!(lines[..6], expected, "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn tracing_give_up_events_are_rate_limited() {
    let collector = Collector::new(Level::WARN);
    let _guard = tracing::subscriber::set_default(collector.clone());
    let start = std::time::Instant::now();
    for _ in 0..500 {
        fail().await;
    }
    let seconds = start.elapsed().as_secs() as usize + 2;
    let lines = collector.lines();
    assert!(!lines.is_empty() && lines.len() <= 10 * seconds, "{} events", lines.len());
    assert!(lines[0].starts_with("WARN gave up why=\"attempts\" attempts=2"), "{lines:#?}");
}
