//! What is told of calls while they run: metrics, spans and events.
//!
//! All of it is derived from the notes of the machine, and from what the layer alone knows: status
//! codes and bytes.
//!
//! Rule: who asks for nothing pays for nothing. Without the features everything in here is empty;
//! with them, a call that nobody watches keeps nothing for it. Nobody here reads a clock: notes
//! carry their moments.

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod call_metrics;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod call_tracker;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod gauge;
#[cfg(feature = "opentelemetry")]
mod instruments;
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
