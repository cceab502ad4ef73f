//! Decisions P: what holds for every design.

use super::*;

// P4: the events of one moment, and the deadline's.

#[test]
fn an_outcome_at_the_deadline_still_counts() {
    retry(Rules { deadline: Some(ms(5)), ..BASE }, |driver| {
        driver.reach(5);
        driver.report(1, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(1))));
    });
}

#[test]
fn a_retry_that_is_due_at_the_deadline_does_not_start() {
    retry(
        Rules { deadline: Some(ms(10)), deadline_action: DeadlineAction::WaitForDeadline, ..BASE },
        |driver| {
            driver.report(1, FAILED);
            driver.reach(10);
            driver.wake();
            assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
            assert_eq!(driver.starts(), [0.0]);
        },
    );
}

// P6: a call that the application ends before anything starts.

#[test]
fn a_call_that_never_starts_has_a_beginning_and_an_end_and_nothing_between() {
    let spec = Spec::Free;
    let (policy, shared) = (policy(Rules { deadline: Some(ms(5)), ..HEDGED }), spec.build());
    let mut env = TestEnvironment::new(&spec, &shared, 1);
    let params = CallParams {
        not_replayable: true,
        hedge: Some(HedgeDelay::After(at(7))),
        ..CallParams::default()
    };
    let mut call: Call<_, 4> = Call::cancelled_before_start(&policy, params, at(3), &mut env);
    let events: Vec<_> = env.call_log.iter().map(|(when, event)| (*when, *event)).collect();
    let (stop_reason, attempt) = (StopReason::Cancelled, None);
    let expected = [
        Event::CallStarted { deadline: Some(at(8)), idempotent: true },
        Event::HedgeDelay(HedgeDelay::After(at(7))),
        Event::NotReplayable,
        Event::CallEnded { stop_reason, attempt },
    ];
    assert_eq!(events, expected.map(|event| (at(3), event)));
    assert_eq!((call.started(), call.wake_at()), (0, None));
    let ended = call.command(&mut env);
    assert!(
        matches!(ended, Some(Command::End(end)) if end.stop_reason == stop_reason),
        "{ended:?}"
    );
    assert_eq!(call.command(&mut env), None);
}

/// Whether anything was to be paid for.
fn asked_the_throttle(driver: &TestDriver<'_, '_, '_, 4>) -> bool {
    driver.env.call_log.iter().any(|(_, event)| matches!(event, Event::ThrottleAnswered(_)))
}

#[test]
fn nothing_starts_at_once_at_the_deadlines_moment() {
    let at_once = Backoff::Constant(Duration::ZERO);
    let rules = Rules {
        deadline: Some(ms(5)),
        deadline_action: DeadlineAction::WaitForDeadline,
        transparent_retries: true,
        ..BASE
    };
    let cases: [(Rules, Classification); 4] = [
        (Rules { backoff: at_once, ..rules }, FAILED.into()),
        (rules, failed_with(Failure::server().retry_after(Duration::ZERO))),
        (rules, proven(Proof::Unsent)),
        (rules, proven(Proof::Unprocessed)),
    ];
    for (rules, classification) in cases {
        let hedged = Rules { hedge: Some(ms(10)), ..rules };
        for rules in [rules, hedged] {
            hedge(rules, |driver| {
                driver.reach(5);
                driver.report(1, classification);
                assert_eq!(
                    (driver.starts(), driver.ended()),
                    (vec![0.0], None),
                    "{classification:?}"
                );
                assert!(rules.hedge.is_none() || !asked_the_throttle(driver), "{classification:?}");
                driver.wake();
                assert_eq!(
                    driver.ended(),
                    Some((StopReason::Deadline, None)),
                    "{classification:?}"
                );
                assert_eq!(driver.starts(), [0.0]);
            });
        }
    }
}

#[test]
fn the_timers_of_one_moment_go_by_number_and_the_next_hedge_comes_last() {
    // At 20 the first two attempts and the timer of the next hedge are due in one moment.
    let rules = Rules { attempt_timeout: Some(ms(20)), hedge: Some(ms(20)), ..BASE };
    hedge(rules, |driver| {
        driver.reach(20);
        driver.wake();
        let events: Vec<Event> = driver.env.call_log.iter().map(|(_, event)| *event).collect();
        let timed_out =
            events.iter().position(|event| *event == Event::AttemptTimedOut { attempt: 1 });
        let started = events
            .iter()
            .position(|event| matches!(event, Event::AttemptStarted { attempt: 2, .. }));
        assert!(timed_out.unwrap() < started.unwrap());
        // The hedge that its failure sends at once takes the place of the one that was due.
        assert_eq!(driver.starts(), [0.0, 20.0]);
    });
}

