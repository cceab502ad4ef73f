//! Hedging: when hedges start, which attempt wins, and why hedging stops.

use super::*;

// Decision P4.
#[test]
fn hedging_start_overtaken_by_a_timeout_is_not_recorded() {
    // The driver is late: the hedge of 5 ms is processed at 10 ms, and the timeout of 7 ms ends the
    // call.
    let rules = Rules {
        attempt_timeout: Some(ms(7)),
        attempt_timeout_action: AttemptTimeoutAction::EndCall,
        hedge: Some(ms(5)),
        ..BASE
    };
    let (policy, shared) = (policy(rules), Spec::Free.build());
    let mut env = TestEnvironment::new(&Spec::Free, &shared, 1);
    let mut call = Call::<_>::begin(&policy, CallParams::default(), 0, &mut env);
    assert!(matches!(call.command(&mut env), Some(Command::Start(_))));
    assert!(call.wake_once(at(10), &mut env));
    assert!(call.wake_once(at(10), &mut env));
    assert_eq!(
        (call.started(), call.end().map(|end| end.stop_reason)),
        (1, Some(StopReason::Deadline))
    );
    assert_eq!(call.command(&mut env), Some(Command::Cancel(0)));
    let of_the_second = env.call_log.iter().any(|(_, event)| {
        matches!(
            event,
            Event::AttemptStarted { attempt: 2, .. } | Event::AttemptCancelled { attempt: 2 }
        )
    });
    assert!(!of_the_second, "{:?}", env.call_log);
}

#[test]
fn hedging_starts_after_each_delay_or_all_at_once() {
    // G16.
    hedge(HEDGED, |driver| {
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 10.0, 20.0, 30.0]);
    });
    hedge(Rules { hedge: Some(Duration::ZERO), ..BASE }, |driver| {
        assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0; 4], None));
    });
}

/// Runs a call that overrides the hedging delay.
fn with_hedge_delay(hedge: HedgeDelay, steps: impl FnOnce(&mut TestDriver<'_, '_, '_>)) {
    let params = CallParams { hedge: Some(hedge), ..CallParams::default() };
    run_call(HEDGED, params, (Spec::Free, &[]), steps);
}

#[test]
fn hedging_delay_of_the_call_overrides_the_policy() {
    with_hedge_delay(HedgeDelay::After(at(3)), |driver| {
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 3.0, 6.0, 9.0]);
    });
    with_hedge_delay(HedgeDelay::After(0), |driver| {
        assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0; 4], None));
    });
    with_hedge_delay(HedgeDelay::After(at(3)), |driver| {
        driver.reach(1);
        driver.report(1, FAILED);
        driver.reach(2);
        driver.report(2, failed_with(Failure::server().retry_after(ms(20))));
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 1.0, 22.0, 25.0], "failures and pushback as usual");
    });
}

#[test]
fn hedging_never_by_time_still_follows_failures() {
    for never in [HedgeDelay::Never, HedgeDelay::After(NEVER)] {
        with_hedge_delay(never, |driver| {
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
fn hedging_delay_is_ignored_by_a_retry_policy() {
    let params = CallParams { hedge: Some(HedgeDelay::After(0)), ..CallParams::default() };
    run_call(BASE, params, (Spec::Free, &[]), |driver| {
        assert_eq!((driver.starts(), driver.call.wake_at()), (vec![0.0], None));
        driver.report(1, FAILED);
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 10.0]);
    });
}

#[test]
fn hedging_failure_starts_next_hedge_and_restarts_the_delay() {
    // G17.
    hedge(HEDGED, |driver| {
        driver.reach(4);
        driver.report(1, FAILED);
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0, 4.0, 14.0, 24.0]);
    });
}

#[test]
fn hedging_success_or_final_failure_cancels_the_others() {
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
fn hedging_first_headers_commit_and_stop_new_attempts() {
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
fn hedging_returns_the_last_failure_when_all_fail() {
    // G21: the failure that came last, not the attempt that started last.
    hedge(Rules { hedge: Some(Duration::ZERO), ..BASE }, |driver| {
        for attempt in [4, 1, 3, 2] {
            driver.report(attempt, FAILED);
        }
        assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(2))));
    });
}

#[test]
fn hedging_stop_reason_is_the_first_that_stopped_it() {
    // G22: once the last hedge has started, the reason is `attempts`, whatever follows.
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
    run_call(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.pass(at(20));
        driver.report(1, stop);
        driver.report(2, stop);
        assert_eq!(
            driver.stop_reason(),
            Some(StopReason::Throttled),
            "refused at 20, before the pushback"
        );
    });
}

