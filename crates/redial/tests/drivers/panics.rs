//! Panics in user code: each value that the call owns is dropped exactly once, a retry that has not started
//! is refunded, and polling after completion panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use redial::call_log::EventContext;
use redial::time::Sleeper;
use redial::{Event, Hedged, Jitter, Policy, ms, s, time::Ns};

use crate::manual_clock::{Count, Counted, ManualClock, poll};

fn ten() -> Policy {
    Policy::constant(ms(10)).attempts(3).try_build().expect("valid")
}

/// The message of the panic.
fn panics<T>(run: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else { panic!("it did not panic") };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().map_or(String::new(), |text| text.to_string()),
    }
}

#[test]
fn polling_after_completion_panics() {
    let (policy, clock) = (ten(), ManualClock::default());
    let plain = policy.retry(|| async { Ok::<_, ()>(()) }).when(|()| true);
    let mut plain = Box::pin(plain.sleeping_on(clock.clone()).into_future());
    assert!(poll(plain.as_mut()).is_ready());
    assert_eq!(panics(|| poll(plain.as_mut())), "polled after completion");

    let machine = policy.retry(|| async { Ok::<_, ()>(()) }).when(|()| true).deadline(s(1));
    let mut machine = Box::pin(machine.sleeping_on(clock.clone()).into_future());
    assert!(poll(machine.as_mut()).is_ready());
    assert_eq!(panics(|| poll(machine.as_mut())), "polled after completion");

    let timed = Policy::constant(ms(1)).deadline(s(1)).try_build().expect("valid");
    let late = || async {
        clock.sleep(ms(1)).await;
        Ok::<_, ()>(())
    };
    let waits = timed.retry(late).when(|()| true);
    let mut waits = Box::pin(waits.sleeping_on(clock.clone()).into_future());
    assert!(poll(waits.as_mut()).is_pending());
    clock.pass(ms(1));
    assert!(poll(waits.as_mut()).is_ready());
    assert_eq!(panics(|| poll(waits.as_mut())), "polled after completion");

    let failed = policy.retry(|| async { Err::<(), _>(()) }).when(|()| false);
    let mut failed = Box::pin(failed.sleeping_on(clock.clone()).into_future());
    assert!(poll(failed.as_mut()).is_ready());
    assert_eq!(panics(|| poll(failed.as_mut())), "polled after completion");
}

/// Where the operation panics.
#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    /// When it is called for this attempt.
    Call(usize),
    /// When this attempt is polled.
    Poll(usize),
    /// When this attempt's result is classified.
    Classifier(usize),
}

#[test]
fn panic_in_operation_leaves_the_call_droppable() {
    for at in [1, 2].into_iter().flat_map(|n| [At::Call(n), At::Poll(n), At::Classifier(n)]) {
        for machine in [false, true] {
            let (policy, clock, count) = (ten(), ManualClock::default(), Count::default());
            let owned = count.one();
            let mut calls = 0;
            let classified = Cell::new(0);
            let call = policy
                .retry(|| {
                    calls += 1;
                    let (number, _owned) = (calls, &owned);
                    assert!(at != At::Call(number), "intended");
                    let (owned, clock, count) = (count.one(), clock.clone(), count.clone());
                    async move {
                        let _owned = owned;
                        assert!(at != At::Poll(number), "intended");
                        clock.sleep(ms(10)).await;
                        Err::<(), _>(count.one())
                    }
                })
                .when(|_: &Counted| {
                    classified.set(classified.get() + 1);
                    assert!(at != At::Classifier(classified.get()), "intended");
                    true
                })
                .sleeping_on(clock.clone());
            let call = if machine { call.deadline(s(1)) } else { call };
            let mut call = Box::pin(call.into_future());
            let text = panics(|| {
                while poll(call.as_mut()).is_pending() {
                    clock.pass(ms(5));
                }
            });
            assert_eq!(text, "intended", "{at:?}, machine: {machine}");
            drop(call);
            drop(owned);
            assert_eq!(count.alive(), 0, "{at:?}, machine: {machine}");
            let used =
                if matches!(at, At::Call(1) | At::Poll(1) | At::Classifier(1)) { 10. } else { 9. };
            assert_eq!(policy.tokens(0), Some(used), "{at:?}, machine: {machine}");
        }
    }
}

/// An attempt whose destructor panics on demand.
struct Explosive {
    _owned: Counted,
    explodes: bool,
    sleep: <ManualClock as Sleeper>::Sleep,
}

impl Future for Explosive {
    type Output = Result<(), ()>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.sleep).poll(cx).map(|()| Err(()))
    }
}

impl Drop for Explosive {
    fn drop(&mut self) {
        if self.explodes && !std::thread::panicking() {
            panic!("boom");
        }
    }
}

