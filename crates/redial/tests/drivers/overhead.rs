//! Overhead and fairness: no timer without a delay, no clock read without need, other tasks get their turn,
//! and the size of the future is fixed.

use std::cell::Cell;
use std::future::Ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use redial::throttle::RetryBudget;
use redial::time::Sleeper;
use redial::{Policy, StopReason, Throttle, ms, s, time::Ns};

use crate::manual_clock::{ManualClock, poll};

/// A clock that must not be read, with a timer that must not be armed.
#[derive(Clone, Copy)]
struct Untouchable;

impl Sleeper for Untouchable {
    type Sleep = std::future::Pending<()>;
    fn now(&self) -> Ns {
        panic!("the clock was read")
    }
    fn sleep_until(&self, _: Ns) -> Self::Sleep {
        panic!("a timer was touched")
    }
}

/// A clock that counts its reads, with a timer that must not be armed.
struct Timerless<'a>(&'a Cell<u32>);

impl Sleeper for Timerless<'_> {
    type Sleep = std::future::Pending<()>;
    fn now(&self) -> Ns {
        self.0.set(self.0.get() + 1);
        Ns::from(self.0.get())
    }
    fn sleep_until(&self, _: Ns) -> Self::Sleep {
        panic!("a timer was touched")
    }
}

/// Fails this many times, then succeeds.
fn failing(times: u32) -> impl FnMut() -> Ready<Result<u32, u32>> {
    let mut calls = 0;
    move || {
        calls += 1;
        std::future::ready(if calls <= times { Err(calls) } else { Ok(calls) })
    }
}

#[tokio::test]
async fn overhead_immediate_success_reads_no_clock() {
    static DEFAULT: Policy = Policy::exponential(ms(100)).build();
    static TIMED: Policy = Policy::constant(ms(100)).attempt_timeout(s(1)).build();
    let value = redial::retry(failing(0)).when(|_| true).sleeping_on(Untouchable).await;
    assert_eq!(value.ok(), Some(1));
    for policy in [&DEFAULT, &TIMED] {
        let value = policy.retry(failing(0)).when(|_| true).sleeping_on(Untouchable).await;
        assert_eq!(value.ok(), Some(1), "{policy:?}");
    }
}

#[tokio::test]
async fn overhead_immediate_retries_read_the_clock_once() {
    static BUDGET: RetryBudget = RetryBudget::new(10.0, 0.1);
    static AT_ONCE: Policy =
        Policy::immediate().attempts(5).throttle(Throttle::budget(&BUDGET)).build();
    let reads = Cell::new(0);
    let call = AT_ONCE.retry(failing(4)).when(|_| true).sleeping_on(Timerless(&reads));
    // At the first failure: an error would state the time since then.
    assert_eq!((call.await.ok(), reads.get()), (Some(5), 1));
}

#[tokio::test]
async fn overhead_budget_refill_reads_the_clock_once_per_failure() {
    static AT_ONCE: Policy = Policy::immediate().attempts(5).build();
    let reads = Cell::new(0);
    let call = AT_ONCE.retry(failing(4)).when(|_| true).sleeping_on(Timerless(&reads));
    // For the start at the first failure, and for each of four withdrawals.
    assert_eq!((call.await.ok(), reads.get()), (Some(5), 5));
}

#[tokio::test]
async fn overhead_zero_delay_arms_no_timer() {
    let free = || Policy::immediate().attempts(100).throttle(Throttle::none());
    let policies = [free(), free().deadline(s(1)), free().attempt_timeout(s(1))];
    for policy in policies.map(|builder| builder.try_build().expect("valid")) {
        let reads = Cell::new(0);
        let call = policy.retry(failing(99)).when(|_| true).sleeping_on(Timerless(&reads));
        assert_eq!(call.await.ok(), Some(100), "{policy:?}");
        let call = policy.retry(failing(99)).when(|_| true).sleeping_on(Timerless(&reads));
        assert_eq!(call.history().await.ok(), Some(100), "with the machine, {policy:?}");
        let mut calls = 0;
        let call = policy.retry_on(&mut calls, async |calls| {
            *calls += 1;
            if *calls < 100 { Err(()) } else { Ok(*calls) }
        });
        let value = call.sleeping_on(Timerless(&reads)).when(|()| true).await;
        assert_eq!(value.ok(), Some(100), "borrowing, {policy:?}");
    }
}

#[tokio::test]
async fn overhead_deadline_reads_the_clock_once_on_success() {
    static IN_TIME: Policy = Policy::constant(ms(1)).deadline(s(1)).build();
    let reads = Cell::new(0);
    let call = IN_TIME.retry(failing(0)).when(|_| true).sleeping_on(Timerless(&reads));
    assert_eq!((call.await.ok(), reads.get()), (Some(1), 1));
}

