//! What is told of calls while they run: metrics, spans and events.
//!
//! All of it is derived from the notes of the machine, and from what the layer alone knows: status
//! codes and bytes.
//!
//! Rule: who asks for nothing pays for nothing. Without the features everything in here is empty;
//! with them, a call that nobody watches keeps nothing for it. Nobody here reads a clock: notes
//! carry their moments.

#[cfg(feature = "metrics")]
mod facade;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod gauge;
#[cfg(feature = "opentelemetry")]
mod instruments;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod labels;
mod listeners;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod measure;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod measures;
#[cfg(not(any(feature = "metrics", feature = "opentelemetry", feature = "tracing")))]
mod nobody;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod observer;
mod sent;
#[cfg(all(any(feature = "metrics", feature = "opentelemetry"), not(feature = "tracing")))]
mod silent;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod story;
#[cfg(all(feature = "tracing", not(any(feature = "metrics", feature = "opentelemetry"))))]
mod unmeasured;

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub use gauge::Gauge;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub(crate) use gauge::register as register_gauges;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub(crate) use labels::MethodLabels;
pub(crate) use listeners::Listeners;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub use measure::Metric;
#[cfg(not(any(feature = "metrics", feature = "opentelemetry", feature = "tracing")))]
pub(crate) use nobody::{Inside, Observer, Observing};
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
pub(crate) use observer::{Observer, Observing};
pub(crate) use sent::Sent;
#[cfg(all(any(feature = "metrics", feature = "opentelemetry"), not(feature = "tracing")))]
pub(crate) use silent::Inside;
#[cfg(feature = "tracing")]
pub(crate) use spans::Inside;
