//! One call's way to those who are told of it.

use std::sync::Arc;

use bytes::Bytes;
use redial_core::{Event, Ns, StopReason};
use redial_service_config::Code;
use redial_service_config::Counted;

use crate::methods::PlanRef;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
use crate::observe::measures::{Measures, Sinks};
#[cfg(not(feature = "tracing"))]
use crate::observe::silent::{self as spans, CallEvents, Inside, Spans};
#[cfg(feature = "tracing")]
use crate::observe::spans::{self, CallEvents, Inside, Spans};
use crate::observe::story::Story;
#[cfg(not(any(feature = "metrics", feature = "opentelemetry")))]
use crate::observe::unmeasured::{Measures, Sinks};
use crate::observe::{Listeners, Sent};
use crate::shared::Shared;
use crate::statistics::Happened;

/// What a layer tells of its calls.
#[derive(Debug)]
pub(crate) struct Observing {
    sinks: Option<Arc<Sinks>>,
    target: Option<Box<str>>,
}

impl Observing {
    pub(crate) fn new(listeners: &Listeners, server: Option<&str>) -> Self {
        Observing { sinks: Sinks::new(listeners, server), target: server.map(Into::into) }
    }

    /// Whether anybody wants to know of calls.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.sinks.is_some() || Spans::are_wanted() || CallEvents::are_wanted()
    }

    /// Whether gauges are set when a call ends.
    pub(crate) fn sets_gauges(&self) -> bool {
        self.sinks.is_some()
    }

    /// Sets the gauges of a layer.
    pub(crate) fn set_gauges(&self, shared: &Shared) {
        if let Some(sinks) = &self.sinks {
            sinks.set_gauges(shared);
        }
    }

    /// What is told of a call that begins.
    pub(crate) fn call(&self, method: &PlanRef, path: &str) -> Observer {
        let measures = self.sinks.as_ref().map(|sinks| Measures::new(sinks, method));
        let spans = Spans::begin(path, self.target.as_deref());
        let watched = (measures.is_some() || spans.is_some())
            .then(|| Box::new(Watched { story: Story::new(), measures, spans }));
        Observer { watched, events: CallEvents::begin() }
    }
}

/// What is told of one call.
#[derive(Debug)]
pub(crate) struct Observer {
    watched: Option<Box<Watched>>,
    events: CallEvents,
}

/// What is kept of a call that somebody watches.
#[derive(Debug)]
struct Watched {
    story: Story,
    measures: Option<Measures>,
    spans: Option<Spans>,
}

/// The observer of a call that is not observed.
impl Default for Observer {
    fn default() -> Self {
        Observer { watched: None, events: CallEvents::unwanted() }
    }
}

impl Observer {
    /// Whether anybody wants to know of this call.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.watched.is_some() || self.events.wanted()
    }

    /// Whether anybody wants to know how much it sends.
    pub(crate) fn counts_bytes(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.measures.is_some())
    }

    /// The notes of this call come without their moments.
    pub(crate) fn has_no_clock(&mut self) {
        self.events.has_no_clock();
    }

    /// The next outcome has this status.
    pub(crate) fn saw(&mut self, code: Code) {
        if let Some(watched) = &mut self.watched {
            watched.story.saw(code);
        }
    }

    /// The call is to be cancelled, and the application hears this status.
    pub(crate) fn ends_with(&mut self, code: Code) {
        if let Some(watched) = &mut self.watched {
            watched.story.ends_with(code);
        }
    }

    /// Something that counts happened; its note comes next.
    pub(crate) fn happened(&mut self, happened: Happened) {
        let Some(watched) = &mut self.watched else { return };
        if happened == Happened::Counted(Counted::Transparent) {
            watched.story.replaces();
        }
        if let Some(measures) = &mut watched.measures {
            measures.happened(happened);
        }
    }

    /// Takes a note.
    pub(crate) fn record(&mut self, at: Ns, event: &Event) {
        self.events.record(at, event, spans_of(self.watched.as_deref()));
        let Some(watched) = &mut self.watched else { return };
        let Some(event) = watched.story.tell(event) else { return };
        if let Some(measures) = &mut watched.measures {
            measures.record(at, event);
        }
        if let Some(spans) = &mut watched.spans {
            spans.record(event);
        }
    }

    /// The call ended with this status, and a message as logs may show it; its note comes next.
    pub(crate) fn ended(
        &mut self,
        at: Ns,
        method: &PlanRef,
        stop_reason: StopReason,
        code: Code,
        message: Option<&str>,
    ) {
        let (counters, status) = (method.counters(), code.name());
        let (path, target) = (&counters.path, counters.target.as_deref());
        let method = path.strip_prefix('/').unwrap_or(path);
        let rpc = redial::trace::Rpc { method, target, status, message };
        self.events.ended(at, stop_reason, rpc, spans_of(self.watched.as_deref()));
    }

    /// Counts what this attempt is sent.
    pub(crate) fn sent(&self, attempt: u32) -> Sent {
        let measures = self.watched.as_ref().and_then(|watched| watched.measures.as_ref());
        measures.map_or_else(Sent::default, |measures| measures.sent(attempt))
    }

    /// The attempt that the call belongs to received this.
    pub(crate) fn received(&mut self, data: &Bytes) {
        if let Some(measures) = self.watched.as_mut().and_then(|it| it.measures.as_mut()) {
            measures.received(data);
        }
    }

    /// What runs while this is held runs in the call's span.
    pub(crate) fn inside(&self) -> Inside {
        spans::inside(spans_of(self.watched.as_deref()))
    }

    /// The same for the span of an attempt.
    pub(crate) fn inside_attempt(&self, attempt: u32) -> Inside {
        spans::inside_attempt(spans_of(self.watched.as_deref()), attempt)
    }
}

fn spans_of(watched: Option<&Watched>) -> Option<&Spans> {
    watched.and_then(|watched| watched.spans.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{Counters, Methods};
    use arc_swap::ArcSwap;
    use redial_service_config::{ClientOptions, Retries, ServiceConfig};

    #[test]
    fn of_a_call_that_nobody_watches_nothing_is_kept() {
        let observing = Observing::new(&Listeners::default(), Some("server"));
        assert!(!observing.is_listened_to());
        let methods = Methods::new(ServiceConfig::default(), &ClientOptions::default());
        let path = "/pkg.Svc/Method";
        let method = Methods::find(&ArcSwap::from_pointee(methods), path, &Counters::default());
        let observer = observing.call(&PlanRef::new(method, Retries::All), path);
        assert!(observer.watched.is_none());
        assert!(!observer.is_listened_to() && !observer.counts_bytes());
    }
}