#[test]
fn report_elapsed_counts_from_the_first_poll() {
    static LATER: Policy = Policy::constant(ms(30)).attempts(2).build();
    let clock = ManualClock::default();
    let mut call = Box::pin(
        LATER
            .retry(|| async {
                clock.sleep(ms(20)).await;
                Err::<(), _>(())
            })
            .when(|()| true)
            .sleeping_on(clock.clone())
            .into_future(),
    );
    clock.pass(s(5));
    let error = loop {
        match poll(call.as_mut()) {
            Poll::Ready(result) => break result.expect_err("it fails twice"),
            Poll::Pending => clock.pass(ms(10)),
        }
    };
    assert_eq!(error.elapsed(), ms(20 + 30 + 20), "the time before the first poll is not its own");
}

/// An operation may block or compute inside of one poll, without being pending in between.
#[test]
fn report_elapsed_includes_time_inside_polls() {
    let clock = ManualClock::default();
    let fails = || async {
        clock.pass(ms(100));
        Err::<(), _>("busy")
    };
    let policy = || Policy::immediate().attempts(3).throttle(Throttle::none());
    let (plain, deadline) = (policy().try_build(), policy().deadline(s(10)).try_build());
    let (plain, deadline) = (plain.expect("valid"), deadline.expect("valid"));
    let any = |_: &&str| true;
    let unknown = plain.retry(fails).when(any).sleeping_on(clock.clone());
    let timed = deadline.retry(fails).when(any).sleeping_on(clock.clone());
    let recorded = plain.retry(fails).when(any).history().sleeping_on(clock.clone());
    // The fast path reads no clock, so the start of the first call is not known before its first failure.
    let calls = [
        (unknown.into_future(), ms(200), "at least 200 ms"),
        (timed.into_future(), ms(300), "300 ms"),
        (recorded.into_future(), ms(300), "300 ms"),
    ];
    for (call, elapsed, text) in calls {
        let Poll::Ready(Err(error)) = poll(Box::pin(call).as_mut()) else { panic!("it fails") };
        assert_eq!((error.elapsed(), error.report().elapsed_exact), (elapsed, elapsed == ms(300)));
        assert_eq!(
            error.to_string(),
            format!("busy (3 attempts in {text}; gave up: no attempt left)")
        );
    }
}

#[test]
fn overhead_attempt_is_polled_once_per_poll() {
    let plain = || Policy::constant(ms(30)).throttle(Throttle::none());
    let policies = [plain(), plain().deadline(s(1)), plain().attempt_timeout(s(1))];
    let hedged = Policy::hedged(s(1)).attempts(3).try_build().expect("valid");
    let (clock, polls) = (ManualClock::default(), Cell::new(0));
    let count = &polls;
    let attempt = || {
        let mut slept = Box::pin(clock.sleep(ms(20)));
        std::future::poll_fn(move |_| {
            count.set(count.get() + 1);
            poll(slept.as_mut()).map(Ok::<(), ()>)
        })
    };
    let play = |mut call: Pin<Box<dyn Future<Output = bool> + '_>>| {
        for polled in 1..=5 {
            assert_eq!(poll(call.as_mut()), Poll::Pending);
            assert_eq!(polls.get(), polled);
            clock.pass(ms(1));
        }
        clock.pass(ms(20));
        assert_eq!(poll(call.as_mut()), Poll::Ready(true));
        assert_eq!(polls.replace(0), 6);
    };
    for policy in policies.map(|builder| builder.try_build().expect("valid")) {
        let call = policy.retry(attempt).when(|()| true).sleeping_on(clock.clone());
        play(Box::pin(async { call.await.is_ok() }));
    }
    let call = hedged.retry(attempt).when(|()| true).sleeping_on(clock.clone());
    play(Box::pin(async { call.await.is_ok() }));
}

#[test]
fn fairness_elapsed_sleeps_yield_to_other_tasks() {
    #[derive(Clone, Copy)]
    struct Never;
    impl Sleeper for Never {
        type Sleep = Ready<()>;
        fn now(&self) -> Ns {
            0
        }
        fn sleep_until(&self, _: Ns) -> Self::Sleep {
            std::future::ready(())
        }
    }
    let policy = Policy::constant(ms(1)).attempts(100).throttle(Throttle::none());
    let policy = policy.try_build().expect("valid");
    let call = policy.retry(failing(99)).when(|_| true).sleeping_on(Never);
    let mut call = Box::pin(call.into_future());
    let turns = (1..).find(|_| poll(call.as_mut()).is_ready());
    assert_eq!(turns, Some(4), "after 32, 64 and 96 attempts it was others' turn");
}

