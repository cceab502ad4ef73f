//! Strategies that decide on each failure.

use super::*;

// Decisions C9 and C10.
#[test]
fn strategy_decides_unless_the_reason_is_always_retried() {
    let rules = Rules { uses_strategy: true, always: Backoff::Constant(ms(1)), ..BASE };
    retry(rules, |driver| {
        driver.report(1, FAILED);
        assert_eq!((driver.asking, driver.call.wake_at()), (Some(Failure::server()), None));
        driver.answer(Advice::After(at(5)));
        assert_eq!(driver.call.wake_at(), Some(at(5)));
        driver.pass(at(5));
        let always = Failure::server().because(Reason::new("ALWAYS").always());
        driver.report(2, failed_with(always));
        assert_eq!((driver.asking, driver.call.wake_at()), (None, Some(at(6))));
        driver.pass(at(1));
        driver.report(3, FAILED);
        driver.answer(Advice::Decline);
        assert_eq!(driver.ended(), Some((StopReason::StrategyDeclined, Some(3))));
    });
}

// Decisions C9 and C10.
#[test]
fn strategy_advice_applies_to_decide_without_a_call() {
    let (spec, shared) = (Spec::Free, Spec::Free.build());
    for (advice, after) in [(Advice::None, 10), (Advice::After(at(7)), 7)] {
        let mut env = TestEnvironment::new(&spec, &shared, 1);
        let mut counters = CallCounters { attempts: 1, ..CallCounters::new(0) };
        let failure = Failure::server();
        let verdict = decide(&policy(BASE), &mut counters, &failure, advice, 0, NEVER, &mut env);
        assert_eq!(verdict, Verdict::Retry { after: at(after), paid: true }, "{advice:?}");
    }
}

// Decisions C9 and C10.
#[test]
fn strategy_unsolicited_answer_is_ignored() {
    retry(Rules { uses_strategy: true, ..BASE }, |driver| {
        driver.answer(Advice::Decline);
        driver.report(1, FAILED);
        driver.answer(Advice::After(at(5)));
        driver.answer(Advice::Decline);
        assert_eq!((driver.ended(), driver.call.wake_at()), (None, Some(at(5))));
        driver.pass(at(5));
        assert_eq!(driver.starts(), [0.0, 5.0]);
    });
}
