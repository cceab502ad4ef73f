//! Nothing but a place for the fuzz targets in `tests/`.
//!
//! Each target is a test with a bounded run: `cargo test -p redial-fuzz --release`. The same targets
//! run under a coverage-guided fuzzer with `cargo bolero test -p redial-fuzz NAME`. The target of the
//! gRPC layer's tape, which is private, is in that crate: `src/tape/interleavings.rs`.
#![forbid(unsafe_code)]