#[test]
fn panic_in_destructor_runs_once_and_leaks_nothing() {
    // Dropped when it is ready, or while it runs.
    for (passes, machine) in [(ms(10), false), (ms(10), true), (ms(5), false), (ms(5), true)] {
        let (policy, clock, count) = (ten(), ManualClock::default(), Count::default());
        let call = policy
            .retry(|| Explosive { _owned: count.one(), explodes: true, sleep: clock.sleep(ms(10)) })
            .when(|()| true)
            .sleeping_on(clock.clone());
        let call = if machine { call.history() } else { call };
        let mut call = Box::pin(call.into_future());
        assert!(poll(call.as_mut()).is_pending());
        clock.pass(passes);
        if passes == ms(10) {
            assert_eq!(panics(|| poll(call.as_mut())), "boom");
            drop(call);
        } else {
            assert_eq!(panics(|| drop(call)), "boom");
        }
        assert_eq!((count.made(), count.alive()), (1, 0), "{passes:?}, machine: {machine}");
    }
}

/// A pinned value must be dropped before its memory is reused, even if there is a panic: a timer inside it
/// may be part of a linked list.
#[test]
fn panic_in_hook_on_cancellation_still_drops_the_attempt() {
    let (policy, clock, count) = (ten(), ManualClock::default(), Count::default());
    let call = policy
        .retry(|| Explosive { _owned: count.one(), explodes: false, sleep: clock.sleep(ms(10)) })
        .when(|()| true)
        .on_event(|_, event| assert!(!matches!(event, Event::AttemptCancelled { .. }), "intended"))
        .sleeping_on(clock.clone());
    let mut call = Box::pin(call.into_future());
    assert!(poll(call.as_mut()).is_pending());
    assert_eq!(panics(|| drop(call)), "intended");
    assert_eq!((count.made(), count.alive()), (1, 0));
}

#[test]
fn panic_in_one_losers_destructor_still_drops_the_others() {
    let hedged: Hedged = Policy::hedged(ms(10)).attempts(3).try_build().expect("valid");
    for explosive in 1..=3 {
        let (clock, count) = (ManualClock::default(), Count::default());
        let mut calls = 0;
        let call = hedged
            .retry(|| {
                calls += 1;
                let explodes = calls == explosive;
                Explosive { _owned: count.one(), explodes, sleep: clock.sleep(s(9)) }
            })
            .when(|()| true)
            .sleeping_on(clock.clone());
        let mut call = Box::pin(call.into_future());
        for _ in 0..3 {
            for _ in 0..3 {
                assert!(poll(call.as_mut()).is_pending());
            }
            clock.pass(ms(10));
        }
        assert_eq!(count.alive(), 3);
        assert_eq!(panics(|| drop(call)), "boom");
        assert_eq!(count.alive(), 0, "attempt {explosive} is the explosive one");
    }
}

/// Panics as tokio's timers do outside a runtime.
struct NoReactor(ManualClock);

impl Sleeper for NoReactor {
    type Sleep = std::future::Pending<()>;
    fn now(&self) -> Ns {
        self.0.now()
    }
    fn sleep_until(&self, _: Ns) -> Self::Sleep {
        panic!("there is no reactor running")
    }
}

#[test]
fn panic_in_sleeper_refunds_the_token() {
    for machine in [false, true] {
        let policy = ten();
        let call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true);
        let call = call.sleeping_on(NoReactor(ManualClock::default()));
        let call = if machine { call.history() } else { call };
        let mut call = Box::pin(call.into_future());
        assert_eq!(panics(|| poll(call.as_mut())), "there is no reactor running");
        drop(call);
        assert_eq!(policy.tokens(0), Some(10.0), "machine: {machine}");
    }
}

/// A clock that panics when it is read for the second time.
struct PanickingClock(std::cell::Cell<u32>);

impl Sleeper for PanickingClock {
    type Sleep = std::future::Ready<()>;
    fn now(&self) -> Ns {
        self.0.set(self.0.get() + 1);
        assert!(self.0.get() != 2, "intended");
        0
    }
    fn sleep_until(&self, _: Ns) -> Self::Sleep {
        std::future::ready(())
    }
}

#[test]
fn panic_that_was_caught_leaves_only_dropping_the_call() {
    let policy = ten();
    let mut calls = 0;
    let operation = || {
        calls += 1;
        async { Err::<(), _>(()) }
    };
    let call = policy.retry(operation).when(|()| true).not_idempotent();
    let mut call = Box::pin(call.sleeping_on(PanickingClock(Default::default())).into_future());
    assert_eq!(panics(|| poll(call.as_mut())), "intended");
    for _ in 0..3 {
        assert_eq!(panics(|| poll(call.as_mut())), "polled after completion");
    }
    drop(call);
    assert_eq!((calls, policy.tokens(0)), (1, Some(10.0)));
}

