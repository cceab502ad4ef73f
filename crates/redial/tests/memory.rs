//! The async driver drops every value exactly once on every path, and never moves a pinned one.
//!
//! Each path is taken with attempts and sleeps of several sizes: each larger than the other, zero-sized,
//! and with heap memory. Every value checks its memory and its address when it is polled or dropped, and
//! counts its instances. The tests detect values that are dropped twice, never, or after a move; valgrind's
//! memcheck detects memory that is freed too early, twice or never:
//!
//! ```text
//! cargo test --release -p redial --test memory --no-run     # prints the path of the binary
//! valgrind --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite <binary>
//! ```
// Vectors, because heap memory makes a wrong drop visible.
#![allow(clippy::useless_vec)]

use std::cell::Cell;
use std::marker::{PhantomData, PhantomPinned};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use redial::time::Sleeper;
use redial::{
    CallLog, Directive, Error, Hedged, Policy, StopReason, ms, s,
    strategy::{Decision, Request},
    time::Ns,
};

/// The behaviour of an attempt when it is polled.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Pend,
    Succeed,
    Fail,
    Panic,
}

/// The behaviour of attempts and sleeps. It is global, because they may be zero-sized.
struct Environment {
    behaviour: Cell<Behaviour>,
    /// The number of pending polls before that.
    skips: Cell<i32>,
    /// Whether sleeps are over.
    wakes: Cell<bool>,
    /// Whether the destructors of attempts and of sleeps panic.
    panics_in_drop: Cell<(bool, bool)>,
    alive: Cell<i32>,
    made: Cell<i32>,
}

thread_local! {
    static ENVIRONMENT: Environment = const {
        Environment {
            behaviour: Cell::new(Behaviour::Pend),
            skips: Cell::new(0),
            wakes: Cell::new(false),
            panics_in_drop: Cell::new((false, false)),
            alive: Cell::new(0),
            made: Cell::new(0),
        }
    };
}

fn env<T>(check: impl FnOnce(&Environment) -> T) -> T {
    ENVIRONMENT.with(check)
}

fn set_attempts(behaviour: Behaviour) {
    env(|env| env.behaviour.set(behaviour));
}

fn set_sleeps_over(over: bool) {
    env(|env| env.wakes.set(over));
}

fn alive() -> i32 {
    env(|env| env.alive.get())
}

/// The content of an attempt or a sleep.
trait Body: 'static {
    fn make() -> Self;
    /// Reads all of its memory, and checks that it was not moved.
    fn check(&self);
}

/// Zero-sized.
struct Nothing;

impl Body for Nothing {
    fn make() -> Self {
        Nothing
    }
    fn check(&self) {}
}

/// `N` words, and one more on the heap.
struct Words<const N: usize> {
    words: [u64; N],
    heap: Box<u64>,
    address: Cell<usize>,
}

impl<const N: usize> Body for Words<N> {
    fn make() -> Self {
        Words { words: [7; N], heap: Box::new(7), address: Cell::new(0) }
    }
    fn check(&self) {
        assert!(self.words.iter().all(|word| *word == 7) && *self.heap == 7, "overwritten");
        let here = std::ptr::from_ref(self).addr();
        assert!([0, here].contains(&self.address.replace(here)), "moved while it was pinned");
    }
}

type Small = Words<1>;
type Large = Words<100>;

/// Counts its live instances.
struct Counted<B: Body> {
    body: B,
}

impl<B: Body> Counted<B> {
    fn new() -> Self {
        env(|env| {
            env.alive.set(env.alive.get() + 1);
            env.made.set(env.made.get() + 1);
        });
        Counted { body: B::make() }
    }
}

impl<B: Body> Drop for Counted<B> {
    fn drop(&mut self) {
        self.body.check();
        env(|env| env.alive.set(env.alive.get() - 1));
    }
}

struct Attempt<B: Body> {
    counted: Counted<B>,
    _pinned: PhantomPinned,
}

