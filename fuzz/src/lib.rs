//! Fuzz targets, in `tests/`.
//!
//! Each target is a test with a bounded run: `cargo test -p redial-fuzz --release`. The same
//! targets run under a coverage-guided fuzzer with `cargo bolero test -p redial-fuzz NAME`. The
//! target for the private replay buffer of the gRPC layer is in that crate.
#![forbid(unsafe_code)]
