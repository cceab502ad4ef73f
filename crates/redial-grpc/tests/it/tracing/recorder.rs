//! A subscriber that records the spans and events of this crate, and of the target `below`, as a tree.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

#[derive(Default)]
struct SpanRecord {
    name: &'static str,
    fields: Vec<(&'static str, String)>,
    children: Vec<Child>,
    closed: bool,
}

enum Child {
    Span(u64),
    Event(String),
}

#[derive(Default)]
struct Tree {
    /// In the order in which they were opened; 0 is the root.
    spans: Vec<SpanRecord>,
    by_id: HashMap<u64, u64>,
    /// Events with their fields, in order.
    events: Vec<EventFields>,
}

/// The fields of an event.
type EventFields = Vec<(&'static str, String)>;

/// The recorded tree; clones share it.
#[derive(Clone)]
pub(crate) struct Recorder {
    tree: Arc<Mutex<Tree>>,
    level: Level,
}

impl Recorder {
    /// Records the spans and events of this thread up to a level.
    pub(crate) fn start(level: Level) -> (Recorder, DefaultGuard) {
        let spans = vec![SpanRecord::default()];
        let tree = Arc::new(Mutex::new(Tree { spans, ..Tree::default() }));
        let recorder = Recorder { tree, level };
        // With a single dispatcher in the process, tracing caches an event as disabled for all threads
        // when a thread without a subscriber reaches it first. A second dispatcher prevents that.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Registry::default()));
        let guard = tracing::subscriber::set_default(Registry::default().with(recorder.clone()));
        (recorder, guard)
    }

    /// The tree as indented lines, with these fields of the spans.
    pub(crate) fn lines(&self, fields: &[&str]) -> Vec<String> {
        let tree = self.lock();
        let mut lines = Vec::new();
        write_tree(&tree, 0, 0, fields, &mut lines);
        lines
    }

    /// The field of the first span with this name.
    pub(crate) fn field(&self, span: &str, field: &str) -> Option<String> {
        let tree = self.lock();
        let span_record = tree.spans.iter().find(|span_record| span_record.name == span)?;
        span_record.fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value.clone())
    }

    /// The fields of the events with this message, without the message and the suppression count.
    pub(crate) fn events(&self, message: &str) -> Vec<Vec<(&'static str, String)>> {
        let is = |fields: &&EventFields| fields.contains(&("message", message.to_owned()));
        let of = |fields: &EventFields| {
            let is_shown =
                |(name, _): &&(&'static str, String)| !["message", "suppressed"].contains(name);
            fields.iter().filter(is_shown).cloned().collect()
        };
        self.lock().events.iter().filter(is).map(of).collect()
    }

    pub(crate) fn all_closed(&self) -> bool {
        self.lock().spans[1..].iter().all(|span_record| span_record.closed)
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }
}

fn write_tree(tree: &Tree, index: usize, depth: usize, fields: &[&str], lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for child in &tree.spans[index].children {
        match child {
            Child::Event(text) => lines.push(format!("{indent}{text}")),
            Child::Span(child) => {
                let span_record = &tree.spans[*child as usize];
                let mut line = format!("{indent}[{}]", span_record.name);
                for (name, value) in
                    span_record.fields.iter().filter(|(name, _)| fields.contains(name))
                {
                    line.push_str(&format!(" {name}={value}"));
                }
                lines.push(line);
                write_tree(tree, *child as usize, depth + 1, fields, lines);
            }
        }
    }
}

struct Fields<'a>(&'a mut Vec<(&'static str, String)>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let ours = ["redial", "redial::grpc", "below"].contains(&metadata.target());
        ours && *metadata.level() <= self.level
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| span.parent()).map(|span| span.id());
        let mut tree = self.lock();
        let index = tree.spans.len() as u64;
        let parent = parent.map_or(0, |parent| tree.by_id[&parent.into_u64()]);
        let mut span_record =
            SpanRecord { name: attributes.metadata().name(), ..SpanRecord::default() };
        attributes.record(&mut Fields(&mut span_record.fields));
        tree.spans.push(span_record);
        tree.by_id.insert(id.into_u64(), index);
        tree.spans[parent as usize].children.push(Child::Span(index));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        let mut tree = self.lock();
        let index = tree.by_id[&id.into_u64()];
        record.record(&mut Fields(&mut tree.spans[index as usize].fields));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let parent = context.event_span(event).map(|span| span.id());
        let mut fields = Vec::new();
        event.record(&mut Fields(&mut fields));
        let text = fields.iter().find(|(name, _)| *name == "message").unwrap().1.clone();
        let mut tree = self.lock();
        let parent = parent.map_or(0, |parent| tree.by_id[&parent.into_u64()]);
        tree.spans[parent as usize].children.push(Child::Event(text));
        tree.events.push(fields);
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut tree = self.lock();
        // The registry reuses ids.
        if let Some(index) = tree.by_id.remove(&id.into_u64()) {
            tree.spans[index as usize].closed = true;
        }
    }
}
