//! The options of a single call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use redial::call_log::EventContext;
use redial::report::AttemptEnd;
use redial::throttle::Bucket;
use redial::time::{Sleeper, Tokio};
use redial::{
    CallLog, Directive, Event, Failure, Hedged, Policy, Reason, Stage, StopReason, Throttle, ms,
    rules::Rules,
    s,
    strategy::{Decision, Request},
};
use redial_core::ExpiredDeadlineAction;

fn free(attempts: u32) -> Policy {
    let builder = Policy::constant(ms(10)).attempts(attempts);
    builder.throttle(Throttle::none()).build()
}

/// Takes 5 ms and fails.
async fn fails() -> Result<(), &'static str> {
    tokio::time::sleep(ms(5)).await;
    Err("busy")
}

#[tokio::test(start_paused = true)]
async fn deadline_smallest_of_call_and_policy_applies() {
    let policy = Policy::constant(ms(10)).unlimited().deadline(ms(100));
    let policy = policy.throttle(Throttle::none()).build();
    for (own, ended) in [(None, 95), (Some(ms(500)), 95), (Some(ms(50)), 50), (Some(ms(7)), 5)] {
        let mut call = policy.retry(fails).when(|_| true);
        if let Some(own) = own {
            call = call.deadline(s(9)).deadline(own).deadline(s(8));
        }
        let error = call.await.expect_err("always busy");
        assert_eq!(
            (error.stop_reason(), error.elapsed()),
            (StopReason::Deadline, ms(ended)),
            "{own:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_zero_allows_one_immediate_attempt() {
    let policy = free(3);
    let at_once = policy.retry(|| async { Ok::<_, ()>(7) }).when(|()| true);
    assert_eq!(at_once.deadline(ms(0)).await.ok(), Some(7));
    let error = policy.retry(fails).when(|_| true).deadline(ms(0)).await.expect_err("too slow");
    assert_eq!(
        (error.stop_reason(), error.attempts(), error.elapsed()),
        (StopReason::Deadline, 1, ms(0))
    );
    let blocking = policy.retry(|| Err::<(), _>(7)).when(|_| true).deadline(ms(0)).call();
    assert_eq!(blocking.expect_err("no time for another").stop_reason(), StopReason::Deadline);
}

#[tokio::test(start_paused = true)]
async fn deadline_zero_can_start_no_attempt() {
    let expired = |expired: ExpiredDeadlineAction| {
        let rules =
            Rules { expired_deadline_action: expired, deadline: Some(ms(0)), ..Rules::DEFAULT };
        Policy::from_rules(rules).try_build().expect("valid")
    };
    for (policy, starts) in [
        (expired(ExpiredDeadlineAction::StartNoAttempt), 0),
        (expired(ExpiredDeadlineAction::StartOneAttempt), 1),
    ] {
        let mut calls = 0;
        let slow = || {
            calls += 1;
            fails()
        };
        let error = policy.retry(slow).when(|_| true).await.expect_err("no time");
        assert_eq!(
            (error.stop_reason(), error.attempts(), calls),
            (StopReason::Deadline, starts, starts)
        );
        let mut calls = 0;
        let slow = || {
            calls += 1;
            Err::<(), _>(())
        };
        let error = policy.retry(slow).when(|()| true).call().expect_err("no time");
        assert_eq!(
            (error.stop_reason(), error.attempts(), calls),
            (StopReason::Deadline, starts, starts)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn seed_reproduces_the_delays() {
    let policy = Policy::exponential(ms(100)).attempts(5).throttle(Throttle::none());
    let policy = policy.try_build().expect("valid");
    let delays = async |seed: Option<u64>| {
        let mut call_log = CallLog::new();
        let mut call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true);
        if let Some(seed) = seed {
            call = call.seed(seed);
        }
        call.call_log(&mut call_log).await.expect_err("it fails");
        let after = |(_, event): &(u64, Event)| match event {
            Event::RetryScheduled { after, .. } => Some(*after),
            _ => None,
        };
        call_log.events().iter().filter_map(after).collect::<Vec<_>>()
    };
    let seven = delays(Some(7)).await;
    assert_eq!((seven.len(), &seven), (4, &delays(Some(7)).await));
    assert_ne!(seven, delays(Some(8)).await);
    assert_ne!(delays(None).await, delays(None).await, "without a seed every call draws anew");
    let mut call_log = CallLog::new();
    let blocking = Policy::exponential(ms(1)).factor(0.001).attempts(3).try_build().expect("valid");
    let call = blocking.retry(|| Err::<(), _>(())).when(|()| true).seed(7).call_log(&mut call_log);
    call.call().expect_err("it fails");
    let drew =
        |(_, event): &(u64, Event)| if let Event::RandomDraw(u) = event { Some(*u) } else { None };
    let draws: Vec<f64> = call_log.events().iter().filter_map(drew).collect();
    // The draws of a seed never change: SplitMix64 of 7.
    assert_eq!(draws, [0.389_829_748_391_271_5, 0.016_788_294_528_156_11]);
}

#[tokio::test(start_paused = true)]
async fn report_history_has_times_and_end_of_every_attempt() {
    let policy = Policy::constant(ms(10)).attempt_timeout(ms(8)).retry_timeouts().attempts(4);
    let policy = policy.try_build().expect("valid");
    let mut calls = 0;
    let operation = || {
        calls += 1;
        let call = calls;
        async move {
            tokio::time::sleep(if call == 2 { s(1) } else { ms(5) }).await;
            if call == 3 { Ok(call) } else { Err("busy") }
        }
    };
    let call = policy.retry(operation).when(|_| Some(Failure::throttling()));
    let (_, report) = call.history().with_report().await.expect("the third succeeds");
    let times: Vec<_> =
        report.history.iter().map(|it| (it.attempt, it.started, it.ended)).collect();
    assert_eq!(times, [(1, ms(0), ms(5)), (2, ms(15), ms(23)), (3, ms(33), ms(38))]);
    let ends: Vec<_> = report.history.iter().map(|tried| tried.end).collect();
    assert_eq!(
        ends,
        [AttemptEnd::Failed(Failure::throttling()), AttemptEnd::TimedOut, AttemptEnd::Succeeded]
    );
    let error = policy.retry(fails).when(|_| true).history().await.expect_err("always busy");
    assert_eq!(error.report().history.len(), 4);
    let error = policy.retry(fails).when(|_| false).await.expect_err("busy");
    assert_eq!(error.report().history.len(), 0, "not requested");
}

#[test]
fn report_history_keeps_the_first_and_the_latest_attempts() {
    let limit = u32::try_from(redial::Report::HISTORY_MAX).expect("small");
    for attempts in [limit - 1, limit, limit + 1, limit + 200, 3 * limit] {
        let policy = Policy::immediate().attempts(attempts).throttle(Throttle::none());
        let policy = policy.try_build().expect("valid");
        let mut tries = 0;
        let operation = || {
            tries += 1;
            Err::<(), _>(tries)
        };
        let call = policy.retry(operation).when(|_| true).record_errors().history();
        let error = call.call().expect_err("always an error");
        let report = error.report();
        let left_out = attempts.saturating_sub(limit);
        assert_eq!(report.history_left_out(), left_out as usize, "{attempts}");
        let kept = (1..=limit / 2).chain(limit / 2 + 1 + left_out..=attempts);
        assert!(report.history.iter().map(|record| record.attempt).eq(kept), "{attempts}");
        let is_own = |record: &redial::report::AttemptRecord| {
            record.error.as_deref() == Some(&*record.attempt.to_string())
                && matches!(record.end, AttemptEnd::Failed(_))
        };
        assert!(report.history.iter().all(is_own), "{attempts}");
    }
}

#[tokio::test(start_paused = true)]
async fn report_history_has_the_errors_that_are_recorded() {
    let policy = Policy::constant(ms(10)).attempt_timeout(ms(8)).retry_timeouts().attempts(4);
    let policy = policy.throttle(Throttle::none()).name("fetch").build();
    let calls = AtomicU32::new(0);
    let operation = || {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            match call {
                0 => Err("refused"),
                1 => std::future::pending().await,
                2 => Ok(call),
                _ => Err("not found"),
            }
        }
    };
    let mut call_log = CallLog::new();
    let call = policy.retry(operation).until(|call| *call > 2).when(|error| *error == "refused");
    let call = call.record_errors().history().call_log(&mut call_log);
    let error = call.await.expect_err("not retryable");
    let report = error.report();
    assert_eq!(report.policy.custom(), Some("fetch"));
    let errors: Vec<_> = report.history.iter().map(|attempt| attempt.error.as_deref()).collect();
    // Neither the attempt that timed out nor the rejected value has an error.
    assert_eq!(errors, [Some("refused"), None, None, Some("not found")]);
    let details = (0..call_log.events().len()).filter_map(|index| call_log.detail(index));
    let texts: Vec<_> = details.filter_map(|detail| detail.error.as_deref()).collect();
    assert_eq!(texts, ["refused", "not found"]);

    let error = policy.retry(fails).when(|_| true).history().await.expect_err("always busy");
    assert!(error.report().history.iter().all(|attempt| attempt.error.is_none()), "not requested");
}

#[tokio::test(start_paused = true)]
async fn report_names_the_policy_or_the_place_of_the_call() {
    let policy = Policy::immediate().attempts(1).name("fetch").build();
    let name = |report: &redial::Report| report.policy.to_string();
    let plain = policy.retry(fails).when(|_| true).await.expect_err("always busy");
    let timed = policy.retry(fails).when(|_| true).deadline(s(1)).await.expect_err("always busy");
    let blocking = policy.retry(|| Ok::<_, ()>(())).when(|()| true).with_report().call();
    let (_, blocking) = blocking.expect("it works");
    assert_eq!([plain.report(), timed.report(), &blocking].map(name), ["fetch"; 3]);
    for seeded in [false, true] {
        let call = redial::retry(fails).when(|_| false);
        let here = format!("{}:{}", file!(), line!() - 1);
        let call = if seeded { call.seed(1) } else { call };
        assert_eq!(name(call.await.expect_err("always busy").report()), here);
    }
}

#[tokio::test(start_paused = true)]
async fn report_of_a_success_has_attempts_and_elapsed() {
    let policy = free(3);
    let calls = AtomicU32::new(0);
    let operation = async || {
        tokio::time::sleep(ms(5)).await;
        if calls.fetch_add(1, Ordering::Relaxed) < 2 { Err(()) } else { Ok("the page") }
    };
    let (value, report) =
        policy.retry(operation).when(|()| true).with_report().await.expect("the third succeeds");
    assert_eq!((value, report.attempts, report.elapsed), ("the page", 3, ms(35)));
    assert_eq!(
        (report.stop_reason, report.attempts_max, report.tokens),
        (StopReason::Succeeded, Some(3), None)
    );
    let (_, report) = policy.retry(operation).when(|()| true).with_report().await.expect("now");
    assert_eq!((report.attempts, report.elapsed), (1, ms(5)));
    let at_once = policy.retry(|| Ok::<_, ()>(1)).when(|()| true).with_report().call();
    assert_eq!(at_once.expect("it works").1.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn hook_receives_every_call_log_event_in_every_driver() {
    let policy = free(2);
    let seen = Mutex::new(Vec::new());
    let hook = |context: &EventContext<'_>, event: &Event| {
        seen.lock().expect("one thread").push((context.at, *event));
    };
    let mut call_log = CallLog::new();
    let call = policy.retry(fails).when(|_| true).call_log(&mut call_log).on_event(hook);
    call.await.expect_err("always busy");
    let taken = std::mem::take(&mut *seen.lock().expect("one thread"));
    assert_eq!(taken, call_log.events());
    let mut call_log = CallLog::new();
    let blocking = Policy::immediate().attempts(2).try_build().expect("valid");
    let call = blocking.retry(|| Err::<(), _>(())).when(|()| true).call_log(&mut call_log);
    call.on_event(hook).call().expect_err("always busy");
    assert_eq!(seen.into_inner().expect("one thread"), call_log.events());
}

/// The policy and the error of each event, for the log of an application.
#[tokio::test(start_paused = true)]
async fn hook_learns_policy_name_and_error_in_every_driver() {
    static FETCH: Policy = Policy::immediate().attempts(2).name("fetch").build();
    static READ: Hedged = Policy::hedged(ms(1)).attempts(1).name("read").build();
    let lines = Mutex::new(Vec::new());
    let hook = |context: &EventContext<'_>, event: &Event| {
        if let Event::AttemptOutcome { .. } | Event::CallEnded { .. } = event {
            let line = (context.policy.to_string(), context.error.map(str::to_owned));
            lines.lock().expect("one thread").push(line);
        }
    };
    let taken = || std::mem::take(&mut *lines.lock().expect("one thread"));
    let line = |policy: &str, error| (policy.to_owned(), error);
    let busy = Some("busy".to_owned());

    let call = FETCH.retry(|| Err::<(), _>("busy")).when(|_| true).record_errors();
    call.on_event(hook).call().expect_err("always busy");
    assert_eq!(taken(), vec![line("fetch", busy.clone()); 3]);

    let call = FETCH.retry(async || Err::<(), _>("busy")).when(|_| true).record_errors();
    call.on_event(hook).await.expect_err("always busy");
    assert_eq!(taken(), vec![line("fetch", busy.clone()); 3]);

    let mut answers = [Err("busy"), Ok(7)].into_iter();
    let next =
        async |answers: &mut std::array::IntoIter<_, 2>| answers.next().expect("one is left");
    let call = FETCH.retry_on(&mut answers, next).record_errors().on_event(hook);
    assert_eq!(call.when(|_: &&str| true).await, Ok(7));
    assert_eq!(taken(), [busy.clone(), None, None].map(|error| line("fetch", error)));

    let call = READ.retry(async || Err::<(), _>("busy")).when(|_| true).record_errors();
    call.on_event(hook).await.expect_err("always busy");
    assert_eq!(taken(), vec![line("read", busy); 2]);

    // Without `record_errors`.
    let call = FETCH.retry(async || Err::<(), _>("busy")).when(|_| true).on_event(hook);
    call.await.expect_err("always busy");
    assert_eq!(taken(), vec![line("fetch", None); 3]);
}

/// The report that is logged says what failed.
#[tokio::test(start_paused = true)]
async fn report_has_the_last_error_if_it_is_recorded() {
    let busy = || async { Err::<u32, _>("busy") };
    let error_of = |error: redial::Error<&str>| error.report().error.as_deref().map(str::to_owned);
    let policies = [free(1), free(2), Policy::immediate().deadline(s(1)).build()];
    for policy in &policies {
        let call = policy.retry(busy).when(|_| true).record_errors();
        assert_eq!(error_of(call.await.expect_err("busy")).as_deref(), Some("busy"));
        assert_eq!(error_of(policy.retry(busy).when(|_| true).await.expect_err("busy")), None);

        let call = policy.retry(|| Err::<(), _>("busy")).when(|_| true).record_errors();
        assert_eq!(error_of(call.call().expect_err("busy")).as_deref(), Some("busy"));

        let mut unit = ();
        let call = policy.retry_on(&mut unit, async |()| busy().await).record_errors();
        assert_eq!(error_of(call.when(|_| true).await.expect_err("busy")).as_deref(), Some("busy"));
    }
    let mut answers = [Err("busy"), Ok(7)].into_iter();
    let call = policies[1].retry(|| answers.next().expect("one is left")).when(|_| true);
    let (_, report) = call.record_errors().with_report().call().expect("the second succeeds");
    assert_eq!(report.error, None);
}

/// A wrapper and its caller can both add a hook.
#[tokio::test(start_paused = true)]
async fn hook_order_is_the_order_of_registration() {
    let policy = free(1);
    let seen = Mutex::new(Vec::new());
    let hook = |name: &'static str| {
        let seen = &seen;
        move |_: &EventContext<'_>, event: &Event| {
            seen.lock().expect("one thread").push((name, event.to_string()));
        }
    };
    let call = policy.retry(fails).when(|_| true).on_event(hook("one")).on_event(hook("two"));
    call.await.expect_err("always busy");
    let mut unit = ();
    let target = policy.retry_on(&mut unit, async |()| fails().await);
    let target = target.on_event(hook("three")).on_event(hook("four"));
    target.when(|_| true).await.expect_err("always busy");
    let seen = seen.into_inner().expect("one thread");
    let names: Vec<_> = seen.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [["one", "two"].repeat(4), ["three", "four"].repeat(4)].concat());
    assert!(seen.chunks(2).all(|pair| pair[0].1 == pair[1].1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn strategy_decides_each_failure_with_the_calls_data() {
    struct Tenant(&'static str);
    struct Priority(u8);
    let policy = free(9);
    let asked = Mutex::new(Vec::new());
    let strategy = |request: &Request<'_>| {
        let tenant = request.data::<Tenant>().map(|tenant| tenant.0);
        let priority = request.data::<Priority>().map(|priority| priority.0);
        asked.lock().expect("one thread").push((
            request.retry_attempts(),
            request.elapsed(),
            request.remaining(),
            request.reason().map(|reason| reason.name()),
            (tenant, priority, request.data::<String>().is_some()),
        ));
        if request.retry_attempts() == 2 { Decision::Decline } else { Decision::Retry(ms(3)) }
    };
    let error = policy
        .retry(fails)
        .when(|_| Some(Failure::server().because(Reason::new("BUSY"))))
        .data(Tenant("small"))
        .data(Priority(1))
        .data(Tenant("large"))
        .strategy(strategy)
        .deadline(s(1))
        .await
        .expect_err("it declines");
    assert_eq!(
        (error.stop_reason(), error.attempts(), error.elapsed()),
        (StopReason::StrategyDeclined, 3, ms(21))
    );
    let data = (Some("large"), Some(1), false);
    let rest = |span| Some(s(1) - span);
    assert_eq!(
        asked.into_inner().expect("one thread"),
        [
            (0, ms(5), rest(ms(5)), Some("BUSY"), data),
            (1, ms(13), rest(ms(13)), Some("BUSY"), data),
            (2, ms(21), rest(ms(21)), Some("BUSY"), data),
        ]
    );
}

#[test]
fn strategy_pending_answer_unparks_the_blocking_driver() {
    let policy = Policy::immediate().attempts(9).deadline(s(60)).try_build().expect("valid");
    let later = |request: &Request<'_>| {
        let again = request.retry_attempts() == 0;
        let mut thread = None;
        Decision::later(std::future::poll_fn(move |cx| {
            if thread.is_some() {
                return std::task::Poll::Ready(again.then_some(ms(0)));
            }
            let waker = cx.waker().clone();
            thread = Some(std::thread::spawn(move || waker.wake()));
            std::task::Poll::Pending
        }))
    };
    let call = policy.retry(|| Err::<(), _>(())).when(|()| true).strategy(later);
    let error = call.call().expect_err("it declines");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 2));
}

