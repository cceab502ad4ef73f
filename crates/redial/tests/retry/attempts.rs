//! Attempts: when the operation is called, which events hooks receive, and the bounds on its types.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use redial::testing::{Clock, block_on};
use redial::time::Sleeper;
use redial::{
    CallLog, Event, Hedged, Policy, StopReason, ms, s,
    strategy::{Decision, Request},
    time::Ns,
};

use crate::common::exact;

/// In another library, the closure is called by the constructor: a future that is dropped
/// without a poll has made a call, and one that is polled later has a stale one.
#[test]
fn attempt_starts_at_the_first_poll() {
    let policy = exact(Policy::constant(ms(10)).deadline(s(1)));
    let hedged: Hedged = Policy::hedged(ms(10)).try_build().expect("valid");
    let calls = Cell::new(0);
    let operation = || {
        calls.set(calls.get() + 1);
        async { Ok::<_, ()>(()) }
    };
    let plain = policy.retry(operation).when(|()| true).into_future();
    let machine = policy.retry(operation).when(|()| true).history().into_future();
    let raced = hedged.retry(operation).when(|()| true).into_future();
    let mut target = ();
    let target = policy.retry_on(&mut target, async |()| operation().await).when(|()| true);
    drop((plain, machine, raced, target));
    assert_eq!(calls.get(), 0);
    let call = policy.retry(operation).when(|()| true).sleeping_on(Clock);
    assert!(block_on(call.into_future()).is_ok());
    assert_eq!(calls.get(), 1);
}

/// In another library, the closure is called again before the sleep: a connection or a time that it
/// captures is stale when the attempt runs.
#[test]
fn attempt_starts_after_the_backoff_sleep_ends() {
    for machine in [false, true] {
        let policy = exact(Policy::constant(s(3600)).attempts(2));
        let began = Clock.now();
        let calls = RefCell::new(Vec::new());
        let call = policy.retry(|| {
            calls.borrow_mut().push((Clock.now() - began) / 1_000_000_000);
            async { Err::<(), _>(()) }
        });
        let call = call.when(|()| true).sleeping_on(Clock);
        let call = if machine { call.history() } else { call };
        let mut call = Box::pin(call.into_future());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..5 {
            assert!(call.as_mut().poll(&mut cx).is_pending());
            assert_eq!(calls.borrow().len(), 1, "machine: {machine}");
        }
        block_on(call).expect_err("it fails twice");
        assert_eq!(calls.into_inner(), [0, 3600], "machine: {machine}");
    }
}

/// In another library, each notification is a task of its own: it must be `Send` and `'static`,
/// comes in any order, and may come after the call.
#[test]
fn hook_receives_events_in_order_and_may_borrow() {
    let policy = exact(Policy::constant(ms(10)).attempts(3));
    let events: Mutex<Vec<(Ns, Event)>> = Mutex::new(Vec::new());
    let mut call_log = CallLog::new();
    let call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true);
    let call = call
        .on_event(|context, event| events.lock().expect("one thread").push((context.at, *event)));
    let call = call.call_log(&mut call_log).sleeping_on(Clock);
    block_on(call.into_future()).expect_err("it fails");
    let events = events.into_inner().expect("one thread");
    assert!(events.is_sorted_by_key(|(at, _)| *at));
    assert!(matches!(events.first(), Some((_, Event::CallStarted { .. }))));
    assert!(matches!(events.last(), Some((_, Event::CallEnded { .. }))));
    assert_eq!(events, call_log.events());
}

/// In another library, a service, its policy and its request are cloned for every call, though most
/// never retry, or everything must be `Send` and `'static`.
#[test]
#[allow(clippy::redundant_allocation)] // What is not `Send` and borrows is the point.
fn retry_needs_no_clone_send_or_static() {
    /// Neither `Clone` nor `Send`, and it borrows.
    struct Request<'a>(Rc<&'a str>);
    struct Gone<'a>(#[allow(dead_code)] Rc<&'a str>);
    let text = String::from("body");
    let request = Request(Rc::new(&text));
    let policy = exact(Policy::constant(ms(10)).attempts(2));
    let sent = Cell::new(0);
    let call = policy.retry(|| {
        sent.set(sent.get() + request.0.len());
        async { Err::<Rc<&str>, _>(Gone(request.0.clone())) }
    });
    let error = block_on(call.when(|_| true).sleeping_on(Clock).into_future());
    assert_eq!((error.expect_err("it fails").attempts(), sent.get()), (2, 8));
}

