//! Goal: fan-out makes rare slow requests common, and a hedge cuts the tail. Method: a frontend that
//! calls 100 leaves per request.

use std::time::Duration;

use redial_core::{ms, s};
use redial_sim::{CallPolicy, Distribution, Load, Part, Service, Simulation};

use crate::common::{near, policy, run};

fn fan_out(leaves: u32, calls: u64, time: Distribution) -> Simulation {
    let mut simulation = Simulation::new("fan-out", s(36_000));
    simulation.clients.load = Load::Even { calls_per_second: 10.0 };
    simulation.clients.calls_max = Some(calls);
    let mut frontend = Service::new("frontend", Distribution::Fixed(Duration::ZERO));
    frontend.fan_out = leaves;
    simulation.services = vec![frontend, Service::new("leaf", time)];
    simulation
}

fn slow_share(share: f64, fast: Distribution, slow: Distribution) -> Distribution {
    let part = |weight, distribution| Part { weight, distribution };
    Distribution::Mixture(vec![part(1.0 - share, fast), part(share, slow)])
}

fn once() -> CallPolicy {
    policy(r#"{ "attempts": 1, "throttle": "none" }"#)
}

#[test]
fn tail_latency_fan_out_makes_rare_slowness_common() {
    // F11: of 100 leaves with 1 % slow requests, 63.4 % of calls are slow; 2000 at 0.01 %: 18.1 %.
    for (leaves, share, calls, expected) in
        [(100, 0.01, 20_000, 0.634), (2000, 0.0001, 3000, 0.181)]
    {
        let fixed = |millis| Distribution::Fixed(ms(millis));
        let time = slow_share(share, fixed(1), fixed(1000));
        let mut simulation = fan_out(leaves, calls, time);
        // A call is slow if it misses this deadline.
        let deadline = policy(r#"{ "attempts": 1, "deadline": "500ms", "throttle": "none" }"#);
        simulation.policies = vec![redial_sim::Variant::new("clients", once())];
        simulation.policies[0].callers.push(("clients".to_owned(), deadline));
        let report = simulation.run().expect("it runs").policies.remove(0);
        // Three standard errors: 0.010 and 0.021.
        let calls = report.calls as f64;
        let error = (expected * (1.0 - expected) / calls).sqrt();
        near(report.stop_reasons["deadline"] as f64 / calls, expected, 3.0 * error);
    }
}

#[test]
fn tail_latency_hedge_cuts_p99_for_little_load() {
    // F12: lognormal leaves, 1 % uniform from 50 ms to 1.5 s, hedged at 10 ms.
    let time = || {
        let fast = Distribution::Lognormal { median: ms(5), sigma: 0.4 };
        slow_share(0.01, fast, Distribution::Uniform { min: ms(50), max: ms(1500) })
    };
    const CALLS: u64 = 20_000;
    let plain = run(fan_out(100, CALLS, time()), once());
    near(plain.latency.p99_ms, 1486.0, 5.0);
    let hedged = r#"{ "attempts": 2, "hedge": {"delay": "10ms"}, "throttle": "none" }"#;
    let run = |deadline: &str| {
        let mut simulation = fan_out(100, CALLS, time());
        simulation.policies = vec![redial_sim::Variant::new("hedged", policy(hedged))];
        let clients =
            format!(r#"{{ "attempts": 1, "deadline": "{deadline}", "throttle": "none" }}"#);
        simulation.policies[0].callers.push(("clients".to_owned(), policy(&clients)));
        simulation.run().expect("it runs").policies.remove(0)
    };
    // The p99 of 27 ms is at the edge of a cliff: 1.105 % of the calls take longer than 27 ms, 0.995 %
    // longer than 50 ms, because both attempts of a leaf are slow with 1e-4, and there are 100 leaves. A
    // quantile of a sample falls on either side of it, so the shares are compared instead. The standard
    // error of a share is 0.07 %.
    let slower = |report: &redial_sim::PolicyReport| {
        report.stop_reasons["deadline"] as f64 / report.calls as f64
    };
    near(slower(&run("27ms")), 0.011_05, 0.0021);
    near(slower(&run("50ms")), 0.009_95, 0.0021);
    let report = run("1h");
    // Extra load of 5 %.
    let leaf = &report.services[1];
    near(leaf.attempts as f64 / leaf.calls as f64, 1.050, 0.003);
    // Either side of the cliff: 27 to 138 ms in 12 seeds.
    let p99 = report.latency.p99_ms;
    assert!((26.0..150.0).contains(&p99), "{p99}");
    // An honest limit: p99.9 stays at about a second, 1047 ms in the closed form.
    near(report.latency.p999_ms, 1047.0, 150.0);
}
