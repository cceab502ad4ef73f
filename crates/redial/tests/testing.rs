//! The module `testing`: scripts are played exactly, simultaneous events in their order (P4), and the
//! virtual clock runs the async driver.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{panic, thread};

use redial::testing::{
    CallEnd, Clock, Play, Script, block_on, classified_as, draws, fails, fails_with, fatal, hangs,
    nanoseconds, play, succeeds,
};
use redial::throttle::{Bucket, Cost, Grant, RetryBudget, Withdrawal};
use redial::time::Sleeper;
use redial::{
    AnyPolicy, Directive, Failure, Hedged, Jitter, Policy, Stage, StopReason, Throttle,
    classify::Classification,
    ms,
    rules::{AttemptTimeoutAction, Backoff, DeadlineAction, Rules},
    s,
    strategy::{Decision, Request},
    time::Ns,
};
use redial_core::{ChargeAt, Proof};

fn every(delay: Duration, attempts: u32) -> Policy {
    let builder = Policy::constant(delay).attempts(attempts);
    builder.throttle(Throttle::none()).build()
}

fn rules(rules: Rules) -> AnyPolicy {
    AnyPolicy::from_core(redial_core::Policy::try_new(rules).unwrap())
}

fn ended(at: Duration, stop_reason: StopReason, attempt: Option<u32>) -> Option<CallEnd> {
    Some(CallEnd { at, stop_reason, attempt })
}

#[test]
fn testing_play_is_exact_to_the_nanosecond() {
    let nanosecond = Duration::from_nanos(1);
    let played = play(&every(nanosecond, 3), [fails().after(nanosecond), fails(), succeeds()]);
    assert_eq!(played.starts(), [0, 2, 3].map(Duration::from_nanos));
    assert_eq!(played.end(), ended(Duration::from_nanos(3), StopReason::Succeeded, Some(3)));
    assert_eq!(played.numbers(), [1, 2, 3]);
    assert_eq!((played.cancels(), played.remaining(), played.tokens()), (vec![], None, None));
}

#[test]
#[should_panic(expected = "attempt 2 started, and the script lists only 1")]
fn testing_unscripted_attempt_panics() {
    play(&every(ms(1), 2), [fails()]);
}

#[test]
fn testing_script_panic_has_the_callers_location() {
    let place = Arc::new(Mutex::new(None));
    let (found, mine, others) = (place.clone(), thread::current().id(), panic::take_hook());
    panic::set_hook(Box::new(move |info| match info.location() {
        Some(at) if thread::current().id() == mine => {
            *found.lock().unwrap() = Some((at.file().to_owned(), at.line()));
        }
        _ => others(info),
    }));
    let line = line!() + 1;
    panic::catch_unwind(|| play(&every(ms(1), 2), [fails()])).unwrap_err();
    // Released before the assertion: the panic hook locks it, too.
    let found = place.lock().unwrap().take();
    assert_eq!(found, Some((file!().to_owned(), line)));
}

#[test]
fn testing_play_reports_the_unscripted_attempt() {
    let policy = every(ms(1), 3);
    let played = Play::new().call(Script::new(&policy, [fails()])).run();
    assert_eq!(played[0].unscripted(), Some(2));
    assert_eq!(played[0].end(), ended(ms(1), StopReason::Cancelled, None));
}

#[test]
fn testing_hanging_call_has_no_end() {
    let played = play(&every(ms(1), 3), [hangs()]);
    assert_eq!((played.end(), played.starts().len()), (None, 1));
    // A time after every timer is never reached (P2).
    let played = play(&every(Duration::MAX, 3), [fails(), succeeds()]);
    assert_eq!((played.end(), played.starts().len()), (None, 1));
}

#[test]
fn testing_outcome_at_the_deadline_counts() {
    let policy = every(ms(10), 3);
    let script = Script::new(&policy, [succeeds().after(ms(50))]).deadline(ms(50));
    assert_eq!(script.play().end(), ended(ms(50), StopReason::Succeeded, Some(1)));
}

