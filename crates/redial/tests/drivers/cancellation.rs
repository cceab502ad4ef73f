//! Cancellation: dropping the future drops all attempts, in every state, and refunds a retry that has not
//! started (decisions P6, S4).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use redial::throttle::{Bucket, Cost, Grant, RetryBudget, Withdrawal};
use redial::{
    Builder, CallLog, Event, Hedged, Jitter, Policy, StopReason, ms,
    rules::DeadlineAction,
    s,
    strategy::{Decision, Request},
    time::Ns,
};

use crate::manual_clock::{Count, ManualClock, poll};

type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Each attempt takes 10 ms and fails; each delay is 10 ms.
fn ten(builder: Builder<Policy>) -> Policy {
    let policy = builder.jitter(Jitter::None).attempts(9).try_build().expect("valid");
    // Without a refill, so that tokens are whole.
    policy.with_budget(Arc::new(RetryBudget::new(10.0, 0.1)))
}

async fn attempt(clock: &ManualClock, count: &Count) -> Result<(), ()> {
    let _owned = count.one();
    clock.sleep(ms(10)).await;
    Err(())
}

/// Starts a call with one of the drivers.
type Driver = for<'a> fn(&'a Policy, &'a ManualClock, &'a Count) -> Running<'a>;

const DRIVERS: [(&str, Driver); 4] = [
    ("async", |policy, clock, count| {
        let call = policy.retry(move || attempt(clock, count)).when(|()| true);
        let call = call.sleeping_on(clock.clone());
        Box::pin(async { call.await.expect_err("it fails for ever").into_last().unwrap_or(()) })
    }),
    ("with a history", |policy, clock, count| {
        let call = policy.retry(move || attempt(clock, count)).when(|()| true);
        let call = call.sleeping_on(clock.clone()).history();
        Box::pin(async { call.await.expect_err("it fails for ever").into_last().unwrap_or(()) })
    }),
    ("seeing", |policy, clock, count| {
        let call = policy.retry_with(move |_| attempt(clock, count)).when(|()| true);
        let call = call.sleeping_on(clock.clone());
        Box::pin(async { call.await.expect_err("it fails for ever").into_last().unwrap_or(()) })
    }),
    ("borrowing", |policy, clock, count| {
        Box::pin(async move {
            let mut target = count;
            let call = policy.retry_on(&mut target, async |count| attempt(clock, count).await);
            let result = call.sleeping_on(clock.clone()).when(|()| true).await;
            result.expect_err("it fails for ever").into_last().unwrap_or(());
        })
    }),
];

#[test]
fn cancellation_in_every_state_leaks_nothing_and_refunds() {
    let policies: [fn() -> Policy; 3] = [
        || ten(Policy::constant(ms(10))),
        || {
            ten(Policy::constant(ms(10))
                .deadline(s(1))
                .deadline_action(DeadlineAction::WaitForDeadline))
        },
        || ten(Policy::constant(ms(10)).attempt_timeout(ms(500))),
    ];
    // The time of the drop; attempts made, attempts alive and tokens before it; tokens after it.
    let states = [
        (0, (0, 0, 10.0), 10.0),
        (5, (1, 1, 10.0), 10.0),
        (15, (1, 0, 9.0), 10.0),
        (25, (2, 1, 9.0), 9.0),
        (35, (2, 0, 8.0), 9.0),
        (45, (3, 1, 8.0), 8.0),
    ];
    for ((name, driver), new_policy) in
        DRIVERS.into_iter().flat_map(|driver| policies.map(|policy| (driver, policy)))
    {
        for (dropped_at, before, after) in states {
            let (policy, clock, count) = (new_policy(), ManualClock::default(), Count::default());
            let tokens = || policy.tokens(0).expect("a budget");
            let mut call = driver(&policy, &clock, &count);
            // Polled every 5 ms.
            for moment in (0..=dropped_at).step_by(5).filter(|_| dropped_at > 0) {
                if moment > 0 {
                    clock.pass(ms(5));
                }
                // After a timer fires, the call yields once before it acts on it: poll more than once.
                for _ in 0..3 {
                    assert_eq!(poll(call.as_mut()), Poll::Pending);
                }
            }
            let what = format!("{name}, {dropped_at} ms, {policy:?}");
            assert_eq!((count.made(), count.alive(), tokens()), before, "{what}");
            drop(call);
            assert_eq!((count.alive(), tokens()), (0, after), "{what}");
        }
    }
}

