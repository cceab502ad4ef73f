//! The command `redial`, as a library, so that its parts can be tested and used by other tools.
//!
//! - [`scenarios`] runs scenario files: retry behaviour as data.
//! - [`faults`] runs scripted servers for clients in any language.
//! - [`simulate`] and [`plan`](mod@plan) run simulations of fleets and show what a policy will do.
//! - [`presets`] are the presets of all designs, by name.
//! - [`demo`] runs one policy of each design; [`timeline`] draws a call log.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod demo;
pub mod faults;
mod output;
pub mod plan;
pub mod presets;
pub mod scenarios;
pub mod simulate;
pub mod timeline;
