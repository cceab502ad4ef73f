//! Goal: token buckets bound the load as their formulas say. Method: a service that fails with a fixed
//! probability, and buckets of each kind.

use redial_core::throttle::{Bucket, TokenBucket};
use redial_core::{Cost, FailureKind, Grant};
use redial_sim::BudgetScope;

use crate::common::{failing, near, policy, run, run_variants, success};

fn budget(attempts: u32, reserve: u32, ratio: f64) -> redial_sim::CallPolicy {
    policy(&format!(
        r#"{{ "attempts": {attempts}, "backoff": {{"constant": "1ms"}},
              "throttle": {{"budget": {{"reserve": {reserve}, "ratio": {ratio}}}}} }}"#
    ))
}

#[test]
fn throttle_budget_bounds_load_by_the_success_rate() {
    // F5: load at most 1 / (1 - d(1 - p)) after the initial tokens. Most retries fail, too, so the
    // bound counts successes of attempts.
    for (rate, most) in [(0.5, 1.0526), (0.9, 1.0101)] {
        let calls = 100_000;
        let report = run(failing(rate, calls), budget(4, 10, 0.1));
        let initial = 10.0 / calls as f64;
        assert!(report.amplification <= most + initial + 0.001, "{}", report.amplification);
        near(report.amplification, most, 0.003);
    }
}

#[test]
fn throttle_budget_per_client_bounds_load() {
    // F6: 100 clients of 1000 calls each, a bucket of 10 with deposits of 0.1.
    for (rate, succeeded, load) in [(0.1, 0.990, 1.100), (0.3, 0.759, 1.085), (1.0, 0.0, 1.010)] {
        let mut simulation = failing(rate, 100_000);
        simulation.clients.count = 100;
        let report = run(simulation, budget(2, 10, 0.1));
        near(success(&report), succeeded, 0.01);
        near(report.amplification, load, 0.01);
    }
}

#[test]
fn throttle_budget_shared_by_clients_starts_with_one_reserve() {
    let mut simulation = failing(1.0, 10_000);
    simulation.clients.count = 100;
    let mut variant = redial_sim::Variant::new("shared", budget(2, 10, 0.1));
    variant.budget = BudgetScope::Shared;
    simulation.policies = vec![variant];
    let report = run_variants(&simulation).remove(0);
    assert_eq!(report.services[0].attempts, 10_010);
}

/// Share of calls that a token bucket of gRPC refused to retry.
fn refused(rate: f64, ratio: f64) -> f64 {
    let text = format!(
        r#"{{ "attempts": 2, "backoff": {{"constant": "1ms"}},
              "throttle": {{"tokens": {{"max": 1000, "ratio": {ratio}}}}} }}"#
    );
    let report = run(failing(rate, 400_000), policy(&text));
    let throttled = report.stop_reasons.get("throttled").copied().unwrap_or(0);
    throttled as f64 / report.calls as f64
}

#[test]
fn throttle_tokens_allow_retries_below_the_failure_share() {
    // F7: retries stay allowed while failures per attempt are below r / (1 + r): 3 % below it nothing is
    // refused, 3 % above it the bucket drains. The tokens are a random walk, so the border itself cannot
    // be tested: at 3 %, a bucket of 1000 drains within 200,000 attempts.
    for (ratio, border) in [(0.1, 0.1 / 1.1), (0.5, 0.5 / 1.5), (1.0, 0.5)] {
        assert_eq!(refused(border * 0.97, ratio), 0.0, "ratio {ratio}");
        assert!(refused(border * 1.03, ratio) > 0.02, "ratio {ratio}");
    }
}

#[test]
fn throttle_tokens_block_at_half() {
    // F8: from full, retries are blocked from the 5th counted failure on if maxTokens is 10.
    let text = r#"{ "attempts": 2, "backoff": {"constant": "1ms"},
                    "throttle": {"tokens": {"max": 10, "ratio": 0.1}} }"#;
    let mut simulation = failing(1.0, 100);
    // One call after the other, so that failures are counted in order.
    simulation.clients.load = redial_sim::Load::Even { calls_per_second: 10.0 };
    let report = run(simulation, policy(text));
    // Each of the first two calls fails twice; the third fails a fifth time and is refused.
    assert_eq!(report.services[0].attempts, 102);
    let bucket = TokenBucket::new(10.0, 0.1).expect("a bucket");
    let retry = Cost { kind: FailureKind::Server };
    let grants = [(); 6].map(|()| {
        bucket.failed();
        bucket.withdraw(retry, 0) != Grant::Refused
    });
    assert_eq!(grants, [true, true, true, true, false, false]);
}
