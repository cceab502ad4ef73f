//! Deadlines: the call's and the policy's, expired ones, and events at the deadline itself.

use super::*;

// Decision P4.
#[test]
fn deadline_outcome_at_the_same_moment_still_counts() {
    retry(Rules { deadline: Some(ms(5)), ..BASE }, |driver| {
        driver.reach(5);
        driver.report(1, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(1))));
    });
}

// Decision P4.
#[test]
fn deadline_retry_due_at_that_moment_does_not_start() {
    retry(
        Rules { deadline: Some(ms(10)), deadline_action: DeadlineAction::WaitForDeadline, ..BASE },
        |driver| {
            driver.report(1, FAILED);
            driver.reach(10);
            driver.wake();
            assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
            assert_eq!(driver.starts(), [0.0]);
        },
    );
}

/// Whether the call requested a retry or hedge from the throttle.
fn requested_a_grant(driver: &TestDriver<'_, '_, '_>) -> bool {
    driver.env.call_log.iter().any(|(_, event)| matches!(event, Event::ThrottleAnswered(_)))
}

// Decision P4.
#[test]
fn deadline_moment_starts_no_immediate_attempt() {
    let at_once = Backoff::Constant(Duration::ZERO);
    let rules = Rules {
        deadline: Some(ms(5)),
        deadline_action: DeadlineAction::WaitForDeadline,
        transparent_retries: true,
        ..BASE
    };
    let cases: [(Rules, Classification); 4] = [
        (Rules { backoff: at_once, ..rules }, FAILED.into()),
        (rules, failed_with(Failure::server().retry_after(Duration::ZERO))),
        (rules, proven(Proof::Unsent)),
        (rules, proven(Proof::Unprocessed)),
    ];
    for (rules, classification) in cases {
        let hedged = Rules { hedge: Some(ms(10)), ..rules };
        for rules in [rules, hedged] {
            hedge(rules, |driver| {
                driver.reach(5);
                driver.report(1, classification);
                assert_eq!(
                    (driver.starts(), driver.ended()),
                    (vec![0.0], None),
                    "{classification:?}"
                );
                assert!(rules.hedge.is_none() || !requested_a_grant(driver), "{classification:?}");
                driver.wake();
                assert_eq!(
                    driver.ended(),
                    Some((StopReason::Deadline, None)),
                    "{classification:?}"
                );
                assert_eq!(driver.starts(), [0.0]);
            });
        }
    }
}

// Decision P10.
#[test]
fn deadline_already_expired_starts_one_attempt_or_none() {
    let zero = Rules { deadline: Some(Duration::ZERO), ..BASE };
    retry(zero, |driver| {
        driver.report(1, Directive::Succeed);
        assert_eq!(driver.stop_reason(), Some(StopReason::Succeeded), "the outcome was available");
    });
    retry(zero, |driver| {
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
        assert_eq!(driver.cancels(), [(1, 0.0)]);
    });
    retry(
        Rules { expired_deadline_action: ExpiredDeadlineAction::StartNoAttempt, ..zero },
        |driver| {
            assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
            assert_eq!(driver.starts(), [0.0; 0]);
        },
    );
    // All hedges would be due immediately; none may start or be charged.
    hedge(Rules { hedge: Some(Duration::ZERO), ..zero }, |driver| {
        assert!(!requested_a_grant(driver));
        driver.wake();
        assert_eq!(
            (driver.stop_reason(), driver.starts()),
            (Some(StopReason::Deadline), vec![0.0])
        );
    });
}

// Decision P10.
#[test]
fn deadline_of_policy_and_call_is_the_smaller() {
    for (of_policy, of_call) in [(3, 5), (5, 3)] {
        let rules = Rules { deadline: Some(ms(of_policy)), ..BASE };
        let params = CallParams { deadline: Some(ms(of_call)), ..CallParams::default() };
        run_call(rules, params, (Spec::Free, &[]), |driver| {
            assert_eq!(driver.call.deadline(), at(3));
        });
    }
}

// Decision G4.
#[test]
fn deadline_is_waited_for_when_a_hedge_comes_too_late() {
    let rules = Rules { deadline: Some(ms(5)), deadline_action: DeadlineAction::FailFast, ..BASE };
    hedge(Rules { hedge: Some(ms(10)), ..rules }, |driver| {
        driver.report(1, failed_with(Failure::server().retry_after(ms(9))));
        assert_eq!(driver.ended(), None);
        driver.pass(at(5));
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
    });
    retry(Rules { transparent_retries: true, ..rules }, |driver| {
        driver.report(1, proven(Proof::Unsent));
        driver.report(2, proven(Proof::Unsent));
        assert_eq!(driver.ended(), None, "the delay is 10 ms");
        driver.pass(at(5));
        assert_eq!((driver.stop_reason(), driver.now), (Some(StopReason::Deadline), at(5)));
    });
    // A retry does not wait.
    retry(rules, |driver| {
        driver.report(1, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Deadline, Some(1))));
    });
}