impl<B: Body> Future for Attempt<B> {
    type Output = Result<Vec<u8>, String>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.counted.body.check();
        let behaviour = env(|env| match env.skips.get() {
            0 => env.behaviour.get(),
            skips => {
                env.skips.set(skips - 1);
                Behaviour::Pend
            }
        });
        match behaviour {
            Behaviour::Pend => Poll::Pending,
            Behaviour::Succeed => Poll::Ready(Ok(vec![7; 7])),
            Behaviour::Fail => Poll::Ready(Err("busy".to_owned())),
            Behaviour::Panic => panic!("intended"),
        }
    }
}

impl<B: Body> Drop for Attempt<B> {
    fn drop(&mut self) {
        if env(|env| env.panics_in_drop.get().0) && !std::thread::panicking() {
            panic!("an attempt explodes");
        }
    }
}

struct Sleep<B: Body> {
    counted: Counted<B>,
    _pinned: PhantomPinned,
}

impl<B: Body> Future for Sleep<B> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.counted.body.check();
        if env(|env| env.wakes.get()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<B: Body> Drop for Sleep<B> {
    fn drop(&mut self) {
        if env(|env| env.panics_in_drop.get().1) && !std::thread::panicking() {
            panic!("a sleep explodes");
        }
    }
}

/// A clock that does not advance.
struct Still<B>(PhantomData<fn() -> B>);

impl<B: Body> Sleeper for Still<B> {
    type Sleep = Sleep<B>;
    fn now(&self) -> Ns {
        5
    }
    fn sleep_until(&self, _: Ns) -> Sleep<B> {
        Sleep { counted: Counted::new(), _pinned: PhantomPinned }
    }
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error<String>>> + 'a>>;

/// The options of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CallOptions {
    None,
    /// Options that own memory.
    Options,
    /// A hook that panics when an attempt is cancelled.
    Hook,
}

/// A call whose closures own heap memory.
fn call<A: Body, Z: Body>(policy: &Policy, options: CallOptions) -> Call<'_> {
    let (owned, retryable) = (vec![7_u8; 100], "busy".to_owned());
    let call = policy
        .retry(move || {
            assert_eq!(owned.last(), Some(&7));
            assert!(env(|env| env.behaviour.get()) != Behaviour::Panic, "intended");
            Attempt::<A> { counted: Counted::new(), _pinned: PhantomPinned }
        })
        .when(move |error: &String| *error == retryable)
        .sleeping_on(Still::<Z>(PhantomData));
    match options {
        CallOptions::None => Box::pin(call.into_future()),
        CallOptions::Options => {
            let (hook, mut events) = (vec![7_u8; 100], Vec::new());
            let call = call
                .history()
                .data(vec![1_u8, 2, 3])
                .on_event(move |context, event| events.push((context.at, *event, hook.len())))
                .strategy(|request: &Request<'_>| {
                    assert_eq!(request.data::<Vec<u8>>(), Some(&vec![1, 2, 3]));
                    let later = vec![10];
                    Decision::later(async move { Some(ms(later[0])) })
                });
            Box::pin(call.into_future())
        }
        CallOptions::Hook => {
            let owned = vec![7_u8; 100];
            let call = call.on_event(move |_, event| {
                let fine = !matches!(event, redial::Event::AttemptCancelled { .. });
                assert!(fine && owned[99] == 7, "intended");
            });
            Box::pin(call.into_future())
        }
    }
}

fn hedged<A: Body, Z: Body>(policy: &Hedged) -> Call<'_> {
    let owned = vec![7_u8; 100];
    let call = policy
        .retry(move || {
            assert_eq!(owned.last(), Some(&7));
            Attempt::<A> { counted: Counted::new(), _pinned: PhantomPinned }
        })
        .when(|_: &String| true)
        .sleeping_on(Still::<Z>(PhantomData));
    Box::pin(call.into_future())
}

