//! Server pushback and retry hints.

use super::*;

// Decision G9.
#[test]
fn pushback_is_exact_and_restarts_the_backoff_series() {
    let rules = Rules {
        attempts: Some(20),
        backoff: Backoff::Exponential { first: ms(10), factor: 2.0, cap: None },
        limits: Limits { soft: Some(ms(150)), ..Limits::NONE },
        numbering: Numbering::SinceHint,
        ..BASE
    };
    let (made, stop_reason) = delays(rules, &[None, None, Some(3), None, None, None]);
    assert_eq!(
        (made, stop_reason),
        (vec![10.0, 20.0, 3.0, 10.0, 20.0, 40.0, 80.0], StopReason::SoftLimit)
    );
    // By default a hint does not advance the series; numbered by attempts, it does.
    let numbered = |numbering| Rules { numbering, ..rules };
    let (made, _) = delays(numbered(Numbering::Delays), &[None, Some(3)]);
    assert_eq!(made[..4], [10.0, 3.0, 20.0, 40.0]);
    let (made, _) = delays(numbered(Numbering::Attempts), &[None, Some(3)]);
    assert_eq!(made[..4], [10.0, 3.0, 40.0, 80.0]);
}

// Decision G9.
#[test]
fn pushback_is_capped_for_retries_and_hedges() {
    let most = HintRule::Exact(Some(ms(7)));
    let long = failed_with(Failure::server().retry_after(ms(500)));
    retry(Rules { hint: most, ..BASE }, |driver| {
        driver.report(1, long);
        assert_eq!(driver.call.wake_at(), Some(at(7)));
    });
    hedge(Rules { hint: most, ..HEDGED }, |driver| {
        driver.report(1, long);
        assert_eq!(driver.call.wake_at(), Some(at(7)));
    });
}

#[test]
fn pushback_is_not_shortened_by_another_failure() {
    // G17, second sentence.
    hedge(HEDGED, |driver| {
        driver.reach(10);
        driver.wake();
        driver.report(1, failed_with(Failure::server().retry_after(ms(50))));
        driver.report(2, FAILED);
        assert_eq!(driver.starts(), [0.0, 10.0]);
        driver.pass(at(60));
        assert_eq!(driver.starts(), [0.0, 10.0, 60.0, 70.0], "then the usual delay");
    });
}

#[test]
fn pushback_later_one_replaces_the_earlier_one() {
    // G18: a sooner, later or immediate one.
    for (second, third_start) in [(80, 90.0), (5, 15.0), (0, 10.0)] {
        hedge(HEDGED, |driver| {
            driver.reach(10);
            driver.wake();
            driver.report(1, failed_with(Failure::server().retry_after(ms(30))));
            driver.report(2, failed_with(Failure::server().retry_after(ms(second))));
            while driver.starts().len() < 3 {
                assert!(driver.next_timer());
            }
            assert_eq!(driver.starts(), [0.0, 10.0, third_start]);
        });
    }
}

#[test]
fn pushback_keeps_a_hedge_waiting_for_the_throttle() {
    // G18 with S5: a granted hedge waits for its debt and for the pushback, whichever is later.
    let spec = Spec::Costs(COSTS);
    for (pushback, third_start) in [(3, 15), (25, 35)] {
        let rules = Rules { hedge: Some(ms(5)), ..BASE };
        run_call(rules, CallParams::default(), (spec, &[]), |driver| {
            // The first hedge withdraws 10 tokens at 5 ms; the second at 10 ms finds 5 and owes 5
            // until 15 ms.
            driver.reach(10);
            driver.wake();
            assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0, 5.0], Some(at(15))));
            driver.report(1, FAILED);
            assert_eq!(driver.call.wake_at(), Some(at(15)), "a failure does not shorten the wait");
            driver.report(2, failed_with(Failure::server().retry_after(ms(pushback))));
            assert_eq!(driver.call.wake_at(), Some(at(third_start)));
            assert!(driver.next_timer());
            assert_eq!(driver.starts().len(), 3);
        });
    }
    // The same while the throttle's answer is deferred.
    let spec = Spec::Budget { reserve: 1.0, ratio: 0.0 };
    run_call(HEDGED, CallParams::default(), (spec, &[true]), |driver| {
        driver.reach(10);
        driver.wake();
        driver.report(1, failed_with(Failure::server().retry_after(ms(20))));
        driver.reach(12);
        driver.grant();
        assert_eq!((driver.starts(), driver.tokens()), (vec![0.0], 0.0));
        driver.pass(at(18));
        assert_eq!(
            driver.starts(),
            [0.0, 30.0],
            "charged once, started at the time of the pushback"
        );
    });
}