/// In another library, the hook counts attempts from 0 and the budget's event from 1.
#[test]
fn attempt_numbers_start_at_one() {
    let policy = Policy::constant(ms(10)).attempts(3).try_build().expect("valid");
    let (seen, asked, mut call_log) =
        (RefCell::new(Vec::new()), Mutex::new(Vec::new()), CallLog::new());
    let call = policy
        .retry_with(|attempt| {
            seen.borrow_mut().push(attempt.number());
            async { Err::<(), _>(()) }
        })
        .when(|()| true)
        .strategy(|request: &Request<'_>| {
            asked.lock().expect("one thread").push(request.retry_attempts());
            Decision::Retry(ms(1))
        })
        .history()
        .call_log(&mut call_log)
        .sleeping_on(Clock);
    let error = block_on(call.into_future()).expect_err("it fails");
    assert_eq!(seen.into_inner(), [1, 2, 3]);
    let started = |(_, event): &(Ns, Event)| match event {
        Event::AttemptStarted { attempt, number } => Some((*attempt, *number)),
        _ => None,
    };
    let started: Vec<_> = call_log.events().iter().filter_map(started).collect();
    assert_eq!(started, [(1, 1), (2, 2), (3, 3)]);
    let outcomes = |(_, event): &(Ns, Event)| match event {
        Event::AttemptOutcome { attempt, .. } => Some(*attempt),
        _ => None,
    };
    assert_eq!(call_log.events().iter().filter_map(outcomes).collect::<Vec<_>>(), [1, 2, 3]);
    let history: Vec<u32> = error.report().history.iter().map(|tried| tried.attempt).collect();
    assert_eq!((history, error.attempts()), (vec![1, 2, 3], 3));
    // A strategy counts retries: none, one, two.
    assert_eq!(asked.into_inner().expect("one thread"), [0, 1, 2]);
}

/// In another library, a retry without a delay goes through the timer, which costs a millisecond
/// and a park.
#[test]
fn retry_without_delay_runs_in_the_same_poll() {
    for machine in [false, true] {
        let policy = exact(Policy::immediate().attempts(5));
        let call = policy.retry(|| async { Err::<(), _>(()) }).when(|()| true);
        let call = call.sleeping_on(Reluctant);
        let call = if machine { call.history() } else { call };
        let mut call = Box::pin(call.into_future());
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(error)) = polled else { panic!("it sleeps, machine: {machine}") };
        assert_eq!(error.attempts(), 5);
    }
}

/// A timer that is ready at the second poll, as with most executors.
struct Reluctant;

impl Sleeper for Reluctant {
    type Sleep = std::future::Pending<()>;
    fn now(&self) -> Ns {
        0
    }
    fn sleep_until(&self, _: Ns) -> Self::Sleep {
        std::future::pending()
    }
}

#[tokio::test(start_paused = true)]
async fn context_returns_to_each_attempt() {
    static P: Policy = Policy::constant(ms(1)).attempts(4).build();
    let mut seen = Vec::new();
    let value = P
        .retry_with_context((&mut seen, "key"), |(seen, key), attempt| async move {
            seen.push(attempt.number());
            let result = if seen.len() < 3 { Err(()) } else { Ok(key.len()) };
            ((seen, key), result)
        })
        .when(|()| true)
        .await;
    assert_eq!((value.ok(), seen), (Some(3), vec![1, 2, 3]));
}

#[tokio::test(start_paused = true)]
async fn context_that_a_timeout_took_ends_the_call() {
    static P: Policy =
        Policy::constant(ms(1)).attempts(4).attempt_timeout(ms(5)).retry_timeouts().build();
    let error = P
        .retry_with_context(7, |context, _| async move {
            std::future::pending::<()>().await;
            (context, Ok::<u32, ()>(context))
        })
        .when(|()| true)
        .await
        .unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptTimeout, 1));
}