/// One thread, and a call in each driver that sleeps for an hour of virtual time before its retry. All
/// other calls, which also sleep, complete meanwhile.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fairness_waiting_retry_does_not_affect_other_calls() {
    const HOUR: Duration = s(3600);
    let waits = || Policy::constant(HOUR).throttle(Throttle::none());
    let plain = waits().attempts(2).try_build().expect("valid");
    let machine = waits().attempts(2).deadline(HOUR * 2).try_build().expect("valid");
    let hedged = Policy::hedged(HOUR).attempts(2).try_build().expect("valid");
    let began = tokio::time::Instant::now();

    // Each starts a second attempt after an hour, which succeeds.
    let tries = |failing: bool| {
        let mut attempts = 0;
        move || {
            attempts += 1;
            let first = attempts == 1;
            async move {
                match first {
                    true if failing => Err(()),
                    true => std::future::pending().await,
                    false => Ok(()),
                }
            }
        }
    };
    let lends = plain.clone();
    let waiting = [
        tokio::spawn(async move { plain.retry(tries(true)).when(|()| true).await.is_ok() }),
        tokio::spawn(async move { machine.retry(tries(true)).when(|()| true).await.is_ok() }),
        tokio::spawn(async move { hedged.retry(tries(false)).when(|()| true).await.is_ok() }),
        tokio::spawn(async move {
            let mut target = tries(true);
            lends.retry_on(&mut target, async |it| it().await).when(|()| true).await.is_ok()
        }),
    ];

    let others = (0..100).map(|_| {
        tokio::spawn(async {
            let policy = Policy::constant(ms(10)).throttle(Throttle::none());
            let policy = policy.attempts(3).try_build().expect("valid");
            policy.retry(failing(2)).when(|_| true).await.is_ok()
        })
    });
    for other in others.collect::<Vec<_>>() {
        assert!(other.await.expect("no panic"));
    }
    let took = began.elapsed();
    assert!(took < s(1), "others waited for {took:?}");
    assert!(waiting.iter().all(|call| !call.is_finished()), "they wait for an hour");
    for call in waiting {
        assert!(call.await.expect("no panic"));
    }
    assert!(began.elapsed() >= HOUR);
}

/// Two tasks on one thread: one retries without a delay until the other stops it. If it did not yield, it
/// would run out of attempts.
#[tokio::test(flavor = "current_thread")]
async fn fairness_immediate_retries_yield_to_other_tasks() {
    let free = || Policy::immediate().attempts(1_000_000).throttle(Throttle::none());
    let policies =
        [free(), free().deadline(s(3600))].map(|builder| builder.try_build().expect("valid"));
    for policy in policies {
        for borrowing in [false, true] {
            let stop = Arc::new(AtomicBool::new(false));
            let other = stop.clone();
            let (calls, policy) = (Arc::new(AtomicU32::new(0)), policy.clone());
            let (counted, stopped) = (calls.clone(), stop.clone());
            let operation = move || {
                counted.fetch_add(1, Ordering::Relaxed);
                if stopped.load(Ordering::Relaxed) { Ok(()) } else { Err(()) }
            };
            let looping = tokio::spawn(async move {
                if borrowing {
                    let mut target = operation;
                    policy.retry_on(&mut target, async |it| it()).when(|()| true).await
                } else {
                    policy.retry(|| std::future::ready(operation())).when(|()| true).await
                }
            });
            let stopping = tokio::spawn(async move {
                let mut turns = 0;
                std::future::poll_fn(|cx| {
                    turns += 1;
                    cx.waker().wake_by_ref();
                    if turns == 3 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                other.store(true, Ordering::Relaxed);
            });
            stopping.await.expect("no panic");
            assert!(looping.await.expect("no panic").is_ok(), "it never let the other run");
            let calls = calls.load(Ordering::Relaxed);
            assert!((32..1000).contains(&calls), "{calls} calls before the other had three turns");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_loop_of_immediate_retries() {
    // Virtual time advances only while the operation waits, so the loop must yield.
    let policy = Policy::immediate().unlimited().deadline(ms(50)).throttle(Throttle::none());
    let policy = policy.try_build().expect("valid");
    let mut calls = 0_u32;
    let call = policy.retry(|| {
        calls += 1;
        let waits = calls.is_multiple_of(100);
        async move {
            if waits {
                tokio::time::sleep(ms(10)).await;
            }
            Err::<(), _>(())
        }
    });
    let error = call.when(|()| true).await.expect_err("it never succeeds");
    assert_eq!((error.stop_reason(), error.elapsed(), calls), (StopReason::Deadline, ms(50), 500));
}

#[test]
fn overhead_future_is_64_bytes_larger_than_its_operation() {
    /// The size of a small future.
    struct Op([u64; 8]);
    impl Future for Op {
        type Output = Result<u64, ()>;
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Ready(Ok(self.0[0]))
        }
    }
    static PLAIN: Policy = Policy::exponential(ms(1)).build();
    let (a, b) = (3_u64, 4_u64);
    let mut future = Box::pin(PLAIN.retry(|| Op([a + b; 8])).when(|()| true).into_future());
    // The phase of the call 16, the policy 8, the closure 16, whether an attempt runs 8, and the last
    // result 16.
    assert_eq!(size_of_val(&*future), size_of::<Op>() + 16 + 8 + 16 + 8 + 16);
    assert!(matches!(poll(future.as_mut()), Poll::Ready(Ok(7))));
}
