//! The strategy: attempts, delays, order, hints and deadline (S1, S2, S6, S7, S9).

use super::*;

// S1

#[test]
fn standard_strategy_makes_three_attempts_10_and_15_ms_apart() {
    let played = play(&Clock::default(), &policy(PLAIN), &[SERVER]);
    assert_eq!(played.starts, [0.0, 10.0, 25.0]);
    assert_eq!((played.ended, played.stop_reason()), (25.0, StopReason::AttemptsExhausted));
    // Two retries cost 5 each; 15 ms have refilled 0.15.
    assert!(close(played.tokens, 490.15), "{}", played.tokens);
}

#[test]
fn standard_strategy_always_makes_one_attempt() {
    let never_retried = policy(STILL.attempts(1));
    for (outcome, stop_reason) in [
        (OK, StopReason::Succeeded),
        (FATAL, StopReason::NotRetryable),
        (SERVER, StopReason::AttemptsExhausted),
    ] {
        let played = play(&Clock::default(), &never_retried, &[outcome]);
        assert_eq!((&*played.starts, played.stop_reason()), (&[0.0][..], stop_reason));
        assert_eq!(played.tokens, 500.0);
    }
}

#[test]
fn standard_strategy_uses_full_jitter() {
    let played = play(&Clock::default(), &policy(StandardRetryStrategy::standard()), &[SERVER]);
    let mut random = redial_core::Random::new(7);
    let first = random.draw() * 10.0;
    let second = first + random.draw() * 15.0;
    assert_eq!(played.draws, 2);
    assert!(close(played.starts[1], first) && close(played.starts[2], second));
}

#[test]
fn standard_strategy_caps_delays_at_20_seconds() {
    let played = play(&Clock::default(), &policy(STILL.attempts(25)), &[SERVER]);
    let delays: Vec<f64> = played.starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // 10 ms × 1.5^18 = 14.8 s is the last delay below the cap.
    assert!(close(delays[18], 10.0 * 1.5f64.powi(18)));
    assert!(delays[19..].iter().all(|delay| *delay == 20_000.0), "{delays:?}");
}

#[test]
fn presets_set_retry_cost_per_error_kind() {
    let kinds =
        [FailureKind::Server, FailureKind::Client, FailureKind::Throttling, FailureKind::Timeout];
    for (preset, costs) in [
        (StandardPreset::Standard, [5.0, 5.0, 10.0, 10.0]),
        (StandardPreset::Aws2026, [14.0, 14.0, 5.0, 14.0]),
        (StandardPreset::Aws2026Dynamodb, [14.0, 14.0, 5.0, 14.0]),
    ] {
        let still = StandardRetryStrategy::of(preset).refill_per_second(0.0).empty(WhenEmpty::Fail);
        for (kind, cost) in kinds.into_iter().zip(costs) {
            let outcomes = [failing(Failure::new(kind)), FATAL];
            let played = play(&Clock::default(), &policy(still), &outcomes);
            assert_eq!(played.tokens, 500.0 - cost, "{preset:?} {kind:?}");
        }
    }
}

#[test]
fn token_bucket_starts_full_and_refills_up_to_capacity() {
    let (clock, policy) = (Clock::default(), policy(PLAIN));
    assert_eq!(policy.tokens(now(&clock)), Some(500.0));
    play(&clock, &policy, &[SERVER, FATAL]);
    clock.advance(400);
    assert_eq!(policy.tokens(now(&clock)), Some(499.0));
    clock.advance(3_600_000);
    assert_eq!(policy.tokens(now(&clock)), Some(500.0));
}

// S2

#[test]
fn token_order_backoff_first_withdraws_after_backoff() {
    let played = play(&Clock::default(), &policy(STILL.capacity(5.0)), &[SERVER]);
    assert_eq!(played.starts, [0.0, 10.0]);
    assert_eq!((played.ended, played.stop_reason()), (25.0, StopReason::Throttled));
    assert_eq!(played.tokens, 0.0);
}

#[test]
fn token_order_token_first_withdraws_before_backoff() {
    let standard = STILL.capacity(5.0).order(TokenOrder::TokenFirst);
    let played = play(&Clock::default(), &policy(standard), &[SERVER]);
    assert_eq!(played.starts, [0.0, 10.0]);
    assert_eq!((played.ended, played.stop_reason()), (10.0, StopReason::Throttled));
}

#[test]
fn token_order_token_first_waits_for_debt_then_backoff() {
    let standard = PLAIN.capacity(5.0).order(TokenOrder::TokenFirst);
    let played = play(&Clock::default(), &policy(standard), &[SERVER]);
    // The second retry's debt at 10 ms: 5 tokens minus the refill of 0.1.
    assert_eq!(played.starts, [0.0, 10.0, 10.0 + 490.0 + 15.0]);
}

// S6

