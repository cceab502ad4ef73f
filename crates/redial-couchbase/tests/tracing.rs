//! Log lines as `tracing` events, collected by a subscriber.

mod common;

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use common::{Server, fails, ok, status};
use redial::s;
use redial_couchbase::{BestEffort, Orchestrator, operation, reason};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the events of a target.
#[derive(Clone)]
struct Keeps(&'static str, Arc<Mutex<Vec<(Level, String)>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Keeps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == self.0
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let entry = (*event.metadata().level(), text.0.trim_end().to_owned());
        self.1.lock().expect("no panic").push(entry);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn tracing_events_carry_log_line_fields() {
    let heard = Keeps("redial::couchbase", Arc::default());
    let _guard = tracing::subscriber::set_default(heard.clone());
    let server = Server::new([status(0x86), fails(reason::UNKNOWN)]);
    let orchestrator = Orchestrator::with(BestEffort::new());
    let request = orchestrator.request(operation::KV_GET, s(2)).label("airline_10");
    assert!(request.run(|attempt| server.answer(attempt)).await.is_err());
    let expected = [
        (
            Level::DEBUG,
            "message=retry KV_TEMPORARY_FAILURE request=kv.get airline_10 \
             reason=\"KV_TEMPORARY_FAILURE\" attempt=1 delay=1ms"
                .to_owned(),
        ),
        (
            Level::INFO,
            "message=not-retried UNKNOWN request=kv.get airline_10 reason=\"UNKNOWN\" attempt=2 \
             why=\"strategy\""
                .to_owned(),
        ),
    ];
    assert_eq!(*heard.1.lock().expect("no panic"), expected);
}

#[tokio::test(start_paused = true)]
async fn tracing_sees_every_event_of_a_first_success() {
    let kept = Keeps("redial", Arc::default());
    let _guard = tracing::subscriber::set_default(kept.clone());
    let server = Server::new([ok()]);
    let orchestrator = Orchestrator::new();
    let request = orchestrator.request(operation::KV_GET, s(2));
    assert!(request.run(|attempt| server.answer(attempt)).await.is_ok());
    let events = kept.1.lock().expect("no panic");
    let has = |text: &str| events.iter().any(|(_, event)| event.contains(text));
    assert!(has("attempt started") && has("call ended"), "{events:?}");
}
