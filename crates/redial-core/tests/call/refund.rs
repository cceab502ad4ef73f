//! Refunds: tokens withdrawn for a retry or hedge that never starts are returned (decision P6).

use super::*;

/// Runs a call whose first retry is paid for and waits at time 0.
fn waiting(rules: Rules, steps: impl FnOnce(&mut TestDriver<'_, '_, '_>)) {
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    run_call(rules, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, FAILED);
        assert_eq!(driver.tokens(), 1.0, "a retry is charged when it is decided");
        steps(driver);
    });
}

#[test]
fn refund_after_cancellation_counts_no_failure() {
    waiting(BASE, |driver| {
        driver.cancel();
        assert_eq!(driver.tokens(), 2.0);
        assert_eq!(driver.ended(), Some((StopReason::Cancelled, None)));
    });
    let spec = Spec::Tokens { max: 10.0, ratio: 1.0 };
    run_call(BASE, CallParams::default(), (spec, &[]), |driver| {
        driver.cancel();
        assert_eq!((driver.tokens(), driver.env.failed), (10.0, 0), "never a failure");
    });
}

#[test]
fn refund_when_a_call_is_dropped() {
    let budget = RetryBudget::try_new(2.0, 0.0).unwrap();
    let shared = Shared::Budget(budget);
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    let (policy, mut model) = (policy(BASE), Model::new(spec));
    let env = TestEnvironment::new(&spec, &shared, 1);
    let mut driver = TestDriver::begin(&policy, CallParams::default(), 0, env, &mut model);
    driver.report(1, FAILED);
    assert_eq!(shared.tokens(0), Some(1.0));
    driver.drop_call();
    assert_eq!(shared.tokens(0), Some(2.0));
}

#[test]
fn refund_when_the_deadline_ends_a_waiting_retry() {
    waiting(
        Rules { deadline: Some(ms(7)), deadline_action: DeadlineAction::WaitForDeadline, ..BASE },
        |driver| {
            driver.reach(7);
            driver.wake();
            assert_eq!((driver.stop_reason(), driver.tokens()), (Some(StopReason::Deadline), 2.0));
        },
    );
}

#[test]
fn refund_is_not_made_for_a_started_retry() {
    waiting(BASE, |driver| {
        driver.pass(at(10));
        driver.cancel();
        assert_eq!((driver.numbers(), driver.tokens()), (vec![1, 2], 1.0));
    });
}

#[test]
fn refund_when_debt_would_exceed_the_deadline() {
    // 10 ms of backoff fit before the deadline; with the debt they do not.
    for (charge_at, moment, left) in
        [(ChargeAt::Decision, 0, -10.0), (ChargeAt::AfterBackoff, 10, 0.0)]
    {
        with_debt(Rules { charge_at, deadline: Some(ms(15)), ..BASE }, 2, |driver| {
            driver.report(1, FAILED);
            driver.reach(moment);
            driver.wake();
            assert_eq!(driver.ended(), Some((StopReason::Deadline, Some(1))), "{charge_at:?}");
            assert_eq!(driver.tokens(), left, "{charge_at:?}");
        });
    }
}

