//! A subscriber that keeps the spans and events of this crate, and of whoever says `below`, as a tree.

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
struct Kept {
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
    spans: Vec<Kept>,
    by_id: HashMap<u64, u64>,
    /// Events with their fields, in order.
    events: Vec<Fielded>,
}

/// The fields of an event.
type Fielded = Vec<(&'static str, String)>;

/// What was recorded; a clone is a view of the same.
#[derive(Clone)]
pub(crate) struct Recorder {
    tree: Arc<Mutex<Tree>>,
    level: Level,
}

impl Recorder {
    /// Records what this thread does from now on, up to a level.
    pub(crate) fn start(level: Level) -> (Recorder, DefaultGuard) {
        let spans = vec![Kept::default()];
        let tree = Arc::new(Mutex::new(Tree { spans, ..Tree::default() }));
        let recorder = Recorder { tree, level };
        // While a process has one dispatcher, a thread without a subscriber that is the first at an
        // event has tracing remember that the event is disabled for all. A second one prevents it.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Registry::default()));
        let guard = tracing::subscriber::set_default(Registry::default().with(recorder.clone()));
        (recorder, guard)
    }

    /// The tree, with these fields of spans.
    pub(crate) fn lines(&self, fields: &[&str]) -> Vec<String> {
        let tree = self.lock();
        let mut lines = Vec::new();
        write(&tree, 0, 0, fields, &mut lines);
        lines
    }

    /// The field of the first span with this name.
    pub(crate) fn field(&self, span: &str, field: &str) -> Option<String> {
        let tree = self.lock();
        let kept = tree.spans.iter().find(|kept| kept.name == span)?;
        kept.fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value.clone())
    }

    /// The fields of the events with this message, but for what is different each time.
    pub(crate) fn events(&self, message: &str) -> Vec<Vec<(&'static str, String)>> {
        let is = |fields: &&Fielded| fields.contains(&("message", message.to_owned()));
        let of = |fields: &Fielded| {
            let told =
                |(name, _): &&(&'static str, String)| !["message", "suppressed"].contains(name);
            fields.iter().filter(told).cloned().collect()
        };
        self.lock().events.iter().filter(is).map(of).collect()
    }

    pub(crate) fn all_closed(&self) -> bool {
        self.lock().spans[1..].iter().all(|kept| kept.closed)
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }
}

fn write(tree: &Tree, place: usize, depth: usize, fields: &[&str], lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for child in &tree.spans[place].children {
        match child {
            Child::Event(text) => lines.push(format!("{indent}{text}")),
            Child::Span(child) => {
                let kept = &tree.spans[*child as usize];
                let mut line = format!("{indent}[{}]", kept.name);
                for (name, value) in kept.fields.iter().filter(|(name, _)| fields.contains(name)) {
                    line.push_str(&format!(" {name}={value}"));
                }
                lines.push(line);
                write(tree, *child as usize, depth + 1, fields, lines);
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
        let place = tree.spans.len() as u64;
        let parent = parent.map_or(0, |parent| tree.by_id[&parent.into_u64()]);
        let mut kept = Kept { name: attributes.metadata().name(), ..Kept::default() };
        attributes.record(&mut Fields(&mut kept.fields));
        tree.spans.push(kept);
        tree.by_id.insert(id.into_u64(), place);
        tree.spans[parent as usize].children.push(Child::Span(place));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        let mut tree = self.lock();
        let place = tree.by_id[&id.into_u64()];
        record.record(&mut Fields(&mut tree.spans[place as usize].fields));
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
        // Ids are used again.
        if let Some(place) = tree.by_id.remove(&id.into_u64()) {
            tree.spans[place as usize].closed = true;
        }
    }
}
