//! `notify`: the error and the delay of every retry, in every driver.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redial::strategy::{Decision, Request};
use redial::throttle::{Bucket, Cost, Grant, RetryBudget, Withdrawal};
use redial::time::Ns;
use redial::{Directive, Failure, Hedged, Policy, StopReason, Throttle, ms, s};

/// Three attempts with delays of 10 ms.
fn three() -> Policy {
    Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build()
}

/// Fails with its number.
fn numbered() -> impl FnMut() -> std::future::Ready<Result<(), u32>> {
    let mut number = 0;
    move || {
        number += 1;
        std::future::ready(Err(number))
    }
}

#[tokio::test(start_paused = true)]
async fn notify_gets_each_retried_error_and_its_delay() {
    let policy = three();
    let start = tokio::time::Instant::now();
    let mut seen = Vec::new();
    let call = policy.retry(numbered()).when(|_| true);
    let call = call.notify(|error, delay| seen.push((*error, delay, start.elapsed())));
    let error = call.await.expect_err("it fails");
    assert_eq!(error.into_last(), Some(3), "the last error is returned");
    // Called when the retry is decided, before the delay.
    assert_eq!(seen, [(1, ms(10), ms(0)), (2, ms(10), ms(10))]);
}

/// Without delays, with a deadline (which needs the state machine), and with an option.
#[tokio::test(start_paused = true)]
async fn notify_is_the_same_in_every_phase_of_a_call() {
    let none = Throttle::none();
    let deadline = Policy::constant(ms(10)).attempts(3).deadline(s(1)).throttle(none).build();
    let immediate = Policy::immediate().attempts(3).throttle(none).build();
    for (policy, delay) in [(&deadline, ms(10)), (&immediate, ms(0)), (&three(), ms(10))] {
        for with_option in [false, true] {
            let mut seen = Vec::new();
            let call = policy.retry(numbered()).when(|_| true);
            let call = call.notify(|error, delay| seen.push((*error, delay)));
            let call = if with_option { call.seed(1) } else { call };
            call.await.expect_err("it fails");
            assert_eq!(seen, [(1, delay), (2, delay)], "{policy:?}, {with_option}");
        }
    }
}

#[test]
fn notify_works_in_blocking_calls_with_and_without_options() {
    let policy = Policy::constant(ms(1)).attempts(3).throttle(Throttle::none()).build();
    for with_option in [false, true] {
        let (mut number, mut seen) = (0, Vec::new());
        let call = policy.retry(|| {
            number += 1;
            Err::<(), _>(number)
        });
        let call = call.when(|_| true).notify(|error, delay| seen.push((*error, delay)));
        let call = if with_option { call.seed(1) } else { call };
        call.call().expect_err("it fails");
        assert_eq!(seen, [(1, ms(1)), (2, ms(1))]);
    }
}

#[tokio::test(start_paused = true)]
async fn notify_works_in_borrowing_calls_with_and_without_until() {
    let policy = three();
    let seen = RefCell::new(Vec::new());
    let mut number = 0;
    let fails = async |number: &mut u32| {
        *number += 1;
        Err::<u32, _>(*number)
    };
    let notify = |error: &u32, delay: Duration| seen.borrow_mut().push((*error, delay));
    policy.retry_on(&mut number, fails).notify(notify).when(|_| true).await.expect_err("it fails");
    assert_eq!(seen.take(), [(1, ms(10)), (2, ms(10))]);

    let call = policy.retry_on(&mut number, fails).notify(notify).until(|_| false);
    call.notify(notify).when(|_| true).await.expect_err("it fails");
    assert_eq!(seen.take(), [(4, ms(10)), (4, ms(10)), (5, ms(10)), (5, ms(10))], "both hooks");
}

#[tokio::test(start_paused = true)]
async fn notify_of_a_hedged_call_has_no_delay() {
    static READ: Hedged = Policy::hedged(ms(50)).attempts(3).throttle(Throttle::none()).build();
    let mut seen = Vec::new();
    let call = READ.retry(numbered()).when(|_| true);
    let error = call.notify(|error, delay| seen.push((*error, delay))).await;
    assert_eq!(error.expect_err("it fails").into_last(), Some(3));
    assert_eq!(seen, [(1, ms(0)), (2, ms(0))]);
}

/// What `notify` sees of three attempts that fail after these times in ms, as does the call.
async fn hedged_notifications(
    policy: &Hedged,
    fail_after: [u64; 3],
    failure_of: impl Fn(&u32) -> Failure,
) -> (StopReason, Vec<(u32, Duration)>) {
    let (started, seen) = (Cell::new(0), RefCell::new(Vec::new()));
    let call = policy.retry(|| {
        started.update(|number| number + 1);
        let number = started.get();
        async move {
            tokio::time::sleep(ms(fail_after[number as usize - 1])).await;
            Err::<(), _>(number)
        }
    });
    let call = call.when(|number| Some(failure_of(number)));
    let call = call.notify(|error, delay| seen.borrow_mut().push((*error, delay)));
    let stop_reason = call.await.expect_err("it fails").stop_reason();
    (stop_reason, seen.into_inner())
}

