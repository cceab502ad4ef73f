//! The integration tests of this crate as one binary, to link only once.
//!
//! `tcp` is a separate binary: it runs in real time and needs the machine for itself.

mod check;
mod command;
mod faults;
mod faults_couchbase;
mod faults_proxy;
mod interop;
mod levels;
mod loader;
mod manual;
mod presets;
mod replay;
mod run;
mod scenario_files;
mod simulate;
mod temporary;
#[cfg(feature = "ui")]
mod ui;