#[test]
fn testing_no_attempt_starts_at_the_deadline() {
    let policy = rules(Rules {
        backoff: Backoff::Constant(ms(10)),
        jitter: Jitter::None,
        deadline_action: DeadlineAction::WaitForDeadline,
        ..Rules::DEFAULT
    });
    let script = Script::new(&policy, [fails().after(ms(40))]).deadline(ms(50));
    let played = script.play();
    assert_eq!((played.starts().len(), played.remaining()), (1, Some(vec![ms(50)])));
    assert_eq!(played.end(), ended(ms(50), StopReason::Deadline, None));
}

#[test]
fn testing_cancellation_is_ordered_last() {
    let policy = every(ms(10), 3);
    let script = |attempts| Script::new(&policy, attempts).cancel(ms(10));
    // After an outcome.
    let played = script(vec![succeeds().after(ms(10))]).play();
    assert_eq!(played.end(), ended(ms(10), StopReason::Succeeded, Some(1)));
    // After a timer: the attempt starts, and is cancelled in the same moment.
    let played = script(vec![fails(), hangs()]).play();
    assert_eq!((played.starts(), played.cancels()), (vec![ms(0), ms(10)], vec![(2, ms(10))]));
    assert_eq!(played.end(), ended(ms(10), StopReason::Cancelled, None));
    // After the deadline.
    let played = script(vec![hangs()]).deadline(ms(10)).play();
    assert_eq!(played.stop_reason(), Some(StopReason::Deadline));
}

/// A budget of one retry that only a refund refills, charged after the backoff.
fn scarce() -> Policy {
    let rules = Rules {
        backoff: Backoff::Constant(ms(10)),
        jitter: Jitter::None,
        charge_at: ChargeAt::AfterBackoff,
        ..Rules::DEFAULT
    };
    let policy = Policy::from_rules(rules).throttle(Throttle::none()).build();
    policy.sharing(Arc::new(RetryBudget::try_new(1.0, 1.0).unwrap()))
}

#[test]
fn testing_outcomes_are_ordered_before_timers() {
    // The first call withdraws the only token at 10 and refunds it with its success at 20; the second
    // withdraws it at 20.
    let policy = scarce();
    let played = Play::new()
        .call(Script::new(&policy, [fails(), succeeds()]).at(ms(10)))
        .call(Script::new(&policy, [fails(), succeeds().after(ms(10))]))
        .run();
    assert_eq!(played[0].starts(), [ms(0), ms(10)]);
    assert_eq!(played[0].stop_reason(), Some(StopReason::Succeeded));
    assert_eq!(played[1].starts(), [ms(0), ms(10)]);
    assert_eq!((played[1].ended_nth(), played[0].ended_nth()), (Some(0), Some(1)));
}

#[test]
fn testing_simultaneous_timers_are_ordered_by_call() {
    let policy = scarce();
    // Both withdraw at 20: the call that began first gets the token, in any order of the list.
    let played = Play::new()
        .call(Script::new(&policy, [fails()]).at(ms(10)))
        .call(Script::new(&policy, [fails().after(ms(10)), hangs()]).cancel(ms(50)))
        .run();
    assert_eq!(played[0].stop_reason(), Some(StopReason::Throttled));
    assert_eq!(played[1].starts(), [ms(0), ms(20)]);
    // Of two calls that began together, the one that is listed first.
    let policy = scarce();
    let played = Play::new()
        .call(Script::new(&policy, [fails(), hangs()]).cancel(ms(50)))
        .call(Script::new(&policy, [fails()]))
        .run();
    assert_eq!(
        (played[0].starts().len(), played[1].stop_reason()),
        (2, Some(StopReason::Throttled))
    );
}

