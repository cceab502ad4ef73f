//! Decisions G24 and G26 to G29: what cannot be kept, and what provably did not run.

use super::*;

// G24: what cannot be kept.

#[test]
fn a_message_over_the_limit_commits_the_attempt_that_was_sent_most() {
    hedge(HEDGED, |driver| {
        driver.pass(at(10));
        driver.not_replayable(Some(driver.slot(2)));
        assert_eq!((driver.cancels(), driver.call.wake_at()), (vec![(1, 10.0)], None));
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Committed, Some(2))));
    });
}

#[test]
fn if_none_is_in_flight_the_next_attempt_is_made_and_is_the_last() {
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

#[test]
fn of_several_that_wait_the_one_that_is_due_first_is_made() {
    let rules = |delay| Rules { hedge: Some(ms(delay)), transparent_retries: true, ..BASE };
    // A replacement is due at 10; a hedge before it, with it, or after it.
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
fn a_hedge_that_the_throttle_refuses_leaves_the_replacement_that_waits() {
    // G24 with G14: the hedge is judged when it is due, and what is outstanding goes on.
    let spec = Spec::Tokens { max: 2.0, ratio: 0.1 };
    let rules = Rules { hedge: Some(ms(4)), transparent_retries: true, ..BASE };
    let (shared, mut model) = (spec.build(), Model::new(spec));
    shared.failed();
    model.failed();
    let (policy, env) = (policy(rules), TestEnvironment::new(&spec, &shared, 1));
    let mut driver = TestDriver::<4>::begin(&policy, CallParams::default(), 0, env, &mut model);
    driver.report(1, proven(Proof::Unsent));
    driver.report(2, proven(Proof::Unsent));
    driver.not_replayable(None);
    driver.pass(at(10));
    assert_eq!((driver.starts(), driver.call.is_committed()), (vec![0.0, 0.0, 10.0], true));
    driver.report(3, FAILED);
    assert_eq!(driver.ended(), Some((StopReason::Committed, Some(3))));
}

#[test]
fn what_does_not_fit_from_the_start_is_sent_once() {
    let not_replayable = CallParams { not_replayable: true, ..CallParams::default() };
    for rules in [BASE, HEDGED, Rules { transparent_retries: true, ..BASE }] {
        run_call::<4>(rules, not_replayable, (Spec::Free, &[]), |driver| {
            assert!(driver.call.is_committed());
            assert_eq!(driver.call.wake_at(), None);
            driver.report(1, proven(Proof::Unsent));
            assert_eq!(driver.ended(), Some((StopReason::Committed, Some(1))));
        });
    }
}

// G26 to G29: transparent replacements.

const REPLACES: Rules = Rules { transparent_retries: true, ..BASE };

#[test]
fn what_was_not_processed_is_replaced_at_once_one_time_per_call() {
    // G26.
    retry(REPLACES, |driver| {
        driver.report(1, proven(Proof::Unprocessed));
        assert_eq!((driver.starts(), driver.numbers()), (vec![0.0, 0.0], vec![1, 1]));
        driver.report(2, proven(Proof::Unprocessed));
        assert_eq!(driver.call.wake_at(), Some(at(10)), "the second time it is a failure");
    });
    // One time for all hedges together.
    hedge(Rules { hedge: Some(Duration::ZERO), ..REPLACES }, |driver| {
        driver.report(1, proven(Proof::Unprocessed));
        driver.report(2, proven(Proof::Unprocessed));
        assert_eq!(driver.numbers(), [1, 2, 3, 4, 1]);
    });
}

#[test]
fn what_was_never_sent_is_replaced_after_growing_pauses_a_thousand_times() {
    // G27: at once, then 10 ms, doubled up to 1 s; then the failure counts.
    retry(REPLACES, |driver| {
        let mut pauses = Vec::new();
        for attempt in 1..=1000 {
            let before = driver.now;
            driver.report(attempt, proven(Proof::Unsent));
            if driver.starts().len() == attempt as usize {
                assert!(driver.next_timer());
            }
            pauses.push((driver.now - before) / 1_000_000);
        }
        assert_eq!(pauses[..9], [0, 10, 20, 40, 80, 160, 320, 640, 1000]);
        assert!(pauses[8..].iter().all(|pause| *pause == 1000));
        assert!(driver.numbers().iter().all(|number| *number == 1), "they do not count (G29)");
        driver.report(1001, proven(Proof::Unsent));
        assert_eq!(driver.starts().len(), 1001);
        assert_eq!(driver.call.wake_at(), Some(driver.now + at(10)), "now the policy decides");
    });
}

#[test]
fn replacements_are_counted_over_all_hedges_and_a_waiting_one_is_outstanding() {
    // G28.
    let rules = Rules { hedge: Some(Duration::ZERO), attempts: Some(2), ..REPLACES };
    hedge(rules, |driver| {
        driver.report(1, proven(Proof::Unsent));
        assert_eq!(driver.starts(), [0.0, 0.0, 0.0], "the first is at once");
        driver.report(2, proven(Proof::Unsent));
        assert_eq!(
            driver.call.wake_at(),
            Some(at(10)),
            "the second is not, though of another hedge"
        );
        driver.report(3, FAILED);
        assert_eq!(driver.ended(), None, "the replacement is still to come");
        driver.pass(at(10));
        assert_eq!(driver.numbers(), [1, 2, 1, 2]);
        driver.report(4, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(4))));
    });
}

