//! The exact number of allocations per call. An allocator counts the allocations of this thread; the tests
//! poll the futures themselves, so that no executor allocates.
#![cfg(feature = "tokio")]
#![allow(unsafe_code)]

#[path = "common/allocation_count.rs"]
mod allocation_count;

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use allocation_count::allocations;
use redial::throttle::{CostBucket, CostBucketConfig};
use redial::time::Sleeper;
use redial::{
    Hedged, Policy, Report, Throttle, ms,
    rules::{ChargeAt, DeadlineAction, Rules},
    s,
    time::Ns,
};

/// A clock that advances by a millisecond with each read, so that every wait ends.
#[derive(Clone, Copy)]
struct Ticking<'a>(&'a Cell<Ns>);

struct Tick<'a>(Ticking<'a>, Ns);

impl<'a> Sleeper for Ticking<'a> {
    type Sleep = Tick<'a>;
    fn now(&self) -> Ns {
        self.0.set(self.0.get() + 1_000_000);
        self.0.get()
    }
    fn sleep_until(&self, at: Ns) -> Tick<'a> {
        Tick(*self, at)
    }
}

impl Future for Tick<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0.now() >= self.1 { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Polls until the future is ready.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

/// Is pending this many times before its result.
struct Pends(u32, Result<u32, ()>);

impl Future for Pends {
    type Output = Result<u32, ()>;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if self.0 == 0 {
            return Poll::Ready(self.1);
        }
        self.0 -= 1;
        Poll::Pending
    }
}

/// Each attempt is pending `pends` times; `fails` attempts fail before one succeeds.
fn operation(pends: u32, failures: u32) -> impl FnMut() -> Pends {
    let mut calls = 0;
    move || {
        calls += 1;
        Pends(pends, if calls > failures { Ok(calls) } else { Err(()) })
    }
}

static PLAIN: Policy = Policy::constant(ms(5)).throttle(Throttle::none()).build();
static LIMITED: Policy = Policy::constant(ms(5)).throttle(Throttle::none()).deadline(s(5)).build();

/// Runs the call on its own clock and counts its allocations.
fn count(policy: &Policy, pends: u32, failures: u32) -> u64 {
    let clock = Cell::new(0);
    allocations(|| {
        let call = policy.retry(operation(pends, failures)).when(|()| true);
        let value = finish(call.sleeping_on(Ticking(&clock)).into_future());
        assert_eq!(value.ok(), Some(failures + 1));
    })
}

#[test]
fn allocation_one_box_for_delays_without_call_options() {
    // The generator of this thread is seeded at the first use.
    count(&PLAIN, 0, 1);
    for (pends, failures, boxes) in [(0, 0, 0), (3, 0, 0), (0, 2, 1), (3, 2, 1)] {
        assert_eq!(count(&PLAIN, pends, failures), boxes, "{pends} pends, {failures} failures");
    }
    static AT_ONCE: Policy = Policy::immediate().throttle(Throttle::none()).build();
    assert_eq!(count(&AT_ONCE, 3, 2), 0, "no delay, no box");
    let value = allocations(|| {
        assert_eq!(
            finish(redial::retry(operation(0, 0)).when(|()| true).into_future()).ok(),
            Some(1)
        );
    });
    assert_eq!(value, 0, "the shortest form");
}

#[test]
fn allocation_free_notify() {
    static AT_ONCE: Policy = Policy::immediate().throttle(Throttle::none()).build();
    let mut notified = 0;
    let count = allocations(|| {
        let call = AT_ONCE.retry(operation(1, 2)).when(|()| true).notify(|(), _| notified += 1);
        assert_eq!(finish(call.into_future()).ok(), Some(3));
    });
    assert_eq!((count, notified), (0, 2));
}

/// The list of attempts doubles its capacity up to its limit; nothing is allocated for each attempt, and nothing
/// is copied for each attempt.
#[test]
fn allocation_history_is_bounded_with_100_000_attempts() {
    let count = |attempts: u32| {
        let policy = Policy::immediate().attempts(attempts).throttle(Throttle::none());
        let policy = policy.try_build().expect("valid");
        allocations(|| {
            let call = policy.retry(operation(0, u32::MAX)).when(|()| true).history();
            let error = finish(call.into_future()).expect_err("it always fails");
            let history = &error.report().history;
            assert_eq!(
                (history.len(), history.last().unwrap().attempt),
                ((attempts as usize).min(Report::HISTORY_MAX), attempts)
            );
        })
    };
    let limit = u32::try_from(Report::HISTORY_MAX).expect("small");
    let (few, many) = (count(limit), count(100_000));
    assert_eq!(few, many, "allocations for {limit} attempts, and for 100,000");
}

