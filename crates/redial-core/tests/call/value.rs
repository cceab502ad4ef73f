//! Waiting for a value, which is not a failure (section B of the decisions).

use super::*;

#[test]
fn waiting_for_a_value_asks_no_throttle() {
    let empty = [
        Spec::Tokens { max: 1.0, ratio: 1.0 },
        Spec::Budget { reserve: 1.0, ratio: 0.0 },
        Spec::Costs(CostBucketConfig {
            capacity: 10.0,
            server: 10.0,
            refill_per_second: 0.0,
            empty: WhenEmpty::Fail,
            ..CostBucketConfig::STANDARD
        }),
    ];
    for spec in empty {
        for charge_at in [ChargeAt::Decision, ChargeAt::AfterBackoff] {
            let rules = Rules { charge_at, attempts: Some(30), ..BASE };
            run_call(rules, CallParams::default(), (spec, &[]), |driver| {
                let full = driver.tokens();
                for attempt in 1..30 {
                    driver.report(attempt, failed_with(Failure::not_ready()));
                    driver.pass(at(10));
                }
                assert_eq!((driver.tokens(), driver.env.failed), (full, 0), "{spec:?}");
                driver.report(30, failed_with(Failure::not_ready()));
                assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(30))));
            });
        }
    }
}

#[test]
fn waiting_for_a_value_does_not_pay_for_failures() {
    let spec = Spec::Budget { reserve: 1.0, ratio: 0.0 };
    run_call(BASE, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, FAILED);
        driver.pass(at(10));
        driver.report(2, failed_with(Failure::not_ready()));
        driver.pass(at(10));
        driver.report(3, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::Throttled, Some(3))));
    });
}

#[test]
fn waiting_for_a_value_with_hedges_is_free() {
    let spec = Spec::Budget { reserve: 1.0, ratio: 0.0 };
    run_call(HEDGED, CallParams::default(), (spec, &[]), |driver| {
        driver.report(1, failed_with(Failure::not_ready()));
        driver.report(2, failed_with(Failure::not_ready()));
        assert_eq!((driver.starts(), driver.tokens()), (vec![0.0, 0.0, 0.0], 1.0));
        driver.pass(at(10));
        assert_eq!(driver.tokens(), 0.0, "a hedge that its delay sends is charged");
    });
}
