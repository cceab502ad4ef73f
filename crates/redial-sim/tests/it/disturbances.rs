//! Goal: a disturbance changes what it names, while it lasts. Method: small services with and without it.

use redial_core::{ms, s};
use redial_sim::{Distribution, Disturbance, Effect, Load, PolicyReport, Service, Simulation};

use crate::common::{attempts, near, run};

/// A healthy service under this load, and a disturbance from 20 s to 30 s of 60 s.
fn disturbed(load: Load, effect: Effect) -> Simulation {
    let mut simulation = Simulation::new("disturbed", s(60));
    simulation.interval = Some(s(1));
    simulation.clients.load = load;
    simulation.services.push(Service::new("backend", Distribution::Fixed(ms(1))));
    simulation.disturbances.push(Disturbance { at: s(20), lasts: s(10), effect });
    simulation
}

/// The calls from one second to another.
fn calls(report: &PolicyReport, from: usize, to: usize) -> f64 {
    report.series[from..to].iter().map(|point| point.calls_per_second).sum()
}

#[test]
fn load_factor_applies_during_the_disturbance_only() {
    for factor in [0.0, 0.002, 0.1, 1.0, 5.0] {
        let even = run(
            disturbed(Load::Even { calls_per_second: 100.0 }, Effect::Load { factor }),
            attempts(1),
        );
        near(calls(&even, 20, 30), 1000.0 * factor, 2.0);
        near(calls(&even, 30, 60), 3000.0, 2.0);
        let load = Load::Poisson { calls_per_second: 100.0 };
        let poisson = run(disturbed(load, Effect::Load { factor }), attempts(1));
        near(calls(&poisson, 20, 30), 1000.0 * factor, 100.0 * factor.max(0.05));
        near(calls(&poisson, 30, 60), 3000.0, 170.0);
        assert_eq!(poisson.recovered_after_seconds, Some(0.0), "{factor}: {}", poisson.verdict);
    }
}

#[test]
fn fail_effect_adds_to_the_failure_rate_of_the_service() {
    let mut simulation =
        disturbed(Load::Even { calls_per_second: 2000.0 }, Effect::Fail { service: 0, rate: 0.5 });
    simulation.services[0].failure_rate = 0.5;
    let report = run(simulation, attempts(1));
    let failed: f64 = report.series[20..30].iter().map(|point| point.failed_per_second).sum();
    near(failed / calls(&report, 20, 30), 0.75, 0.02);
}