#[test]
fn testing_simultaneous_outcomes_are_ordered_by_attempt() {
    let hedged: Hedged = Policy::hedged(ms(10)).attempts(2).try_build().expect("valid");
    let played = play(&hedged, [succeeds().after(ms(20)), fatal().after(ms(10))]);
    assert_eq!(played.end(), ended(ms(20), StopReason::Succeeded, Some(1)));
    assert_eq!(played.cancels(), [(2, ms(20))]);
}

#[test]
fn testing_attempt_timeout_is_ordered_before_the_next_hedge() {
    // Both are due at 50: the timeout starts the third hedge, whose outcome at 50 comes before the next
    // timer.
    let rules = Rules {
        hedge: Some(ms(25)),
        attempts: Some(4),
        attempt_timeout: Some(ms(50)),
        attempt_timeout_action: AttemptTimeoutAction::Retry,
        ..Rules::DEFAULT
    };
    let policy = self::rules(rules);
    let played = play(&policy, [hangs(), hangs(), succeeds()]);
    assert_eq!(played.starts(), [ms(0), ms(25), ms(50)]);
    assert_eq!(played.end(), ended(ms(50), StopReason::Succeeded, Some(3)));
    assert_eq!(played.cancels(), [(1, ms(50)), (2, ms(50))]);
}

#[test]
fn testing_draws_are_used_in_order_and_the_last_repeats() {
    let policy = Policy::constant(ms(100)).jitter(Jitter::Full).throttle(Throttle::none()).build();
    let call = || Script::new(&policy, [fails(), fails(), succeeds()]);
    let played = Play::new().draws([0.0, 0.25, 0.5]).call(call()).call(call().at(ms(1))).run();
    assert_eq!(played[0].starts(), [ms(0), ms(0), ms(25)]);
    assert_eq!(played[1].starts(), [ms(0), ms(50), ms(100)]);
}

#[test]
fn testing_default_budget_starts_full_in_every_play() {
    static PLACED: Policy = Policy::constant(ms(1)).attempts(8).build();
    for _ in 0..2 {
        let call = || Script::new(&PLACED, vec![fails(); 8]);
        let played = Play::new().call(call()).call(call().at(s(1))).run();
        assert_eq!(
            (played[0].stop_reason(), played[0].tokens()),
            (Some(StopReason::AttemptsExhausted), Some(3.006))
        );
        // Three are left, and one more was added in a second.
        assert_eq!(
            (played[1].stop_reason(), played[1].starts().len()),
            (Some(StopReason::Throttled), 5)
        );
    }
    assert_eq!(PLACED.tokens(0), Some(10.0), "a test does not drain what the program uses");
}

#[test]
fn testing_named_throttle_is_not_replaced() {
    let budget = Arc::new(RetryBudget::new(10.0, 0.1));
    let policy = every(ms(1), 3).sharing(budget.clone());
    play(&policy, [fails(), fails(), fails()]);
    assert_eq!(budget.tokens(0), Some(8.0));
}

#[test]
fn testing_not_idempotent_call_is_retried_only_with_proof() {
    let policy = every(ms(1), 3);
    let unsent = fails_with(Failure::client().at(Stage::Unsent));
    let played = Script::new(&policy, [unsent, fails()]).not_idempotent().play();
    assert_eq!(played.end(), ended(ms(1), StopReason::NotIdempotent, Some(2)));
}

#[test]
fn testing_strategy_sees_the_data_of_the_call() {
    struct Patience(u32);
    let policy = rules(Rules { attempts: None, deadline: Some(s(1)), ..Rules::DEFAULT });
    let strategy = |request: &Request<'_>| {
        let patience = request.data::<Patience>().map_or(0, |patience| patience.0);
        let left = request.retry_attempts() < patience;
        if left { Decision::Retry(ms(7)) } else { Decision::Decline }
    };
    let script = Script::new(&policy, vec![fails(); 3]).strategy(strategy).data(Patience(2));
    let played = script.play();
    assert_eq!(played.starts(), [ms(0), ms(7), ms(14)]);
    assert_eq!(played.stop_reason(), Some(StopReason::StrategyDeclined));
}

