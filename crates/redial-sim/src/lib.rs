//! Simulate a fleet of clients that retry and hedge, in virtual time, before an outage does.
//!
//! Retries can keep a server down long after the cause of an outage is gone (metastable failure), and
//! they multiply across layers of services. Whether they do depends on the policy, the retry budget, the
//! load and the capacity. This crate runs that experiment in seconds: clients, layers of services with
//! queues and workers, latency distributions, outages and overloads, and several policies side by side.
//!
//! Every call runs on `redial-core`, which drives calls in production: on its state machine, or on counters
//! and `decide` where the async driver does so, too. The simulator has no retry model of its own.
//!
//! ```
//! use redial_core::{ms, s};
//! use redial_sim::{CallPolicy, Distribution, Load, Service, Simulation, Variant};
//!
//! let mut simulation = Simulation::new("steady", s(60));
//! simulation.clients.load = Load::Poisson { calls_per_second: 100.0 };
//! simulation.services.push(Service::new("backend", Distribution::Exponential { mean: ms(8) }));
//! simulation.policies.push(Variant::new("default", CallPolicy::default()));
//! let report = simulation.run()?;
//! println!("{}: {}", report.policies[0].name, report.policies[0].verdict);
//! # Ok::<(), redial_sim::Error>(())
//! ```
//!
//! - [`Simulation`] describes an experiment; [`mod@file`] reads it from TOML or JSON, and [`scenarios`]
//!   has ready-made ones.
//! - [`Simulation::run`] runs it, and [`sweep`] runs many, both on all cores. The same seed gives the
//!   same result.
//! - [`plan`](mod@plan) states what one policy does: when attempts start, how likely a call succeeds, the load.
//! - [`chart`] draws reports and plans: SVG, PNG, HTML, text.
//! - [`SimulationReport`] has the figures, the time series and a sentence per policy. It is serializable.
//!
//! # Limits of the model
//!
//! Servers are first-in-first-out queues with workers. A worker is busy for a service time that does not
//! depend on the load. Connections, batching, caches and garbage collection are not modelled. A simulation
//! shows what a policy does under stated assumptions; it does not predict a particular system.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod call_policy;
pub mod chart;
mod check;
mod did_you_mean;
mod distribution;
mod engine;
mod error;
mod event_queue;
pub mod file;
pub mod limits;
mod model;
pub mod plan;
mod recovery;
mod report;
mod run;
pub mod scenarios;
mod verdict;

pub use call_policy::{CallPolicy, ThrottleSpec, UsesStrategy};
pub use distribution::{Distribution, HistogramBucket, MIXTURE_DEPTH_MAX, PARTS_MAX, Part};
pub use error::Error;
pub use model::{
    Balancing, BudgetScope, CLIENTS, Clients, Disturbance, Effect, Load, NestedRetries, Service,
    Simulation, SlowServers, Variant,
};
pub use report::{Latency, Point, PolicyReport, ServiceInfo, ServiceReport, SimulationReport};
pub use run::{Watch, sweep, sweep_with_progress};

/// The examples of the README are compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