fn poll(call: &mut Call<'_>) -> Poll<Result<Vec<u8>, Error<String>>> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn assert_pending(call: &mut Call<'_>) {
    // After a timer fires, the call yields once before it acts on it: poll more than once.
    for _ in 0..3 {
        assert!(poll(call).is_pending());
    }
}

/// Policies with one retry after a sleep, for each kind of driver state.
fn policies() -> [(Policy, CallOptions); 5] {
    let one = || Policy::constant(ms(10)).attempts(2);
    let build = |builder: redial::Builder<Policy>| builder.try_build().expect("valid");
    [
        (build(one()), CallOptions::None),
        (build(one().deadline(s(1))), CallOptions::None),
        (build(one().attempt_timeout(s(1))), CallOptions::None),
        (build(one()), CallOptions::Options),
        (build(one().deadline(s(1))), CallOptions::Options),
    ]
}

/// A path through the cell, with attempts of `A` and sleeps of `Z`.
trait Path {
    fn take<A: Body, Z: Body>();
}

fn every_size<P: Path>() {
    fn one<P: Path, A: Body, Z: Body>() {
        set_attempts(Behaviour::Pend);
        set_sleeps_over(false);
        env(|env| env.panics_in_drop.set((false, false)));
        P::take::<A, Z>();
        assert_eq!(alive(), 0, "something outlived its call");
        env(|env| env.made.set(0));
    }
    one::<P, Small, Small>();
    one::<P, Large, Small>();
    one::<P, Small, Large>();
    one::<P, Large, Large>();
    one::<P, Nothing, Nothing>();
    one::<P, Nothing, Large>();
    one::<P, Large, Nothing>();
}

/// Defines a test that takes a path with all sizes.
macro_rules! path {
    ($name:ident, $take:expr) => {
        #[test]
        fn $name() {
            struct Test;
            impl Path for Test {
                fn take<A: Body, Z: Body>() {
                    $take(call::<A, Z>, hedged::<A, Z>);
                }
            }
            every_size::<Test>();
        }
    };
}

type MakeCall = for<'a> fn(&'a Policy, CallOptions) -> Call<'a>;
type MakeHedged = for<'a> fn(&'a Hedged) -> Call<'a>;

/// The message of the panic.
fn panics<T>(run: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else { panic!("it did not panic") };
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn succeeded(polled: Poll<Result<Vec<u8>, Error<String>>>) -> bool {
    matches!(polled, Poll::Ready(Ok(value)) if value == [7; 7])
}

fn failed(polled: Poll<Result<Vec<u8>, Error<String>>>, stop_reason: StopReason) -> bool {
    let Poll::Ready(Err(error)) = polled else { return false };
    error.stop_reason() == stop_reason && error.into_last().is_some_and(|last| last == "busy")
}

path!(memory_success_at_first_poll, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        set_attempts(Behaviour::Succeed);
        let mut call = make(&policy, options);
        assert!(succeeded(poll(&mut call)), "{policy:?}");
        assert_eq!(alive(), 0, "an attempt is dropped when it has answered");
    }
});

path!(memory_success_after_pending, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        set_attempts(Behaviour::Pend);
        let mut call = make(&policy, options);
        assert_pending(&mut call);
        set_attempts(Behaviour::Succeed);
        assert!(succeeded(poll(&mut call)), "{policy:?}");
    }
});

path!(memory_failure_sleep_success, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        for pending in [false, true] {
            set_sleeps_over(false);
            set_attempts(if pending { Behaviour::Pend } else { Behaviour::Fail });
            let mut call = make(&policy, options);
            assert_pending(&mut call);
            set_attempts(Behaviour::Fail);
            assert_pending(&mut call);
            set_sleeps_over(true);
            set_attempts(Behaviour::Succeed);
            assert!(succeeded(poll(&mut call)), "{policy:?}, pending: {pending}");
        }
    }
});

