//! Decisions G4, G9 and G16 to G22: pushback and hedging.

use super::*;

// G4.

#[test]
fn a_hedge_or_replacement_that_comes_too_late_is_waited_for_until_the_deadline() {
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
        assert_eq!(driver.ended(), None, "the pause is 10 ms");
        driver.pass(at(5));
        assert_eq!((driver.stop_reason(), driver.now), (Some(StopReason::Deadline), at(5)));
    });
    // A retry is not.
    retry(rules, |driver| {
        driver.report(1, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Deadline, Some(1))));
    });
}

// G9.

#[test]
fn a_pushback_is_exact_and_the_series_begins_anew_after_it() {
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
    // Elsewhere it neither advances the series nor stops it; by attempt, it goes on.
    let numbered = |numbering| Rules { numbering, ..rules };
    let (made, _) = delays(numbered(Numbering::Delays), &[None, Some(3)]);
    assert_eq!(made[..4], [10.0, 3.0, 20.0, 40.0]);
    let (made, _) = delays(numbered(Numbering::Attempts), &[None, Some(3)]);
    assert_eq!(made[..4], [10.0, 3.0, 40.0, 80.0]);
}

#[test]
fn a_pushback_has_a_most_if_the_client_sets_one_for_hedging_too() {
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

// G16 to G22: hedging.

#[test]
fn hedges_follow_one_another_after_the_delay_or_all_at_once() {
    // G16.
    hedge(HEDGED, |driver| {
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 10.0, 20.0, 30.0]);
    });
    hedge(Rules { hedge: Some(Duration::ZERO), ..BASE }, |driver| {
        assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0; 4], None));
    });
}

/// A call that says itself when its hedges follow.
fn own(hedge: HedgeDelay, steps: impl FnOnce(&mut TestDriver<'_, '_, '_, 4>)) {
    let params = CallParams { hedge: Some(hedge), ..CallParams::default() };
    run_call::<4>(HEDGED, params, (Spec::Free, &[]), steps);
}

// Red if `schedule_hedge` read the policy's delay.
#[test]
fn a_calls_own_delay_beats_its_policys() {
    own(HedgeDelay::After(at(3)), |driver| {
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 3.0, 6.0, 9.0]);
    });
    own(HedgeDelay::After(0), |driver| {
        assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0; 4], None));
    });
    own(HedgeDelay::After(at(3)), |driver| {
        driver.reach(1);
        driver.report(1, FAILED);
        driver.reach(2);
        driver.report(2, failed_with(Failure::server().retry_after(ms(20))));
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 1.0, 22.0, 25.0], "failures and pushback as ever");
    });
}

#[test]
fn a_call_that_hedges_never_by_time_still_answers_failures() {
    for never in [HedgeDelay::Never, HedgeDelay::After(NEVER)] {
        own(never, |driver| {
            driver.pass(at(100));
            assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0], None));
            driver.report(1, FAILED);
            driver.pass(at(100));
            assert_eq!(driver.starts(), [0.0, 100.0]);
            driver.report(2, failed_with(Failure::server().retry_after(ms(7))));
            driver.pass(at(200));
            assert_eq!(driver.starts(), [0.0, 100.0, 207.0]);
            driver.report(3, failed_with(Failure::server().stop()));
            assert_eq!(driver.ended(), Some((StopReason::ServerRefused, Some(3))));
        });
    }
}

#[test]
fn a_call_under_a_policy_that_retries_cannot_ask_for_hedges() {
    let params = CallParams { hedge: Some(HedgeDelay::After(0)), ..CallParams::default() };
    run_call::<1>(BASE, params, (Spec::Free, &[]), |driver| {
        assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0], None));
        driver.report(1, FAILED);
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 10.0]);
    });
}

#[test]
fn a_failure_sends_the_next_hedge_at_once_and_the_rhythm_goes_on_from_there() {
    // G17.
    hedge(HEDGED, |driver| {
        driver.reach(4);
        driver.report(1, FAILED);
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 4.0, 14.0, 24.0]);
    });
}

