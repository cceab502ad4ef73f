//! Goal: metrics and spans say of a call what happened to it. Method: the same calls for all who are told,
//! each of whom is the test's own thread's.

mod plays;

#[cfg(feature = "metrics")]
mod agreement;
#[cfg(all(feature = "metrics", feature = "opentelemetry"))]
mod gauges;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
#[cfg(feature = "tracing")]
mod recorder;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod told;
