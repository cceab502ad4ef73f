//! Goal: the one module with `unsafe` (`cell.rs`) drops what it holds exactly once, on every path,
//! and never moves it.
//!
//! Method: each path is taken with attempts and sleeps of every size: larger than one another, of no
//! size, owning heap memory. Everything that is polled or dropped looks at the memory that it owns
//! and at its own address, and counts itself; so the tests see what is dropped twice, never or
//! elsewhere, and valgrind's memcheck sees what is freed too early, twice or never:
//!
//! ```text
//! cargo test --release -p redial --test memory --no-run     # prints the path of the binary
//! valgrind --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite <binary>
//! ```
// What owns heap memory shows more than an array would.
#![allow(clippy::useless_vec)]

use std::cell::Cell;
use std::marker::{PhantomData, PhantomPinned};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use redial::{
    CallLog, Directive, Error, Hedged, Policy, Sleeper, StopReason, ms, s,
    strategy::{Decision, Request},
    time::Ns,
};

/// What an attempt does when it is polled.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Pend,
    Succeed,
    Fail,
    Panic,
}

/// How the world is now. Attempts and sleeps may be of no size, so that they cannot know it.
struct Environment {
    does: Cell<Does>,
    /// How many polls of attempts pend before that.
    skips: Cell<i32>,
    /// Whether sleeps are over.
    wakes: Cell<bool>,
    /// Whether destructors panic: those of attempts, those of sleeps.
    explode: Cell<(bool, bool)>,
    alive: Cell<i32>,
    made: Cell<i32>,
}

thread_local! {
    static WORLD: Environment = const {
        Environment {
            does: Cell::new(Does::Pend),
            skips: Cell::new(0),
            wakes: Cell::new(false),
            explode: Cell::new((false, false)),
            alive: Cell::new(0),
            made: Cell::new(0),
        }
    };
}

fn env<T>(look: impl FnOnce(&Environment) -> T) -> T {
    WORLD.with(look)
}

fn attempts_now(does: Does) {
    env(|env| env.does.set(does));
}

fn sleeps_are_over(over: bool) {
    env(|env| env.wakes.set(over));
}

fn alive() -> i32 {
    env(|env| env.alive.get())
}

/// What an attempt or a sleep is made of.
trait Body: 'static {
    fn make() -> Self;
    /// Reads all of it, the heap memory included, and checks that it lies where it lay before.
    fn look(&self);
}

/// Of no size.
struct Nothing;

impl Body for Nothing {
    fn make() -> Self {
        Nothing
    }
    fn look(&self) {}
}

/// So many words, the last of which is on the heap.
struct Words<const N: usize> {
    words: [u64; N],
    heap: Box<u64>,
    address: Cell<usize>,
}

impl<const N: usize> Body for Words<N> {
    fn make() -> Self {
        Words { words: [7; N], heap: Box::new(7), address: Cell::new(0) }
    }
    fn look(&self) {
        assert!(self.words.iter().all(|word| *word == 7) && *self.heap == 7, "overwritten");
        let here = std::ptr::from_ref(self).addr();
        assert!([0, here].contains(&self.address.replace(here)), "moved while it was pinned");
    }
}

type Small = Words<1>;
type Large = Words<100>;

/// Counts what is alive, and says so if it is dropped twice.
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
        self.body.look();
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
        self.counted.body.look();
        let does = env(|env| match env.skips.get() {
            0 => env.does.get(),
            skips => {
                env.skips.set(skips - 1);
                Does::Pend
            }
        });
        match does {
            Does::Pend => Poll::Pending,
            Does::Succeed => Poll::Ready(Ok(vec![7; 7])),
            Does::Fail => Poll::Ready(Err("busy".to_owned())),
            Does::Panic => panic!("as told"),
        }
    }
}

