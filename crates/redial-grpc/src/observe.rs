//! Observability of calls: metrics, spans and events.
//!
//! Everything is derived from the events of the state machine, plus status codes and byte counts,
//! which only this layer knows. There is one [`Observer`]; the features of the crate only choose its
//! sinks (`sink.rs`). A sink whose feature is off is [`NoSink`](sink::NoSink), which does nothing.
//!
//! A call that is not observed keeps no state. Events carry their timestamps, so this module reads no
//! clock.

mod call_events;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod call_metrics;
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
mod observer;
#[cfg(feature = "opentelemetry")]
mod otel_instruments;
mod sent_bytes;
mod sink;
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
pub(crate) use observer::{Observer, ObserverFactory, SpanGuard};
pub(crate) use sent_bytes::SentBytes;