#[test]
fn aws_2026_doubles_50_ms_and_refunds_14() {
    let played = play(&Clock::default(), &policy(AWS), &[SERVER, SERVER, OK]);
    assert_eq!(played.starts, [0.0, 50.0, 150.0]);
    assert_eq!(played.tokens, 486.0);
}

#[test]
fn aws_2026_doubles_one_second_after_throttling() {
    let played = play(&Clock::default(), &policy(AWS), &[THROTTLING, OK]);
    assert_eq!((played.starts, played.tokens), (vec![0.0, 1000.0], 500.0));
    let played = play(&Clock::default(), &policy(AWS), &[SERVER, THROTTLING, OK]);
    assert_eq!(played.starts, [0.0, 50.0, 2050.0]);
}

#[test]
fn aws_2026_fails_when_bucket_is_empty() {
    let played = play(&Clock::default(), &policy(AWS.capacity(14.0)), &[SERVER]);
    assert_eq!((played.starts, played.ended), (vec![0.0, 50.0], 50.0));
    assert_eq!(played.result.map_err(|error| error.stop_reason()), Err(StopReason::Throttled));
}

#[test]
fn aws_2026_dynamodb_has_25_ms_and_four_attempts() {
    let standard = StandardRetryStrategy::aws_2026_dynamodb().jitter(Jitter::None);
    let played = play(&Clock::default(), &policy(standard), &[SERVER]);
    assert_eq!(played.starts, [0.0, 25.0, 75.0, 175.0]);
}

#[test]
fn aws_2026_limits_retry_after_to_delay_plus_5_seconds() {
    for (hint, start) in [(ms(10), 50.0), (ms(50), 50.0), (s(3), 3000.0), (s(60), 5050.0)] {
        let outcomes = [failing(Failure::server().retry_after(hint)), OK];
        let played = play(&Clock::default(), &policy(AWS), &outcomes);
        assert_eq!(played.starts, [0.0, start], "{hint:?}");
    }
}

#[test]
fn presets_inherit_other_values_from_standard() {
    let standard = StandardRetryStrategy::standard();
    for preset in [StandardRetryStrategy::aws_2026(), StandardRetryStrategy::aws_2026_dynamodb()] {
        assert_eq!(preset.rules().jitter, standard.rules().jitter);
        assert_eq!(preset.rules().backoff.cap(), standard.rules().backoff.cap());
        let specs = [preset, standard].map(|one| *one.costs().expect("valid").spec());
        assert_eq!(specs[0].capacity, specs[1].capacity);
        assert_eq!(specs[0].success, specs[1].success);
    }
    assert_eq!(StandardRetryStrategy::aws_2026().rules().attempts, standard.rules().attempts);
}

// S7

#[test]
fn deadline_bounds_the_backoff() {
    let played = play(&Clock::default(), &policy(PLAIN.time_max(ms(20))), &[SERVER]);
    assert_eq!((&*played.starts, played.ended), (&[0.0, 10.0][..], 20.0));
    assert!(close(played.tokens, 495.1), "{}", played.tokens);
    let error = played.result.expect_err("too late");
    assert!(error.is_timeout());
    assert_eq!(error.last(), Some(&Fault::Retryable(Failure::server())), "the previous result");
}

#[test]
fn deadline_bounds_a_running_attempt() {
    let policy = policy(PLAIN.time_max(ms(100)));
    let played = play_steps(&Clock::default(), &policy, &[(0, SERVER), (HANG, OK)]);
    assert_eq!((played.starts, played.cancels), (vec![0.0, 10.0], vec![100.0]));
    let error = played.result.expect_err("too late");
    assert_eq!(error.last(), Some(&Fault::Retryable(Failure::server())));
    let played = play_steps(&Clock::default(), &policy, &[(HANG, OK)]);
    assert_eq!((played.ended, played.stop_reason()), (100.0, StopReason::Deadline));
    assert_eq!(played.result.expect_err("too late").last(), None);
}

#[test]
fn deadline_bounds_bucket_wait_and_refunds_tokens() {
    for order in [TokenOrder::BackoffFirst, TokenOrder::TokenFirst] {
        let standard = PLAIN.capacity(5.0).time_max(ms(100)).order(order);
        let played = play(&Clock::default(), &policy(standard), &[SERVER]);
        assert_eq!((played.starts, played.ended), (vec![0.0, 10.0], 100.0), "{order:?}");
        assert_eq!(played.result.map_err(|error| error.stop_reason()), Err(StopReason::Deadline));
        // Only the first retry's 5 tokens are spent; the refill since then is 0.9 or 1.0.
        let back = if order == TokenOrder::BackoffFirst { 0.9 } else { 1.0 };
        assert!(close(played.tokens, back), "{order:?}: {}", played.tokens);
    }
}

// S9