impl<B: Body> Drop for Attempt<B> {
    fn drop(&mut self) {
        if env(|env| env.explode.get().0) && !std::thread::panicking() {
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
        self.counted.body.look();
        if env(|env| env.wakes.get()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<B: Body> Drop for Sleep<B> {
    fn drop(&mut self) {
        if env(|env| env.explode.get().1) && !std::thread::panicking() {
            panic!("a sleep explodes");
        }
    }
}

/// A clock that stands still.
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

/// What is said of a call besides its policy.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Nothing,
    /// Options that own memory.
    Options,
    /// A hook that panics over a cancelled attempt.
    Hook,
}

/// A call whose closures own memory, too.
fn call<A: Body, Z: Body>(policy: &Policy, said: Said) -> Call<'_> {
    let (owned, judged) = (vec![7_u8; 100], "busy".to_owned());
    let call = policy
        .retry(move || {
            assert_eq!(owned.last(), Some(&7));
            assert!(env(|env| env.does.get()) != Does::Panic, "as told");
            Attempt::<A> { counted: Counted::new(), _pinned: PhantomPinned }
        })
        .when(move |error: &String| *error == judged)
        .sleeping_on(Still::<Z>(PhantomData));
    match said {
        Said::Nothing => Box::pin(call.into_future()),
        Said::Options => {
            let (hook, mut noted) = (vec![7_u8; 100], Vec::new());
            let call = call
                .history()
                .data(vec![1_u8, 2, 3])
                .on_event(move |at, event| noted.push((at, *event, hook.len())))
                .strategy(|request: &Request<'_>| {
                    assert_eq!(request.data::<Vec<u8>>(), Some(&vec![1, 2, 3]));
                    let later = vec![10];
                    Decision::later(async move { Some(ms(later[0])) })
                });
            Box::pin(call.into_future())
        }
        Said::Hook => {
            let owned = vec![7_u8; 100];
            let call = call.on_event(move |_, event| {
                let fine = !matches!(event, redial::Event::AttemptCancelled { .. });
                assert!(fine && owned[99] == 7, "as told");
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

fn pends(call: &mut Call<'_>) {
    // A timer that fires gives others a turn before it counts: poll more than once.
    for _ in 0..3 {
        assert!(poll(call).is_pending());
    }
}

/// A policy with one retry after a sleep; each way of playing it.
fn policies() -> [(Policy, Said); 5] {
    let one = || Policy::constant(ms(10)).attempts(2);
    let build = |builder: redial::Builder<Policy>| builder.try_build().expect("valid");
    [
        (build(one()), Said::Nothing),
        (build(one().deadline(s(1))), Said::Nothing),
        (build(one().attempt_timeout(s(1))), Said::Nothing),
        (build(one()), Said::Options),
        (build(one().deadline(s(1))), Said::Options),
    ]
}

/// A path through the cell, for attempts made of `A` and sleeps made of `Z`.
trait Path {
    fn take<A: Body, Z: Body>();
}

fn every_size<P: Path>() {
    fn one<P: Path, A: Body, Z: Body>() {
        attempts_now(Does::Pend);
        sleeps_are_over(false);
        env(|env| env.explode.set((false, false)));
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

/// A test that takes a path.
macro_rules! path {
    ($name:ident, $take:expr) => {
        #[test]
        fn $name() {
            struct Withdrawal;
            impl Path for Withdrawal {
                fn take<A: Body, Z: Body>() {
                    $take(call::<A, Z>, hedged::<A, Z>);
                }
            }
            every_size::<Withdrawal>();
        }
    };
}

type Makes = for<'a> fn(&'a Policy, Said) -> Call<'a>;
type Hedges = for<'a> fn(&'a Hedged) -> Call<'a>;

/// The text of the panic that this ends with.
fn panics<T>(story: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(story)) else { panic!("it did not panic") };
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

path!(memory_success_at_first_poll, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        attempts_now(Does::Succeed);
        let mut call = make(&policy, said);
        assert!(succeeded(poll(&mut call)), "{policy:?}");
        assert_eq!(alive(), 0, "an attempt is dropped when it has answered");
    }
});

path!(memory_success_after_pending, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        attempts_now(Does::Pend);
        let mut call = make(&policy, said);
        pends(&mut call);
        attempts_now(Does::Succeed);
        assert!(succeeded(poll(&mut call)), "{policy:?}");
    }
});

path!(memory_failure_sleep_success, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        for pending in [false, true] {
            sleeps_are_over(false);
            attempts_now(if pending { Does::Pend } else { Does::Fail });
            let mut call = make(&policy, said);
            pends(&mut call);
            attempts_now(Does::Fail);
            pends(&mut call);
            sleeps_are_over(true);
            attempts_now(Does::Succeed);
            assert!(succeeded(poll(&mut call)), "{policy:?}, pending: {pending}");
        }
    }
});

path!(memory_elapsed_sleep_then_error, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        sleeps_are_over(true);
        attempts_now(Does::Fail);
        let mut call = make(&policy, said);
        assert!(failed(poll(&mut call), StopReason::AttemptsExhausted), "{policy:?}");
    }
});