#[test]
fn a_replacement_counts_neither_as_an_attempt_nor_in_the_throttle_and_needs_no_policy() {
    // G29: a call without a policy is one attempt and no more.
    let spec = Spec::Tokens { max: 2.0, ratio: 0.1 };
    let rules = Rules { attempts: Some(1), ..REPLACES };
    run_call::<1>(rules, CallParams::default(), (spec, &[]), |driver| {
        let pushed_back = Classification {
            directive: Directive::Retry(Failure::client().at(Stage::Unsent).retry_after(ms(77))),
            ..proven(Proof::Unsent)
        };
        driver.report(1, pushed_back);
        driver.report(2, pushed_back);
        assert_eq!(driver.call.wake_at(), Some(at(10)), "pushback is ignored");
        driver.pass(at(10));
        assert_eq!((driver.numbers(), driver.tokens()), (vec![1, 1, 1], 2.0));
        driver.report(3, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(3))));
    });
}

#[test]
fn nothing_is_replaced_after_the_commit_or_with_retries_disabled() {
    // G26, G28, G29.
    for proof in [Proof::Unsent, Proof::Unprocessed] {
        retry(REPLACES, |driver| {
            driver.headers(0);
            driver.report(1, proven(proof));
            assert_eq!(driver.ended(), Some((StopReason::Committed, Some(1))));
        });
        retry(Rules { attempts: Some(1), transparent_retries: false, ..BASE }, |driver| {
            driver.report(1, proven(proof));
            assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(1))));
        });
    }
}

#[test]
fn a_replacement_of_what_must_not_run_twice_is_allowed() {
    // G29 with P8: the proof is that it did not run.
    let once = CallParams { idempotent: false, ..CallParams::default() };
    run_call::<1>(REPLACES, once, (Spec::Free, &[]), |driver| {
        driver.report(1, proven(Proof::Unprocessed));
        driver.report(2, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(2))));
    });
}

#[test]
fn replacement_that_is_to_start_has_no_timer() {
    let (policy, shared) =
        (policy(Rules { transparent_retries: true, ..BASE }), Spec::Free.build());
    let mut env = TestEnvironment::new(&Spec::Free, &shared, 1);
    let mut call = Call::<_, 1>::begin(&policy, CallParams::default(), 0, &mut env);
    assert!(matches!(call.command(&mut env), Some(Command::Start(_))));
    call.outcome(0, proven(Proof::Unsent), at(5), &mut env);
    assert_eq!((call.started(), call.wake_at()), (1, None), "it is a command");
    assert!(matches!(call.command(&mut env), Some(Command::Start(start)) if start.number == 1));
    call.outcome(0, proven(Proof::Unsent), at(6), &mut env);
    assert_eq!((call.command(&mut env), call.wake_at()), (None, Some(at(16))), "it waits");
    assert!(call.wake_once(at(16), &mut env));
    assert_eq!((call.started(), call.wake_at()), (2, None));
    assert!(!call.wake_once(at(17), &mut env), "nothing is due twice");
    call.cancel(at(17), &mut env);
    assert_eq!((call.started(), call.command(&mut env).is_some()), (2, true), "the end alone");
    assert_eq!(call.command(&mut env), None);
}