#[tokio::test(start_paused = true)]
async fn notify_of_a_hedged_call_skips_errors_without_a_retry() {
    let failure = |_: &u32| Failure::server();
    // The second attempt fails while the first runs, and the budget has one token, for the hedge.
    let budget = || Arc::new(RetryBudget::new(1.0, 0.0));
    let hedged = Policy::hedged(ms(10)).attempts(3);
    let one = hedged.throttle(Throttle::none()).try_build().expect("valid");
    let seen = hedged_notifications(&one.clone().with_budget(budget()), [50, 5, 5], failure).await;
    assert_eq!(seen, (StopReason::Throttled, vec![]));
    // All three run when the first one fails.
    let seen = hedged_notifications(&one, [50, 50, 50], failure).await;
    assert_eq!(seen, (StopReason::AttemptsExhausted, vec![]));
    let seen = hedged_notifications(&one, [5, 50, 50], failure).await;
    assert_eq!(seen, (StopReason::AttemptsExhausted, vec![(1, ms(0))]));
}

#[tokio::test(start_paused = true)]
async fn notify_of_hedged_call_has_the_delay_of_pushback() {
    let hedged = Policy::hedged(ms(10)).attempts(3).throttle(Throttle::none());
    let pushback = |number: &u32| match number {
        1 => Failure::server().retry_after(ms(30)),
        _ => Failure::server(),
    };
    let policy = hedged.try_build().expect("valid");
    let seen = hedged_notifications(&policy, [5, 5, 5], pushback).await;
    assert_eq!(seen.1, [(1, ms(30)), (2, ms(0))]);
    // The second attempt fails while the call waits for the pushback.
    let seen = hedged_notifications(&policy, [15, 15, 5], pushback).await;
    assert_eq!(seen.1, [(1, ms(30)), (2, ms(20))]);
    // The deadline comes before the pushback is over.
    let policy = hedged.deadline(ms(40)).try_build().expect("valid");
    let seen = hedged_notifications(&policy, [15, 35, 5], pushback).await;
    assert_eq!(seen, (StopReason::Deadline, vec![]));
}