path!(memory_immediate_failures, |make: Makes, _: Hedges| {
    for attempts in [1, 2, 40] {
        let policy = Policy::immediate().attempts(attempts).throttle(redial::Throttle::none());
        let policy = policy.try_build().expect("valid");
        for said in [Said::Nothing, Said::Options] {
            attempts_now(Does::Fail);
            // The strategy of the options asks for a delay.
            sleeps_are_over(true);
            let mut call = make(&policy, said);
            let ended = std::iter::repeat_with(|| poll(&mut call)).find(Poll::is_ready);
            assert!(
                ended.is_some_and(|polled| failed(polled, StopReason::AttemptsExhausted)),
                "{attempts}"
            );
        }
    }
});

path!(memory_drop_before_first_poll, |make: Makes, hedge: Hedges| {
    for (policy, said) in policies() {
        let call = make(&policy, said);
        // Until it is polled a future may be moved.
        drop(Box::new(call));
    }
    let policy = Policy::hedged(ms(1)).try_build().expect("valid");
    drop(hedge(&policy));
    assert_eq!(env(|env| env.made.get()), 0, "nothing was started");
});

path!(memory_drop_while_running_and_sleeping, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        for polls in 1..=3 {
            attempts_now(Does::Pend);
            sleeps_are_over(false);
            let mut call = make(&policy, said);
            pends(&mut call);
            if polls > 1 {
                attempts_now(Does::Fail);
                pends(&mut call);
            }
            if polls > 2 {
                attempts_now(Does::Pend);
                sleeps_are_over(true);
                assert!(poll(&mut call).is_pending());
                sleeps_are_over(false);
            }
            assert!(alive() > 0, "an attempt or a sleep");
            drop(call);
            assert_eq!((alive(), policy.tokens(0)), (0, Some(if polls > 2 { 9. } else { 10. })));
        }
    }
});

path!(memory_poll_after_completion_then_drop, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        attempts_now(Does::Succeed);
        let mut call = make(&policy, said);
        assert!(succeeded(poll(&mut call)));
        assert_eq!(panics(|| poll(&mut call)), "polled after completion");
        assert_eq!(panics(|| poll(&mut call)), "polled after completion");
    }
});

path!(memory_panic_when_an_attempt_starts, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        attempts_now(Does::Panic);
        let mut call = make(&policy, said);
        assert_eq!(panics(|| poll(&mut call)), "as told");
        drop(call);
        // The same for its retry, after a sleep.
        attempts_now(Does::Fail);
        sleeps_are_over(false);
        let mut call = make(&policy, said);
        pends(&mut call);
        attempts_now(Does::Panic);
        sleeps_are_over(true);
        assert_eq!(panics(|| (poll(&mut call), poll(&mut call))), "as told");
        drop(call);
        assert_eq!(alive(), 0, "{policy:?}");
    }
});

path!(memory_panic_when_an_attempt_is_polled, |make: Makes, _: Hedges| {
    for (policy, said) in policies() {
        attempts_now(Does::Pend);
        let mut call = make(&policy, said);
        pends(&mut call);
        attempts_now(Does::Panic);
        assert_eq!(panics(|| poll(&mut call)), "as told");
        assert!(alive() > 0, "it is still there");
        drop(call);
        assert_eq!(alive(), 0, "{policy:?}");
    }
});

path!(memory_panic_in_attempt_destructor, |make: Makes, _: Hedges| {
    let explode = |explode| env(|env| env.explode.set((explode, false)));
    for (policy, said) in policies() {
        for does in [Does::Succeed, Does::Fail] {
            attempts_now(Does::Pend);
            let mut call = make(&policy, said);
            pends(&mut call);
            // Dropped because it has answered, and what it answered with it.
            attempts_now(does);
            explode(true);
            assert_eq!(panics(|| poll(&mut call)), "an attempt explodes");
            explode(false);
            drop(call);
            assert_eq!(alive(), 0, "{policy:?}");
        }
        attempts_now(Does::Pend);
        let mut call = make(&policy, said);
        pends(&mut call);
        explode(true);
        assert_eq!(panics(|| drop(call)), "an attempt explodes");
        explode(false);
        assert_eq!(alive(), 0, "{policy:?}");
    }
});

path!(memory_panic_in_sleep_destructor, |make: Makes, _: Hedges| {
    let explode = |explode| env(|env| env.explode.set((false, explode)));
    for (policy, said) in policies() {
        for wakes in [false, true] {
            attempts_now(Does::Fail);
            sleeps_are_over(false);
            let mut call = make(&policy, said);
            pends(&mut call);
            explode(true);
            if wakes {
                sleeps_are_over(true);
                assert_eq!(panics(|| poll(&mut call)), "a sleep explodes");
                explode(false);
                drop(call);
            } else {
                assert_eq!(panics(|| drop(call)), "a sleep explodes");
                explode(false);
            }
            assert_eq!(alive(), 0, "{policy:?}, wakes: {wakes}");
        }
    }
});

