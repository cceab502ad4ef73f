//! Hedged calls: the winner, the cancellation of the losers, and the cost of hedges.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use redial::testing::{self, Script};
use redial::throttle::RetryBudget;
use redial::{CallLog, Event, Failure, Hedged, Policy, StopReason, ms, s};

use crate::manual_clock::{Count, ManualClock, poll};

/// The duration of each attempt, and whether it succeeds.
type Plan<'a> = &'a [(Duration, bool)];

/// Runs a hedged call on tokio's paused clock, and compares its call log with that of the state machine.
async fn run(
    policy: &Hedged,
    plan: Plan<'_>,
) -> (Result<usize, StopReason>, Vec<(Duration, Event)>) {
    let mut call_log = CallLog::new();
    let mut calls = 0;
    let result = policy
        .retry(|| {
            calls += 1;
            let (number, (took, succeeds)) = (calls, plan[calls - 1]);
            async move {
                tokio::time::sleep(took).await;
                if succeeds { Ok(number) } else { Err(number) }
            }
        })
        .when(|_| true)
        .call_log(&mut call_log)
        .await;
    let began = call_log.events()[0].0;
    let since = |(at, event): &(u64, Event)| (Duration::from_nanos(at - began), *event);
    let events: Vec<_> = call_log.events().iter().map(since).collect();

    let outcomes = plan.iter().map(|(took, succeeds)| {
        if *succeeds { testing::succeeds() } else { testing::fails() }.after(*took)
    });
    let played = Script::new(policy, outcomes).play();
    let began = played.began();
    let since = |(at, event): &(u64, Event)| (Duration::from_nanos(at - began), *event);
    let expected: Vec<_> = played.call_log().events().iter().map(since).collect();
    assert_eq!(events, expected, "{plan:?}");
    let result = result.map_err(|error| error.stop_reason());

    // Without a call log, the state machine starts when the first hedge is due or an attempt fails.
    let (began, mut starts) = (tokio::time::Instant::now(), Vec::new());
    let unread = policy.retry(|| {
        starts.push(began.elapsed());
        let (number, (took, succeeds)) = (starts.len(), plan[starts.len() - 1]);
        async move {
            tokio::time::sleep(took).await;
            if succeeds { Ok(number) } else { Err(number) }
        }
    });
    assert_eq!(
        unread.when(|_| true).await.map_err(|error| error.stop_reason()),
        result,
        "{plan:?}"
    );
    let started = events.iter().filter(|(_, event)| matches!(event, Event::AttemptStarted { .. }));
    assert_eq!(starts, started.map(|(at, _)| *at).collect::<Vec<_>>(), "{plan:?}");
    (result, events)
}

fn hedged(delay: Duration, attempts: u32) -> Hedged {
    Policy::hedged(delay).attempts(attempts).try_build().expect("valid")
}