#[tokio::test(start_paused = true)]
async fn strategy_may_decide_later_again_and_again() {
    let policy = free(9);
    let twice = |request: &Request<'_>| {
        let again = request.retry_attempts() == 0;
        Decision::later(async move {
            tokio::time::sleep(ms(5)).await;
            Decision::later(async move {
                tokio::time::sleep(ms(5)).await;
                again.then_some(ms(1))
            })
        })
    };
    let call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true).strategy(twice);
    let error = call.await.expect_err("it declines");
    assert_eq!(
        (error.stop_reason(), error.attempts(), error.elapsed()),
        (StopReason::StrategyDeclined, 2, ms(21))
    );
}

#[tokio::test(start_paused = true)]
async fn strategy_error_has_the_last_error_as_source() {
    let policy = free(9);
    let broken = |_: &Request<'_>| Decision::Fail("the oracle is silent".into());
    let operation = || async { Err::<(), _>(std::io::Error::other("busy")) };
    let error = policy.retry(operation).when(|_| true).strategy(broken).await;
    let error = error.expect_err("it fails");
    assert_eq!(error.stop_reason(), StopReason::StrategyDeclined);
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("busy"));
    assert!(error.to_string().starts_with("the oracle is silent (1 attempt in "), "{error}");
    let of_strategy = error.strategy_error().map(ToString::to_string);
    assert_eq!(of_strategy.as_deref(), Some("the oracle is silent"));
    assert_eq!(error.into_last().map(|last| last.to_string()).as_deref(), Some("busy"));
}

