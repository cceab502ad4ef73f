//! Goal: a deadline reaches every service below the caller. Method: chains of services of different
//! lengths, whose last one has an outage.

use std::time::Duration;

use redial_core::{ms, s};
use redial_sim::{
    CLIENTS, Distribution, Disturbance, Effect, Load, PolicyReport, Service, Simulation, Variant,
};

use crate::common::{policy, run_variants};

/// A database below `layers - 1` services that only forward; the clients alone have a time limit.
fn outage(layers: usize) -> PolicyReport {
    let mut simulation = Simulation::new("chain", s(200));
    simulation.clients.load = Load::Poisson { calls_per_second: 280.0 };
    for layer in 1..layers {
        let forwards = Service::new(&format!("layer {layer}"), Distribution::Fixed(ms(1)));
        simulation.services.push(forwards);
    }
    let time = Distribution::Fixed(Duration::from_nanos(3_333_333));
    let mut database = Service::new("database", time);
    database.workers = Some(1);
    simulation.services.push(database);
    let effect = Effect::Stall { service: layers - 1 };
    simulation.disturbances.push(Disturbance { at: s(30), lasts: s(10), effect });
    let mut variant = Variant::new("tested", policy(r#"{ "attempts": 1 }"#));
    let clients = policy(r#"{ "attempts": 1, "attempt_timeout": "1s" }"#);
    variant.callers = vec![(CLIENTS.to_owned(), clients)];
    variant.deadline_propagation = Some(true);
    simulation.policies.push(variant);
    run_variants(&simulation).remove(0)
}

#[test]
fn deadline_propagation_reaches_every_layer() {
    for layers in 1..=4 {
        let report = outage(layers);
        let after = report.recovered_after_seconds;
        assert!(after.is_some_and(|after| after <= 2.0), "{layers} layers: {}", report.verdict);
        assert!(report.services[layers - 1].dropped > 2000, "{layers} layers: {report:?}");
    }
}
