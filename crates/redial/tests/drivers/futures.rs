//! Calls as futures: in `join!`, `select!`, `timeout` and `spawn`, not `Send`, nested, and boxed.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial::{CallLog, Hedged, Policy, StopReason, ms, s};

static TWICE: Policy = Policy::immediate().attempts(2).throttle(redial::Throttle::none()).build();
static SLOW: Policy = Policy::constant(s(1)).throttle(redial::Throttle::none()).build();
static HEDGED: Hedged = Policy::hedged(ms(5)).attempts(2).build();

fn second_time(calls: &AtomicU32) -> Result<u32, &'static str> {
    let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
    if call < 2 { Err("busy") } else { Ok(call) }
}

#[tokio::test(start_paused = true)]
async fn future_join_select_and_timeout_accept_a_retry() {
    let (a, b) = (AtomicU32::new(0), AtomicU32::new(0));
    let (one, two) = tokio::join!(
        TWICE.retry(|| async { second_time(&a) }).when(|_| true),
        TWICE.retry(|| async { second_time(&b) }).when(|_| true),
    );
    assert_eq!((one.ok(), two.ok()), (Some(2), Some(2)));

    let fast = tokio::select! {
        biased;
        _ = SLOW.retry(|| async { Err::<(), _>("busy") }).when(|_| true) => "slow",
        _ = TWICE.retry(|| async { Ok::<_, ()>(()) }).when(|()| true) => "fast",
    };
    assert_eq!(fast, "fast");

    let call = SLOW.retry(|| async { Err::<(), _>("busy") }).when(|_| true);
    assert!(tokio::time::timeout(ms(100), call).await.is_err(), "it waits for a second");
}

#[tokio::test(start_paused = true)]
async fn future_spawn_accepts_a_call_with_every_option() {
    let calls = Arc::new(AtomicU32::new(0));
    let shared = calls.clone();
    let operation = move || {
        let calls = shared.clone();
        async move {
            tokio::time::sleep(ms(1)).await;
            second_time(&calls)
        }
    };
    let plain = TWICE.retry(operation.clone()).when(|_| true);
    assert_eq!(tokio::spawn(plain.into_future()).await.expect("no panic").ok(), Some(2));
    let events = Arc::new(AtomicU32::new(0));
    let counter = events.clone();
    let full = TWICE
        .retry(operation.clone())
        .when(|_| true)
        .deadline(s(1))
        .history()
        .seed(7)
        .data("mine")
        .on_event(move |_, _| _ = counter.fetch_add(1, Ordering::Relaxed))
        .with_report();
    let (value, report) =
        tokio::spawn(full.into_future()).await.expect("no panic").expect("it is past the second");
    assert_eq!((value, report.attempts, report.history.len()), (3, 1, 1));
    assert!(events.load(Ordering::Relaxed) > 2);
    let hedged = HEDGED.retry(operation).when(|_| true);
    assert_eq!(tokio::spawn(hedged.into_future()).await.expect("no panic").ok(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn future_not_send_is_supported() {
    let local = tokio::task::LocalSet::new();
    let calls = Rc::new(Cell::new(0));
    let mine = calls.clone();
    let spawned = local.run_until(async move {
        let operation = move || {
            let calls = mine.clone();
            async move {
                calls.set(calls.get() + 1);
                tokio::task::yield_now().await;
                if calls.get() < 2 { Err(Rc::new("busy")) } else { Ok(calls) }
            }
        };
        let plain = TWICE.retry(operation.clone()).when(|_| true);
        let value = tokio::task::spawn_local(plain.into_future()).await.expect("no panic");
        let hedged = HEDGED.retry(operation).when(|_: &Rc<&str>| true).deadline(s(1));
        let hedged = tokio::task::spawn_local(hedged.into_future()).await.expect("no panic");
        (value.map(|calls| calls.get()).ok(), hedged.is_ok())
    });
    assert_eq!(spawned.await, (Some(3), true));
    assert_eq!(calls.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn future_calls_can_nest_and_be_boxed() {
    let inner = AtomicU32::new(0);
    let failing = async || {
        let result = TWICE.retry(|| async { Err::<(), _>("busy") }).when(|_| true).await;
        inner.fetch_add(1, Ordering::Relaxed);
        result
    };
    let call =
        TWICE.retry(failing).when(|error| error.stop_reason() == StopReason::AttemptsExhausted);
    let mut call_log = CallLog::new();
    let boxed: Pin<Box<dyn Future<Output = _>>> =
        Box::pin(call.call_log(&mut call_log).into_future());
    let error = boxed.await.expect_err("always busy");
    assert_eq!(error.attempts(), 2);
    let inner_error = error.into_last().expect("the inner one");
    assert_eq!((inner_error.attempts(), inner.into_inner()), (2, 2));
    assert!(!call_log.events().is_empty());
}

#[tokio::test(start_paused = true)]
async fn future_of_a_borrowing_call_can_be_spawned() {
    let task = async {
        let mut conn = 0_u32;
        let query = async |conn: &mut u32| {
            *conn += 1;
            tokio::task::yield_now().await;
            if *conn < 2 { Err("busy") } else { Ok(*conn) }
        };
        TWICE.retry_on(&mut conn, query).when(|_| true).await.ok()
    };
    assert_eq!(tokio::spawn(task).await.expect("no panic"), Some(2));
}

#[tokio::test(start_paused = true)]
async fn future_join_accepts_borrowing_calls() {
    let mut conns = [0_u32, 0];
    let [a, b] = &mut conns;
    let query = async |conn: &mut u32| {
        *conn += 1;
        tokio::task::yield_now().await;
        if *conn < 2 { Err("busy") } else { Ok(*conn) }
    };
    let (one, two) = tokio::join!(
        TWICE.retry_on(a, query).when(|_| true),
        TWICE.retry_on(b, query).when(|_| true),
    );
    assert_eq!((one.ok(), two.ok(), conns), (Some(2), Some(2), [2, 2]));
}

/// An output with the report, for which the clock is not read at the start.
enum Attempts {}

impl redial::parts::Output<u32> for Attempts {
    type Output = (u32, u32);
    const TIMED: bool = false;
    fn output(value: u32, report: impl FnOnce() -> redial::Report) -> (u32, u32) {
        (value, report().attempts)
    }
}

#[tokio::test]
async fn output_takes_the_report_of_an_immediate_success() {
    let call = redial::retry(|| async { Ok::<u32, ()>(7) }).when(|()| true);
    assert_eq!(call.with_output::<Attempts>().await.ok(), Some((7, 1)));
}
