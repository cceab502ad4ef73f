//! One span per call and, below it, one span per attempt (A45).
//!
//! The crate documentation lists their fields. Attempts have spans if their call has one.

use std::fmt;

use redial_core::Ns;
use redial_service_config::Code;
use tracing::field::Empty;
use tracing::span::EnteredSpan;
use tracing::{Level, Span, info_span, span_enabled};

use crate::methods::PlanRef;
use crate::observe::MetricsOptions;
use crate::observe::call_tracker::Observation;
use crate::observe::sink::{CallSink, LayerSink};

/// The spans of a layer's calls.
#[derive(Debug)]
pub(crate) struct SpanSink {
    target: Option<Box<str>>,
}

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

impl LayerSink for SpanSink {
    type Call = Spans;

    fn new(_options: &MetricsOptions, server: Option<&str>) -> Self {
        SpanSink { target: server.map(Into::into) }
    }

    /// Whether a subscriber is interested in spans.
    fn is_enabled(&self) -> bool {
        span_enabled!(target: "redial::grpc", Level::INFO)
    }

    fn begin(&self, _method: &PlanRef, path: &str) -> Option<Spans> {
        let call = info_span!(
            target: "redial::grpc",
            "grpc.call",
            otel.name = %Named("Sent", path),
            otel.status_code = Empty,
            rpc.system.name = "grpc",
            rpc.method = path.strip_prefix('/').unwrap_or(path),
            grpc.target = self.target.as_deref(),
            rpc.response.status_code = Empty,
            why = Empty,
            attempts = Empty,
        );
        (!call.is_disabled()).then(|| Spans { call, path: path.into(), live: Vec::new() })
    }
}

impl CallSink for Spans {
    type Guard = Option<EnteredSpan>;

    fn enter_span(&self) -> Self::Guard {
        Some(self.call.clone().entered())
    }

    fn enter_attempt_span(&self, attempt: u32) -> Self::Guard {
        let (_, span) = self.live.iter().find(|(other, _)| *other == attempt)?;
        Some(span.clone().entered())
    }

    fn record(&mut self, _at: Ns, observation: Observation) {
        match observation {
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
