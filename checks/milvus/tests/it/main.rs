//! Goal: the layer's settings have the promised effect on real data: which failures are repeated,
//! and which settings insert rows twice. Method: milvus-lite (a real server of the Milvus project)
//! behind the fault proxy or behind Envoy; the generated client of the official Rust SDK through the
//! layer, the SDK's own client around the interceptor, and the Node SDK under the same faults. Rows
//! are counted past the proxy. Real time; delays are never early and at most [`TOLERANCE`] late.
//!
//! `REDIAL_MILVUS_BIN` is the folder with `milvus-lite` and `envoy`, `REDIAL_MILVUS_NODE` the one
//! with the Node program and its packages: `cargo xtask test milvus` installs both.

mod collection;
mod envoy;
mod node;
mod processes;
mod rows;
mod sdk;

use std::time::Duration;

/// Generous for a busy machine, and shorter than any wrong wait.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(30);
