//! Tracing events: the documented names and fields, and the rate limit of `gave up`.
#![cfg(all(feature = "tracing", feature = "tokio"))]

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

static POLICY: Policy =
    Policy::constant(ms(5)).attempts(2).throttle(Throttle::none()).name("fetch").build();

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
        "TRACE attempt started policy=fetch attempt=1 number=1".to_owned(),
        format!("DEBUG attempt failed policy=fetch attempt=1 {failed}"),
        "DEBUG retrying policy=fetch after_ms=5.0 kind=Throttling reason=\"SLOW_DOWN\"".to_owned(),
        "TRACE attempt started policy=fetch attempt=2 number=2".to_owned(),
        format!("DEBUG attempt failed policy=fetch attempt=2 {failed}"),
        "DEBUG call ended policy=fetch why=\"attempts\" attempt=2".to_owned(),
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
    assert!(
        lines[0].starts_with("WARN gave up policy=fetch why=\"attempts\" attempts=2"),
        "{lines:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn tracing_events_have_the_error_where_it_is_recorded() {
    let collector = Collector::new(Level::DEBUG);
    let _guard = tracing::subscriber::set_default(collector.clone());
    let call = POLICY.retry(|| async { Err::<(), _>("connection refused") }).when(|_| true);
    call.record_errors().await.expect_err("always refused");
    let kind = "kind=Server";
    let refused = "error=\"connection refused\"";
    let expected = [
        format!("DEBUG attempt failed policy=fetch attempt=1 {kind} stage=Answered {refused}"),
        format!("DEBUG retrying policy=fetch after_ms=5.0 {kind} {refused}"),
        format!("DEBUG attempt failed policy=fetch attempt=2 {kind} stage=Answered {refused}"),
        format!("DEBUG call ended policy=fetch why=\"attempts\" attempt=2 {refused}"),
    ];
    let lines = collector.lines();
    assert_eq!(lines[..4], expected, "{lines:#?}");
}

/// The event is limited to 10 per second in the process, which the other test may have used up.
#[tokio::test(start_paused = true)]
async fn tracing_give_up_has_policy_and_error() {
    let collector = Collector::new(Level::WARN);
    let _guard = tracing::subscriber::set_default(collector.clone());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while collector.lines().is_empty() {
        assert!(std::time::Instant::now() < deadline, "no event in a minute");
        let call = redial::retry(|| async { Err::<(), _>("connection refused") }).when(|_| true);
        call.record_errors().await.expect_err("always refused");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let line = &collector.lines()[0];
    assert!(line.starts_with("WARN gave up policy=crates/redial/tests/tracing.rs:"), "{line}");
    assert!(line.contains("attempts") && line.contains("error=connection refused"), "{line}");
}

#[cfg(feature = "serde")]
#[test]
fn tracing_likely_mistakes_are_reported_when_a_policy_is_loaded() {
    let collector = Collector::new(Level::WARN);
    let _guard = tracing::subscriber::set_default(collector.clone());
    let text = r#"{
        "name": "poll", "attempts": 9, "throttle": { "budget": { "reserve": 5 } },
        "backoff": { "fibonacci": { "first": "2s", "cap": "1s" } }
    }"#;
    let policy: Policy = serde_json::from_str(text).expect("valid");
    // Writing it does not load it.
    serde_json::to_string(&policy).expect("it can be written");
    let expected = [
        "WARN likely mistake in a policy policy=poll warning=9 attempts, but a full budget pays for 5 retries and \
         has no refill help=\"add per_second, raise the reserve or lower the attempts\"",
        "WARN likely mistake in a policy policy=poll warning=the first delay of 2s is above the cap, so every delay \
         is 1s at most help=\"write a cap above the first delay\"",
    ];
    assert_eq!(collector.lines(), expected);
}