path!(memory_elapsed_sleep_then_error, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        set_sleeps_over(true);
        set_attempts(Behaviour::Fail);
        let mut call = make(&policy, options);
        assert!(failed(poll(&mut call), StopReason::AttemptsExhausted), "{policy:?}");
    }
});

path!(memory_immediate_failures, |make: MakeCall, _: MakeHedged| {
    for attempts in [1, 2, 40] {
        let policy = Policy::immediate().attempts(attempts).throttle(redial::Throttle::none());
        let policy = policy.try_build().expect("valid");
        for options in [CallOptions::None, CallOptions::Options] {
            set_attempts(Behaviour::Fail);
            // The strategy in the options adds a delay.
            set_sleeps_over(true);
            let mut call = make(&policy, options);
            let ended = std::iter::repeat_with(|| poll(&mut call)).find(Poll::is_ready);
            assert!(
                ended.is_some_and(|polled| failed(polled, StopReason::AttemptsExhausted)),
                "{attempts}"
            );
        }
    }
});

path!(memory_drop_before_first_poll, |make: MakeCall, hedge: MakeHedged| {
    for (policy, options) in policies() {
        let call = make(&policy, options);
        // A future may be moved until it is polled.
        drop(Box::new(call));
    }
    let policy = Policy::hedged(ms(1)).try_build().expect("valid");
    drop(hedge(&policy));
    assert_eq!(env(|env| env.made.get()), 0, "nothing was started");
});

path!(memory_drop_while_running_and_sleeping, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        for polls in 1..=3 {
            set_attempts(Behaviour::Pend);
            set_sleeps_over(false);
            let mut call = make(&policy, options);
            assert_pending(&mut call);
            if polls > 1 {
                set_attempts(Behaviour::Fail);
                assert_pending(&mut call);
            }
            if polls > 2 {
                set_attempts(Behaviour::Pend);
                set_sleeps_over(true);
                assert!(poll(&mut call).is_pending());
                set_sleeps_over(false);
            }
            assert!(alive() > 0, "an attempt or a sleep");
            drop(call);
            assert_eq!((alive(), policy.tokens(0)), (0, Some(if polls > 2 { 9. } else { 10. })));
        }
    }
});

path!(memory_poll_after_completion_then_drop, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        set_attempts(Behaviour::Succeed);
        let mut call = make(&policy, options);
        assert!(succeeded(poll(&mut call)));
        assert_eq!(panics(|| poll(&mut call)), "polled after completion");
        assert_eq!(panics(|| poll(&mut call)), "polled after completion");
    }
});

path!(memory_panic_when_an_attempt_starts, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        set_attempts(Behaviour::Panic);
        let mut call = make(&policy, options);
        assert_eq!(panics(|| poll(&mut call)), "intended");
        drop(call);
        // The same for its retry, after a sleep.
        set_attempts(Behaviour::Fail);
        set_sleeps_over(false);
        let mut call = make(&policy, options);
        assert_pending(&mut call);
        set_attempts(Behaviour::Panic);
        set_sleeps_over(true);
        assert_eq!(panics(|| (poll(&mut call), poll(&mut call))), "intended");
        drop(call);
        assert_eq!(alive(), 0, "{policy:?}");
    }
});

path!(memory_panic_when_an_attempt_is_polled, |make: MakeCall, _: MakeHedged| {
    for (policy, options) in policies() {
        set_attempts(Behaviour::Pend);
        let mut call = make(&policy, options);
        assert_pending(&mut call);
        set_attempts(Behaviour::Panic);
        assert_eq!(panics(|| poll(&mut call)), "intended");
        assert!(alive() > 0, "it is still there");
        drop(call);
        assert_eq!(alive(), 0, "{policy:?}");
    }
});