#[tokio::test(start_paused = true)]
async fn not_idempotent_call_is_retried_only_with_proof() {
    let policy = free(3);
    let proof = Reason::new("NOT_MASTER").allow_non_idempotent();
    let cases = [
        (Failure::server(), StopReason::NotIdempotent, 1),
        (Failure::server().at(Stage::InFlight), StopReason::NotIdempotent, 1),
        (Failure::client().at(Stage::Unsent), StopReason::AttemptsExhausted, 3),
        (Failure::server().because(proof), StopReason::AttemptsExhausted, 3),
    ];
    for (failure, stop_reason, attempts) in cases {
        let call = policy.retry(fails).when(move |_| Some(failure)).not_idempotent();
        let error = call.await.expect_err("always busy");
        assert_eq!((error.stop_reason(), error.attempts()), (stop_reason, attempts), "{failure:?}");
        let immediate = Policy::immediate().try_build().expect("valid");
        let call = immediate.retry(|| Err::<(), _>(())).when(|()| Some(failure)).not_idempotent();
        let error = call.call().expect_err("always busy");
        assert_eq!(
            (error.stop_reason(), error.attempts()),
            (stop_reason, attempts),
            "blocking, {failure:?}"
        );
        let call = immediate.retry(fails).when(move |_| Some(failure)).not_idempotent();
        let error = call.await.expect_err("always busy");
        assert_eq!(
            (error.stop_reason(), error.attempts()),
            (stop_reason, attempts),
            "at once, {failure:?}"
        );
    }
    let twice = policy.retry(fails).when(|_| true).await.expect_err("always busy");
    assert_eq!(twice.attempts(), 3, "`when` alone is the declaration");
}

