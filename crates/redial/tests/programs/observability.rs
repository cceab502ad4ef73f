//! What a program can log: the retries as they happen, `tracing` events, the error with its causes, and the
//! report as JSON.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use redial::{Policy, Throttle, ms};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static FETCH: Policy =
    Policy::constant(ms(10)).attempts(2).throttle(Throttle::none()).name("fetch").build();

/// Writes the events of the library as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => _ = write!(self.0, "{value:?}"),
            name => _ = write!(self.0, " {name}={value:?}"),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redial"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut Fields(&mut line));
        self.0.lock().unwrap().push(line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn program_logs_its_retries() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let mut own = Vec::new();
    let call = FETCH.retry(|| async { Err::<(), _>("connection refused") }).when(|_| true);
    let error = call
        .record_errors()
        .history()
        .notify(|error, delay| own.push(format!("{error}, next attempt in {delay:?}")))
        .await
        .expect_err("it is down");

    assert_eq!(own, ["connection refused, next attempt in 10ms"]);
    let lines = lines.0.lock().unwrap();
    let retrying = lines.iter().find(|line| line.starts_with("retrying")).expect("an event");
    assert!(retrying.contains("policy=fetch") && retrying.contains("connection refused"));
    let text = "connection refused (2 attempts in 10 ms; gave up: no attempt left)";
    assert_eq!(error.to_string(), text);

    let json = serde_json::to_value(error.report()).unwrap();
    assert_eq!((&json["policy"], &json["stop_reason"]), (&"fetch".into(), &"attempts".into()));
    assert_eq!(json["error"], "connection refused");
    assert_eq!(json["history"][0]["error"], "connection refused");
    assert_eq!(json["history"][1]["started_ms"], 10.0);
}
