//! A `tracing` subscriber that collects the log lines of the interceptor.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The messages of the debug events under the target `redial::milvus`.
#[derive(Clone, Default)]
pub(crate) struct DebugEvents(Arc<Mutex<Vec<String>>>);

impl DebugEvents {
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.lock().expect("no test panics here").clone()
    }
}

impl Subscriber for DebugEvents {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redial::milvus" && *metadata.level() == Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut |_: &tracing::field::Field, value: &dyn fmt::Debug| {
            text = format!("{value:?}");
        });
        self.0.lock().expect("no test panics here").push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