#[test]
fn hedging_starts_are_in_order_when_slots_are_reused() {
    // Scenarios and metrics identify attempts by the order in which they start.
    let rules =
        Rules { hedge: Some(Duration::ZERO), attempts: Some(3), transparent_retries: true, ..BASE };
    let (policy, shared) = (policy(rules), Spec::Free.build());
    let mut env = TestEnvironment::with_later(&Spec::Free, &shared, 1, &[false, true]);
    let mut call = Call::<_>::begin(&policy, CallParams::default(), 0, &mut env);
    while call.command(&mut env).is_some() {}
    // The second waits for its transparent retry, the first has failed: its slot is free.
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
fn hedging_running_attempts_are_listed_in_start_order() {
    let rules =
        Rules { hedge: Some(Duration::ZERO), attempts: Some(3), transparent_retries: true, ..BASE };
    hedge(rules, |driver| {
        let order = |driver: &TestDriver<'_, '_, '_>| {
            let next = |last: Option<(u32, usize)>| {
                driver.call.running_after(last.map_or(0, |(attempt, _)| attempt))
            };
            core::iter::successors(next(None), |last| next(Some(*last))).take(5).collect::<Vec<_>>()
        };
        assert_eq!(order(driver), [(1, 0), (2, 1), (3, 2)]);
        // A transparent retry reuses the lowest slot, but is last in the order of starts.
        driver.report(1, proven(Proof::Unprocessed));
        assert_eq!(order(driver), [(2, 1), (3, 2), (4, 0)]);
        driver.report(3, FAILED);
        assert_eq!(order(driver), [(2, 1), (4, 0)]);
        driver.report(4, Directive::Succeed);
        assert_eq!(order(driver), []);
    });
}

#[test]
fn hedging_slot_out_of_range_runs_nothing() {
    // G2: the maximum number of slots.
    let rules = Rules { hedge: Some(Duration::ZERO), attempts: Some(32), ..BASE };
    run_call(rules, CallParams::default(), (Spec::Free, &[]), |driver| {
        assert!((0..LIVE_MAX).all(|slot| driver.call.is_running(slot)));
        for slot in [LIVE_MAX, LIVE_MAX + 1, 64, usize::MAX] {
            assert!(!driver.call.is_running(slot), "{slot}");
        }
        driver.headers(LIVE_MAX);
        driver.not_replayable(Some(LIVE_MAX));
        assert_eq!((driver.call.is_committed(), driver.cancels()), (false, vec![]));
    });
}

#[test]
fn hedging_paid_start_waits_for_pushback() {
    let policy = policy(HEDGED);
    let shared = Shared::Budget(RetryBudget::try_new(4.0, 0.0).unwrap());
    let mut env = TestEnvironment::new(&Spec::Budget { reserve: 4.0, ratio: 0.0 }, &shared, 1);
    let mut call = Call::<_>::begin(&policy, CallParams::default(), 0, &mut env);
    while call.command(&mut env).is_some() {}
    assert!(call.wake_once(at(10), &mut env));
    while call.command(&mut env).is_some() {}
    // A driver may report two outcomes before it takes the command that follows from the first.
    call.outcome(0, FAILED.into(), at(11), &mut env);
    call.outcome(1, failed_with(Failure::server().retry_after(ms(5))), at(11), &mut env);
    assert_eq!((call.command(&mut env), call.wake_at()), (None, Some(at(16))));
    assert!(call.wake_once(at(16), &mut env));
    assert!(matches!(call.command(&mut env), Some(Command::Start(start)) if start.number == 3));
    assert_eq!(shared.tokens(0), Some(2.0), "paid once");
}

#[test]
fn hedging_paid_start_is_charged_once() {
    let policy = policy(HEDGED);
    let shared = Shared::Budget(RetryBudget::try_new(4.0, 0.0).unwrap());
    let mut env = TestEnvironment::new(&Spec::Budget { reserve: 4.0, ratio: 0.0 }, &shared, 1);
    let mut call = Call::<_>::begin(&policy, CallParams::default(), 0, &mut env);
    while call.command(&mut env).is_some() {}
    assert!(call.wake_once(at(10), &mut env));
    while call.command(&mut env).is_some() {}
    // The hedge that is ready to start answers both failures; the next delay counts from its start.
    call.outcome(0, FAILED.into(), at(11), &mut env);
    call.outcome(1, FAILED.into(), at(11), &mut env);
    assert_eq!(shared.tokens(0), Some(2.0), "the second attempt, and one hedge");
    assert!(matches!(call.command(&mut env), Some(Command::Start(start)) if start.number == 3));
    assert_eq!((call.command(&mut env), call.wake_at()), (None, Some(at(21))));
}

#[test]
fn hedging_next_attempt_is_due_unless_the_deadline_comes_first() {
    let rules = Rules { deadline: Some(ms(100)), ..HEDGED };
    hedge(rules, |driver| {
        assert_eq!(driver.call.next_attempt_at(), Some(at(10)), "by time");
        driver.reach(3);
        driver.report(1, failed_with(Failure::server().retry_after(ms(20))));
        assert_eq!(driver.call.next_attempt_at(), Some(at(23)), "by pushback");
        driver.reach(23);
        driver.wake();
        driver.report(2, failed_with(Failure::server().retry_after(ms(77))));
        assert_eq!(driver.call.next_attempt_at(), None, "the deadline is earlier");
    });
    retry(BASE, |driver| {
        assert_eq!(driver.call.next_attempt_at(), None, "an attempt runs");
        driver.report(1, FAILED);
        assert_eq!(driver.call.next_attempt_at(), Some(at(10)));
    });
}