/// The remaining time that each attempt receives.
#[tokio::test(start_paused = true)]
async fn attempt_remaining_is_the_shorter_of_timeout_and_deadline() {
    let policy = Policy::immediate().attempt_timeout(s(5)).deadline(s(12)).attempts(3);
    let policy = policy.try_build().expect("valid");
    let seen = Mutex::new(Vec::new());
    let see = |remaining| seen.lock().expect("one thread").push(remaining);
    for machine in [false, true] {
        let mut call = policy
            .retry_with(|attempt| {
                see(attempt.remaining());
                async {
                    tokio::time::sleep(s(4)).await;
                    Err::<(), _>(())
                }
            })
            .when(|()| true);
        if machine {
            call = call.history();
        }
        call.await.expect_err("it fails");
        let received = std::mem::take(&mut *seen.lock().expect("one thread"));
        assert_eq!(received, [Some(s(5)), Some(s(5)), Some(s(4))], "machine: {machine}");
    }
    // A blocking attempt is not cancelled (P12), but receives the same remaining time.
    for machine in [false, true] {
        let mut call = policy
            .retry_with(|attempt| {
                see(attempt.remaining());
                Err::<(), _>(())
            })
            .when(|()| true);
        if machine {
            call = call.history();
        }
        call.call().expect_err("it fails");
        let received = std::mem::take(&mut *seen.lock().expect("one thread"));
        assert_eq!(received, [Some(s(5)); 3], "blocking, machine: {machine}");
    }
}

