//! Requests that can no longer be replayed because they exceed the replay buffer.

use super::*;

#[test]
fn replay_loss_is_recorded_once_and_not_after_commit() {
    let not_replayable = |driver: &TestDriver<'_, '_, '_>| {
        driver.env.call_log.iter().filter(|(_, event)| *event == Event::NotReplayable).count()
    };
    retry(BASE, |driver| {
        driver.report(1, FAILED);
        driver.not_replayable(None);
        driver.not_replayable(None);
        assert_eq!((not_replayable(driver), driver.call.is_committed()), (1, false));
        driver.pass(at(10));
        assert!(driver.call.is_committed(), "the next to start is the last (G24)");
        driver.not_replayable(Some(0));
        assert_eq!(not_replayable(driver), 1);
    });
    retry(BASE, |driver| {
        driver.headers(0);
        driver.not_replayable(Some(0));
        assert_eq!(not_replayable(driver), 0);
    });
}

// Decision G24.
#[test]
fn replay_limit_commits_the_attempt_that_received_most() {
    hedge(HEDGED, |driver| {
        driver.pass(at(10));
        driver.not_replayable(Some(driver.slot(2)));
        assert_eq!((driver.cancels(), driver.call.wake_at()), (vec![(1, 10.0)], None));
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Committed, Some(2))));
    });
}

// Decision G24.
#[test]
fn replay_limit_between_attempts_makes_the_next_one_last() {
    retry(BASE, |driver| {
        driver.report(1, FAILED);
        driver.not_replayable(None);
        driver.pass(at(10));
        assert!(driver.call.is_committed());
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Committed, Some(2))));
    });
    hedge(HEDGED, |driver| {
        driver.report(1, failed_with(Failure::server().retry_after(ms(5))));
        driver.not_replayable(None);
        driver.pass(at(100));
        assert_eq!((driver.starts(), driver.call.is_committed()), (vec![0.0, 5.0], true));
    });
}

// Decision G24.
#[test]
fn replay_limit_starts_the_pending_attempt_due_first() {
    let rules = |delay| Rules { hedge: Some(ms(delay)), transparent_retries: true, ..BASE };
    // A transparent retry is due at 10 ms; a hedge is due before it, with it, or after it.
    for (delay, start, number) in [(4, 4.0, 2), (10, 10.0, 1), (30, 10.0, 1)] {
        hedge(rules(delay), |driver| {
            driver.report(1, proven(Proof::Unsent));
            driver.report(2, proven(Proof::Unsent));
            driver.not_replayable(None);
            driver.pass(at(100));
            assert_eq!(driver.starts(), [0.0, 0.0, start], "a delay of {delay}");
            assert_eq!(driver.numbers(), [1, 1, number]);
            assert!(driver.call.is_committed());
        });
    }
}

#[test]
fn replay_limit_keeps_transparent_retry_when_hedge_is_refused() {
    // G24 with G14: the hedge requests its grant when it is due; pending attempts continue.
    let spec = Spec::Tokens { max: 2.0, ratio: 0.1 };
    let rules = Rules { hedge: Some(ms(4)), transparent_retries: true, ..BASE };
    let (shared, mut model) = (spec.build(), Model::new(spec));
    shared.failed();
    model.failed();
    let (policy, env) = (policy(rules), TestEnvironment::new(&spec, &shared, 1));
    let mut driver = TestDriver::begin(&policy, CallParams::default(), 0, env, &mut model);
    driver.report(1, proven(Proof::Unsent));
    driver.report(2, proven(Proof::Unsent));
    driver.not_replayable(None);
    driver.pass(at(10));
    assert_eq!((driver.starts(), driver.call.is_committed()), (vec![0.0, 0.0, 10.0], true));
    driver.report(3, FAILED);
    assert_eq!(driver.ended(), Some((StopReason::Committed, Some(3))));
}

// Decision G24.
#[test]
fn replay_impossible_from_the_start_makes_one_attempt() {
    let not_replayable = CallParams { not_replayable: true, ..CallParams::default() };
    for rules in [BASE, HEDGED, Rules { transparent_retries: true, ..BASE }] {
        run_call(rules, not_replayable, (Spec::Free, &[]), |driver| {
            assert!(driver.call.is_committed());
            assert_eq!(driver.call.wake_at(), None);
            driver.report(1, proven(Proof::Unsent));
            assert_eq!(driver.ended(), Some((StopReason::Committed, Some(1))));
        });
    }
}