#[test]
fn timers_go_by_their_moment_and_those_of_one_moment_by_number() {
    let timed_out = |driver: &TestDriver<'_, '_, '_, 4>| -> Vec<u32> {
        let timed_out = |(_, event): &(Ns, Event)| match event {
            Event::AttemptTimedOut { attempt } => Some(*attempt),
            _ => None,
        };
        driver.env.call_log.iter().filter_map(timed_out).collect()
    };
    let rules = Rules { attempt_timeout: Some(ms(20)), ..BASE };
    hedge(Rules { hedge: Some(Duration::ZERO), ..rules }, |driver| {
        driver.pass(at(20));
        assert_eq!(timed_out(driver), [1, 2, 3, 4]);
        assert_eq!(
            driver.ended(),
            Some((StopReason::AttemptsExhausted, Some(4))),
            "the last failure (G21)"
        );
    });
    // A driver that was held up catches up in the order of the moments.
    hedge(Rules { hedge: Some(ms(5)), ..rules }, |driver| {
        driver.pass(at(15));
        driver.oversleep(at(100));
        driver.wake();
        assert_eq!(timed_out(driver), [1, 2, 3, 4]);
    });
    // One at a time: what another outcome does in between comes first.
    hedge(Rules { hedge: Some(Duration::ZERO), ..rules }, |driver| {
        driver.reach(20);
        assert!(driver.wake_once());
        driver.report(2, Directive::Succeed);
        assert_eq!(
            (timed_out(driver), driver.stop_reason()),
            (vec![1], Some(StopReason::Succeeded))
        );
        assert!(!driver.wake_once());
    });
}

#[test]
fn hedging_start_that_another_timer_overtakes_never_was() {
    // A driver that was held up: the hedge of 5 is due at 10, and the timeout of 7 ends the call.
    let rules = Rules {
        attempt_timeout: Some(ms(7)),
        attempt_timeout_action: AttemptTimeoutAction::EndCall,
        hedge: Some(ms(5)),
        ..BASE
    };
    let (policy, shared) = (policy(rules), Spec::Free.build());
    let mut env = TestEnvironment::new(&Spec::Free, &shared, 1);
    let mut call = Call::<_, 4>::begin(&policy, CallParams::default(), 0, &mut env);
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
fn an_attempt_that_may_take_no_time_can_still_have_an_outcome() {
    // Without its turn before the timer, unlimited attempts of this kind would never let time pass.
    let rules = Rules {
        attempts: None,
        backoff: Backoff::Constant(Duration::ZERO),
        attempt_timeout: Some(Duration::ZERO),
        deadline: Some(ms(5)),
        ..BASE
    };
    retry(rules, |driver| {
        assert!(driver.wake_once());
        assert_eq!(driver.numbers(), [1, 2], "the first timed out, the second has its turn");
        assert_eq!(driver.call.wake_at(), Some(0));
        driver.report(2, Directive::Succeed);
        assert_eq!(driver.ended(), Some((StopReason::Succeeded, Some(2))));
    });
}

// P5.

#[test]
fn a_zero_delay_starts_the_next_attempt_without_a_timer() {
    retry(Rules { backoff: Backoff::Constant(Duration::ZERO), ..BASE }, |driver| {
        driver.report(1, FAILED);
        assert_eq!((driver.numbers(), driver.call.wake_at()), (vec![1, 2], None));
    });
}

// P7, M4.

#[test]
fn an_attempts_own_timeout_is_a_failure_of_kind_timeout_in_flight() {
    let rules = Rules { attempt_timeout: Some(ms(3)), ..BASE };
    retry(rules, |driver| {
        driver.reach(3);
        driver.wake();
        assert_eq!(driver.call.failure(), Some(&Failure::timeout()));
        assert_eq!((driver.cancels(), driver.call.wake_at()), (vec![(1, 3.0)], Some(at(13))));
    });
    let ends = Rules { attempt_timeout_action: AttemptTimeoutAction::EndCall, ..rules };
    retry(ends, |driver| {
        driver.reach(3);
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
    });
}

// G42.

#[test]
fn attempt_timeout_that_is_final_fails_the_call() {
    for (drains, count) in [(false, 0), (true, 1)] {
        let attempt_timeout_action = AttemptTimeoutAction::Fail { drains };
        let rules = Rules { attempt_timeout: Some(ms(3)), attempt_timeout_action, ..BASE };
        retry(rules, |driver| {
            assert_eq!(driver.call.times_out_at(0), at(3));
            driver.reach(3);
            driver.wake();
            assert_eq!(driver.ended(), Some((StopReason::NotRetryable, Some(1))));
            assert_eq!((driver.cancels(), driver.env.failed), (vec![(1, 3.0)], count));
        });
        // What still runs is cancelled, as after any failure that is final (G20).
        hedge(Rules { hedge: Some(ms(2)), ..rules }, |driver| {
            driver.reach(2);
            driver.wake();
            driver.reach(3);
            driver.wake();
            assert_eq!(driver.ended(), Some((StopReason::NotRetryable, Some(1))));
            assert_eq!(driver.cancels(), [(1, 3.0), (2, 3.0)]);
        });
    }
}

#[test]
fn attempt_timeout_is_over_once_the_response_begins() {
    let rules = Rules { attempt_timeout: Some(ms(3)), ..BASE };
    retry(rules, |driver| {
        driver.reach(2);
        driver.headers(driver.slot(1));
        assert_eq!((driver.call.times_out_at(0), driver.call.wake_at()), (NEVER, None));
        driver.reach(10);
        driver.wake();
        assert_eq!(driver.ended(), None);
    });
    retry(Rules { deadline: Some(ms(5)), ..rules }, |driver| {
        driver.headers(driver.slot(1));
        driver.reach(5);
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)), "a deadline is not");
    });
}