#[test]
fn retry_after_exact_replaces_delay_without_random_draw() {
    let hinted = failing(Failure::server().retry_after(ms(77)));
    let standard = StandardRetryStrategy { jitter: None, ..PLAIN };
    let played = play(&Clock::default(), &policy(standard), &[hinted, OK]);
    assert_eq!((played.starts, played.draws), (vec![0.0, 77.0], 0));
    // Delays are numbered by attempt: the one after the hint is the second of the series.
    let played = play(&Clock::default(), &policy(PLAIN), &[hinted, SERVER, OK]);
    assert_eq!(played.starts, [0.0, 77.0, 92.0]);
}

#[test]
fn retry_after_stop_ends_the_call() {
    let stop = failing(Failure::server().stop());
    for standard in [PLAIN, AWS] {
        let played = play(&Clock::default(), &policy(standard), &[stop]);
        assert_eq!((played.starts.len(), played.stop_reason()), (1, StopReason::ServerRefused));
    }
}

#[test]
fn options_override_only_their_own_value() {
    let changed = AWS.cost(FailureKind::Server, 20.0).capacity(100.0);
    let spec = *changed.costs().expect("valid").spec();
    assert_eq!((spec.server, spec.client, spec.throttling, spec.timeout), (20.0, 14.0, 5.0, 14.0));
    assert_eq!((spec.capacity, spec.success, spec.refill_per_second), (100.0, 1.0, 0.0));
    let rules = AWS.backoff_factor(3.0).hint(RetryAfterRule::Exact).rules();
    let base = |n| rules.backoff.base(n) / MS;
    assert_eq!([base(1), base(2), base(3)], [50, 150, 450]);
    assert_eq!(rules.throttling_first, Some(s(1)));
    assert_eq!(rules.hint, redial::rules::HintRule::Exact(None));
    let rules = AWS.backoff_cap(ms(70)).throttling_first(ms(60)).rules();
    let base = |n| rules.backoff.base(n) / MS;
    assert_eq!([base(1), base(2), base(3)], [50, 70, 70]);
    assert_eq!(rules.throttling_first, Some(ms(60)));
}

#[test]
fn options_that_contradict_are_rejected() {
    let problem =
        |standard: StandardRetryStrategy| standard.policy().map(|_| ()).expect_err("refused");
    assert_eq!(problem(PLAIN.attempts(0)), PolicyError::NoAttempt);
    assert_eq!(problem(PLAIN.unlimited()), PolicyError::Unlimited);
    assert_eq!(problem(PLAIN.backoff_factor(0.0)), PolicyError::Factor);
    assert_eq!(problem(PLAIN.jitter(Jitter::Proportional(1.5))), PolicyError::Proportion);
    assert_eq!(problem(PLAIN.cost(FailureKind::Timeout, 501.0)), PolicyError::CostAboveCapacity);
    assert_eq!(problem(PLAIN.cost(FailureKind::Timeout, -1.0)), PolicyError::Cost);
    assert_eq!(problem(PLAIN.capacity(f64::NAN)), PolicyError::Capacity);
    assert_eq!(problem(PLAIN.refill_per_second(-1.0)), PolicyError::Refill);
    // Rejected if no kind of failure is affordable; single costs above the capacity are allowed.
    assert_eq!(problem(PLAIN.capacity(4.0)), PolicyError::CostAboveCapacity);
    assert!(PLAIN.capacity(5.0).policy().is_ok());
    assert!(PLAIN.cost(FailureKind::Timeout, 500.0).policy().is_ok());
    assert!(PLAIN.unlimited().time_max(s(1)).policy().is_ok());
}

// P8, and Smithy's BackoffDelayer

#[test]
fn custom_backoff_sees_failure_and_attempt_number() {
    let standard = STILL.attempts(4);
    let policy = standard.policy_with(|step| match step.failure.kind {
        FailureKind::Throttling => ms(100),
        _ => ms(u64::from(step.number)),
    });
    let played =
        play(&Clock::default(), &policy.expect("valid"), &[SERVER, THROTTLING, SERVER, OK]);
    assert_eq!(played.starts, [0.0, 1.0, 101.0, 104.0]);
}

#[test]
fn not_idempotent_call_is_retried_only_when_unsent() {
    let clock = Clock::default();
    for (stage, stop_reason) in [
        (Stage::Unsent, StopReason::Succeeded),
        (Stage::InFlight, StopReason::NotIdempotent),
        (Stage::Answered, StopReason::NotIdempotent),
    ] {
        let policy = policy(PLAIN);
        let failure = Failure::client().at(stage).hint(Hint::None);
        let script = Script::new(&clock, [(0, failing(failure)), (0, OK)]);
        let call = policy.retry(|| script.attempt()).when(is_retryable).not_idempotent();
        let result = clock.run(call.sleeping_on(clock).into_future());
        assert_eq!(
            result.map_or_else(|error| error.stop_reason(), |_| StopReason::Succeeded),
            stop_reason
        );
    }
}
