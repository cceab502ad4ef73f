//! Goal: retries keep a server down after an outage, and a retry budget brings it back. Method: one queue
//! of 300 requests per second under 280 calls per second, and an outage of ten seconds (F13).

use std::time::Duration;

use redial_core::s;
use redial_sim::{
    Distribution, Disturbance, Effect, Load, PolicyReport, Service, Simulation, Variant, sweep,
};

use crate::common::policy;

const ONE: &str = r#"{ "attempts": 1, "attempt_timeout": "1s", "throttle": "none" }"#;
const TWO: &str = r#"{ "attempts": 2, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": "none" }"#;
const THREE: &str = r#"{ "attempts": 3, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": "none" }"#;
const BACKOFF: &str = r#"{ "attempts": 2, "backoff": {"constant": "2s"}, "jitter": "full", "attempt_timeout": "1s", "throttle": "none" }"#;
const TWO_BUDGET: &str = r#"{ "attempts": 2, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": {"budget": {"reserve": 10, "ratio": 0.1}} }"#;
const THREE_BUDGET: &str = r#"{ "attempts": 3, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": {"budget": {"reserve": 10, "ratio": 0.1}} }"#;

/// The reports of seeds 1 to 5.
fn outage(rate: f64, text: &str, drops_expired: bool) -> Vec<PolicyReport> {
    let simulation = |seed| {
        let mut simulation = Simulation::new("metastability", s(200));
        simulation.seed = seed;
        simulation.clients.load = Load::Poisson { calls_per_second: rate };
        let mut database =
            Service::new("database", Distribution::Fixed(Duration::from_nanos(3_333_333)));
        database.workers = Some(1);
        database.deadline_propagation = drops_expired;
        simulation.services.push(database);
        let effect = Effect::Stall { service: 0 };
        simulation.disturbances.push(Disturbance { at: s(30), lasts: s(10), effect });
        simulation.policies.push(Variant::new("tested", policy(text)));
        simulation
    };
    let simulations: Vec<Simulation> = (1..=5).map(simulation).collect();
    let reports = sweep(&simulations).expect("they run");
    let reports: Vec<PolicyReport> =
        reports.into_iter().map(|mut report| report.policies.remove(0)).collect();
    for report in &reports {
        println!("{}", report.verdict);
    }
    reports
}

#[track_caller]
fn recovers_within(reports: &[PolicyReport], least: f64, most: f64) {
    for report in reports {
        let after = report.recovered_after_seconds.unwrap_or(f64::INFINITY);
        assert!((least..=most).contains(&after), "{after} s, expected {least} to {most}");
    }
}

#[track_caller]
fn never_recovers(reports: &[PolicyReport], least: f64, most: f64) {
    for report in reports {
        assert_eq!(report.recovered_after_seconds, None);
        assert!(report.goodput_per_second < 1.0, "{}", report.goodput_per_second);
        let offered = report.offered_per_second;
        assert!((least..=most).contains(&offered), "{offered}");
        assert!(report.verdict.starts_with("did not recover within 160 s"), "{}", report.verdict);
    }
}

#[test]
fn metastability_without_retries_ends_with_the_backlog() {
    // 113 to 126 s with the seeds of the reference; ours differ.
    recovers_within(&outage(280.0, ONE, false), 95.0, 145.0);
}

#[test]
fn metastability_retries_keep_the_server_down() {
    never_recovers(&outage(280.0, TWO, false), 530.0, 590.0);
    never_recovers(&outage(280.0, THREE, false), 795.0, 885.0);
}

#[test]
fn metastability_backoff_alone_does_not_help() {
    never_recovers(&outage(280.0, BACKOFF, false), 530.0, 590.0);
}

#[test]
fn metastability_budget_recovers_as_without_retries() {
    recovers_within(&outage(280.0, TWO_BUDGET, false), 95.0, 150.0);
    recovers_within(&outage(280.0, THREE_BUDGET, false), 95.0, 150.0);
}

#[test]
fn metastability_budget_with_deadline_propagation_recovers_at_once() {
    recovers_within(&outage(280.0, TWO_BUDGET, true), 0.0, 2.0);
    // Without the budget it takes longer and depends on the seed: 16 to 74 s in the reference.
    let slow = outage(280.0, TWO, true);
    let after = |report: &PolicyReport| report.recovered_after_seconds.unwrap_or(f64::INFINITY);
    assert!(slow.iter().all(|report| after(report) > 3.0));
    assert!(slow.iter().filter(|report| after(report) < 100.0).count() >= 3);
}

#[test]
fn metastability_is_absent_below_half_of_the_capacity() {
    // 125 to 146 s in the reference, one seed later than the run.
    let reports = outage(140.0, TWO, false);
    let recovered = reports.iter().filter(|report| report.recovered_after_seconds.is_some());
    assert!(recovered.count() >= 3);
}