#[test]
fn hedging_due_hedge_starts_after_yielding_once() {
    let (policy, clock, count) = (hedged(ms(10), 2), ManualClock::default(), Count::default());
    let operation = || {
        let (one, slept) = (count.one(), clock.sleep(ms(15)));
        async move {
            slept.await;
            drop(one);
            Ok::<_, ()>(())
        }
    };
    let call = policy.retry(operation).when(|()| true).sleeping_on(clock.clone());
    let mut call = Box::pin(call.into_future());
    for (made, passes) in [(1, ms(10)), (1, ms(0)), (2, ms(5))] {
        assert!(poll(call.as_mut()).is_pending());
        assert_eq!(count.made(), made);
        clock.pass(passes);
    }
    assert!(poll(call.as_mut()).is_ready());
    assert_eq!(count.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn hedging_driver_matches_the_core_for_three_attempts() {
    // Multiples of the hedge delay, so that many events are simultaneous.
    let spans = [ms(5), ms(10), ms(20), ms(25)];
    let outcomes: Vec<(Duration, bool)> =
        spans.into_iter().flat_map(|span| [(span, true), (span, false)]).collect();
    let mut wins = [0; 3];
    for one in &outcomes {
        for two in &outcomes {
            for three in &outcomes {
                for delay in [ms(0), ms(10)] {
                    let plan = [*one, *two, *three];
                    if let Ok(winner) = run(&hedged(delay, 3), &plan).await.0 {
                        wins[winner - 1] += 1;
                    }
                }
            }
        }
    }
    assert!(wins.iter().all(|wins| *wins > 10), "{wins:?}");
}

/// Slots are reused, so a later attempt can be in a lower slot.
#[tokio::test(start_paused = true)]
async fn hedging_simultaneous_answers_prefer_the_lower_attempt() {
    let plan = [(ms(15), false), (ms(20), true), (ms(15), true)];
    let (winner, _) = run(&hedged(ms(10), 3), &plan).await;
    assert_eq!(winner, Ok(2), "both answered after 30 ms");
}

#[test]
fn hedging_losers_are_dropped_in_the_winning_poll() {
    let policy = hedged(ms(10), 4);
    let (clock, count) = (ManualClock::default(), Count::default());
    let mut calls = 0;
    let mut call = Box::pin(
        policy
            .retry(|| {
                calls += 1;
                let span = if calls == 3 { ms(5) } else { s(9) };
                let (owned, sleep) = (count.one(), clock.sleep(span));
                async move {
                    let _owned = owned;
                    sleep.await;
                    Ok::<_, ()>(())
                }
            })
            .when(|()| true)
            .sleeping_on(clock.clone())
            .into_future(),
    );
    for alive in [1, 2, 3] {
        for _ in 0..3 {
            assert!(poll(call.as_mut()).is_pending());
        }
        assert_eq!(count.alive(), alive);
        clock.pass(if alive < 3 { ms(10) } else { ms(5) });
    }
    assert!(poll(call.as_mut()).is_ready());
    assert_eq!((count.made(), count.alive()), (3, 0), "though the future itself still lives");
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn hedging_failure_starts_the_next_attempt_without_waiting() {
    let (winner, events) = run(&hedged(s(9), 3), &[(ms(5), false), (ms(5), true)]).await;
    assert_eq!(winner, Ok(2));
    assert_eq!(events.last().map(|(at, _)| *at), Some(ms(10)), "without the hedge delay");
}

#[tokio::test(start_paused = true)]
async fn hedging_exhausted_budget_suppresses_the_next_hedge_only() {
    static ONE: RetryBudget = match RetryBudget::try_new(1.0, 0.0) {
        Ok(budget) => budget,
        Err(_) => panic!("valid"),
    };
    static POOR: Hedged =
        Policy::hedged(ms(10)).attempts(4).throttle(redial::Throttle::shared(&ONE)).build();
    let mut calls = 0;
    let value = POOR
        .retry(|| {
            calls += 1;
            async {
                tokio::time::sleep(ms(100)).await;
                Ok::<_, ()>(())
            }
        })
        .when(|()| true)
        .with_report()
        .await;
    let (_, report) = value.expect("the first answers");
    assert_eq!((calls, report.attempts, report.elapsed), (2, 2, ms(100)));
}

#[tokio::test(start_paused = true)]
async fn hedging_attempt_timeout_cancels_one_deadline_cancels_all() {
    let policy = Policy::hedged(ms(10)).attempts(3).attempt_timeout(ms(25)).deadline(ms(38));
    let policy = policy.try_build().expect("valid");
    let (count, mut call_log) = (Count::default(), CallLog::new());
    let call = policy
        .retry(|| {
            let owned = count.one();
            async move {
                let _owned = owned;
                std::future::pending::<Result<(), ()>>().await
            }
        })
        .when(|()| true)
        .call_log(&mut call_log);
    let error = call.await.expect_err("nothing ever comes");
    assert_eq!(
        (error.stop_reason(), error.elapsed(), error.attempts()),
        (StopReason::Deadline, ms(38), 3)
    );
    assert_eq!(count.alive(), 0);
    let timed_out = |wanted| {
        call_log
            .events()
            .iter()
            .any(|(_, event)| *event == Event::AttemptTimedOut { attempt: wanted })
    };
    assert!(timed_out(1) && timed_out(2) && !timed_out(3));
}

#[tokio::test(start_paused = true)]
async fn hedging_fatal_answer_ends_call_stop_hint_ends_hedges() {
    let policy = hedged(ms(10), 4);
    let run = async |failure: Option<Failure>| {
        let mut calls = 0;
        let call = policy.retry(|| {
            calls += 1;
            let number = calls;
            async move {
                tokio::time::sleep(if number == 2 { ms(5) } else { ms(50) }).await;
                if number == 2 { Err(number) } else { Ok(number) }
            }
        });
        let result = call.when(move |_| failure).with_report().await;
        (
            result.map(|(value, report)| (value, report.elapsed)).map_err(|it| it.stop_reason()),
            calls,
        )
    };
    assert_eq!(run(None).await, (Err(StopReason::NotRetryable), 2));
    assert_eq!(run(Some(Failure::server().stop())).await, (Ok((1, ms(50))), 2));
}

#[tokio::test(start_paused = true)]
async fn hedging_elapsed_counts_from_the_first_poll() {
    let policy = hedged(ms(20), 2);
    // A failure starts the state machine at 5 ms; the next hedge fails 5 ms later.
    let failed = policy.retry(|| async {
        tokio::time::sleep(ms(5)).await;
        Err::<(), _>("busy")
    });
    assert_eq!(failed.when(|_| true).await.unwrap_err().elapsed(), ms(10));
    // The timer starts the state machine at 20 ms; the first attempt fails for good 10 ms later.
    let slow = policy.retry(|| async {
        tokio::time::sleep(ms(30)).await;
        Err::<(), _>("gone")
    });
    let error = slow.when(|_| false).await.unwrap_err();
    assert_eq!((error.elapsed(), error.attempts()), (ms(30), 2));
}

// The same with a sleeper that has only the required methods.
#[test]
fn hedging_elapsed_counts_from_first_poll_with_custom_sleeper() {
    let (policy, clock) = (hedged(ms(20), 2), ManualClock::default());
    clock.pass(s(1));
    let attempt = || {
        let sleep = clock.sleep(ms(5));
        async move {
            sleep.await;
            Err::<(), _>("gone")
        }
    };
    let call = policy.retry(attempt).when(|_| false).sleeping_on(clock.clone()).into_future();
    let mut call = std::pin::pin!(call);
    assert!(poll(call.as_mut()).is_pending());
    clock.pass(ms(7));
    let Poll::Ready(Err(error)) = poll(call.as_mut()) else { panic!("it has failed") };
    assert_eq!(error.elapsed(), ms(7));
}

/// Runs an operation that fails for good at its first poll; returns the number of runs, the attempts of
/// the report and the tokens.
fn run_final(call: impl FnOnce(&Hedged, &Cell<u32>) -> u32) -> (u32, u32, Option<f64>) {
    let policy = hedged(Duration::ZERO, 5);
    let ran = Cell::new(0);
    let attempts = call(&policy, &ran);
    (ran.get(), attempts, policy.tokens(0))
}

#[test]
fn hedging_does_not_pay_for_hedges_that_never_start() {
    let fails = |ran: &Cell<u32>| {
        ran.set(ran.get() + 1);
        Err::<(), _>(())
    };
    let plain = run_final(|policy, ran| {
        let call = policy.retry(|| async { fails(ran) }).when(|()| false);
        let mut call = Box::pin(call.sleeping_on(ManualClock::default()).into_future());
        let Poll::Ready(Err(error)) = poll(call.as_mut()) else { panic!("it fails at once") };
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
        error.attempts()
    });
    assert_eq!(plain, (1, 1, Some(10.0)));
    // The same with an event log, which needs the state machine from the start.
    let logged = run_final(|policy, ran| {
        let mut call_log = CallLog::new();
        let call = policy.retry(|| async { fails(ran) }).when(|()| false).call_log(&mut call_log);
        let mut call = Box::pin(call.sleeping_on(ManualClock::default()).into_future());
        let Poll::Ready(Err(error)) = poll(call.as_mut()) else { panic!("it fails at once") };
        drop(call);
        let started = call_log
            .events()
            .iter()
            .filter(|(_, event)| matches!(event, Event::AttemptStarted { .. }));
        assert_eq!(started.count(), 1);
        assert_eq!(call_log.replay(policy), Ok(()), "the outcome came before the next start");
        error.attempts()
    });
    assert_eq!(logged, (1, 1, Some(10.0)));
}

#[test]
fn hedging_gives_back_hedges_queued_behind_a_panic() {
    for logged in [false, true] {
        let (policy, mut calls) = (hedged(Duration::ZERO, 5), 0);
        let mut call_log = CallLog::new();
        let call = policy.retry(|| {
            calls += 1;
            assert!(calls < 3, "intended");
            std::future::pending::<Result<(), ()>>()
        });
        let call = call.when(|()| true).sleeping_on(ManualClock::default());
        let call = if logged { call.call_log(&mut call_log) } else { call };
        let mut call = Box::pin(call.into_future());
        let polled = catch_unwind(AssertUnwindSafe(|| poll(call.as_mut()).is_pending()));
        assert!(polled.is_err());
        drop(call);
        // The second and the third were started; the fourth and the fifth never.
        assert_eq!((calls, policy.tokens(0)), (3, Some(8.0)), "logged: {logged}");
        let started = call_log
            .events()
            .iter()
            .filter(|(_, event)| matches!(event, Event::AttemptStarted { .. }));
        assert_eq!(started.count(), if logged { 3 } else { 0 });
    }
}