#[tokio::test(start_paused = true)]
async fn throttle_sharing_applies_to_every_driver() {
    let budget = Arc::new(redial::throttle::RetryBudget::try_new(3.0, 0.0).expect("valid"));
    let policy = Policy::immediate().attempts(2).build().sharing(budget.clone());
    let hedged: Hedged = Policy::hedged(ms(1)).attempts(2).try_build().expect("valid");
    let hedged = hedged.sharing(budget.clone());
    let left = || budget.tokens(0);
    policy.retry(fails).when(|_| true).await.expect_err("busy");
    assert_eq!(left(), Some(2.0));
    policy.retry(|| Err::<(), _>(())).when(|()| true).call().expect_err("busy");
    assert_eq!(left(), Some(1.0));
    hedged.retry(fails).when(|_| true).await.expect_err("busy");
    assert_eq!(left(), Some(0.0));
    let mut target = ();
    let error = policy.retry_on(&mut target, async |_| fails().await).when(|_| true).await;
    let error = error.expect_err("busy");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Throttled, 1));
    let text = "busy (1 attempt in 5 ms; gave up: the retry budget is spent, attempt 1 of 2, 0.0 tokens left)";
    assert_eq!(error.to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn retry_on_accepts_all_call_options() {
    let policy = free(9);
    let (mut call_log, mut lines) = (CallLog::new(), Vec::new());
    let mut tries = 0;
    let error = policy
        .retry_on(&mut tries, async |tries| {
            *tries += 1;
            fails().await
        })
        .deadline(ms(40))
        .call_log(&mut call_log)
        .on_event(|_, event| lines.push(event.to_string()))
        .history()
        .when(|_| true)
        .await
        .expect_err("always busy");
    assert_eq!(
        (error.stop_reason(), error.attempts(), error.elapsed()),
        (StopReason::Deadline, 3, ms(35))
    );
    assert_eq!((tries, error.report().history.len()), (3, 3));
    assert_eq!(lines.len(), call_log.events().len());
    call_log.replay(&policy).expect("the same decisions");

    let once = policy.retry_on(&mut tries, async |_| fails().await).not_idempotent();
    let error = once.when(|_| Failure::timeout()).await.expect_err("it may have run");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 1));

    let asked = AtomicU32::new(0);
    let strategy = |request: &Request<'_>| {
        asked.fetch_add(*request.data::<u32>().expect("given"), Ordering::Relaxed);
        Decision::Decline
    };
    let declined = policy.retry_on(&mut tries, async |_| fails().await).strategy(strategy);
    let error = declined.data(7_u32).when(|_| true).await.expect_err("it declines");
    assert_eq!(
        (error.stop_reason(), asked.load(Ordering::Relaxed)),
        (StopReason::StrategyDeclined, 7)
    );
}

