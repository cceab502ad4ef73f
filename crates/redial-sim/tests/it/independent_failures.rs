//! Goal: success and load under independent failures follow the closed forms. Method: a service that
//! fails with a fixed probability, and many calls.

use crate::common::{attempts, failing, near, run, success};

#[test]
fn independent_failures_give_the_closed_forms() {
    // F1: success 1 - p^a, load the sum of p^i for i below a.
    for (rate, succeeded, load) in [(0.5, 0.9375, 1.875), (0.9, 0.3439, 3.439)] {
        let report = run(failing(rate, 100_000), attempts(4));
        near(success(&report), succeeded, 0.006);
        near(report.amplification, load, 0.02);
        near(report.attempts_per_call, load, 0.02);
    }
}

#[test]
fn independent_failures_of_every_attempt_use_all_attempts() {
    // F1 with p = 1, exact.
    let report = run(failing(1.0, 1000), attempts(4));
    assert_eq!((report.succeeded, report.failed), (0, 1000));
    assert_eq!((report.amplification, report.services[0].attempts), (4.0, 4000));
    assert_eq!(report.stop_reasons["attempts"], 1000);
}

#[test]
fn independent_failures_absent_need_one_attempt() {
    let report = run(failing(0.0, 1000), attempts(4));
    assert_eq!((report.succeeded, report.amplification), (1000, 1.0));
}