#[test]
fn a_failure_does_not_shorten_a_pushback_that_is_being_waited_for() {
    // G17, second sentence.
    hedge(HEDGED, |driver| {
        driver.reach(10);
        driver.wake();
        driver.report(1, failed_with(Failure::server().retry_after(ms(50))));
        driver.report(2, FAILED);
        assert_eq!(driver.starts(), [0.0, 10.0]);
        driver.pass(at(60));
        assert_eq!(driver.starts(), [0.0, 10.0, 60.0, 70.0], "then the usual rhythm");
    });
}

#[test]
fn a_later_pushback_replaces_an_earlier_one() {
    // G18: whether it is sooner or later, or at once.
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
fn a_pushback_neither_forgets_nor_shortens_a_hedge_that_the_throttle_has_in_hand() {
    // G18 with S5: what is paid for waits for its debt and for the server, whichever is later.
    let spec = Spec::Costs(COSTS);
    for (pushback, third_start) in [(3, 15), (25, 35)] {
        let rules = Rules { hedge: Some(ms(5)), ..BASE };
        run_call::<4>(rules, CallParams::default(), (spec, &[]), |driver| {
            // Sent at 5 for 10 tokens, and again at 10, when 5 are back and 5 are owed until 15.
            driver.reach(10);
            driver.wake();
            assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0, 5.0], Some(at(15))));
            driver.report(1, FAILED);
            assert_eq!(driver.call.wake_at(), Some(at(15)), "a failure does not pay the debt");
            driver.report(2, failed_with(Failure::server().retry_after(ms(pushback))));
            assert_eq!(driver.call.wake_at(), Some(at(third_start)));
            assert!(driver.next_timer());
            assert_eq!(driver.starts().len(), 3);
        });
    }
    // The same, while the throttle's answer is on its way.
    let spec = Spec::Budget { reserve: 1.0, ratio: 0.0 };
    run_call::<4>(HEDGED, CallParams::default(), (spec, &[true]), |driver| {
        driver.reach(10);
        driver.wake();
        driver.report(1, failed_with(Failure::server().retry_after(ms(20))));
        driver.reach(12);
        driver.grant();
        assert_eq!((driver.starts(), driver.tokens()), (vec![0.0], 0.0));
        driver.pass(at(18));
        assert_eq!(driver.starts(), [0.0, 30.0], "paid once, sent when the server wants it");
    });
}

#[test]
fn do_not_retry_ends_hedging_and_what_is_outstanding_goes_on() {
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

#[test]
fn a_fatal_failure_or_a_success_cancels_all_others() {
    // G20: with or without pushback.
    for directive in [Directive::Fail, Directive::Succeed] {
        hedge(HEDGED, |driver| {
            driver.reach(20);
            driver.wake();
            driver.report(2, directive);
            assert_eq!(driver.cancels(), [(1, 20.0), (3, 20.0)]);
            assert_eq!(driver.ended().unwrap().1, Some(2));
        });
    }
}

#[test]
fn the_first_headers_win_and_nothing_starts_after_them() {
    // G20, G6, G7.
    hedge(HEDGED, |driver| {
        driver.reach(10);
        driver.wake();
        driver.headers(driver.slot(2));
        assert_eq!((driver.cancels(), driver.call.wake_at()), (vec![(1, 10.0)], None));
        driver.headers(driver.slot(2));
        driver.reach(90);
        driver.report(2, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Committed, Some(2))));
        assert_eq!(driver.starts(), [0.0, 10.0]);
    });
}

#[test]
fn of_hedges_that_all_failed_the_last_failure_is_handed_on() {
    // G21: the failure that came last, not the attempt that started last.
    hedge(Rules { hedge: Some(Duration::ZERO), ..BASE }, |driver| {
        for attempt in [4, 1, 3, 2] {
            driver.report(attempt, FAILED);
        }
        assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(2))));
    });
}

