//! The integration tests of this crate as one binary, to link only once.

mod common;
mod contention;
mod independent_failures;
mod layers;
mod metastability;
mod overload;
mod tail_latency;
mod throttles;
