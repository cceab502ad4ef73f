//! Redial's retry policies and strategies in the official Couchbase SDK for Rust (the crate `couchbase`):
//! attempt limits, retry budgets that other calls of the process share, your own strategies, deadlines and
//! reports.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod attempt;
mod reason;
mod strategy;

pub use attempt::{SdkError, attempt};
pub use reason::{KV_INVALID_VBUCKET_MAP, NOT_READY, rfc_reason};
/// Why a policy cannot be an [`SdkStrategy`].
pub use redial::external::NeedsCallState;
pub use strategy::{SdkDecision, SdkStrategy};