#[test]
fn pushback_stop_ends_hedging_but_running_attempts_continue() {
    // G19.
    hedge(HEDGED, |driver| {
        driver.reach(10);
        driver.wake();
        driver.report(1, failed_with(Failure::server().stop()));
        assert_eq!(driver.call.wake_at(), None);
        driver.reach(40);
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::ServerRefused, Some(2))));
    });
}

// Decision S6.
#[test]
fn pushback_within_rule_is_clamped_to_backoff_and_room() {
    let rules = Rules { hint: HintRule::Within(ms(5)), ..BASE };
    for (hint, delay) in [(0, 10.0), (10, 10.0), (12, 12.0), (15, 15.0), (16, 15.0)] {
        let (made, _) = delays(Rules { attempts: Some(2), ..rules }, &[Some(hint)]);
        assert_eq!(made, [delay], "a hint of {hint}");
    }
}

// Decision H3.
#[test]
fn hint_at_least_rule_takes_larger_of_hint_and_backoff() {
    let rules = Rules { hint: HintRule::AtLeast(ms(15)), ..BASE };
    for (hint, delay) in [(0, 10.0), (10, 10.0), (12, 12.0), (15, 15.0)] {
        let (made, _) = delays(Rules { attempts: Some(2), ..rules }, &[Some(hint)]);
        assert_eq!(made, [delay], "a hint of {hint}");
    }
    retry(rules, |driver| {
        driver.report(1, failed_with(Failure::server().retry_after(ms(16))));
        assert_eq!(driver.ended(), Some((StopReason::HintTooLong, Some(1))));
    });
}

// Decision P14.
#[test]
fn hint_above_maximum_ends_the_call_with_last_outcome() {
    assert_eq!(Rules::DEFAULT.hint, HintRule::UpTo(ms(60_000)));
    let rules = Rules { hint: HintRule::UpTo(ms(7)), ..BASE };
    let hint = |millis| failed_with(Failure::server().retry_after(ms(millis)));
    retry(rules, |driver| {
        driver.report(1, hint(7));
        assert_eq!(driver.call.wake_at(), Some(at(7)));
        driver.pass(at(7));
        driver.report(2, hint(8));
        assert_eq!(driver.ended(), Some((StopReason::HintTooLong, Some(2))));
    });
    hedge(Rules { hedge: Some(ms(10)), ..rules }, |driver| {
        driver.pass(at(10));
        driver.report(1, hint(8));
        assert_eq!((driver.ended(), driver.call.wake_at()), (None, None), "the other one runs");
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::HintTooLong, Some(2))));
    });
    // A deadline that is sooner bounds the hint as well.
    retry(Rules { deadline: Some(ms(5)), ..rules }, |driver| {
        driver.report(1, hint(6));
        assert_eq!(driver.ended(), Some((StopReason::Deadline, Some(1))));
    });
    // No attempt is left: that reason comes first.
    retry(Rules { attempts: Some(1), ..rules }, |driver| {
        driver.report(1, hint(8));
        assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(1))));
    });
}

// Decision P14.
#[test]
fn hint_of_zero_leaves_the_backoff() {
    let backoff = Backoff::Exponential { first: ms(10), factor: 2.0, cap: None };
    let up_to = Rules { hint: HintRule::UpTo(ms(50)), attempts: Some(4), backoff, ..BASE };
    let zeros = &[Some(0), Some(0), Some(0)];
    assert_eq!(delays(up_to, zeros).0, [10.0, 20.0, 40.0], "and the series advances");
    // Other designs follow it at once, except where only the delays limit the retries.
    for most in [None, Some(ms(50))] {
        let exact = Rules { hint: HintRule::Exact(most), ..up_to };
        assert_eq!(delays(exact, zeros).0, [0.0, 0.0, 0.0]);
        let forever = Rules { attempts: None, forever: true, ..exact };
        retry(forever, |driver| {
            for (attempt, delay) in [(1, 10), (2, 20), (3, 40)] {
                driver.report(attempt, failed_with(Failure::server().retry_after(ms(0))));
                assert_eq!(driver.call.wake_at(), Some(driver.now + at(delay)));
                driver.next_timer();
            }
        });
    }
    // A hedged call starts the next attempt, as after any failure, and keeps an earlier pushback.
    hedge(Rules { hint: HintRule::UpTo(ms(50)), ..HEDGED }, |driver| {
        driver.reach(10);
        driver.wake();
        driver.report(1, failed_with(Failure::server().retry_after(ms(30))));
        driver.report(2, failed_with(Failure::server().retry_after(ms(0))));
        assert_eq!(driver.call.wake_at(), Some(at(40)));
    });
}

