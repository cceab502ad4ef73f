//! Backoff: custom functions, decorrelated jitter and very long delays.

use super::*;

#[test]
fn backoff_decorrelated_jitter_ignores_server_hints() {
    // The server chooses the second delay, which is not stored as the previous one.
    let rules = Rules {
        jitter: Jitter::Decorrelated,
        hint: HintRule::Within(ms(1000)),
        attempts: Some(4),
        ..BASE
    };
    let (made, _) = delays(rules, &[None, Some(500)]);
    let mut random = Random::new(1);
    let mut after = |previous: f64| 10.0 + random.draw() * (3.0 * previous - 10.0);
    let (first, _, third) = (after(10.0), after(0.0), after(made[0]));
    assert_eq!(made[1], 500.0);
    assert!((made[0] - first).abs() < 1e-5 && (made[2] - third).abs() < 1e-5, "{made:?}");
}

#[test]
fn backoff_function_receives_number_failure_and_previous_delay() {
    let own = |step: Step<'_>| {
        assert_eq!(step.failure, &Failure::server());
        ms(u64::from(step.number)) + step.previous.unwrap_or(ms(100))
    };
    let policy = Policy::with_function(Rules { attempts: Some(4), ..BASE }, own).unwrap();
    let (spec, shared) = (Spec::Free, Spec::Free.build());
    let mut env = TestEnvironment::new(&spec, &shared, 1);
    let mut counters = CallCounters::new(0);
    for after in [101, 103, 106] {
        counters.attempts += 1;
        let failure = Failure::server();
        let verdict = decide(&policy, &mut counters, &failure, Advice::None, 0, NEVER, &mut env);
        assert_eq!(verdict, Verdict::Retry { after: at(after), paid: true });
        env.started();
    }
}

// Decision P2.
#[test]
fn backoff_longest_delay_saturates_and_deadline_still_applies() {
    let rules = Rules {
        backoff: Backoff::Constant(Duration::MAX),
        deadline_action: DeadlineAction::WaitForDeadline,
        ..BASE
    };
    retry(Rules { deadline: Some(ms(5)), ..rules }, |driver| {
        driver.report(1, FAILED);
        assert_eq!(driver.call.wake_at(), Some(at(5)));
        driver.pass(at(5));
        assert_eq!(driver.stop_reason(), Some(StopReason::Deadline));
    });
    retry(rules, |driver| {
        driver.report(1, FAILED);
        assert_eq!(driver.call.wake_at(), None, "that moment never comes");
        driver.cancel();
    });
    assert_eq!(ns(Duration::MAX), Ns::MAX);
}
