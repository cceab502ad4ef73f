//! Reset of the series of delays after an attempt that ran for long enough.

use super::*;

const RECONNECT: Rules = Rules {
    attempts: Some(3),
    backoff: Backoff::Exponential { first: ms(10), factor: 2.0, cap: None },
    reset_after: Some(ms(1000)),
    ..BASE
};

#[test]
fn reset_after_a_healthy_attempt_starts_the_series_anew() {
    retry(RECONNECT, |driver| {
        driver.report(1, FAILED);
        driver.pass(at(10));
        driver.report(2, FAILED);
        driver.pass(at(20));
        // The third attempt is the last one, unless it runs for a second.
        driver.pass(at(1000));
        driver.report(3, FAILED);
        assert_eq!((driver.ended(), driver.call.wake_at()), (None, Some(at(1040))));
        driver.pass(at(10));
        driver.report(4, FAILED);
        assert_eq!(driver.call.wake_at(), Some(at(1060)));
        driver.pass(at(20));
        driver.pass(at(999));
        driver.report(5, FAILED);
        assert_eq!(driver.ended(), Some((StopReason::AttemptsExhausted, Some(5))));
        assert_eq!(driver.numbers(), [1, 2, 3, 4, 5], "attempts are counted on");
    });
}

#[test]
fn reset_also_restarts_limits_hints_and_decorrelated_jitter() {
    let limits = Limits { hard: Some(ms(25)), ..Limits::NONE };
    retry(Rules { limits, ..RECONNECT }, |driver| {
        driver.report(1, failed_with(Failure::server().retry_after(ms(20))));
        driver.pass(at(20));
        driver.pass(at(1000));
        driver.report(2, FAILED);
        assert_eq!(driver.call.wake_at(), Some(at(1030)), "20 ms + 10 ms is above the limit");
    });
    let jitter = Jitter::Decorrelated;
    let backoff = Backoff::Constant(ms(10));
    retry(Rules { jitter, backoff, attempts: Some(30), ..RECONNECT }, |driver| {
        for attempt in 1..20 {
            driver.report(attempt, FAILED);
            driver.next_timer();
        }
        driver.pass(at(1000));
        let now = driver.now;
        driver.report(20, FAILED);
        // From 10 ms and at most three times that, as at the start.
        let delay = driver.call.wake_at().expect("a retry") - now;
        assert!((at(10)..at(30)).contains(&delay), "{delay}");
    });
}

#[test]
fn reset_needs_a_duration_and_no_hedging() {
    let problem = |rules| Policy::try_new(rules).err();
    let zero = Rules { reset_after: Some(Duration::ZERO), ..BASE };
    assert_eq!(problem(zero), Some(PolicyError::ResetAfterZero));
    let hedged = Rules { hedge: Some(ms(1)), ..RECONNECT };
    assert_eq!(problem(hedged), Some(PolicyError::HedgeWithReset));
    assert!(!policy(RECONNECT).is_plain() && !policy(RECONNECT).needs_only_counters());
}