#[test]
fn testing_pending_strategy_is_polled_at_every_event() {
    let policy = rules(Rules { attempts: None, deadline: Some(s(1)), ..Rules::DEFAULT });
    let ready = |_: &Request<'_>| Decision::later(async { Some(ms(3)) });
    let played = Script::new(&policy, [fails(), succeeds()]).strategy(ready).play();
    assert_eq!(played.starts(), [ms(0), ms(3)]);
    let never = |_: &Request<'_>| Decision::later(std::future::pending::<Decision>());
    let played = Script::new(&policy, [fails()]).strategy(never).play();
    assert_eq!(played.end(), ended(s(1), StopReason::Deadline, None));
    let failing = |_: &Request<'_>| Decision::Fail("no more".into());
    let played = Script::new(&policy, [fails()]).strategy(failing).play();
    assert_eq!(played.stop_reason(), Some(StopReason::StrategyDeclined));
    assert_eq!(played.strategy_error().map(ToString::to_string).as_deref(), Some("no more"));
}

#[test]
fn testing_throttle_may_answer_later() {
    struct Slow;
    impl Bucket for Slow {
        fn withdraw(&self, _: Cost, _: Ns) -> Grant {
            Grant::Later
        }
        fn later(&self, _: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
            Box::pin(async { Grant::Now(Withdrawal(0)) })
        }
        fn refund(&self, _: Withdrawal) {}
        fn succeeded(&self, _: Option<Withdrawal>) {}
        fn tokens(&self, _: Ns) -> Option<f64> {
            None
        }
    }
    let policy = every(ms(5), 3).sharing(Arc::new(Slow));
    assert_eq!(play(&policy, [fails(), succeeds()]).starts(), [ms(0), ms(5)]);
}

/// A policy with transparent retries, as the gRPC layer builds it.
fn grpc(attempts: u32, hedge: Option<Duration>) -> AnyPolicy {
    let backoff = Backoff::Constant(ms(50));
    let attempts = Some(attempts);
    rules(Rules {
        attempts,
        backoff,
        jitter: Jitter::None,
        hedge,
        transparent_retries: true,
        ..Rules::DEFAULT
    })
}

#[test]
fn testing_response_headers_commit_the_call() {
    let policy = grpc(4, None);
    let played = play(&policy, [fails().headers(ms(5)).after(ms(20))]);
    assert_eq!(played.end(), ended(ms(20), StopReason::Committed, Some(1)));
    let hedged = grpc(3, Some(ms(10)));
    let played = play(&hedged, [hangs(), succeeds().headers(ms(5)).after(ms(30))]);
    assert_eq!((played.starts(), played.cancels()), (vec![ms(0), ms(10)], vec![(1, ms(15))]));
    assert_eq!(played.end(), ended(ms(40), StopReason::Succeeded, Some(2)));
}

#[test]
fn testing_transparent_retry_keeps_the_attempt_number() {
    let policy = grpc(4, None);
    let seen = |proof| {
        let directive = Directive::Retry(Failure::server());
        classified_as(Classification { directive, proof: Some(proof), drains: false })
    };
    let unprocessed = seen(Proof::Unprocessed).after(ms(5));
    let played = play(&policy, [unprocessed, unprocessed, succeeds()]);
    assert_eq!(played.starts(), [ms(0), ms(5), ms(60)]);
    assert_eq!(played.numbers(), [1, 1, 2]);
    let unsent = seen(Proof::Unsent);
    let played = play(&policy, [unsent, unsent, unsent, unsent, succeeds()]);
    assert_eq!(played.starts(), [0, 0, 10, 30, 70].map(ms));
}