#[test]
fn refund_of_a_grant_that_arrives_too_late() {
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    let cancelled = |driver: &mut TestDriver<'_, '_, '_>| driver.cancel();
    let won = |driver: &mut TestDriver<'_, '_, '_>| driver.report(1, Directive::Succeed);
    let committed = |driver: &mut TestDriver<'_, '_, '_>| driver.headers(driver.slot(1));
    let refused = |driver: &mut TestDriver<'_, '_, '_>| {
        driver.report(1, failed_with(Failure::server().stop()));
    };
    let ways: [&dyn Fn(&mut TestDriver<'_, '_, '_>); 4] = [&cancelled, &won, &committed, &refused];
    for (i, way) in ways.into_iter().enumerate() {
        run_call(HEDGED, CallParams::default(), (spec, &[true]), |driver| {
            driver.pass(at(10));
            assert!(driver.awaiting.is_some(), "the hedge has requested its grant");
            way(driver);
            driver.grant();
            if driver.end.is_none() {
                assert_eq!(driver.tokens(), 1.0, "held until the call ends");
                driver.cancel();
            }
            assert_eq!((driver.starts().len(), driver.tokens()), (1, 2.0), "way {i}");
        });
    }
}

#[test]
fn refund_of_hedge_waiting_for_debt_when_call_ends() {
    let spec = Spec::Costs(CostBucketConfig { capacity: 10.0, success: 0.0, ..COSTS });
    let ways: [&dyn Fn(&mut TestDriver<'_, '_, '_>); 4] = [
        &|driver| driver.report(1, Directive::Succeed),
        &|driver| driver.report(1, Directive::Fail),
        &|driver| {
            driver.headers(driver.slot(1));
            driver.report(1, Directive::Succeed);
        },
        &|driver| driver.cancel(),
    ];
    for (i, way) in ways.into_iter().enumerate() {
        let rules = Rules { hedge: Some(Duration::ZERO), ..BASE };
        run_call(rules, CallParams::default(), (spec, &[]), |driver| {
            // The second attempt withdrew all tokens; the third borrows the tokens of the next 10
            // ms.
            assert_eq!((driver.starts(), driver.tokens()), (vec![0.0, 0.0], -10.0));
            way(driver);
            // S3: success also refunds the tokens of the second attempt.
            let expected =
                if driver.stop_reason() == Some(StopReason::Succeeded) { 10.0 } else { 0.0 };
            assert_eq!(driver.tokens(), expected, "way {i}");
        });
    }
}

/// Runs a hedged call whose driver takes one start at a time, so that another input comes before
/// the next; the budget holds four.
fn one_at_a_time(delay: Duration, steps: impl FnOnce(&mut TestDriver<'_, '_, '_>)) {
    let spec = Spec::Budget { reserve: 4.0, ratio: 0.0 };
    let rules = Rules { hedge: Some(delay), deadline: Some(ms(100)), ..BASE };
    let (policy, shared, mut model) = (policy(rules), spec.build(), Model::new(spec));
    let env = TestEnvironment::new(&spec, &shared, 1);
    let mut driver =
        TestDriver::begin_taking(Starts::One, &policy, CallParams::default(), 0, env, &mut model);
    steps(&mut driver);
    driver.drop_call();
}

/// All ways in which a call can end before the driver takes the next start.
const ENDS: [fn(&mut TestDriver<'_, '_, '_>); 4] = [
    |driver| driver.report(1, Directive::Succeed),
    |driver| driver.report(1, Directive::Fail),
    |driver| driver.cancel(),
    |driver| {
        driver.reach(100);
        driver.wake();
    },
];

#[test]
fn refund_is_not_needed_for_hedges_never_started() {
    for (i, end) in ENDS.into_iter().enumerate() {
        one_at_a_time(Duration::ZERO, |driver| {
            assert_eq!(
                (driver.starts(), driver.tokens()),
                (vec![0.0], 4.0),
                "the first attempt costs nothing"
            );
            end(driver);
            assert!(driver.end.is_some(), "way {i}");
            assert_eq!((driver.starts(), driver.tokens()), (vec![0.0], 4.0), "way {i}");
            assert_eq!((driver.call.started(), driver.call.counters().attempts), (1, 1), "way {i}");
        });
    }
    one_at_a_time(Duration::ZERO, |driver| {
        driver.oversleep(0);
        assert!(!driver.wake_once(), "no timer is due; the second starts");
        assert_eq!((driver.starts().len(), driver.tokens()), (2, 3.0));
        driver.report(2, Directive::Fail);
        assert_eq!((driver.starts().len(), driver.tokens()), (2, 3.0));
        assert_eq!(driver.cancels(), [(1, 0.0)], "an attempt that never started is not cancelled");
    });
}

#[test]
fn refund_of_hedge_paid_but_not_started() {
    // The second attempt fails, and the hedge that follows is paid for but not taken.
    let policy = policy(Rules { hedge: Some(ms(10)), deadline: Some(ms(100)), ..BASE });
    let shared = Shared::Budget(RetryBudget::try_new(4.0, 0.0).unwrap());
    let ends: [fn(&mut Call<&Policy>, &mut TestEnvironment<'_>); 4] = [
        |call, env| call.outcome(0, Directive::Succeed.into(), at(11), env),
        |call, env| call.outcome(0, Directive::Fail.into(), at(11), env),
        |call, env| call.cancel(at(11), env),
        |call, env| assert!(call.wake_once(at(100), env)),
    ];
    for (i, end) in ends.into_iter().enumerate() {
        let mut env = TestEnvironment::new(&Spec::Budget { reserve: 4.0, ratio: 0.0 }, &shared, 1);
        let mut call = Call::<_>::begin(&policy, CallParams::default(), 0, &mut env);
        while call.command(&mut env).is_some() {}
        assert!(call.wake_once(at(10), &mut env));
        while call.command(&mut env).is_some() {}
        assert_eq!((call.started(), shared.tokens(0)), (2, Some(3.0)));
        call.outcome(1, FAILED.into(), at(11), &mut env);
        assert_eq!((call.started(), shared.tokens(0)), (2, Some(2.0)), "paid, and ready to start");
        end(&mut call, &mut env);
        assert_eq!((call.started(), shared.tokens(0)), (2, Some(3.0)), "way {i}");
        let command = call.command(&mut env);
        assert!(matches!(command, Some(Command::Cancel(0) | Command::End(_))), "way {i}");
        drop(env);
        // Returns the token of the second attempt, so that the next iteration has a full budget.
        shared.refund(redial_core::Withdrawal(1000));
    }
}
