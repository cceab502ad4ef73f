//! The tower layer: readiness, backpressure, cancellation, budgets, hedging. Time is tokio's, paused.
#![cfg(all(feature = "tower", feature = "tokio"))]

#[path = "tower/budget.rs"]
mod budget;
#[path = "tower/cancellation.rs"]
mod cancellation;
#[path = "tower/classification.rs"]
mod classification;
#[path = "tower/common.rs"]
mod common;
#[path = "tower/hedging.rs"]
mod hedging;
#[path = "tower/hooks.rs"]
mod hooks;
#[path = "tower/readiness.rs"]
mod readiness;
#[path = "tower/requests.rs"]
mod requests;
#[path = "tower/types.rs"]
mod types;