/// Grants or refuses after 20 ms.
struct Slow(Grant);
impl Bucket for Slow {
    fn withdraw(&self, _: Cost, _: Ns) -> Grant {
        Grant::Later
    }
    fn later(&self, _: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        let grant = self.0;
        Box::pin(async move {
            tokio::time::sleep(ms(20)).await;
            grant
        })
    }
    fn refund(&self, _: Withdrawal) {}
    fn succeeded(&self, _: Option<Withdrawal>) {}
    fn tokens(&self, _: Ns) -> Option<f64> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn notify_of_a_hedged_call_follows_a_later_grant() {
    for (grant, expected) in
        [(Grant::Now(Withdrawal(1)), vec![(1, ms(0))]), (Grant::Refused, vec![])]
    {
        let policy = Policy::hedged(ms(100)).attempts(2).try_build().expect("valid");
        let policy = policy.sharing(Arc::new(Slow(grant)));
        let failure = |_: &u32| Failure::server();
        let seen = hedged_notifications(&policy, [5, 5, 5], failure).await;
        assert_eq!(seen.1, expected, "{grant:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn notify_delay_includes_the_debt_of_a_later_grant() {
    let debt = Grant::After(30 * 1_000_000, Withdrawal(1));
    for (grant, expected) in [
        (Grant::Now(Withdrawal(1)), vec![(1, ms(10), ms(20))]),
        (debt, vec![(1, ms(40), ms(20))]),
        (Grant::Refused, vec![]),
    ] {
        let policy = Policy::constant(ms(10)).attempts(2).try_build().expect("valid");
        let policy = policy.sharing(Arc::new(Slow(grant)));
        let start = tokio::time::Instant::now();
        let mut seen = Vec::new();
        let call = policy.retry(numbered()).when(|_| true);
        let call = call.notify(|error, delay| seen.push((*error, delay, start.elapsed())));
        call.await.expect_err("it fails");
        assert_eq!(seen, expected, "{grant:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn notify_is_not_called_for_timeouts_and_rejected_values() {
    let policy = Policy::constant(ms(10)).attempt_timeout(ms(5)).retry_timeouts().attempts(4);
    let policy = policy.throttle(Throttle::none()).build();
    let number = AtomicU32::new(0);
    let operation = || {
        let number = number.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            match number {
                1 => Err("busy"),
                2 => std::future::pending().await,
                number => Ok(number),
            }
        }
    };
    let mut seen = Vec::new();
    let call = policy.retry(operation).when(|_| true).until(|number| *number == 4);
    let value = call.notify(|error, delay| seen.push((*error, delay))).await;
    assert_eq!(value.ok(), Some(4));
    assert_eq!(seen, [("busy", ms(10))]);
}

#[tokio::test(start_paused = true)]
async fn notify_follows_a_later_answer_of_the_strategy() {
    let policy = three();
    let start = tokio::time::Instant::now();
    let later = |request: &Request<'_>| {
        let again = request.retry_attempts() == 0;
        Decision::later(async move {
            tokio::time::sleep(ms(7)).await;
            again.then_some(ms(30))
        })
    };
    let mut seen = Vec::new();
    let call = policy.retry(numbered()).when(|_| true).strategy(later);
    let error = call.notify(|error, delay| seen.push((*error, delay, start.elapsed()))).await;
    assert_eq!(error.expect_err("it declines").stop_reason(), StopReason::StrategyDeclined);
    assert_eq!(seen, [(1, ms(30), ms(7))]);
}

#[tokio::test(start_paused = true)]
async fn notify_may_come_before_when() {
    let policy = three();
    let (first, second) = (Cell::new(0), Cell::new(0));
    let call = policy.retry(numbered()).notify(|_, _| first.update(|count| count + 1));
    let call = call.when(|_| true).notify(|_, _| second.update(|count| count + 1));
    call.await.expect_err("it fails");
    assert_eq!((first.get(), second.get()), (2, 2));
}

/// Values below 4 are retried, and so are errors.
#[tokio::test(start_paused = true)]
async fn notify_and_rules_may_come_in_any_order() {
    let policy = Policy::constant(ms(10)).attempts(5).throttle(Throttle::none()).build();
    let seen = RefCell::new(Vec::new());
    let notify = |error: &u32, _: Duration| seen.borrow_mut().push(*error);
    let ready = |value: &u32| *value == 4;
    let operation = || {
        let mut number = 0;
        move || {
            number += 1;
            std::future::ready(if u32::is_multiple_of(number, 2) {
                Ok(number)
            } else {
                Err(number)
            })
        }
    };
    let call = || policy.retry(operation());
    let by_result = |result: &Result<u32, u32>| {
        let is_ready = matches!(result, Ok(4));
        (!is_ready).then(|| Directive::Retry(Failure::server()))
    };
    for result in [
        call().notify(notify).until(ready).when(|_| true).await,
        call().notify(notify).when(|_| true).until(ready).await,
        call().until(ready).notify(notify).when(|_| true).await,
        call().when(|_| true).notify(notify).until(ready).await,
        call().notify(notify).record_errors().until(ready).when(|_| true).await,
        call().record_errors().when(|_| true).notify(notify).until(ready).await,
        call().notify(notify).classify(by_result).await,
        call().notify(notify).record_errors().classify(by_result).await,
    ] {
        assert_eq!(result.ok(), Some(4));
        assert_eq!(seen.borrow_mut().drain(..2).collect::<Vec<_>>(), [1, 3]);
    }
    assert!(seen.borrow().is_empty());

    let call = || {
        policy.retry_on(&mut *Box::leak(Box::new(0)), async |number: &mut u32| {
            *number += 1;
            if number.is_multiple_of(2) { Ok(*number) } else { Err(*number) }
        })
    };
    for result in [
        call().notify(notify).until(ready).when(|_| true).await,
        call().until(ready).record_errors().notify(notify).when(|_| true).await,
        call().notify(notify).record_errors().classify(by_result).await,
    ] {
        assert_eq!(result.ok(), Some(4));
        assert_eq!(seen.borrow_mut().drain(..2).collect::<Vec<_>>(), [1, 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn notify_call_can_be_spawned_with_a_boxed_error() {
    type Any = Box<dyn std::error::Error + Send + Sync>;
    static CALL: Policy = Policy::constant(ms(10)).attempts(2).build();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let task = tokio::spawn(async move {
        CALL.retry(|| async { Err::<(), Any>("busy".into()) })
            .when(|_| true)
            .notify(|error, delay| {
                log.lock().expect("not poisoned").push(format!("{error} {delay:?}"));
            })
            .await
            .is_err()
    });
    assert!(task.await.expect("no panic"));
    assert_eq!(*lines.lock().expect("not poisoned"), ["busy 10ms"]);
}

#[tokio::test(start_paused = true)]
async fn notify_panic_ends_the_call() {
    let policy = three();
    let attempts = AtomicU32::new(0);
    let operation = || {
        attempts.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err::<(), _>("busy"))
    };
    let call = policy.retry(operation).when(|_| true).notify(|_, _| panic!("of the hook"));
    let mut call = Box::pin(call.into_future());
    assert!(catch_poll(call.as_mut()).await.is_err());
    tokio::time::sleep(s(1)).await;
    drop(call);
    assert_eq!(attempts.into_inner(), 1);
}

/// Polls a future once and catches its panic.
async fn catch_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> std::thread::Result<()> {
    std::future::poll_fn(move |cx| {
        let poll = std::panic::AssertUnwindSafe(|| drop(future.as_mut().poll(cx)));
        std::task::Poll::Ready(std::panic::catch_unwind(poll))
    })
    .await
}
