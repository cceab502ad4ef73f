//! Goal: a run has recovered if and only if goodput is back. Method: outages at low rates, and at the
//! start of the run.

use redial_core::{ms, s};
use redial_sim::{Distribution, Disturbance, Effect, Load, Service, Simulation};

use crate::common::{attempts, policy, run};

/// A run at this rate of calls, with ten seconds of this effect.
fn disturbed(rate: f64, at: u64, effect: Effect) -> Simulation {
    let mut simulation = Simulation::new("outage", s(200));
    simulation.clients.load = Load::Poisson { calls_per_second: rate };
    simulation.services.push(Service::new("backend", Distribution::Fixed(ms(5))));
    simulation.disturbances.push(Disturbance { at: s(at), lasts: s(10), effect });
    simulation
}

#[test]
fn recovery_at_a_low_rate_needs_goodput() {
    // Half of the capacity: retries keep the queue longer than the attempt timeout.
    for rate in [0.5, 1.0, 2.0, 4.0] {
        let mut simulation = disturbed(rate, 50, Effect::Stall { service: 0 });
        simulation.services[0].workers = Some(1);
        simulation.services[0].time = Distribution::Fixed(ms((500.0 / rate) as u64));
        let timeout = 2000.0 / rate;
        let retry = format!(
            r#"{{ "attempts": 4, "attempt_timeout": "{timeout}ms", "backoff": {{"constant": "0s"}}, "throttle": "none" }}"#
        );
        simulation.disturbances[0].lasts = s(30);
        let report = run(simulation, policy(&retry));
        assert_eq!(report.goodput_per_second, 0.0, "{rate}: {}", report.verdict);
        assert_eq!(report.recovered_after_seconds, None, "{rate}: {}", report.verdict);
    }
}

#[test]
fn recovery_at_a_low_rate_is_found() {
    for rate in [0.2, 0.5, 1.0, 2.0, 4.0] {
        let report = run(disturbed(rate, 50, Effect::Refuse { service: 0 }), attempts(1));
        let after = report.recovered_after_seconds;
        assert!(after.is_some_and(|after| after <= 10.0), "{rate}: {}", report.verdict);
    }
}

#[test]
fn recovery_from_the_start_compares_with_the_calls() {
    for rate in [0.5, 10.0, 100.0] {
        let report = run(disturbed(rate, 0, Effect::Refuse { service: 0 }), attempts(1));
        let after = report.recovered_after_seconds;
        assert!(after.is_some_and(|after| after <= 5.0), "{rate}: {}", report.verdict);
    }
    let mut simulation = disturbed(10.0, 0, Effect::Refuse { service: 0 });
    simulation.services[0].failure_rate = 1.0;
    assert_eq!(run(simulation, attempts(1)).recovered_after_seconds, None);
}

#[test]
fn recovery_of_a_burst_is_not_asked() {
    let mut simulation = disturbed(1.0, 10, Effect::Refuse { service: 0 });
    simulation.clients.load = Load::Burst { at: s(1) };
    let report = run(simulation, attempts(1));
    assert!(!report.was_disturbed);
    assert!(report.verdict.starts_with("100 % of calls succeeded"), "{}", report.verdict);
}

#[test]
fn recovery_is_never_while_a_disturbance_outlasts_every_run() {
    for lasts in [s(150), redial_core::duration(u64::MAX), std::time::Duration::MAX] {
        let mut simulation = disturbed(10.0, 50, Effect::Refuse { service: 0 });
        simulation.disturbances[0].lasts = lasts;
        simulation.policies = vec![redial_sim::Variant::new("tested", attempts(1))];
        let report = simulation.run().expect("it runs");
        assert_eq!(report.disturbances, [(50.0, 200.0)], "{lasts:?}");
        assert_eq!(report.policies[0].recovered_after_seconds, None, "{lasts:?}");
    }
}
