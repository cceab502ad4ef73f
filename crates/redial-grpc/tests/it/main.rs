//! Integration tests of the gRPC layer, one module per feature.
//!
//! They are one binary because every test binary links all of tonic, which takes seconds and tens of
//! megabytes. Tests that measure the whole process have a binary of their own: `allocations` and `swaps`.
//!
//! Most tests use a generated tonic client, the layer and a real HTTP/2 connection over an in-memory
//! pipe to a scripted server, on a paused clock, so that every point in time is exact. The few tests
//! over TCP run in real time and compare no times.
//!
//! Layers with the same server name (`for_server`) share one throttle in the process, so each test uses
//! names of its own.
//!
//! A test that corresponds to a test of another gRPC library says so in a comment that starts with
//! `Peer test:`. `docs/peer-suites.md` lists those, and `crates/xtask/tests/documents.rs` compares both.

mod common;

mod attempt_timeout;
mod backoff;
mod buffer;
mod call_log;
mod cancellation;
mod compression;
mod concurrency;
mod config;
mod config_file;
mod connection;
mod connection_queue;
mod deadline;
mod hedging;
mod hedging_delay;
mod hedging_stream;
mod hyper_client;
mod interceptor;
mod message_limit;
mod metadata;
mod nested_layers;
mod pushback;
mod replay;
mod report;
mod retry;
mod retry_budget;
mod retry_stream;
mod statistics;
mod status;
mod stream_error;
mod stream_reset;
mod throttle;
mod transparent_retry;

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;