#[test]
fn cancellation_after_the_end_refunds_nothing() {
    for (name, driver) in DRIVERS {
        let policy = Policy::constant(ms(10)).attempts(2).try_build();
        let policy = policy.expect("valid");
        let (clock, count) = (ManualClock::default(), Count::default());
        let mut call = driver(&policy, &clock, &count);
        while poll(call.as_mut()).is_pending() {
            clock.pass(ms(5));
        }
        assert_eq!((count.made(), count.alive(), policy.tokens(0)), (2, 0, Some(9.0)), "{name}");
        drop(call);
        assert_eq!(policy.tokens(0), Some(9.0), "{name}: the retry was used");
    }
}

#[test]
fn cancellation_of_a_hedged_call_drops_all_attempts() {
    let hedged: Hedged =
        Policy::hedged(ms(10)).attempts(4).deadline(s(1)).try_build().expect("valid");
    let (clock, count) = (ManualClock::default(), Count::default());
    let mut call = Box::pin(
        hedged
            .retry(|| async {
                let _owned = count.one();
                clock.sleep(s(9)).await;
                Ok::<_, ()>(())
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
        clock.pass(ms(10));
    }
    drop(call);
    assert_eq!((count.made(), count.alive()), (3, 0));
    // Two hedges, and the refill of 10 ms between them.
    assert_eq!(hedged.tokens(0), Some(8.01));
}

#[test]
fn cancellation_drops_a_pending_strategy() {
    let alive = Arc::new(());
    let policy = ten(Policy::constant(ms(10)).deadline(s(9)));
    let clock = ManualClock::default();
    let mut call_log = CallLog::new();
    let seen = alive.clone();
    let mut call = Box::pin(
        policy
            .retry(|| async { Err::<(), _>(()) })
            .when(|()| true)
            .strategy(move |_: &Request<'_>| {
                let owned = seen.clone();
                Decision::later(async move {
                    let _owned = owned;
                    std::future::pending::<Decision>().await
                })
            })
            .call_log(&mut call_log)
            .sleeping_on(clock.clone())
            .into_future(),
    );
    assert!(poll(call.as_mut()).is_pending());
    assert_eq!(Arc::strong_count(&alive), 3, "the strategy and its answer");
    drop(call);
    assert_eq!((Arc::strong_count(&alive), policy.tokens(0)), (1, Some(10.0)));
    assert!(matches!(
        call_log.events().last(),
        Some((_, Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }))
    ));
}

/// A user-defined throttle that answers on demand.
#[derive(Default)]
struct Slow {
    held: Arc<AtomicI64>,
    open: Arc<AtomicI64>,
}

impl Bucket for Slow {
    fn withdraw(&self, _: Cost, _: Ns) -> Grant {
        Grant::Later
    }
    fn later(&self, _: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        let (held, open) = (self.held.clone(), self.open.clone());
        Box::pin(std::future::poll_fn(move |_| {
            if open.load(Ordering::Relaxed) == 0 {
                return Poll::Pending;
            }
            held.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Grant::Now(Withdrawal(1)))
        }))
    }
    fn refund(&self, taken: Withdrawal) {
        self.held.fetch_sub(taken.0.cast_signed(), Ordering::Relaxed);
    }
    fn succeeded(&self, _: Option<Withdrawal>) {}
    fn tokens(&self, _: Ns) -> Option<f64> {
        None
    }
}

#[test]
fn cancellation_refunds_a_late_grant() {
    // Dropped before the throttle answers, during the backoff, and after the retry has started.
    for (answers, passes, held) in [(0, 0, 0), (1, 0, 0), (1, 10, 1)] {
        let slow = Arc::new(Slow::default());
        let policy = ten(Policy::constant(ms(10))).sharing(slow.clone());
        let (clock, count) = (ManualClock::default(), Count::default());
        let mut call = DRIVERS[0].1(&policy, &clock, &count);
        assert!(poll(call.as_mut()).is_pending());
        clock.pass(ms(10));
        assert!(poll(call.as_mut()).is_pending());
        assert_eq!((count.alive(), slow.held.load(Ordering::Relaxed)), (0, 0));
        slow.open.store(answers, Ordering::Relaxed);
        assert!(poll(call.as_mut()).is_pending());
        assert_eq!(slow.held.load(Ordering::Relaxed), answers);
        clock.pass(ms(passes));
        assert!(poll(call.as_mut()).is_pending());
        drop(call);
        let what = format!("{answers} answers, {passes} ms");
        assert_eq!((count.alive(), slow.held.load(Ordering::Relaxed)), (0, held), "{what}");
    }
}
