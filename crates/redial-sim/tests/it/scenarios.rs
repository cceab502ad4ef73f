//! Goal: the ready-made scenarios are valid and show what they claim.

use redial_core::Jitter;
use redial_sim::{PolicyReport, scenarios};

fn run(name: &str) -> Vec<PolicyReport> {
    let simulation = scenarios::by_name(name).expect("a scenario").simulation();
    assert_eq!(simulation.name, name);
    let policies = simulation.run().expect("it runs").policies;
    for policy in &policies {
        println!("{}: {}", policy.name, policy.verdict);
    }
    policies
}

/// The largest offered load.
fn peak(report: &PolicyReport) -> f64 {
    report.series.iter().map(|point| point.offered_per_second).fold(0.0, f64::max)
}

#[test]
fn scenario_metastability_needs_a_budget_to_recover() {
    let policies = run("metastability");
    let recovered: Vec<_> = policies.iter().map(|it| it.recovered_after_seconds).collect();
    assert!(recovered[0].is_some_and(|after| (95.0..145.0).contains(&after)));
    assert_eq!(recovered[1..3], [None, None]);
    assert!(recovered[3].is_some_and(|after| (95.0..145.0).contains(&after)));
    assert!(recovered[4].is_some_and(|after| after <= 2.0));
    let expected = "did not recover within 160 s after the disturbance ended: retries kept offered \
                    load at 1.9 times capacity";
    assert_eq!(policies[1].verdict, expected);
}

#[test]
fn scenario_retry_storm_is_bounded_by_throttles() {
    let policies = run("retry-storm");
    assert!(peak(&policies[1]) > 3.0 * peak(&policies[0]));
    assert!(policies[2..].iter().all(|policy| peak(policy) < 2.5 * peak(&policies[0])));
    assert!(policies[2..].iter().all(|policy| policy.amplification < 1.1));
}

#[test]
fn scenario_layers_multiply_retries_unless_stopped() {
    let loads: Vec<f64> = run("layers").iter().map(peak).collect();
    assert!(loads[0] > 20.0 * 200.0 && loads[1] < 10.0 * 200.0, "{loads:?}");
    assert!(loads[2] < 4.0 * 200.0 && loads[3] < 2.0 * 200.0, "{loads:?}");
}

#[test]
fn scenario_overload_grows_without_a_budget() {
    let rates: Vec<f64> = run("overload").iter().map(|it| it.offered_per_second).collect();
    assert!(rates[0] > 15_000.0 && (10_900.0..11_100.0).contains(&rates[1]), "{rates:?}");
    assert!(rates[2] < 10_300.0 && rates[3] < 10_150.0, "{rates:?}");
}

#[test]
fn scenario_slow_replica_is_hidden_by_hedging() {
    let policies = run("slow-replica");
    let tails: Vec<f64> = policies.iter().map(|it| it.latency.p99_ms).collect();
    assert!(tails[0] > 300.0 && tails[1] < 60.0 && tails[3] < 120.0, "{tails:?}");
    assert!(policies[1].amplification < 1.15);
}

#[test]
fn scenario_thundering_herd_ends_sooner_with_jitter() {
    let policies = run("thundering-herd");
    assert!(policies[0].succeeded < 5000, "{}", policies[0].succeeded);
    for policy in &policies[1..] {
        assert_eq!(policy.succeeded, 10_000, "{}", policy.name);
        assert!(policy.last_end_seconds < 60.0, "{}", policy.name);
    }
}

#[test]
fn scenario_thundering_herd_has_every_jitter() {
    let simulation = scenarios::by_name("thundering-herd").expect("a scenario").simulation();
    let jitters = simulation.policies.iter().map(|it| it.policy.policy().rules().jitter);
    let expected = [
        Jitter::None,
        Jitter::Proportional(0.2),
        Jitter::Half,
        Jitter::Equal,
        Jitter::Full,
        Jitter::Decorrelated,
    ];
    assert_eq!(jitters.collect::<Vec<_>>(), expected);
}

#[test]
fn scenario_small_buckets_allow_a_storm() {
    let loads: Vec<f64> = run("small-buckets").iter().map(peak).collect();
    assert!(loads[1] > 0.8 * loads[0] && loads[3] < 0.5 * loads[0], "{loads:?}");
}

#[test]
fn scenario_reports_are_the_same_for_the_same_seed() {
    let simulation = scenarios::by_name("slow-replica").expect("a scenario").simulation();
    let mut other = simulation.clone();
    other.seed = 2;
    let [first, second, third] =
        [&simulation, &simulation, &other].map(|it| it.run().expect("runs"));
    assert!(first == second && first != third);
}
