//! What panics in a user's code leaves everything else whole: each thing that the call owned is
//! dropped exactly once, what was paid for comes back, and a future that is over says so.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use redial::{Event, Hedged, Jitter, Policy, Sleeper, ms, s, time::Ns};

use crate::manual_clock::{Count, Counted, Hand, poll};

fn ten() -> Policy {
    Policy::constant(ms(10)).attempts(3).try_build().expect("valid")
}

/// The text of the panic that this ends with.
fn panics<T>(story: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(story)) else { panic!("it did not panic") };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().map_or(String::new(), |text| text.to_string()),
    }
}

#[test]
fn polling_after_completion_panics() {
    let (policy, hand) = (ten(), Hand::default());
    let plain = policy.retry(|| async { Ok::<_, ()>(()) }).when(|()| true);
    let mut plain = Box::pin(plain.sleeping_on(hand.clone()).into_future());
    assert!(poll(plain.as_mut()).is_ready());
    assert_eq!(panics(|| poll(plain.as_mut())), "polled after completion");

    let machine = policy.retry(|| async { Ok::<_, ()>(()) }).when(|()| true).deadline(s(1));
    let mut machine = Box::pin(machine.sleeping_on(hand.clone()).into_future());
    assert!(poll(machine.as_mut()).is_ready());
    assert_eq!(panics(|| poll(machine.as_mut())), "polled after completion");

    // Breaks if what waits beside the attempt is left behind when that succeeds.
    let timed = Policy::constant(ms(1)).deadline(s(1)).try_build().expect("valid");
    let late = || async {
        hand.sleep(ms(1)).await;
        Ok::<_, ()>(())
    };
    let waits = timed.retry(late).when(|()| true);
    let mut waits = Box::pin(waits.sleeping_on(hand.clone()).into_future());
    assert!(poll(waits.as_mut()).is_pending());
    hand.pass(ms(1));
    assert!(poll(waits.as_mut()).is_ready());
    assert_eq!(panics(|| poll(waits.as_mut())), "polled after completion");

    let failed = policy.retry(|| async { Err::<(), _>(()) }).when(|()| false);
    let mut failed = Box::pin(failed.sleeping_on(hand.clone()).into_future());
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
    /// When this attempt's result is judged.
    Judging(usize),
}

#[test]
fn panic_in_operation_leaves_the_call_droppable() {
    for at in [1, 2].into_iter().flat_map(|n| [At::Call(n), At::Poll(n), At::Judging(n)]) {
        for machine in [false, true] {
            let (policy, hand, count) = (ten(), Hand::default(), Count::default());
            let owned = count.one();
            let mut calls = 0;
            let judged = Cell::new(0);
            let call = policy
                .retry(|| {
                    calls += 1;
                    let (number, _owned) = (calls, &owned);
                    assert!(at != At::Call(number), "as told");
                    let (owned, hand, count) = (count.one(), hand.clone(), count.clone());
                    async move {
                        let _owned = owned;
                        assert!(at != At::Poll(number), "as told");
                        hand.sleep(ms(10)).await;
                        Err::<(), _>(count.one())
                    }
                })
                .when(|_: &Counted| {
                    judged.set(judged.get() + 1);
                    assert!(at != At::Judging(judged.get()), "as told");
                    true
                })
                .sleeping_on(hand.clone());
            let call = if machine { call.deadline(s(1)) } else { call };
            let mut call = Box::pin(call.into_future());
            let text = panics(|| {
                while poll(call.as_mut()).is_pending() {
                    hand.pass(ms(5));
                }
            });
            assert_eq!(text, "as told", "{at:?}, machine: {machine}");
            drop(call);
            drop(owned);
            assert_eq!(count.alive(), 0, "{at:?}, machine: {machine}");
            let used =
                if matches!(at, At::Call(1) | At::Poll(1) | At::Judging(1)) { 10. } else { 9. };
            assert_eq!(policy.tokens(0), Some(used), "{at:?}, machine: {machine}");
        }
    }
}

/// An attempt whose destructor panics, if it is told to.
struct Explosive {
    _owned: Counted,
    explodes: bool,
    sleep: <Hand as Sleeper>::Sleep,
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
    // Dropped when it has answered, or while it runs.
    for (passes, machine) in [(ms(10), false), (ms(10), true), (ms(5), false), (ms(5), true)] {
        let (policy, hand, count) = (ten(), Hand::default(), Count::default());
        let call = policy
            .retry(|| Explosive { _owned: count.one(), explodes: true, sleep: hand.sleep(ms(10)) })
            .when(|()| true)
            .sleeping_on(hand.clone());
        let call = if machine { call.history() } else { call };
        let mut call = Box::pin(call.into_future());
        assert!(poll(call.as_mut()).is_pending());
        hand.pass(passes);
        if passes == ms(10) {
            assert_eq!(panics(|| poll(call.as_mut())), "boom");
            drop(call);
        } else {
            assert_eq!(panics(|| drop(call)), "boom");
        }
        assert_eq!((count.made(), count.alive()), (1, 0), "{passes:?}, machine: {machine}");
    }
}