// Decision P14.
#[test]
fn hint_past_the_deadline_ends_an_idle_hedged_call() {
    let rules = Rules { deadline: Some(ms(50)), hint: HintRule::UpTo(ms(1000)), ..HEDGED };
    let hint = |millis| failed_with(Failure::server().retry_after(ms(millis)));
    hedge(rules, |driver| {
        driver.report(1, hint(50));
        assert_eq!(driver.ended(), Some((StopReason::Deadline, Some(1))), "nothing else runs");
    });
    // Another attempt still runs: its failure ends the call, and so does its success.
    hedge(rules, |driver| {
        driver.reach(10);
        driver.wake();
        driver.report(1, hint(40));
        assert_eq!(driver.ended(), None);
        driver.reach(20);
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Deadline, Some(2))));
    });
    // One nanosecond before the deadline, the hedge starts.
    hedge(rules, |driver| {
        let hint = ms(50) - Duration::from_nanos(1);
        driver.report(1, failed_with(Failure::server().retry_after(hint)));
        assert_eq!((driver.ended(), driver.call.wake_at()), (None, Some(at(50) - 1)));
    });
    // gRPC waits (G4), and so does a policy that says so.
    let wait = DeadlineAction::WaitForDeadline;
    let exact = Rules { hint: HintRule::Exact(None), ..rules };
    for rules in [exact, Rules { deadline_action: wait, ..rules }] {
        hedge(rules, |driver| {
            driver.report(1, hint(50));
            assert_eq!((driver.ended(), driver.call.wake_at()), (None, Some(at(50))));
        });
    }
}

// Decision P14.
#[test]
fn hedging_debt_past_the_deadline_ends_an_idle_call() {
    let rules = Rules { hedge: Some(ms(5)), deadline: Some(ms(12)), ..BASE };
    for (hint, ended) in [
        (HintRule::UpTo(ms(1000)), Some((StopReason::Deadline, Some(2)))),
        (HintRule::Exact(None), None),
    ] {
        let rules = Rules { hint, ..rules };
        run_call(rules, CallParams::default(), (Spec::Costs(COSTS), &[]), |driver| {
            // The first hedge takes 10 tokens at 5 ms; the second one at 10 ms owes 5 until 15 ms.
            driver.reach(10);
            driver.wake();
            assert_eq!((driver.starts(), driver.ended()), (vec![0.0, 5.0], None));
            driver.report(1, FAILED);
            assert_eq!(driver.ended(), None, "the other one runs");
            driver.report(2, FAILED);
            assert_eq!(driver.ended(), ended);
        });
    }
}

// Decision P14.
#[test]
fn hint_jitter_adds_a_share_and_never_shortens() {
    let rules = Rules { hint_jitter: 0.5, attempts: Some(200), ..BASE };
    let (made, _) = delays(rules, &[Some(100); 199]);
    assert!(made.iter().all(|delay| (100.0..150.0).contains(delay)), "{made:?}");
    assert!(made.iter().any(|delay| *delay < 110.0) && made.iter().any(|delay| *delay > 140.0));
    let clamped = Rules { hint: HintRule::Exact(Some(ms(120))), ..rules };
    let (made, _) = delays(clamped, &[Some(100); 199]);
    assert!(made.iter().all(|delay| (100.0..=120.0).contains(delay)), "{made:?}");
    assert_eq!(delays(clamped, &[Some(500); 199]).0, [120.0; 199], "never above the clamp");
    for hint_jitter in [-0.1, 1.1, f64::NAN] {
        let problem = Policy::try_new(Rules { hint_jitter, ..BASE }).err();
        assert_eq!(problem, Some(PolicyError::HintJitter), "{hint_jitter}");
    }
    let hedged = Rules { hint_jitter: 0.1, ..HEDGED };
    assert_eq!(Policy::try_new(hedged).err(), Some(PolicyError::HedgeWithHintJitter));
}