path!(memory_panic_in_hook_during_drop, |make: Makes, _: Hedges| {
    for (policy, _) in policies() {
        attempts_now(Does::Pend);
        let mut call = make(&policy, Said::Hook);
        pends(&mut call);
        assert_eq!(panics(|| drop(call)), "as told");
        assert_eq!(alive(), 0, "what was pinned is dropped before its memory goes");
    }
});

path!(memory_hedges_beside_the_first_attempt, |_: Makes, hedge: Hedges| {
    let policy = Policy::hedged(ms(10)).attempts(4).deadline(s(1));
    let policy = policy.throttle(redial::Throttle::none()).build();
    let race = |hedges: i32| {
        attempts_now(Does::Pend);
        sleeps_are_over(false);
        let mut call = hedge(&policy);
        pends(&mut call);
        for _ in 0..hedges {
            // The first poll lets others have a turn, the second starts the hedge.
            sleeps_are_over(true);
            assert!(poll(&mut call).is_pending());
            sleeps_are_over(false);
            assert!(poll(&mut call).is_pending());
        }
        assert_eq!(alive(), 1 + hedges + 1, "attempts and the timer");
        call
    };
    for hedges in 0..=2 {
        // One of them answers, and the others are dropped with it.
        for winner in 0..=hedges {
            let mut call = race(hedges);
            attempts_now(Does::Succeed);
            env(|env| env.skips.set(winner));
            assert!(succeeded(poll(&mut call)));
            assert_eq!(alive(), 0, "though the call itself still lives");
        }
        // All of them fail, and so do those that replace them.
        let mut call = race(hedges);
        attempts_now(Does::Fail);
        assert!(failed(poll(&mut call), StopReason::AttemptsExhausted));
        drop(call);
        // All of them are dropped in flight; one destructor panics, or none.
        drop(race(hedges));
        assert_eq!(alive(), 0);
        let call = race(hedges);
        env(|env| env.explode.set((true, false)));
        assert_eq!(panics(|| drop(call)), "an attempt explodes");
        env(|env| env.explode.set((false, false)));
        assert_eq!(alive(), 0, "{hedges} hedges");
        // One of them panics when it is polled.
        let mut call = race(hedges);
        attempts_now(Does::Panic);
        assert_eq!(panics(|| poll(&mut call)), "as told");
        drop(call);
        assert_eq!(alive(), 0, "{hedges} hedges");
    }
});

path!(memory_deadline_cancels_a_running_attempt, |make: Makes, _: Hedges| {
    let policy = Policy::constant(ms(10)).deadline(ms(1)).try_build().expect("valid");
    for said in [Said::Nothing, Said::Options] {
        attempts_now(Does::Pend);
        sleeps_are_over(false);
        let mut call = make(&policy, said);
        pends(&mut call);
        sleeps_are_over(true);
        assert!(poll(&mut call).is_pending(), "an outcome of this moment would come first");
        let Poll::Ready(Err(error)) = poll(&mut call) else { panic!("the deadline is over") };
        assert_eq!((error.stop_reason(), error.into_last()), (StopReason::Deadline, None));
        assert_eq!(alive(), 0);
        // The same with a destructor that panics, and is not run again.
        sleeps_are_over(false);
        let mut call = make(&policy, said);
        pends(&mut call);
        sleeps_are_over(true);
        assert!(poll(&mut call).is_pending());
        env(|env| env.explode.set((true, false)));
        assert_eq!(panics(|| poll(&mut call)), "an attempt explodes");
        env(|env| env.explode.set((false, false)));
        drop(call);
        assert_eq!(alive(), 0);
    }
});

path!(memory_attempt_timeout_reuses_the_slot, |make: Makes, _: Hedges| {
    let policy = Policy::immediate().attempts(3).attempt_timeout(ms(1)).try_build().expect("valid");
    attempts_now(Does::Pend);
    sleeps_are_over(false);
    let mut call = make(&policy, Said::Nothing);
    pends(&mut call);
    for attempt in 1..=2 {
        assert_eq!(env(|env| env.made.get()), 2 * attempt, "an attempt and its timer each");
        sleeps_are_over(true);
        assert!(poll(&mut call).is_pending());
        sleeps_are_over(false);
        assert!(poll(&mut call).is_pending());
        assert_eq!(alive(), 2, "the next attempt and its timer");
    }
    attempts_now(Does::Succeed);
    assert!(succeeded(poll(&mut call)));
});

/// What the cell cannot know: that an error was what was asked for, or a value was not.
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