#[tokio::test(start_paused = true)]
async fn retry_on_returns_a_report_and_classifies_values() {
    let policy = free(3);
    let mut tries = 0;
    let count = async |tries: &mut u32| {
        *tries += 1;
        Ok::<_, ()>(*tries)
    };
    let counted = policy.retry_on(&mut tries, count).with_report().when(|()| true).await;
    let (value, report) = counted.expect("it counts");
    assert_eq!((value, report.attempts), (1, 1));

    let small = |limit: u32| {
        move |result: &Result<u32, ()>| match result {
            Ok(value) if *value < limit => Some(Directive::Retry(Failure::server())),
            _ => None,
        }
    };
    let reached = policy.retry_on(&mut tries, count).classify(small(3)).await;
    assert_eq!(reached.ok(), Some(3));
    let missed = policy.retry_on(&mut tries, count).classify(small(99)).await;
    assert_eq!(missed.expect_err("three are not enough").last_value(), Some(&6));
}

/// Decision P12: a thread cannot be cancelled.
#[test]
fn attempt_timeout_of_a_blocking_call_only_shortens_remaining() {
    let timeout = ms(20);
    let overruns = |attempt: redial::Attempt| {
        let remaining = attempt.remaining().expect("the attempt has a timeout");
        assert!(remaining <= timeout, "{remaining:?}");
        std::thread::sleep(remaining + ms(1));
        if attempt.number() == 1 { Err("late") } else { Ok(attempt.number()) }
    };
    let with_timeout = Policy::constant(ms(1)).attempt_timeout(timeout).attempts(3).build();
    let retried = Policy::constant(ms(1)).attempt_timeout(timeout).retry_timeouts().build();
    for policy in [with_timeout, retried] {
        let call = || policy.retry_with(overruns).when(|_| true);
        assert_eq!(call().call().ok(), Some(2), "the error and the value are results as usual");
        assert_eq!(call().retry_timeouts().deadline(s(60)).call().ok(), Some(2));
    }
    let policy = free(3);
    let own = policy.retry_with(overruns).when(|_| true).attempt_timeout(timeout);
    assert_eq!(own.call().ok(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn started_at_begins_the_call_at_an_earlier_time() {
    let policy = Policy::constant(ms(10)).attempts(3).deadline(ms(50));
    let policy = policy.throttle(Throttle::none()).build();
    // The caller starts the first attempt, which takes 5 ms. The call begins after 3 ms.
    let (mut call_log, start) = (CallLog::new(), Tokio.now());
    let mut first = Box::pin(fails());
    assert!(tokio::time::timeout(ms(3), &mut first).await.is_err());
    let mut first = Some(first);
    let call = policy.retry(|| {
        let first = first.take();
        async {
            match first {
                Some(first) => first.await,
                None => fails().await,
            }
        }
    });
    let call = call.when(|_| true).call_log(&mut call_log).started_at(start);
    let error = call.await.expect_err("always busy");
    assert_eq!((error.attempts(), error.elapsed()), (3, ms(35)));
    let times: Vec<_> = call_log
        .events()
        .iter()
        .map(|(at, event)| ((at - start) / 1_000_000, event.to_string()))
        .filter(|(_, text)| text.contains("started"))
        .collect();
    let text = |number: u32| format!("attempt {number} started");
    assert_eq!(times[1..], [(0, text(1)), (15, text(2)), (30, text(3))]);
    assert_eq!(times[0].0, 0, "the call");
    // An attempt that outlasts the deadline ends the call at its deadline.
    let start = Tokio.now();
    tokio::time::sleep(ms(50)).await;
    let call = policy.retry(std::future::pending::<Result<(), &str>>).when(|_| true);
    let error = call.started_at(start).await.expect_err("it hangs");
    let end = (error.stop_reason(), error.attempts(), error.elapsed());
    assert_eq!(end, (StopReason::Deadline, 1, ms(50)));
}
