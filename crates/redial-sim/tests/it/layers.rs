//! Goal: retries multiply across layers, and depth control or budgets stop that. Method: a chain of
//! services with zero service time, where the last one fails.

use std::time::Duration;

use redial_core::s;
use redial_sim::{CallPolicy, Distribution, Load, NestedRetries, Service, Simulation, Variant};

use crate::common::{attempts, near, policy, run_variants, success};

/// A chain of services whose last one fails at this rate.
fn chain(layers: usize, rate: f64, calls: u64) -> Simulation {
    let mut simulation = Simulation::new("layers", s(36_000));
    simulation.clients.load = Load::Even { calls_per_second: 100.0 };
    simulation.clients.calls_max = Some(calls);
    for layer in 1..=layers {
        let time = Distribution::Fixed(Duration::ZERO);
        simulation.services.push(Service::new(&format!("layer {layer}"), time));
    }
    simulation.services[layers - 1].failure_rate = rate;
    simulation
}

fn with(mut simulation: Simulation, policy: CallPolicy, nested: NestedRetries) -> Simulation {
    let mut variant = Variant::new("tested", policy);
    variant.nested_retries = nested;
    simulation.policies = vec![variant];
    simulation
}

#[test]
fn layers_multiply_attempts() {
    // F2: a^L, exact.
    for (tries, layers, expected) in [(3, 3, 27.0), (4, 3, 64.0), (3, 5, 243.0)] {
        let simulation = with(chain(layers, 1.0, 100), attempts(tries), NestedRetries::Allowed);
        let report = run_variants(&simulation).remove(0);
        assert_eq!(report.amplification, expected, "{tries} attempts in {layers} layers");
    }
}

#[test]
fn layers_without_retries_below_retries_add_attempts() {
    // F3: 1 + L(a - 1), exact if everything fails.
    let simulation = with(chain(3, 1.0, 100), attempts(3), NestedRetries::Stopped);
    assert_eq!(run_variants(&simulation).remove(0).amplification, 7.0);
}

#[test]
fn layers_without_retries_below_retries_lose_little_success() {
    // F3 at p = 0.5: success 0.991 and load 1.98, against 1.000 and 2.00, each within 0.005. The closed
    // forms are 1 - p^3 p^2 p^2 and 1.75 + p^3 1.5 + p^5 1.5, against 1 - p^27 and 2. With 500,000
    // calls the standard error of the load is 0.0016 and 0.002.
    for (nested, succeeded, load) in [
        (NestedRetries::Stopped, (0.991, 0.992_187_5), (1.98, 1.984_375)),
        (NestedRetries::Allowed, (1.0, 1.0), (2.0, 2.0)),
    ] {
        let report = run_variants(&with(chain(3, 0.5, 500_000), attempts(3), nested)).remove(0);
        for expected in [succeeded.0, succeeded.1] {
            near(success(&report), expected, 0.005);
        }
        for expected in [load.0, load.1] {
            near(report.amplification, expected, 0.005);
        }
    }
}

#[test]
fn layers_with_budgets_multiply_the_budgets_only() {
    // F4: a budget of 10 % in each of L layers bounds the load at 1.1^L, which every layer would reach
    // if all of its calls succeeded and still needed retries. Only successes pay for retries here: with
    // a share f of failed attempts, the load of a layer is 1 / (1 - ratio (1 - f)), as in F5, and its
    // calls succeed with (1 - f) times that. A request fails on its own with p = ratio, or because its
    // call to the next layer does; one that fails calls no further, so the load of a layer is counted
    // per call to it.
    for (ratio, layers, most) in
        [(0.1, 3, 1.331), (0.1, 5, 1.611), (0.2, 3, 1.728), (0.2, 5, 2.488)]
    {
        let text = format!(
            r#"{{ "attempts": 100, "backoff": {{"constant": "1ms"}},
                  "throttle": {{"budget": {{"reserve": 10, "ratio": {ratio}}}}} }}"#
        );
        let mut simulation = chain(layers, 0.0, 50_000);
        for service in &mut simulation.services {
            service.failure_rate = ratio;
        }
        let report =
            run_variants(&with(simulation, policy(&text), NestedRetries::Allowed)).remove(0);
        let load = report.services.iter().map(|it| it.attempts as f64 / it.calls as f64);
        let load: f64 = load.product();
        let (mut expected, mut below) = (1.0, 1.0);
        for _ in 0..layers {
            let passes = (1.0 - ratio) * below;
            let own = 1.0 / (1.0 - ratio * passes);
            (expected, below) = (expected * own, passes * own);
        }
        // Not exact: retries come soon after a failure, when the bucket of the next layer is emptier
        // than on average.
        near(load, expected, 0.01 * expected);
        assert!(expected < most && load < most, "{load} above {most}");
    }
}

#[test]
fn layers_with_budgets_reach_their_bound_at_the_border() {
    // F4: 1.1^L. A budget allows `ratio` retries per success. If a share of ratio / (1 + ratio) of attempts fails,
    // calls need just as many, and all of them succeed: every call pays a deposit, and each layer adds all that its
    // budget allows. With more failures the load falls again, because calls that fail pay none.
    for (ratio, layers, most) in
        [(0.1, 3, 1.331), (0.1, 5, 1.611), (0.2, 3, 1.728), (0.2, 5, 2.488)]
    {
        // The reserve covers the random walk of the tokens, whose deviation is about 100.
        let text = format!(
            r#"{{ "attempts": 100, "backoff": {{"constant": "1ms"}},
                  "throttle": {{"budget": {{"reserve": 1000, "ratio": {ratio}}}}} }}"#
        );
        let mut simulation = chain(layers, 0.0, 50_000);
        for service in &mut simulation.services {
            service.failure_rate = ratio / (1.0 + ratio);
        }
        let report =
            run_variants(&with(simulation, policy(&text), NestedRetries::Allowed)).remove(0);
        assert_eq!(report.failed, 0);
        let load = report.services.iter().map(|it| it.attempts as f64 / it.calls as f64);
        // The standard error is up to 0.4 %: that of five layers at 20 %.
        near(load.product(), most, 0.01 * most);
    }
}
