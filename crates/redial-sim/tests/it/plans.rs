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

/// The plan of a policy with attempts that hang until a timeout of 1 s, then 100 ms of backoff.
fn timed_out(attempts: &str) -> redial_sim::plan::PolicyPlan {
    let text = format!(
        r#"{{ "attempts": {attempts}, "attempt_timeout": "1s", "backoff": {{"constant": "100ms"}},
            "throttle": "none" }}"#
    );
    plan("policy", &policy(&text), &latency(50)).expect("a plan")
}

#[test]
fn plan_lists_20_attempts_and_times_all() {
    for attempts in [20, 21, 25, 10_000] {
        let plan = timed_out(&attempts.to_string());
        let seconds = f64::from(attempts) + f64::from(attempts - 1) * 0.1;
        assert_eq!(plan.attempts.len(), 20, "{attempts}");
        assert_eq!(plan.has_more_attempts, attempts > 20);
        near(plan.worst_case.seconds.expect("a time limit"), seconds, 1e-6);
        near(plan.gives_up_after_seconds.latest.expect("it gives up"), seconds, 1e-6);
        assert_eq!(plan.gives_up_because, Some("no attempt left"));
        let expected = format!("server hints: {attempts} attempts in {seconds:.3} s");
        assert!(plan.summary.iter().any(|line| line.ends_with(&expected)), "{:?}", plan.summary);
    }
}

#[test]
fn plan_beyond_10000_attempts_still_has_a_time_limit() {
    let plan = timed_out("10001");
    assert_eq!((plan.worst_case.seconds, plan.worst_case.has_time_limit), (None, true));
    assert_eq!(plan.gives_up_because, None);
    let expected =
        "10001 attempts, a time that is not computed beyond 10000 attempts: add a deadline";
    assert!(plan.summary.iter().any(|line| line.ends_with(expected)), "{:?}", plan.summary);
}

#[test]
fn plan_of_unlimited_attempts_has_no_time_limit() {
    let plan = timed_out("\"forever\"");
    assert_eq!((plan.attempts.len(), plan.has_more_attempts), (20, true));
    assert_eq!((plan.worst_case.attempts, plan.worst_case.seconds), (None, None));
    assert!(!plan.worst_case.has_time_limit);
    let expected = "attempts without a limit, no limit of time: add a deadline";
    assert!(plan.summary.iter().any(|line| line.ends_with(expected)), "{:?}", plan.summary);
}

#[test]
fn plan_of_many_attempts_ends_at_the_deadline() {
    let text = r#"{ "attempts": "unlimited", "deadline": "30s", "backoff": {"constant": "1s"}, "throttle": "none" }"#;
    let plan = plan("policy", &policy(text), &latency(0)).expect("a plan");
    assert_eq!((plan.attempts.len(), plan.has_more_attempts), (20, true));
    assert_eq!(plan.worst_case.seconds, Some(30.0));
    assert_eq!(plan.gives_up_because, Some("no time left before the deadline"));
}
