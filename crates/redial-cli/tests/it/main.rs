//! The tests of this crate as one program, since each program links everything again.
//!
//! Rule: `tcp` is a program of its own: it plays in real time, and what fails among others there is played
//! again by itself.

mod command;
mod faults;
mod files;
mod foreign;
mod levels;
mod loader;
mod presets;
mod temporary;
