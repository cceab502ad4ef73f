//! The integration tests of this crate as one binary, to link only once.
//!
//! `tcp` is a separate binary: it runs in real time and needs the machine for itself.

mod command;
mod faults;
mod interop;
mod levels;
mod loader;
mod presets;
mod scenario_files;
mod simulate;
mod temporary;
