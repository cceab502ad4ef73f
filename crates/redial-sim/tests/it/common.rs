//! Simulations that several tests need.

use redial::config::PolicyConfig;
use redial_core::{ms, s};
use redial_sim::{CallPolicy, Distribution, Load, PolicyReport, Service, Simulation, Variant};

/// A policy in its written form.
pub(crate) fn policy(json: &str) -> CallPolicy {
    let config: PolicyConfig = serde_json::from_str(json).expect("a policy");
    CallPolicy::from_config(&config).expect("a valid policy")
}

/// Policies without jitter, budget or delay: this many attempts.
pub(crate) fn attempts(attempts: u32) -> CallPolicy {
    policy(&format!(
        r#"{{ "attempts": {attempts}, "backoff": {{"constant": "1ms"}}, "throttle": "none" }}"#
    ))
}

/// A number of calls to a service that fails with this probability.
pub(crate) fn failing(rate: f64, calls: u64) -> Simulation {
    let mut simulation = Simulation::new("failing", s(3600));
    simulation.clients.load = Load::Even { calls_per_second: 1000.0 };
    simulation.clients.calls_max = Some(calls);
    let mut service = Service::new("backend", Distribution::Fixed(ms(1)));
    service.failure_rate = rate;
    simulation.services.push(service);
    simulation
}

/// Runs a single policy.
pub(crate) fn run(mut simulation: Simulation, policy: CallPolicy) -> PolicyReport {
    simulation.policies = vec![Variant::new("tested", policy)];
    run_variants(&simulation).remove(0)
}

/// Runs the policies that the simulation has.
pub(crate) fn run_variants(simulation: &Simulation) -> Vec<PolicyReport> {
    simulation.run().expect("it runs").policies
}

/// The share of calls that succeeded.
pub(crate) fn success(report: &PolicyReport) -> f64 {
    report.succeeded as f64 / report.calls as f64
}

/// Asserts that a number is within a tolerance.
#[track_caller]
pub(crate) fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found}, expected {expected} ± {tolerance}");
}
