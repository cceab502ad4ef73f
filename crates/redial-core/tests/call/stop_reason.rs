//! Which stop reason is reported when several apply.

use super::*;

// Decision P9: all reasons at once, then without the first, without the first two, and so on.
#[test]
fn stop_reason_is_the_first_that_applies() {
    let order = [
        StopReason::Committed,
        StopReason::StrategyDeclined,
        StopReason::NotIdempotent,
        StopReason::ServerRefused,
        StopReason::AttemptsExhausted,
        StopReason::SoftLimit,
        StopReason::HardLimit,
        StopReason::Deadline,
        StopReason::Throttled,
    ];
    for (first, expected) in order.into_iter().enumerate() {
        let holds = |stop_reason: StopReason| order[first..].contains(&stop_reason);
        let limits = Limits {
            soft: holds(StopReason::SoftLimit).then_some(ms(1)),
            hard: holds(StopReason::HardLimit).then_some(ms(5)),
            ..Limits::NONE
        };
        let attempts = if holds(StopReason::AttemptsExhausted) { 3 } else { 4 };
        let rules = Rules { attempts: Some(attempts), limits, jitter: Jitter::Full, ..BASE };
        let mut counters = CallCounters {
            attempts: 3,
            waited: at(5),
            committed: holds(StopReason::Committed),
            uses_strategy: holds(StopReason::StrategyDeclined),
            idempotent: !holds(StopReason::NotIdempotent),
            ..CallCounters::new(0)
        };
        let failure = if holds(StopReason::ServerRefused) {
            Failure::server().stop()
        } else {
            Failure::server()
        };
        let advice =
            if holds(StopReason::StrategyDeclined) { Advice::Decline } else { Advice::None };
        let deadline = if holds(StopReason::Deadline) { at(20) } else { NEVER };

        let spec = Spec::Costs(CostBucketConfig { empty: WhenEmpty::Fail, ..COSTS });
        let shared = spec.build();
        shared.withdraw(Cost { kind: FailureKind::Timeout }, at(20));
        let mut env = TestEnvironment::new(&spec, &shared, 1);
        let verdict =
            decide(&policy(rules), &mut counters, &failure, advice, at(20), deadline, &mut env);
        assert_eq!(verdict, Verdict::End(expected));

        // A number is drawn only after the reasons up to `attempts` are ruled out; the throttle is
        // last.
        let draw =
            env.call_log.iter().filter(|(_, event)| matches!(event, Event::RandomDraw(_))).count();
        assert_eq!(draw, usize::from(first > 4), "{expected:?}");
        assert_eq!(env.asked.len(), usize::from(expected == StopReason::Throttled), "{expected:?}");
    }
}

// Decision P9.
#[test]
fn stop_reason_not_retryable_precedes_committed() {
    retry(BASE, |driver| {
        driver.headers(0);
        driver.report(1, Directive::Fail);
        assert_eq!(driver.ended(), Some((StopReason::NotRetryable, Some(1))));
    });
}
