//! Goal: the time series shows load, latency and the tokens of every throttle. Method: small fleets with an
//! outage.

use redial_core::{ms, s};
use redial_sim::{Distribution, Disturbance, Effect, Load, PolicyReport, Service, Simulation};

use crate::common::{attempts, near, policy, run};

/// Two services; the second one refuses requests from 20 s to 30 s.
fn simulation() -> Simulation {
    let mut simulation = Simulation::new("series", s(60));
    simulation.interval = Some(s(1));
    simulation.clients.load = Load::Even { calls_per_second: 100.0 };
    for name in ["front", "back"] {
        simulation.services.push(Service::new(name, Distribution::Fixed(ms(20))));
    }
    let effect = Effect::Refuse { service: 1 };
    simulation.disturbances.push(Disturbance { at: s(20), lasts: s(10), effect });
    simulation
}

#[test]
fn series_has_amplification_and_latency_of_each_interval() {
    let report = run(simulation(), attempts(3));
    let healthy = &report.series[10];
    near(healthy.amplification.expect("calls"), 1.0, 0.01);
    near(healthy.p50_ms.expect("successes"), 40.0, 0.8);
    near(healthy.p99_ms.expect("successes"), 40.0, 0.8);
    let outage = &report.series[25];
    // Three attempts in each of two layers.
    near(outage.amplification.expect("calls"), 9.0, 0.2);
    assert_eq!((outage.p50_ms, outage.p99_ms), (None, None));
    let points = report.series.iter().filter_map(|point| point.amplification);
    near(points.sum::<f64>() / 60.0, report.amplification, 0.01);
}

#[test]
fn series_without_calls_has_no_amplification() {
    let mut simulation = simulation();
    simulation.clients.calls_max = Some(1000);
    let report = run(simulation, attempts(1));
    assert_eq!(report.series[50].amplification, None);
    assert_eq!(report.series[50].p99_ms, None);
}

#[test]
fn series_has_tokens_of_clients_and_services() {
    let budget = r#"{ "attempts": 3, "backoff": {"constant": "1ms"},
        "throttle": {"budget": {"reserve": 50, "ratio": 0.1}} }"#;
    let report = run(simulation(), policy(budget));
    let [front, back] = &report.services[..] else { panic!("two services") };
    assert_eq!((front.tokens.len(), back.tokens.len()), (60, 0));
    let tokens = |report: &PolicyReport, second: usize| {
        (report.series[second].tokens, report.services[0].tokens[second])
    };
    assert_eq!(tokens(&report, 10), (Some(50.0), Some(50.0)));
    let (clients, front) = tokens(&report, 25);
    assert!(clients.is_some_and(|it| it < 5.0) && front.is_some_and(|it| it < 5.0));
    let report = run(simulation(), attempts(3));
    assert!(report.services[0].tokens.is_empty() && report.series[10].tokens.is_none());
}
