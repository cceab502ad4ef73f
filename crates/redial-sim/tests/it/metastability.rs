//! Goal: retries keep a server down after an outage, and a retry budget brings it back. Method: one queue
//! of 300 requests per second under 280 calls per second, and an outage of ten seconds (F13).

use std::time::Duration;

use redial_core::s;
use redial_sim::{
    Distribution, Disturbance, Effect, Load, PolicyReport, Service, Simulation, Variant, sweep,
};

use crate::common::{near, policy};

const ONE: &str = r#"{ "attempts": 1, "attempt_timeout": "1s", "throttle": "none" }"#;
const TWO: &str = r#"{ "attempts": 2, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": "none" }"#;
const THREE: &str = r#"{ "attempts": 3, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": "none" }"#;
const BACKOFF: &str = r#"{ "attempts": 2, "backoff": {"constant": "2s"}, "jitter": "full", "attempt_timeout": "1s", "throttle": "none" }"#;
const TWO_BUDGET: &str = r#"{ "attempts": 2, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": {"budget": {"reserve": 10, "ratio": 0.1}} }"#;
const THREE_BUDGET: &str = r#"{ "attempts": 3, "backoff": {"constant": "0s"}, "attempt_timeout": "1s", "throttle": {"budget": {"reserve": 10, "ratio": 0.1}} }"#;

/// The time of a recovery depends on the random arrivals: its standard deviation is about 10 s, and with
/// retries below capacity 15 s. The reference has ranges of five seeds of another generator, so the mean
/// of many seeds is compared with the closed form, within three standard errors.
const SEEDS: u64 = 40;

/// The reports of this many seeds.
fn outage(rate: f64, text: &str, drops_expired: bool, seeds: u64) -> Vec<PolicyReport> {
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
    let simulations: Vec<Simulation> = (1..=seeds).map(simulation).collect();
    let reports = sweep(&simulations).expect("they run");
    let reports: Vec<PolicyReport> =
        reports.into_iter().map(|mut report| report.policies.remove(0)).collect();
    for report in &reports {
        println!("{}", report.verdict);
    }
    reports
}

/// The mean time to recovery in seconds. One run in 40 may need longer than the 160 s that are left, and
/// counts as 160 s.
#[track_caller]
fn recovery(reports: &[PolicyReport]) -> f64 {
    let after: Vec<f64> = reports.iter().filter_map(|it| it.recovered_after_seconds).collect();
    let missing = reports.len() - after.len();
    assert!(missing <= 1, "{missing} runs did not recover");
    let mean = (after.iter().sum::<f64>() + 160.0 * missing as f64) / reports.len() as f64;
    println!("mean recovery after {mean} s");
    mean
}

/// The mean offered load from 20 s after the outage to the end, in requests per second.
fn offered_after_outage(report: &PolicyReport) -> f64 {
    let late = report.series.iter().filter(|point| point.at_seconds >= 60.0);
    let (sum, count) =
        late.fold((0.0, 0.0), |(sum, count), point| (sum + point.offered_per_second, count + 1.0));
    sum / count
}

#[track_caller]
fn never_recovers(reports: &[PolicyReport], least: f64, most: f64) {
    for report in reports {
        assert_eq!(report.recovered_after_seconds, None);
        assert!(report.goodput_per_second < 1.0, "{}", report.goodput_per_second);
        let offered = offered_after_outage(report);
        assert!((least..=most).contains(&offered), "{offered}");
        assert!(report.verdict.starts_with("did not recover within 160 s"), "{}", report.verdict);
    }
}

#[test]
fn metastability_without_retries_ends_with_the_backlog() {
    // F13: 113 to 126 s. The closed form is 125 s: a backlog of 2800 requests shrinks by 20 per second
    // until 300 are left, which wait for less than a second.
    near(recovery(&outage(280.0, ONE, false, SEEDS)), 125.0, 5.0);
}

#[test]
fn metastability_retries_keep_the_server_down() {
    // F13: 560 to 580 and 835 requests per second, which is 2 or 3 times the calls; every seed. The
    // standard error of the mean over 140 s is 2.8 and 4.2.
    never_recovers(&outage(280.0, TWO, false, 5), 551.0, 580.0);
    never_recovers(&outage(280.0, THREE, false, 5), 825.0, 853.0);
}

#[test]
fn metastability_backoff_alone_does_not_help() {
    never_recovers(&outage(280.0, BACKOFF, false, 5), 551.0, 580.0);
}

#[test]
fn metastability_budget_recovers_as_without_retries() {
    // F13: 114 to 126 s. The budget adds the 10 retries of its reserve to the backlog: half a second.
    for policy in [TWO_BUDGET, THREE_BUDGET] {
        near(recovery(&outage(280.0, policy, false, SEEDS)), 125.5, 5.0);
    }
}

#[test]
fn metastability_budget_with_deadline_propagation_recovers_at_once() {
    // F13: 0 s in every seed.
    for report in outage(280.0, TWO_BUDGET, true, SEEDS) {
        assert_eq!(report.recovered_after_seconds, Some(0.0));
    }
    // Without the budget it takes longer and depends on the seed: 16 to 74 s in the reference.
    let mut after: Vec<f64> = outage(280.0, TWO, true, SEEDS)
        .iter()
        .map(|report| report.recovered_after_seconds.unwrap_or(f64::INFINITY))
        .collect();
    after.sort_by(f64::total_cmp);
    println!("{after:?}");
    assert!((16.0..=74.0).contains(&after[after.len() / 2]), "{after:?}");
}

#[test]
fn metastability_is_absent_below_half_of_the_capacity() {
    // F13: 125 to 146 s, one seed of five later than the run. The closed form is 118 s: in the outage,
    // and until calls succeed again, 280 requests arrive per second but for the retries of the first
    // second, so a backlog of 2660 requests shrinks by 20 per second until 300 are left.
    near(recovery(&outage(140.0, TWO, false, SEEDS)), 118.0, 7.0);
}