path!(memory_panic_in_attempt_destructor, |make: MakeCall, _: MakeHedged| {
    let panics_in_drop =
        |panics_in_drop| env(|env| env.panics_in_drop.set((panics_in_drop, false)));
    for (policy, options) in policies() {
        for behaviour in [Behaviour::Succeed, Behaviour::Fail] {
            set_attempts(Behaviour::Pend);
            let mut call = make(&policy, options);
            assert_pending(&mut call);
            // The attempt is dropped because it is ready; its result is dropped with it.
            set_attempts(behaviour);
            panics_in_drop(true);
            assert_eq!(panics(|| poll(&mut call)), "an attempt explodes");
            panics_in_drop(false);
            drop(call);
            assert_eq!(alive(), 0, "{policy:?}");
        }
        set_attempts(Behaviour::Pend);
        let mut call = make(&policy, options);
        assert_pending(&mut call);
        panics_in_drop(true);
        assert_eq!(panics(|| drop(call)), "an attempt explodes");
        panics_in_drop(false);
        assert_eq!(alive(), 0, "{policy:?}");
    }
});

path!(memory_panic_in_sleep_destructor, |make: MakeCall, _: MakeHedged| {
    let panics_in_drop =
        |panics_in_drop| env(|env| env.panics_in_drop.set((false, panics_in_drop)));
    for (policy, options) in policies() {
        for wakes in [false, true] {
            set_attempts(Behaviour::Fail);
            set_sleeps_over(false);
            let mut call = make(&policy, options);
            assert_pending(&mut call);
            panics_in_drop(true);
            if wakes {
                set_sleeps_over(true);
                assert_eq!(panics(|| poll(&mut call)), "a sleep explodes");
                panics_in_drop(false);
                drop(call);
            } else {
                assert_eq!(panics(|| drop(call)), "a sleep explodes");
                panics_in_drop(false);
            }
            assert_eq!(alive(), 0, "{policy:?}, wakes: {wakes}");
        }
    }
});

path!(memory_panic_in_hook_during_drop, |make: MakeCall, _: MakeHedged| {
    for (policy, _) in policies() {
        set_attempts(Behaviour::Pend);
        let mut call = make(&policy, CallOptions::Hook);
        assert_pending(&mut call);
        assert_eq!(panics(|| drop(call)), "intended");
        assert_eq!(alive(), 0, "what was pinned is dropped before its memory goes");
    }
});

path!(memory_hedges_beside_the_first_attempt, |_: MakeCall, hedge: MakeHedged| {
    let policy = Policy::hedged(ms(10)).attempts(4).deadline(s(1));
    let policy = policy.throttle(redial::Throttle::none()).build();
    let race = |hedges: i32| {
        set_attempts(Behaviour::Pend);
        set_sleeps_over(false);
        let mut call = hedge(&policy);
        assert_pending(&mut call);
        for _ in 0..hedges {
            // The first poll yields to other tasks, the second starts the hedge.
            set_sleeps_over(true);
            assert!(poll(&mut call).is_pending());
            set_sleeps_over(false);
            assert!(poll(&mut call).is_pending());
        }
        assert_eq!(alive(), 1 + hedges + 1, "attempts and the timer");
        call
    };
    for hedges in 0..=2 {
        // One attempt succeeds, and the others are dropped.
        for winner in 0..=hedges {
            let mut call = race(hedges);
            set_attempts(Behaviour::Succeed);
            env(|env| env.skips.set(winner));
            assert!(succeeded(poll(&mut call)));
            assert_eq!(alive(), 0, "though the call itself still lives");
        }
        // All attempts fail, and so do their successors.
        let mut call = race(hedges);
        set_attempts(Behaviour::Fail);
        assert!(failed(poll(&mut call), StopReason::AttemptsExhausted));
        drop(call);
        // All attempts are dropped while they run; one destructor panics, or none.
        drop(race(hedges));
        assert_eq!(alive(), 0);
        let call = race(hedges);
        env(|env| env.panics_in_drop.set((true, false)));
        assert_eq!(panics(|| drop(call)), "an attempt explodes");
        env(|env| env.panics_in_drop.set((false, false)));
        assert_eq!(alive(), 0, "{hedges} hedges");
        // One attempt panics when it is polled.
        let mut call = race(hedges);
        set_attempts(Behaviour::Panic);
        assert_eq!(panics(|| poll(&mut call)), "intended");
        drop(call);
        assert_eq!(alive(), 0, "{hedges} hedges");
    }
});

