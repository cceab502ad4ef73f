//! Per-attempt timeouts.

use super::*;

// Decision P4.
#[test]
fn attempt_timeout_of_zero_still_lets_an_outcome_count() {
    // If outcomes did not come before the timer, unlimited attempts of this kind would keep time
    // from advancing.
    let rules = Rules {
        attempts: None,
        backoff: Backoff::Constant(Duration::ZERO),
        attempt_timeout: Some(Duration::ZERO),
        deadline: Some(ms(5)),
        ..BASE
    };
    retry(rules, |driver| {
        assert!(driver.wake_once());
        assert_eq!(driver.numbers(), [1, 2], "the first timed out, the second is running");
        assert_eq!(driver.call.wake_at(), Some(0));
        driver.report(2, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(2))));
    });
}

// Decisions P7 and M4.
#[test]
fn attempt_timeout_is_a_timeout_failure_in_flight() {
    let rules = Rules { attempt_timeout: Some(ms(3)), ..BASE };
    retry(rules, |driver| {
        driver.reach(3);
        driver.wake();
        assert_eq!(driver.call.failure(), Some(&Failure::timeout()));
        assert_eq!((driver.cancels(), driver.call.wake_at()), (vec![(1, 3.0)], Some(at(13))));
    });
    let ends = Rules { attempt_timeout_action: AttemptTimeoutAction::EndCall, ..rules };
    retry(ends, |driver| {
        driver.reach(3);
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
    });
}

#[test]
fn attempt_timeout_ends_a_call_that_lent_its_context() {
    // A cancelled attempt does not return what it owns, so no other can start.
    let rules = Rules {
        attempt_timeout: Some(ms(3)),
        attempt_timeout_action: AttemptTimeoutAction::Retry,
        ..BASE
    };
    let params = CallParams { ends_at_attempt_timeout: true, ..CallParams::default() };
    run_call(rules, params, (Spec::Free, &[]), |driver| {
        driver.pass(at(3));
        assert_eq!(driver.ended(), Some((StopReason::AttemptTimeout, None)));
    });
}

// Decision P13.
#[test]
fn attempt_timeout_ends_the_call_by_default() {
    let action = Rules::DEFAULT.attempt_timeout_action;
    assert_eq!(action, AttemptTimeoutAction::Stop);
    let rules = Rules { attempt_timeout: Some(ms(3)), attempt_timeout_action: action, ..BASE };
    retry(rules, |driver| {
        driver.report(1, FAILED);
        driver.pass(at(10));
        driver.pass(at(3));
        assert_eq!(driver.ended(), Some((StopReason::AttemptTimeout, None)));
        assert_eq!((driver.cancels(), driver.env.failed), (vec![(2, 13.0)], 1));
    });
    // Where timeouts are retried, a call that is not idempotent still is not.
    let retried = Rules { attempt_timeout_action: AttemptTimeoutAction::Retry, ..rules };
    let params = CallParams { idempotent: false, ..CallParams::default() };
    run_call(retried, params, (Spec::Free, &[]), |driver| {
        driver.pass(at(3));
        assert_eq!(driver.ended(), Some((StopReason::NotIdempotent, Some(1))));
    });
}

// Decision P13.
#[test]
fn attempt_timeout_of_another_library_is_judged_when_it_ends() {
    for attempt_timeout in [None, Some(ms(10))] {
        for (attempt_timeout_action, end) in [
            (AttemptTimeoutAction::Retry, None),
            (AttemptTimeoutAction::Stop, Some((StopReason::AttemptTimeout, None))),
        ] {
            let rules = Rules { attempt_timeout, attempt_timeout_action, ..BASE };
            retry(rules, |driver| {
                driver.reach(2);
                driver.attempt_timed_out(1);
                assert_eq!((driver.cancels(), driver.ended()), (vec![(1, 2.0)], end));
                let retry_at = end.is_none().then_some(at(12));
                assert_eq!(driver.call.wake_at(), retry_at, "from the end of the attempt");
            });
        }
    }
    retry(Rules { deadline: Some(ms(2)), ..BASE }, |driver| {
        driver.oversleep(at(2));
        driver.attempt_timed_out(1);
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
    });
}

// Decision G42.
#[test]
fn attempt_timeout_that_is_final_fails_the_call() {
    for (drains, count) in [(false, 0), (true, 1)] {
        let attempt_timeout_action = AttemptTimeoutAction::Fail { drains };
        let rules = Rules { attempt_timeout: Some(ms(3)), attempt_timeout_action, ..BASE };
        retry(rules, |driver| {
            assert_eq!(driver.call.times_out_at(0), at(3));
            driver.reach(3);
            driver.wake();
            assert_eq!(driver.ended(), Some((StopReason::NotRetryable, Some(1))));
            assert_eq!((driver.cancels(), driver.env.failed), (vec![(1, 3.0)], count));
        });
        // Running attempts are cancelled, as after any final failure (G20).
        hedge(Rules { hedge: Some(ms(2)), ..rules }, |driver| {
            driver.reach(2);
            driver.wake();
            driver.reach(3);
            driver.wake();
            assert_eq!(driver.ended(), Some((StopReason::NotRetryable, Some(1))));
            assert_eq!(driver.cancels(), [(1, 3.0), (2, 3.0)]);
        });
    }
}

// Decision G42.
#[test]
fn attempt_timeout_is_cleared_when_the_response_starts() {
    let rules = Rules { attempt_timeout: Some(ms(3)), ..BASE };
    retry(rules, |driver| {
        driver.reach(2);
        driver.headers(driver.slot(1));
        assert_eq!((driver.call.times_out_at(0), driver.call.wake_at()), (NEVER, None));
        driver.reach(10);
        driver.wake();
        assert_eq!(driver.ended(), None);
    });
    retry(Rules { deadline: Some(ms(5)), ..rules }, |driver| {
        driver.headers(driver.slot(1));
        driver.reach(5);
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)), "a deadline is not");
    });
}

// Decision G42.
#[test]
fn attempt_timeout_applies_after_commit_by_full_replay_buffer() {
    let rules = Rules { attempt_timeout: Some(ms(3)), ..BASE };
    retry(rules, |driver| {
        driver.not_replayable(Some(driver.slot(1)));
        assert!(driver.call.is_committed());
        driver.reach(3);
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Committed, Some(1))));
    });
    retry(rules, |driver| {
        driver.not_replayable(Some(driver.slot(1)));
        driver.headers(driver.slot(1));
        assert_eq!(driver.call.wake_at(), None, "its response has started");
    });
}

// Decision G42.
#[test]
fn attempt_timeout_restarts_for_a_transparent_retry() {
    let rules = Rules { attempt_timeout: Some(ms(3)), transparent_retries: true, ..BASE };
    retry(rules, |driver| {
        driver.reach(2);
        driver.outcome(driver.slot(1), proven(Proof::Unprocessed));
        assert_eq!((driver.call.started(), driver.call.wake_at()), (2, Some(at(5))));
    });
}
