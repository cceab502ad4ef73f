//! Transparent retries of attempts that were provably not processed.

use super::*;

const TRANSPARENT: Rules = Rules { transparent_retries: true, ..BASE };

#[test]
fn transparent_retry_of_unprocessed_is_immediate_once_per_call() {
    // G26.
    retry(TRANSPARENT, |driver| {
        driver.report(1, proven(Proof::Unprocessed));
        assert_eq!((driver.starts(), driver.numbers()), (vec![0.0, 0.0], vec![1, 1]));
        driver.report(2, proven(Proof::Unprocessed));
        assert_eq!(driver.call.wake_at(), Some(at(10)), "the second time it is a failure");
    });
    // Once for all hedges together.
    hedge(Rules { hedge: Some(Duration::ZERO), ..TRANSPARENT }, |driver| {
        driver.report(1, proven(Proof::Unprocessed));
        driver.report(2, proven(Proof::Unprocessed));
        assert_eq!(driver.numbers(), [1, 2, 3, 4, 1]);
    });
}

#[test]
fn transparent_retry_of_unsent_backs_off_a_thousand_times() {
    // G27: immediately, then after 10 ms, doubled up to 1 s; then the failure counts.
    retry(TRANSPARENT, |driver| {
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
fn transparent_retry_count_is_shared_by_all_hedges() {
    // G28.
    let rules = Rules { hedge: Some(Duration::ZERO), attempts: Some(2), ..TRANSPARENT };
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
        assert_eq!(driver.ended(), None, "the transparent retry is pending");
        driver.pass(at(10));
        assert_eq!(driver.numbers(), [1, 2, 1, 2]);
        driver.report(4, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(4))));
    });
}

#[test]
fn transparent_retry_uses_no_attempt_token_or_policy() {
    // G29: a call without a policy has a single attempt.
    let spec = Spec::Tokens { max: 2.0, ratio: 0.1 };
    let rules = Rules { attempts: Some(1), ..TRANSPARENT };
    run_call(rules, CallParams::default(), (spec, &[]), |driver| {
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
fn transparent_retry_stops_after_commit_or_when_disabled() {
    // G26, G28, G29.
    for proof in [Proof::Unsent, Proof::Unprocessed] {
        retry(TRANSPARENT, |driver| {
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
fn transparent_retry_is_allowed_for_non_idempotent_calls() {
    // G29 with P8: the proof shows that the attempt did not run.
    let once = CallParams { idempotent: false, ..CallParams::default() };
    run_call(TRANSPARENT, once, (Spec::Free, &[]), |driver| {
        driver.report(1, proven(Proof::Unprocessed));
        driver.report(2, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(2))));
    });
}

#[test]
fn transparent_retry_ready_to_start_has_no_timer() {
    let (policy, shared) =
        (policy(Rules { transparent_retries: true, ..BASE }), Spec::Free.build());
    let mut env = TestEnvironment::new(&Spec::Free, &shared, 1);
    let mut call = Call::<_>::begin(&policy, CallParams::default(), 0, &mut env);
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
