//! Fuzz targets, in `tests/`.
//!
//! Each target is a test with a bounded run: `cargo test -p redial-fuzz --release`. The same targets
//! run under a coverage-guided fuzzer with `cargo bolero test -p redial-fuzz NAME`. The target of the
//! gRPC layer's replay buffer, which is private, is in that crate: `src/replay_buffer/interleavings.rs`.
#![forbid(unsafe_code)]