#[test]
fn what_stopped_further_hedges_first_is_named() {
    // G22: once the last hedge is sent it is `attempts`, whatever comes later.
    let stop = failed_with(Failure::server().stop());
    hedge(Rules { attempts: Some(2), ..HEDGED }, |driver| {
        driver.pass(at(10));
        driver.report(1, stop);
        driver.report(2, stop);
        assert_eq!(driver.stop_reason(), Some(StopReason::AttemptsExhausted));
    });
    hedge(HEDGED, |driver| {
        driver.pass(at(10));
        driver.report(1, stop);
        driver.report(2, FAILED);
        assert_eq!(driver.stop_reason(), Some(StopReason::ServerRefused));
    });
    let spec = Spec::Budget { reserve: 1.0, ratio: 0.0 };
    run_call::<4>(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.pass(at(20));
        driver.report(1, stop);
        driver.report(2, stop);
        assert_eq!(
            driver.stop_reason(),
            Some(StopReason::Throttled),
            "refused at 20, before the server spoke"
        );
    });
}

#[test]
fn starts_are_handed_out_in_their_order_though_slots_are_reused() {
    // Scenarios and statistics name attempts by the order in which they start.
    let rules =
        Rules { hedge: Some(Duration::ZERO), attempts: Some(3), transparent_retries: true, ..BASE };
    let (policy, shared) = (policy(rules), Spec::Free.build());
    let mut env = TestEnvironment::with_later(&Spec::Free, &shared, 1, &[false, true]);
    let mut call = Call::<_, 4>::begin(&policy, CallParams::default(), 0, &mut env);
    while call.command(&mut env).is_some() {}
    // The second waits for its replacement, the first has failed: its slot is free.
    call.outcome(1, proven(Proof::Unsent), 0, &mut env);
    while call.command(&mut env).is_some() {}
    call.outcome(1, proven(Proof::Unsent), 0, &mut env);
    call.outcome(0, FAILED.into(), 0, &mut env);
    while call.command(&mut env).is_some() {}
    call.wake_once(at(10), &mut env);
    call.granted(Grant::Now(redial_core::Withdrawal(0)), at(10), &mut env);
    let mut attempts = Vec::new();
    let mut slots = Vec::new();
    while let Some(command) = call.command(&mut env) {
        if let Command::Start(start) = command {
            attempts.push(start.attempt);
            slots.push(start.slot);
        }
    }
    assert_eq!((attempts, slots), (vec![4, 5], vec![1, 0]));
}

#[test]
fn what_runs_is_looked_at_in_the_order_of_its_starts() {
    let rules =
        Rules { hedge: Some(Duration::ZERO), attempts: Some(3), transparent_retries: true, ..BASE };
    hedge(rules, |driver| {
        let order = |driver: &TestDriver<'_, '_, '_, 4>| {
            let next = |last: Option<(u32, usize)>| {
                driver.call.running_after(last.map_or(0, |(attempt, _)| attempt))
            };
            core::iter::successors(next(None), |last| next(Some(*last))).take(5).collect::<Vec<_>>()
        };
        assert_eq!(order(driver), [(1, 0), (2, 1), (3, 2)]);
        // A replacement takes the lowest slot, and comes last all the same.
        driver.report(1, proven(Proof::Unprocessed));
        assert_eq!(order(driver), [(2, 1), (3, 2), (4, 0)]);
        driver.report(3, FAILED);
        assert_eq!(order(driver), [(2, 1), (4, 0)]);
        driver.report(4, Directive::Succeed);
        assert_eq!(order(driver), []);
    });
}

#[test]
fn a_slot_that_there_is_not_runs_nothing() {
    // G2: the most slots that a machine can have.
    let rules = Rules { hedge: Some(Duration::ZERO), attempts: Some(32), ..BASE };
    run_call::<LIVE_MAX>(rules, CallParams::default(), (Spec::Free, &[]), |driver| {
        assert!((0..LIVE_MAX).all(|slot| driver.call.is_running(slot)));
        for slot in [LIVE_MAX, LIVE_MAX + 1, 64, usize::MAX] {
            assert!(!driver.call.is_running(slot), "{slot}");
        }
        driver.headers(LIVE_MAX);
        driver.not_replayable(Some(LIVE_MAX));
        assert_eq!((driver.call.is_committed(), driver.cancels()), (false, vec![]));
    });
}