#[test]
fn attempt_timeout_holds_for_an_attempt_that_a_full_buffer_chose() {
    let rules = Rules { attempt_timeout: Some(ms(3)), ..BASE };
    retry(rules, |driver| {
        driver.not_replayable(Some(driver.slot(1)));
        assert!(driver.call.is_committed());
        driver.reach(3);
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Committed, Some(1))));
    });
    retry(rules, |driver| {
        driver.not_replayable(Some(driver.slot(1)));
        driver.headers(driver.slot(1));
        assert_eq!(driver.call.wake_at(), None, "its response has begun");
    });
}

#[test]
fn attempt_timeout_begins_anew_for_a_replacement() {
    let rules = Rules { attempt_timeout: Some(ms(3)), transparent_retries: true, ..BASE };
    retry(rules, |driver| {
        driver.reach(2);
        driver.outcome(driver.slot(1), proven(Proof::Unprocessed));
        assert_eq!((driver.call.started(), driver.call.wake_at()), (2, Some(at(5))));
    });
}

// P8.

#[test]
fn what_is_not_idempotent_is_repeated_only_with_proof_that_it_did_not_run() {
    let proves = Reason::new("DID_NOT_RUN").allow_non_idempotent();
    let table = [
        (Failure::server(), false),
        (Failure::timeout(), false),
        (Failure::server().at(Stage::InFlight), false),
        (Failure::server().because(Reason::new("PROVES_NOTHING")), false),
        (Failure::server().retry_after(ms(1)), false),
        (Failure::client().at(Stage::Unsent), true),
        (Failure::server().because(proves), true),
        (Failure::timeout().because(proves), true),
    ];
    for (failure, repeated) in table {
        let once = CallParams { idempotent: false, ..CallParams::default() };
        run_call::<1>(BASE, once, (Spec::Free, &[]), |driver| {
            driver.report(1, failed_with(failure));
            let end = if repeated { None } else { Some((StopReason::NotIdempotent, Some(1))) };
            assert_eq!(driver.ended(), end, "{failure:?}");
        });
    }
}

// P9: all reasons at once, then without the first, without the first two, and so on.

#[test]
fn of_several_reasons_the_first_in_the_list_is_named() {
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
        let mut counters = CallCounters { attempts: 3, waited: at(5), ..CallCounters::new(0) };
        let flags = [
            (StopReason::Committed, CallCounters::COMMITTED),
            (StopReason::StrategyDeclined, CallCounters::USES_STRATEGY),
            (StopReason::NotIdempotent, CallCounters::NOT_IDEMPOTENT),
        ];
        flags
            .into_iter()
            .filter(|(stop_reason, _)| holds(*stop_reason))
            .for_each(|(_, bit)| counters.set(bit));
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
        shared.withdraw(Cost { kind: Kind::Timeout }, at(20));
        let mut env = TestEnvironment::new(&spec, &shared, 1);
        let verdict =
            decide(&policy(rules), &mut counters, &failure, advice, at(20), deadline, &mut env);
        assert_eq!(verdict, Verdict::End(expected));

        // A draw is used once the reasons up to `attempts` are ruled out, the throttle is last.
        let draw =
            env.call_log.iter().filter(|(_, event)| matches!(event, Event::RandomDraw(_))).count();
        assert_eq!(draw, usize::from(first > 4), "{expected:?}");
        assert_eq!(env.asked.len(), usize::from(expected == StopReason::Throttled), "{expected:?}");
    }
}