#[test]
fn allocation_free_success_with_a_cost_bucket() {
    let rules = Rules {
        charge_at: ChargeAt::AfterBackoff,
        deadline_action: DeadlineAction::WaitForDeadline,
        ..Rules::DEFAULT
    };
    let policy = Policy::from_rules(rules).throttle(Throttle::none()).build();
    let costs = CostBucket::new(CostBucketConfig::STANDARD).expect("valid");
    let policy = policy.sharing(Arc::new(costs));
    assert_eq!(count(&policy, 0, 0), 0);
    assert_eq!(count(&policy, 3, 0), 0);
}

#[test]
fn allocation_one_box_for_a_pending_call_with_deadline() {
    assert_eq!(count(&LIMITED, 0, 0), 0);
    assert_eq!(count(&LIMITED, 1, 0), 1, "the timer");
    assert_eq!(count(&LIMITED, 9, 0), 1, "the same, however often it pends");
    assert_eq!(count(&LIMITED, 9, 2), 1 + 1, "the machine; retries and their timers need no other");
    assert_eq!(count(&LIMITED, 0, 2), 1, "the machine has its own timer");
}

#[test]
fn allocation_one_box_per_hedge_and_a_list_of_slots() {
    let policy: Hedged = Policy::hedged(ms(5)).attempts(3).try_build().expect("valid");
    let race = |pends: u32| {
        let clock = Cell::new(0);
        let mut calls = 0;
        let made = allocations(|| {
            let operation = || {
                calls += 1;
                Pends(pends, Ok(calls))
            };
            let call = policy.retry(operation).when(|()| true).sleeping_on(Ticking(&clock));
            assert!(finish(call.into_future()).is_ok());
        });
        (calls, made)
    };
    assert_eq!(race(0), (1, 0));
    assert_eq!(race(2), (1, 1), "the timer");
    let (calls, made) = race(1000);
    assert_eq!(
        (calls, made),
        (3, 2 + 2 + 1),
        "timer and machine, two hedges, and the list of slots"
    );
}

#[test]
fn allocation_one_box_per_error() {
    let failed = allocations(|| {
        let call = PLAIN.retry(operation(0, 9)).when(|()| false);
        assert!(finish(call.sleeping_on(Ticking(&Cell::new(0))).into_future()).is_err());
    });
    assert_eq!(failed, 1);
}

#[test]
fn allocation_free_blocking_call_unless_it_fails() {
    static QUICK: Policy = Policy::immediate().throttle(Throttle::none()).build();
    let blocking = |policy: &Policy| {
        allocations(|| {
            assert_eq!(policy.retry(|| Ok::<_, ()>(7)).when(|()| true).call().ok(), Some(7));
        })
    };
    assert_eq!((blocking(&QUICK), blocking(&LIMITED)), (0, 0));
    let failing = allocations(|| {
        let mut calls = 0;
        let operation = || {
            calls += 1;
            if calls < 3 { Err(()) } else { Ok(calls) }
        };
        assert_eq!(QUICK.retry(operation).when(|()| true).call().ok(), Some(3));
    });
    assert_eq!(failing, 1, "what would wake the thread");
}

#[cfg(all(feature = "tower", feature = "tokio"))]
#[test]
fn allocation_tower_success_has_none() {
    use tower::{Layer, Service, service_fn};

    static GET: Policy = Policy::exponential(ms(100)).build();
    static READ: Hedged = Policy::hedged(ms(100)).build();

    fn allocations_of(mut service: impl Service<u32, Response = u32>) -> u64 {
        let mut count = || {
            allocations(|| {
                let mut call = pin!(service.call(7));
                let poll = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(poll, Poll::Ready(Ok(7))));
            })
        };
        // The first success claims the budget of the call site.
        count();
        count()
    }

    let service = service_fn(|request: u32| std::future::ready(Ok::<_, ()>(request)));
    let layer = redial::tower::RetryLayer::new(&GET).when(|(): &()| true);
    assert_eq!(allocations_of(layer.layer(service)), 0);
    let layer = redial::tower::RetryLayer::new(GET.clone()).when(|(): &()| true);
    assert_eq!(allocations_of(layer.layer(service)), 0);
    let layer = redial::tower::RetryLayer::new(&READ).when(|(): &()| true);
    assert_eq!(allocations_of(layer.layer(service)), 0);
}
