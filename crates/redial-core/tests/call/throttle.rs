//! Throttles: retry budgets, cost buckets and gRPC's token bucket.

use super::*;

// Decision P10.
#[test]
fn throttle_never_delays_or_refuses_a_first_attempt() {
    let empty = [
        Spec::Tokens { max: 1.0, ratio: 1.0 },
        Spec::Budget { reserve: 1.0, ratio: 0.0 },
        Spec::Costs(COSTS),
        Spec::Costs(CostBucketConfig { empty: WhenEmpty::Fail, ..COSTS }),
    ];
    for spec in empty {
        let (shared, mut model) = (spec.build(), Model::new(spec));
        shared.failed();
        model.failed();
        let grant = shared.withdraw(Cost { kind: FailureKind::Timeout }, 0);
        model.withdraw(FailureKind::Timeout, 0, grant);
        let env = TestEnvironment::new(&spec, &shared, 1);
        let policy = policy(BASE);
        let mut driver = TestDriver::begin(&policy, CallParams::default(), 0, env, &mut model);
        assert_eq!((driver.starts(), driver.env.asked.len()), (vec![0.0], 0), "{spec:?}");
        driver.cancel();
    }
}

#[test]
fn throttle_budget_charges_retries_and_hedges_and_success_refills() {
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.1 };
    run_call(BASE, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, FAILED);
        driver.pass(at(10));
        driver.report(2, FAILED);
        driver.pass(at(10));
        assert_eq!(driver.tokens(), 0.0);
        driver.report(3, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Throttled, Some(3))));
    });
    run_call(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.pass(at(30));
        assert_eq!((driver.starts(), driver.tokens()), (vec![0.0, 10.0, 20.0], 0.0));
        driver.report(2, Directive::Succeed);
        assert_eq!(driver.tokens(), 0.1, "once per call, for any number of withdrawals");
    });
}

#[test]
fn throttle_cost_success_refunds_last_retry_or_adds_one() {
    // S3, without a refill, so that the amounts are distinct.
    let spec = Spec::Costs(CostBucketConfig {
        capacity: 50.0,
        refill_per_second: 0.0,
        empty: WhenEmpty::Fail,
        ..CostBucketConfig::STANDARD
    });
    let (shared, mut model) = (spec.build(), Model::new(spec));
    let policy = policy(BASE);
    let mut call = |steps: &dyn Fn(&mut TestDriver<'_, '_, '_>)| {
        let env = TestEnvironment::new(&spec, &shared, 1);
        let mut driver = TestDriver::begin(&policy, CallParams::default(), 0, env, &mut model);
        steps(&mut driver);
        driver.check_after_end();
        driver.tokens()
    };
    let left = call(&|driver| {
        driver.report(1, failed_with(Failure::throttling()));
        driver.pass(at(10));
        driver.report(2, FAILED);
        driver.pass(at(10));
        driver.report(3, Directive::Succeed);
    });
    assert_eq!(left, 40.0, "10 and 5 were withdrawn, the 5 are refunded");
    let left = call(&|driver| {
        driver.report(1, FAILED);
        driver.pass(at(10));
        driver.report(2, Directive::Fail);
    });
    assert_eq!(left, 35.0, "failure refunds nothing");
    let left = call(&|driver| driver.report(1, Directive::Succeed));
    assert_eq!(left, 36.0);
}

#[test]
fn throttle_cost_success_refunds_last_hedge_whichever_won() {
    // S3, S4, S9: a hedge after a failure costs by its kind, one after the hedging delay as a
    // timeout.
    let spec = Spec::Costs(CostBucketConfig {
        capacity: 50.0,
        refill_per_second: 0.0,
        empty: WhenEmpty::Fail,
        ..CostBucketConfig::STANDARD
    });
    run_call(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.pass(at(10));
        assert_eq!(driver.tokens(), 40.0, "started by the hedging delay");
        driver.report(2, FAILED);
        assert_eq!(driver.tokens(), 35.0, "started by a server failure");
        driver.report(1, Directive::Succeed);
        assert_eq!(driver.tokens(), 40.0);
    });
    run_call(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, failed_with(Failure::server().retry_after(ms(1))));
        driver.pass(at(1));
        assert_eq!(driver.tokens(), 40.0, "started by a hint");
    });
}