// One level of recursion per attempt would need 100 times the size of the operation.
#[test]
fn retry_of_a_large_operation_needs_no_stack_per_attempt() {
    // With counters only, and with the state machine.
    let retries = |records_history: bool| {
        let policy = Policy::immediate().attempts(100).throttle(redial::Throttle::none());
        let policy = policy.try_build().expect("valid");
        let large = || async {
            let large = [1_u8; 16 * 1024];
            std::future::ready(()).await;
            Err::<(), _>(std::hint::black_box(large)[7])
        };
        let call = policy.retry(large).when(|_| true);
        let call = if records_history { call.history() } else { call };
        let mut call = Box::pin(call.into_future());
        loop {
            if let Poll::Ready(result) = poll(call.as_mut()) {
                let error = result.expect_err("it never succeeds");
                return (error.attempts(), error.report().history.len());
            }
        }
    };
    for (records_history, recorded) in [(false, 0), (true, 100)] {
        let thread = std::thread::Builder::new().stack_size(512 * 1024);
        let thread = thread.spawn(move || retries(records_history)).expect("a thread");
        assert_eq!(thread.join().expect("no overflow"), (100, recorded));
    }
}

#[test]
fn panic_in_blocking_operation_cancels_the_call() {
    let policy = Policy::immediate().attempts(3).try_build().expect("valid");
    let count = Count::default();
    let mut calls = 0;
    let text = panics(|| {
        policy
            .retry(|| {
                calls += 1;
                assert!(calls < 2, "intended");
                Err::<(), _>(count.one())
            })
            .when(|_| true)
            .call()
    });
    assert_eq!((text.as_str(), count.alive(), policy.tokens(0)), ("intended", 0, Some(9.0)));
}

/// Thread-locals are destroyed in an unspecified order. A connection that is closed in such a destructor may
/// need a retry, and a panic there aborts the process.
#[test]
fn draw_works_in_a_thread_local_destructor() {
    static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
    struct Goodbye;
    impl Drop for Goodbye {
        fn drop(&mut self) {
            let policy = Policy::constant(ms(1)).attempts(3).try_build().expect("valid");
            let error = policy.retry(|| Err::<(), _>(())).when(|()| true).call().unwrap_err();
            ATTEMPTS.fetch_add(error.attempts(), Ordering::Relaxed);
        }
    }
    thread_local!(static KEPT: Goodbye = const { Goodbye });
    let thread = std::thread::spawn(|| {
        // Thread-locals that are used later are destroyed earlier.
        KEPT.with(|_| ());
        redial::parts::draw()
    });
    assert!((0.0..1.0).contains(&thread.join().expect("it ends")));
    assert_eq!(ATTEMPTS.load(Ordering::Relaxed), 3);
}

/// A hook in a test is often an assertion, which would fail again for the events of the cancellation; a
/// second panic while unwinding aborts the process.
#[test]
fn panic_in_hook_removes_it_and_refunds_the_token() {
    // The call has nine events: started, attempt, failure, draw, grant, retry, attempt, failure, end.
    for from in 0..9 {
        for driver in ["blocking", "async", "borrowing"] {
            let policy = Policy::constant(ms(1)).jitter(Jitter::Full).attempts(2).deadline(s(1));
            let policy = policy.try_build().expect("valid");
            let (clock, count) = (ManualClock::default(), Count::default());
            let mut events = 0;
            let hook = |_: &EventContext<'_>, _: &Event| {
                events += 1;
                assert!(events <= from, "intended");
            };
            let text = panics(|| match driver {
                "blocking" => {
                    let call = policy.retry(|| Err::<(), _>(count.one())).when(|_| true);
                    let _ = call.on_event(hook).call();
                }
                "async" => {
                    let call = policy.retry(async || Err::<(), _>(count.one())).when(|_| true);
                    let call = call.on_event(hook).sleeping_on(clock.clone());
                    let mut call = Box::pin(call.into_future());
                    while poll(call.as_mut()).is_pending() {
                        clock.pass(ms(1));
                    }
                }
                _ => {
                    let mut target = ();
                    let call = policy.retry_on(&mut target, async |()| Err::<(), _>(count.one()));
                    let call = call.on_event(hook).sleeping_on(clock.clone()).when(|_| true);
                    let mut call = Box::pin(call);
                    while poll(call.as_mut()).is_pending() {
                        clock.pass(ms(1));
                    }
                }
            });
            let case = format!("{driver}, from event {from}");
            assert_eq!((text.as_str(), count.alive()), ("intended", 0), "{case}");
            assert_eq!(events, from + 1, "{case}");
            // The retry is refunded unless it has started, which is the seventh event.
            let left = if from < 6 { 10.0 } else { 9.0 };
            assert_eq!(policy.tokens(0), Some(left), "{case}");
        }
    }
}
