//! Observability of calls: metrics, spans and events.
//!
//! Everything is derived from the events of the state machine, plus status codes and byte counts,
//! which only this layer knows.
//!
//! No overhead when the features are off or nothing is enabled: without the features all types in
//! here are empty, and a call that is not observed keeps no state. Events carry their timestamps, so
//! this module reads no clock.

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod call_metrics;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod call_tracker;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod gauge;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod labels;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod metric;
#[cfg(feature = "metrics")]
mod metrics_facade;
mod metrics_options;
#[cfg(all(feature = "tracing", not(any(feature = "metrics", feature = "opentelemetry"))))]
mod noop_metrics;
#[cfg(not(any(feature = "metrics", feature = "opentelemetry", feature = "tracing")))]
mod noop_observer;
#[cfg(all(any(feature = "metrics", feature = "opentelemetry"), not(feature = "tracing")))]
mod noop_spans;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod observer;
#[cfg(feature = "opentelemetry")]
mod otel_instruments;
mod sent_bytes;
#[cfg(feature = "tracing")]
mod spans;

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub use gauge::Gauge;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub(crate) use gauge::register as register_gauges;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub(crate) use labels::MethodLabels;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub use metric::Metric;
pub(crate) use metrics_options::MetricsOptions;
#[cfg(not(any(feature = "metrics", feature = "opentelemetry", feature = "tracing")))]
pub(crate) use noop_observer::{Observer, ObserverFactory, SpanGuard};
#[cfg(all(any(feature = "metrics", feature = "opentelemetry"), not(feature = "tracing")))]
pub(crate) use noop_spans::SpanGuard;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
pub(crate) use observer::{Observer, ObserverFactory};
pub(crate) use sent_bytes::SentBytes;
#[cfg(feature = "tracing")]
pub(crate) use spans::SpanGuard;