#[test]
fn throttle_cost_empty_bucket_lends_in_order_of_arrival() {
    // S5: one token is refilled per millisecond.
    let costs = CostBucket::new(CostBucketConfig { server: 4.0, ..COSTS }).unwrap();
    let cost = Cost { kind: FailureKind::Server };
    let wait = |now| match costs.withdraw(cost, now) {
        Grant::Now(_) => 0,
        Grant::After(debt, _) => now + debt,
        other => panic!("{other:?}"),
    };
    assert_eq!((wait(0), wait(0)), (0, 0));
    // "Empty" means less than the cost: 2 tokens are left, and the caller waits for the other 2.
    assert_eq!((wait(0), wait(0)), (at(2), at(6)));
    assert_eq!(wait(at(1)), at(10), "later requests wait longer");
    assert_eq!(costs.tokens(at(1)), Some(10.0 - 20.0 + 1.0));
}

#[test]
fn throttle_cost_refund_by_others_does_not_shorten_waits() {
    // S5.
    with_debt(Rules { backoff: Backoff::Constant(Duration::ZERO), ..BASE }, 0, |driver| {
        let shared = driver.env.shared();
        let Grant::Now(theirs) = shared.withdraw(Cost { kind: FailureKind::Server }, 0) else {
            panic!("a full bucket pays");
        };
        driver.other_call_withdrew(FailureKind::Server, Grant::Now(theirs));
        driver.report(1, FAILED);
        assert_eq!(driver.call.wake_at(), Some(at(10)));
        shared.refund(theirs);
        driver.other_call_refunded(FailureKind::Server);
        assert_eq!(driver.call.wake_at(), Some(at(10)), "fixed at the withdrawal");
        assert_eq!(driver.tokens(), 0.0, "available to the next request");
    });
}

#[test]
fn throttle_cost_bucket_that_does_not_lend_refuses() {
    // S5.
    let spec = Spec::Costs(CostBucketConfig { empty: WhenEmpty::Fail, server: 6.0, ..COSTS });
    // 4 of 10 tokens are left; the delay refills 1, or the 2 that are needed.
    for (pause, stop_reason) in [(1, Some(StopReason::Throttled)), (2, None)] {
        let rules = Rules { backoff: Backoff::Constant(ms(pause)), ..BASE };
        run_call(rules, CallParams::default(), (spec, &[]), |driver| {
            driver.report(1, FAILED);
            driver.pass(at(pause));
            driver.report(2, FAILED);
            assert_eq!(
                driver.ended(),
                stop_reason.map(|stop_reason| (stop_reason, Some(2))),
                "a pause of {pause}"
            );
        });
    }
    let endless = CostBucketConfig { refill_per_second: 0.0, ..COSTS };
    assert_eq!(CostBucket::new(endless).err(), Some(PolicyError::WaitWithoutRefill));
}

#[test]
fn throttle_debt_is_waited_for_before_or_after_backoff() {
    // S2: 10 tokens are owed at time 0 and paid after 10 ms.
    for (charge_at, second) in [(ChargeAt::Decision, 20.0), (ChargeAt::AfterBackoff, 10.0)] {
        with_debt(Rules { charge_at, ..BASE }, 1, |driver| {
            driver.report(1, FAILED);
            driver.pass(at(20));
            assert_eq!(driver.starts(), [0.0, second], "{charge_at:?}");
        });
    }
    // Charged after the backoff, a debt can remain: the bucket adds the remaining wait.
    with_debt(Rules { charge_at: ChargeAt::AfterBackoff, ..BASE }, 2, |driver| {
        driver.report(1, FAILED);
        driver.pass(at(20));
        assert_eq!(driver.starts(), [0.0, 20.0]);
    });
}

