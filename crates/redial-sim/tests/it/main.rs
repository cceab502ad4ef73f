//! The integration tests of this crate as one binary, to link only once.

mod common;
mod contention;
mod deadline_propagation;
mod disturbances;
mod files;
mod independent_failures;
mod layers;
mod metastability;
mod overload;
mod plans;
mod recovery;
mod scenarios;
mod series;
mod tail_latency;
mod throttles;