#[test]
fn testing_messages_are_sent_to_every_attempt() {
    let policy = grpc(4, None);
    let attempts = [fails().after(ms(20)), succeeds().after(ms(20))];
    let script = Script::new(&policy, attempts).buffer_max(100);
    let script = script.message(ms(0), 10).message(ms(5), 10).message(ms(75), 10);
    let played = script.play();
    assert_eq!((played.starts(), played.sent()), (vec![ms(0), ms(70)], &[2, 3][..]));
}

#[test]
fn testing_message_above_the_size_limit_ends_the_call() {
    let policy = grpc(4, None);
    let call = |outcome| Script::new(&policy, [outcome]).message_max(100).message(ms(0), 100);
    let played = call(succeeds().after(ms(20))).message(ms(5), 100).play();
    assert_eq!((played.too_large(), played.sent()), (None, &[2][..]));
    let played = call(succeeds().after(ms(20))).message(ms(5), 101).play();
    assert_eq!((played.too_large(), played.sent()), (Some(ms(5)), &[1][..]));
    let end = played.end().expect("it ended");
    assert_eq!((end.at, end.stop_reason, end.attempt), (ms(5), StopReason::NotRetryable, Some(1)));
    // During a backoff there is no attempt that could fail.
    let played = call(fails()).message(ms(5), 101).play();
    assert_eq!((played.too_large(), played.starts()), (Some(ms(5)), vec![ms(0)]));
    assert_eq!(played.end().and_then(|end| end.attempt), None);
    // At the start of the call, no attempt starts.
    let played = call(succeeds()).message(ms(0), 101).play();
    assert_eq!((played.too_large(), played.starts()), (Some(ms(0)), vec![]));
    assert_eq!(played.end(), ended(ms(0), StopReason::Cancelled, None));
    assert_eq!(played.ended_nth(), Some(0));
}

#[test]
fn testing_message_above_the_buffer_limit_commits() {
    let policy = grpc(4, None);
    let call = || Script::new(&policy, [fails().after(ms(20))]).buffer_max(100);
    let played = call().message(ms(0), 60).message(ms(5), 40).message(ms(10), 1).play();
    assert_eq!(played.end(), ended(ms(20), StopReason::Committed, Some(1)));
    assert_eq!(played.sent(), [3]);
    // At the start: one attempt, and no retry.
    let played = call().message(ms(0), 101).play();
    assert_eq!((played.stop_reason(), played.sent()), (Some(StopReason::Committed), &[1][..]));
    // During a backoff: the next attempt is the last.
    let attempts = [fails().after(ms(20)), fails().after(ms(20))];
    let script = Script::new(&policy, attempts).buffer_max(100).message(ms(30), 101);
    let played = script.play();
    assert_eq!(
        (played.starts(), played.stop_reason()),
        (vec![ms(0), ms(70)], Some(StopReason::Committed))
    );
}

#[test]
fn testing_full_buffer_keeps_the_hedge_with_most_messages() {
    let policy = grpc(3, Some(ms(10)));
    let slow = |after, accepts| succeeds().after(ms(after)).accepts(accepts);
    let attempts = [slow(90, 1), slow(80, 99), slow(70, 2)];
    let mut script = Script::new(&policy, attempts).buffer_max(100);
    for at in [0, 1, 2, 30] {
        script = script.message(ms(at), 30);
    }
    let played = script.play();
    assert_eq!(played.cancels(), [(1, ms(30)), (3, ms(30))]);
    assert_eq!(
        (played.sent(), played.stop_reason()),
        (&[1, 4, 2][..], Some(StopReason::Succeeded))
    );
}

#[test]
fn testing_unbuffered_message_goes_to_the_committed_hedge_only() {
    let policy = grpc(3, Some(ms(0)));
    let script = Script::new(&policy, [succeeds().after(ms(30)), hangs(), hangs()]);
    let played = script.buffer_max(100).message(ms(0), 60).message(ms(10), 60).play();
    assert_eq!(played.cancels(), [(2, ms(10)), (3, ms(10))]);
    assert_eq!(played.sent(), [2, 1, 1]);
}

