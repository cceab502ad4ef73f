//! Goal: a plan states what a policy can cost at most, with a bounded amount of work.

use std::sync::Mutex;

use redial_core::ms;
use redial_sim::Distribution;
use redial_sim::plan::{Assumptions, plan, plan_watched};

use crate::common::{near, policy};

/// Attempts that always take this long.
fn latency(millis: u64) -> Assumptions {
    Assumptions { latency: Distribution::Fixed(ms(millis)), ..Assumptions::default() }
}

#[test]
fn plan_worst_case_has_attempts_as_long_as_the_timeout() {
    for retry_timeouts in [false, true] {
        let text = format!(
            r#"{{ "attempts": 3, "attempt_timeout": "1s", "retry_timeouts": {retry_timeouts},
                "backoff": {{"constant": "100ms"}}, "jitter": "none", "throttle": "none" }}"#
        );
        let plan = plan("policy", &policy(&text), &latency(50)).expect("a plan");
        assert_eq!(plan.worst_case.seconds, Some(3.2), "{retry_timeouts}");
        let expected = "worst case of one call, without server hints: 3 attempts in 3.200 s";
        assert!(plan.summary.iter().any(|line| line == expected), "{:?}", plan.summary);
    }
}

#[test]
fn plan_without_a_limit_of_attempts_has_bounded_work() {
    for attempts in ["\"forever\"", "1000000"] {
        let text = format!(
            r#"{{ "attempts": {attempts}, "backoff": {{"constant": "100ms"}}, "jitter": "none",
                "throttle": "none" }}"#
        );
        let plan = plan("policy", &policy(&text), &latency(20)).expect("a plan");
        let load = |index: usize| plan.curve[index].amplification;
        near(load(10), 2.0, 0.05);
        // In an outage a call makes 8 attempts per second, for a minute after the last call.
        let outage = load(plan.curve.len() - 1);
        assert!((490.0..520.0).contains(&outage), "{attempts}: {outage}");
    }
}

#[test]
fn plan_progress_covers_all_of_its_runs() {
    let shares = Mutex::new(Vec::new());
    let watch = |share| {
        shares.lock().expect("no panic").push(share);
        std::ops::ControlFlow::Continue(())
    };
    plan_watched("policy", &policy("{}"), &latency(1), &watch).expect("a plan");
    let shares = shares.into_inner().expect("no panic");
    assert_eq!(shares.iter().filter(|share| **share >= 1.0).count(), 1, "{shares:?}");
}