#[test]
fn throttle_deferred_answer_is_visible_while_pending() {
    run_call(BASE, CallParams::default(), (Spec::Free, &[true]), |driver| {
        assert!(!driver.call.awaits_grant());
        driver.report(1, FAILED);
        assert!(driver.call.awaits_grant());
        driver.grant();
        assert!(!driver.call.awaits_grant());
        assert_eq!(driver.call.wake_at(), Some(at(10)));
    });
}

#[test]
fn throttle_tokens_count_a_failure_before_comparing() {
    // G11: of 4 tokens the second failure leaves 2, which is not more than half.
    let spec = Spec::Tokens { max: 4.0, ratio: 0.1 };
    run_call(BASE, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, FAILED);
        assert_eq!((driver.tokens(), driver.ended()), (3.0, None));
        driver.pass(at(10));
        driver.report(2, FAILED);
        assert_eq!((driver.tokens(), driver.stop_reason()), (2.0, Some(StopReason::Throttled)));
    });
}

#[test]
fn throttle_tokens_drain_once_per_failure() {
    // G13: the last attempt, a failure after the commit, "do not retry", and a status that is not
    // listed.
    let spec = Spec::Tokens { max: 100.0, ratio: 0.1 };
    let drains = Classification { drains: true, ..Directive::Fail.into() };
    let table: [(&str, Rules, bool, Classification, f64); 6] = [
        ("the last attempt", Rules { attempts: Some(1), ..BASE }, false, FAILED.into(), 99.0),
        ("after the commit", BASE, true, FAILED.into(), 99.0),
        ("do not retry", BASE, false, failed_with(Failure::server().stop()), 99.0),
        ("a hedge, do not retry", HEDGED, false, failed_with(Failure::server().stop()), 99.0),
        ("not listed", BASE, false, Directive::Fail.into(), 100.0),
        ("not listed, do not retry", BASE, false, drains, 99.0),
    ];
    for (name, rules, headers, classification, left) in table {
        run_call(rules, CallParams::default(), (spec, &[]), |driver| {
            if headers {
                driver.headers(driver.slot(1));
            }
            driver.report(1, classification);
            assert!(driver.end.is_some(), "{name}");
            assert_eq!(driver.tokens(), left, "{name}");
        });
    }
    // Asking a strategy does not count the failure twice.
    run_call(Rules { uses_strategy: true, ..BASE }, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, FAILED);
        driver.answer(Advice::After(0));
        assert_eq!(driver.tokens(), 99.0);
    });
}

#[test]
fn throttle_tokens_decide_when_a_hedge_is_due() {
    // G14: the failure that starts the hedge counts, and so do earlier failures of other calls.
    let spec = Spec::Tokens { max: 2.0, ratio: 0.1 };
    run_call(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.reach(10);
        driver.wake();
        assert_eq!(driver.starts(), [0.0, 10.0], "two of two tokens are enough");
        driver.report(1, FAILED);
        assert_eq!(
            (driver.starts().len(), driver.ended()),
            (2, None),
            "the running attempt continues"
        );
        assert_eq!(driver.call.wake_at(), None, "a refused hedge ends hedging");
        driver.report(2, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(2))));
    });
    run_call(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Throttled, Some(1))), "no attempt is running");
    });
}

#[test]
fn throttle_tokens_scale_with_a_new_config() {
    // G15.
    let tokens = TokenBucket::new(10.0, 0.1).unwrap();
    tokens.failed();
    tokens.failed();
    tokens.adopt_parameters(&TokenBucket::new(10.0, 0.1).unwrap());
    assert_eq!(tokens.tokens(0), Some(8.0), "equal parameters keep it");
    tokens.adopt_parameters(&TokenBucket::new(100.0, 0.5).unwrap());
    assert_eq!(tokens.tokens(0), Some(80.0));
}