#[test]
fn testing_calls_share_the_channel_buffer() {
    let policy = grpc(4, None);
    let call =
        |at, bytes, outcome| Script::new(&policy, [outcome]).at(ms(at)).message(ms(0), bytes);
    let failing = fails().after(ms(20));
    let played = Play::new()
        .buffer_max(100)
        .call(call(0, 80, succeeds().after(ms(50))))
        .call(call(5, 30, failing))
        .call(Script::new(&policy, [failing, succeeds()]).at(ms(60)).message(ms(0), 100))
        .run();
    assert_eq!(played[1].stop_reason(), Some(StopReason::Committed), "80 and 30 are too much");
    assert_eq!(
        played[2].stop_reason(),
        Some(StopReason::Succeeded),
        "what ended has freed its share"
    );
}

#[test]
fn testing_clock_advances_only_when_all_futures_wait() {
    let began = Clock.now();
    let order = block_on(async {
        let mut order = Vec::new();
        Clock.sleep(ms(5)).await;
        order.push(Clock.now() - began);
        drop(Clock.sleep(s(100)));
        Clock.sleep(Duration::ZERO).await;
        order.push(Clock.now() - began);
        Clock.sleep_until(began + nanoseconds(ms(7))).await;
        order.push(Clock.now() - began);
        order
    });
    assert_eq!(order, [5, 5, 7].map(|millis| nanoseconds(ms(millis))));
}

#[test]
#[should_panic(expected = "no timer is armed")]
fn testing_block_on_panics_without_a_timer() {
    block_on(std::future::pending::<()>());
}

#[test]
fn testing_block_on_runs_the_async_driver() {
    // Retries, hedging, deadlines and attempt timeouts do not need tokio.
    let began = Clock.now();
    let since = || redial_core::duration(Clock.now() - began);
    let retry = every(ms(10), 3);
    let mut tries = 0;
    let answer = block_on(
        retry
            .retry(|| {
                tries += 1;
                let busy = tries < 3;
                async move {
                    Clock.sleep(ms(1)).await;
                    if busy { Err("busy") } else { Ok(7) }
                }
            })
            .when(|_| true)
            .sleeping_on(Clock)
            .into_future(),
    );
    assert_eq!((answer.ok(), since()), (Some(7), ms(23)));

    let hedged = Policy::hedged(ms(10)).attempts(3).try_build().expect("valid");
    let mut sent = 0;
    let answer = block_on(
        hedged
            .retry(|| {
                sent += 1;
                let slow = sent < 3;
                async move {
                    Clock.sleep(if slow { s(60) } else { ms(2) }).await;
                    Ok::<_, ()>(8)
                }
            })
            .when(|()| true)
            .sleeping_on(Clock)
            .into_future(),
    );
    assert_eq!((answer.ok(), since()), (Some(8), ms(23 + 22)));

    let call = retry.retry(std::future::pending::<Result<(), ()>>).when(|()| true);
    let error = block_on(call.deadline(ms(5)).sleeping_on(Clock).into_future()).unwrap_err();
    assert_eq!((error.stop_reason(), since()), (StopReason::Deadline, ms(50)));
}

#[test]
fn testing_draws_apply_until_the_guard_is_dropped() {
    let policy = Policy::constant(ms(100)).jitter(Jitter::Full).throttle(Throttle::none()).build();
    let run = || {
        let began = Clock.now();
        let call = policy.retry(async || Err::<(), _>(())).when(|()| true).sleeping_on(Clock);
        let _ = block_on(call.into_future());
        redial_core::duration(Clock.now() - began)
    };
    let guard = draws([0.25, 0.5]);
    assert_eq!(run(), ms(75));
    let inner = draws([0.0]);
    assert_eq!(run(), ms(0), "the draws of the inner guard");
    drop(inner);
    assert_eq!(run(), ms(100), "the last one repeats");
    drop(guard);
    let (one, other) = (run(), run());
    assert!(one < ms(200) && one != other, "random again");
}