#[test]
fn a_call_is_sealed_once_and_not_after_its_commit() {
    let not_replayable = |driver: &TestDriver<'_, '_, '_, 1>| {
        driver.env.call_log.iter().filter(|(_, event)| *event == Event::NotReplayable).count()
    };
    retry(BASE, |driver| {
        driver.report(1, FAILED);
        driver.not_replayable(None);
        driver.not_replayable(None);
        assert_eq!((not_replayable(driver), driver.call.is_committed()), (1, false));
        driver.pass(at(10));
        assert!(driver.call.is_committed(), "the next to start is the last (G24)");
        driver.not_replayable(Some(0));
        assert_eq!(not_replayable(driver), 1);
    });
    retry(BASE, |driver| {
        driver.headers(0);
        driver.not_replayable(Some(0));
        assert_eq!(not_replayable(driver), 0);
    });
}

#[test]
fn what_is_fatal_is_named_before_the_commit() {
    retry(BASE, |driver| {
        driver.headers(0);
        driver.report(1, Directive::Fail);
        assert_eq!(driver.ended(), Some((StopReason::NotRetryable, Some(1))));
    });
}

// P10.

#[test]
fn no_throttle_delays_or_refuses_a_first_attempt() {
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
        let grant = shared.withdraw(Cost { kind: Kind::Timeout }, 0);
        model.withdraw(Kind::Timeout, 0, grant);
        let env = TestEnvironment::new(&spec, &shared, 1);
        let policy = policy(BASE);
        let mut driver = TestDriver::<1>::begin(&policy, CallParams::default(), 0, env, &mut model);
        assert_eq!((driver.starts(), driver.env.asked.len()), (vec![0.0], 0), "{spec:?}");
        driver.cancel();
    }
}

#[test]
fn a_deadline_that_is_over_leaves_one_attempt_or_none() {
    let zero = Rules { deadline: Some(Duration::ZERO), ..BASE };
    retry(zero, |driver| {
        driver.report(1, Directive::Succeed);
        assert_eq!(driver.stop_reason(), Some(StopReason::Succeeded), "its outcome was there");
    });
    retry(zero, |driver| {
        driver.wake();
        assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
        assert_eq!(driver.cancels(), [(1, 0.0)]);
    });
    retry(
        Rules { expired_deadline_action: ExpiredDeadlineAction::StartNoAttempt, ..zero },
        |driver| {
            assert_eq!(driver.ended(), Some((StopReason::Deadline, None)));
            assert_eq!(driver.starts(), [0.0; 0]);
        },
    );
    // All hedges would be due at once, and none of them may start, or be paid for.
    hedge(Rules { hedge: Some(Duration::ZERO), ..zero }, |driver| {
        assert!(!asked_the_throttle(driver));
        driver.wake();
        assert_eq!(
            (driver.stop_reason(), driver.starts()),
            (Some(StopReason::Deadline), vec![0.0])
        );
    });
}

#[test]
fn of_several_deadlines_the_smallest_counts() {
    for (of_policy, of_call) in [(3, 5), (5, 3)] {
        let rules = Rules { deadline: Some(ms(of_policy)), ..BASE };
        let params = CallParams { deadline: Some(ms(of_call)), ..CallParams::default() };
        run_call::<1>(rules, params, (Spec::Free, &[]), |driver| {
            assert_eq!(driver.call.deadline(), at(3));
        });
    }
}

// C9, C10: strategies.

#[test]
fn a_strategy_is_asked_about_each_failure_but_those_that_are_always_retried() {
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

#[test]
fn advice_is_taken_by_whoever_decides_without_a_machine_too() {
    let (spec, shared) = (Spec::Free, Spec::Free.build());
    for (advice, after) in [(Advice::None, 10), (Advice::After(at(7)), 7)] {
        let mut env = TestEnvironment::new(&spec, &shared, 1);
        let mut counters = CallCounters { attempts: 1, ..CallCounters::new(0) };
        let failure = Failure::server();
        let verdict = decide(&policy(BASE), &mut counters, &failure, advice, 0, NEVER, &mut env);
        assert_eq!(verdict, Verdict::Retry { after: at(after), paid: true }, "{advice:?}");
    }
}

#[test]
fn an_answer_that_nobody_asked_for_changes_nothing() {
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

#[test]
fn decorrelated_jitter_grows_from_the_last_delay_that_was_its_own() {
    // The second delay is the server's wish, which is not remembered.
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
fn a_function_of_ones_own_sees_the_number_the_failure_and_the_delay_before() {
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

// P2.

#[test]
fn a_delay_of_any_length_saturates_and_the_deadline_still_ends_the_call() {
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

#[test]
fn what_every_call_remembers_is_24_bytes() {
    assert_eq!(size_of::<CallCounters>(), 24);
}
