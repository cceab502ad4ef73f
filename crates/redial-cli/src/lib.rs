//! The command `redial`, as a library, so that its parts can be tested and used by other tools.
//!
//! - [`scenarios`] plays retry behaviour that is written as data.
//! - [`faults`] runs scripted servers for clients in any language.
//! - [`presets`] are the presets of all designs, by name.
//! - [`demo`] shows one policy of each design at work; [`timeline`] draws a call's diary.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod demo;
pub mod faults;
pub mod presets;
pub mod scenarios;
pub mod timeline;
