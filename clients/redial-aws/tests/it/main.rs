//! Tests of the crate with the SDK's own clients.
//!
//! `scripted` is a double of a service inside the process, on a paused clock, where times have to be exact.
//! The others are real servers on loopback connections, through the fault proxy.

mod around;
mod bucket;
mod client;
mod clients;
mod connector;
mod s3;
mod scenarios;
mod scripted;
mod side_by_side;
mod traps;
