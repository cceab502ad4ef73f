//! One span per call and, below it, one span per attempt (A45).
//!
//! The crate documentation lists their fields. Attempts have spans if their call has one.

use std::fmt;

use redial::trace::Rpc;
use redial_core::{Event, Ns, StopReason, duration};
use redial_service_config::Code;
use tracing::field::Empty;
use tracing::span::EnteredSpan;
use tracing::{Level, Span, info_span, span_enabled};

use crate::observe::call_tracker::Observation;

/// The spans of one call.
#[derive(Debug)]
pub(crate) struct Spans {
    call: Span,
    path: Box<str>,
    live: Vec<(u32, Span)>,
}

/// A span name as shown by OpenTelemetry.
struct Named<'a>(&'static str, &'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.split('/').filter(|part| !part.is_empty()).try_for_each(|part| write!(f, ".{part}"))
    }
}

impl Spans {
    /// Whether a subscriber is interested in spans.
    pub(crate) fn are_enabled() -> bool {
        span_enabled!(target: "redial::grpc", Level::INFO)
    }

    /// `None` if no subscriber is interested.
    pub(crate) fn begin(path: &str, target: Option<&str>) -> Option<Self> {
        let call = info_span!(
            target: "redial::grpc",
            "grpc.call",
            otel.name = %Named("Sent", path),
            otel.status_code = Empty,
            rpc.system.name = "grpc",
            rpc.method = path.strip_prefix('/').unwrap_or(path),
            grpc.target = target,
            rpc.response.status_code = Empty,
            why = Empty,
            attempts = Empty,
        );
        (!call.is_disabled()).then(|| Spans { call, path: path.into(), live: Vec::new() })
    }

    pub(crate) fn record(&mut self, event: Observation) {
        match event {
            Observation::CallStartTime => {}
            Observation::AttemptStarted { attempt, number, transparent } => {
                let span = info_span!(
                    target: "redial::grpc",
                    parent: &self.call,
                    "grpc.attempt",
                    otel.name = %Named("Attempt", &self.path),
                    otel.kind = "client",
                    otel.status_code = Empty,
                    rpc.system.name = "grpc",
                    rpc.method = self.path.strip_prefix('/').unwrap_or(&self.path),
                    "previous-rpc-attempts" = number.saturating_sub(1),
                    "transparent-retry" = transparent,
                    rpc.response.status_code = Empty,
                );
                self.live.push((attempt, span));
            }
            Observation::AttemptEnded { attempt, code } => {
                let index = self.live.iter().position(|(other, _)| *other == attempt);
                if let Some(index) = index {
                    ended(&self.live.swap_remove(index).1, code);
                }
            }
            Observation::CallEnded { stop_reason, code, running_code, attempts } => {
                self.live.drain(..).for_each(|(_, span)| ended(&span, running_code));
                self.call.record("why", stop_reason.name());
                self.call.record("attempts", attempts);
                ended(&self.call, code);
            }
        }
    }
}

/// Leaves the span when dropped.
pub(crate) type SpanGuard = Option<EnteredSpan>;

/// Enters the span of the call.
pub(crate) fn enter_span(spans: Option<&Spans>) -> SpanGuard {
    spans.map(|spans| spans.call.clone().entered())
}

/// Enters the span of an attempt.
pub(crate) fn enter_attempt_span(spans: Option<&Spans>, attempt: u32) -> SpanGuard {
    let (_, span) = spans?.live.iter().find(|(other, _)| *other == attempt)?;
    Some(span.clone().entered())
}

/// Emits the events of the `redial` crate within the span of the call.
#[derive(Debug)]
pub(crate) struct CallEvents {
    enabled: bool,
    /// Whether events have timestamps.
    timed: bool,
    began: Ns,
    attempts: u32,
}

impl CallEvents {
    pub(crate) fn begin() -> Self {
        CallEvents { enabled: CallEvents::are_enabled(), ..CallEvents::disabled() }
    }

    /// Events of a call for which no subscriber was interested at its start.
    pub(crate) fn disabled() -> Self {
        CallEvents { enabled: false, timed: true, began: 0, attempts: 0 }
    }

    /// Whether a subscriber is interested in events.
    pub(crate) fn are_enabled() -> bool {
        redial::trace::is_enabled()
    }

    /// Whether a subscriber was interested when the call started.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn disable_timing(&mut self) {
        self.timed = false;
    }

    pub(crate) fn record(&mut self, at: Ns, event: &Event, spans: Option<&Spans>) {
        if self.enabled {
            let _guard = enter_span(spans);
            redial::trace::record(event);
        }
        match *event {
            Event::CallStarted { .. } => self.began = at,
            Event::AttemptStarted { number, .. } => self.attempts = self.attempts.max(number),
            _ => {}
        }
    }

    /// Logs the end of the call.
    pub(crate) fn ended(
        &self,
        at: Ns,
        stop_reason: StopReason,
        rpc: Rpc<'_>,
        spans: Option<&Spans>,
    ) {
        let _guard = enter_span(spans);
        let elapsed = self.timed.then(|| duration(at.saturating_sub(self.began)));
        redial::trace::gave_up(stop_reason, self.attempts, elapsed, Some(rpc));
    }
}

fn ended(span: &Span, code: Code) {
    span.record("rpc.response.status_code", code.name());
    // An attempt cancelled by the client is not an error.
    if !matches!(code, Code::Ok | Code::Cancelled) {
        span.record("otel.status_code", "ERROR");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_names_use_dots() {
        assert_eq!(Named("Sent", "/pkg.Svc/Method").to_string(), "Sent.pkg.Svc.Method");
        assert_eq!(Named("Attempt", "").to_string(), "Attempt");
    }
}
