//! The command `redial`, as a library, so that its parts can be tested and used by other tools.
//!
//! - [`check`] finds the problems of service configs, policies and scenario files.
//! - [`run`] runs a command until it works.
//! - [`replay`] plays a recorded call log again, also under another policy; [`explain`] puts it into
//!   words; [`log_file`] reads it.
//! - [`scenarios`] runs scenario files: retry behaviour as data.
//! - [`faults`] runs scripted servers for clients in any language.
//! - [`simulate`] and [`plan`](mod@plan) run simulations of fleets and show what a policy will do.
//! - [`presets`] are the presets of all designs, by name.
//! - [`ui`] serves check, plan and simulate as a page for the browser.
//! - [`demo`] runs one policy of each design; [`timeline`] draws a call log.
//! - [`policy_file`] reads policies; [`manual`] prints completions and manual pages; [`color`] says
//!   where colours are shown.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod check;
pub mod color;
pub mod demo;
pub mod explain;
pub mod faults;
pub mod log_file;
pub mod manual;
mod output;
pub mod plan;
pub mod policy_file;
pub mod presets;
mod progress;
pub mod replay;
pub mod run;
pub mod scenarios;
pub mod simulate;
pub mod timeline;
#[cfg(feature = "ui")]
#[cfg_attr(docsrs, doc(cfg(feature = "ui")))]
pub mod ui;
