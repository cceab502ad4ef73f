//! The metrics of gRFCs A66 and A96: `metrics` facade, OpenTelemetry and gauges, off by default.
//!
//! The calls are real, over an in-memory pipe on a paused clock. Each test has a thread-local recorder.

#[cfg(feature = "metrics")]
mod consistency;
mod expected;
#[cfg(feature = "metrics")]
mod facade;
#[cfg(all(feature = "metrics", feature = "opentelemetry"))]
mod gauges;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