path!(memory_deadline_cancels_a_running_attempt, |make: MakeCall, _: MakeHedged| {
    let policy = Policy::constant(ms(10)).deadline(ms(1)).try_build().expect("valid");
    for options in [CallOptions::None, CallOptions::Options] {
        set_attempts(Behaviour::Pend);
        set_sleeps_over(false);
        let mut call = make(&policy, options);
        assert_pending(&mut call);
        set_sleeps_over(true);
        assert!(poll(&mut call).is_pending(), "an outcome of this moment would come first");
        let Poll::Ready(Err(error)) = poll(&mut call) else { panic!("the deadline is over") };
        assert_eq!((error.stop_reason(), error.into_last()), (StopReason::Deadline, None));
        assert_eq!(alive(), 0);
        // The same with a destructor that panics, which runs only once.
        set_sleeps_over(false);
        let mut call = make(&policy, options);
        assert_pending(&mut call);
        set_sleeps_over(true);
        assert!(poll(&mut call).is_pending());
        env(|env| env.panics_in_drop.set((true, false)));
        assert_eq!(panics(|| poll(&mut call)), "an attempt explodes");
        env(|env| env.panics_in_drop.set((false, false)));
        drop(call);
        assert_eq!(alive(), 0);
    }
});

path!(memory_attempt_timeout_reuses_the_slot, |make: MakeCall, _: MakeHedged| {
    let policy = Policy::immediate().attempts(3).attempt_timeout(ms(1)).retry_timeouts();
    let policy = policy.try_build().expect("valid");
    set_attempts(Behaviour::Pend);
    set_sleeps_over(false);
    let mut call = make(&policy, CallOptions::None);
    assert_pending(&mut call);
    for attempt in 1..=2 {
        assert_eq!(env(|env| env.made.get()), 2 * attempt, "an attempt and its timer each");
        set_sleeps_over(true);
        assert!(poll(&mut call).is_pending());
        set_sleeps_over(false);
        assert!(poll(&mut call).is_pending());
        assert_eq!(alive(), 2, "the next attempt and its timer");
    }
    set_attempts(Behaviour::Succeed);
    assert!(succeeded(poll(&mut call)));
});

/// Results that the classifier decides about: an error that is a success, and a value that is rejected.
#[test]
fn memory_results_are_returned_or_dropped_once() {
    let policy = Policy::immediate().attempts(3).try_build().expect("valid");
    let mut call_log = CallLog::new();
    let mut calls = 0;
    let operation = || {
        calls += 1;
        let text = format!("answer {calls}");
        async move { Ok::<String, String>(text) }
    };
    let call = policy.retry(operation).until(|value| value == "none").when(|_: &String| true);
    let mut call: Pin<Box<dyn Future<Output = _>>> = Box::pin(
        call.sleeping_on(Still::<Small>(PhantomData)).call_log(&mut call_log).into_future(),
    );
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Err(error)) = polled else { panic!("no value is right") };
    assert_eq!(error.into_last_value().as_deref(), Some("answer 3"));

    let fails = || async { Err::<String, _>("gone".to_owned()) };
    let call = policy.retry(fails).when(|_| Directive::Succeed);
    let mut call = Box::pin(call.sleeping_on(Still::<Small>(PhantomData)).into_future());
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Err(error)) = polled else { panic!("an error is handed on as one") };
    assert_eq!(
        (error.stop_reason(), error.into_last().as_deref()),
        (StopReason::Succeeded, Some("gone"))
    );
    assert_eq!(alive(), 0);
}