/// A value that was pinned must be dropped before its memory is used again, whatever panics: a
/// timer inside it may be linked from elsewhere.
#[test]
fn panic_in_hook_on_cancellation_still_drops_the_attempt() {
    let (policy, hand, count) = (ten(), Hand::default(), Count::default());
    let call = policy
        .retry(|| Explosive { _owned: count.one(), explodes: false, sleep: hand.sleep(ms(10)) })
        .when(|()| true)
        .on_event(|_, event| assert!(!matches!(event, Event::AttemptCancelled { .. }), "as told"))
        .sleeping_on(hand.clone());
    let mut call = Box::pin(call.into_future());
    assert!(poll(call.as_mut()).is_pending());
    assert_eq!(panics(|| drop(call)), "as told");
    assert_eq!((count.made(), count.alive()), (1, 0));
}

#[test]
fn panic_in_one_losers_destructor_still_drops_the_others() {
    let hedged: Hedged = Policy::hedged(ms(10)).attempts(3).try_build().expect("valid");
    for explosive in 1..=3 {
        let (hand, count) = (Hand::default(), Count::default());
        let mut calls = 0;
        let call = hedged
            .retry(|| {
                calls += 1;
                let explodes = calls == explosive;
                Explosive { _owned: count.one(), explodes, sleep: hand.sleep(s(9)) }
            })
            .when(|()| true)
            .sleeping_on(hand.clone());
        let mut call = Box::pin(call.into_future());
        for _ in 0..3 {
            for _ in 0..3 {
                assert!(poll(call.as_mut()).is_pending());
            }
            hand.pass(ms(10));
        }
        assert_eq!(count.alive(), 3);
        assert_eq!(panics(|| drop(call)), "boom");
        assert_eq!(count.alive(), 0, "attempt {explosive} is the explosive one");
    }
}

/// As tokio's timers do outside of its runtime.
struct NoReactor(Hand);

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
        let call = call.sleeping_on(NoReactor(Hand::default()));
        let call = if machine { call.history() } else { call };
        let mut call = Box::pin(call.into_future());
        assert_eq!(panics(|| poll(call.as_mut())), "there is no reactor running");
        drop(call);
        assert_eq!(policy.tokens(0), Some(10.0), "machine: {machine}");
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
                assert!(calls < 2, "as told");
                Err::<(), _>(count.one())
            })
            .when(|_| true)
            .call()
    });
    assert_eq!((text.as_str(), count.alive(), policy.tokens(0)), ("as told", 0, Some(9.0)));
}

/// What a thread keeps is dropped when it ends, in no order that anybody could rely on, and a
/// connection that says goodbye there may need a second try. A panic in such a place aborts.
///
/// Red: `SOURCE.with(..)` in `draw`.
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
        // What is used later is dropped earlier.
        KEPT.with(|_| ());
        redial::parts::draw()
    });
    assert!((0.0..1.0).contains(&thread.join().expect("it ends")));
    assert_eq!(ATTEMPTS.load(Ordering::Relaxed), 3);
}

/// A hook in a test is often an assertion, and what fails once fails again when the call is given up
/// on the way out: a second panic there would take the process with it.
///
/// Red: keep the hook in its place while it runs (`if let Some(hook) = &mut self.hook`).
#[test]
fn panic_in_hook_removes_it_and_refunds_the_token() {
    // As many notes as the call has: it begins, starts, fails, draws, pays, waits, starts, fails, ends.
    for from in 0..9 {
        for driver in ["blocking", "async", "lending"] {
            let policy = Policy::constant(ms(1)).jitter(Jitter::Full).attempts(2).deadline(s(1));
            let policy = policy.try_build().expect("valid");
            let (hand, count) = (Hand::default(), Count::default());
            let mut events = 0;
            let hook = |_: Ns, _: &Event| {
                events += 1;
                assert!(events <= from, "as told");
            };
            let text = panics(|| match driver {
                "blocking" => {
                    let call = policy.retry(|| Err::<(), _>(count.one())).when(|_| true);
                    let _ = call.on_event(hook).call();
                }
                "async" => {
                    let call = policy.retry(async || Err::<(), _>(count.one())).when(|_| true);
                    let call = call.on_event(hook).sleeping_on(hand.clone());
                    let mut call = Box::pin(call.into_future());
                    while poll(call.as_mut()).is_pending() {
                        hand.pass(ms(1));
                    }
                }
                _ => {
                    let mut lent = ();
                    let call = policy.retry_on(&mut lent, async |()| Err::<(), _>(count.one()));
                    let call = call.on_event(hook).sleeping_on(hand.clone()).when(|_| true);
                    let mut call = Box::pin(call);
                    while poll(call.as_mut()).is_pending() {
                        hand.pass(ms(1));
                    }
                }
            });
            let case = format!("{driver}, from note {from}");
            assert_eq!((text.as_str(), count.alive()), ("as told", 0), "{case}");
            assert_eq!(events, from + 1, "{case}");
            // What pays for the retry comes back unless that has started, which the seventh note says.
            let left = if from < 6 { 10.0 } else { 9.0 };
            assert_eq!(policy.tokens(0), Some(left), "{case}");
        }
    }
}
